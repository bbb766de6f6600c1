// SPDX-License-Identifier: Apache-2.0
// The profile file, and the rule that turns it into a judgement.
#include "aten/profile/profile.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "aten/profile/facts.h"
#include "aten/profile/operator_name.h"
#include "aten/profile/policy.h"
#include "driver/env.h"
#include "driver/registry.h"
#include "runtime/error.h"

namespace npu::profile {
namespace {

constexpr const char* kNoProfile = "none";

// The profile a driver asks for; a driver that names none is a device of its
// own: what it has is native.
std::string default_profile() {
  const Driver* const driver = active_driver_or_null();
  const std::string named = driver != nullptr ? driver->default_profile() : "";
  return named.empty() ? kNoProfile : named;
}

// PyTorch's CPU kernels are this device's own.
bool device_is_cpu() {
  const Driver* const driver = active_driver_or_null();
  return driver != nullptr && driver->device_is_cpu();
}

std::string& data_dir() {
  static auto* const dir = new std::string;
  return *dir;
}

class Profile {
 public:
  Profile() : name_(env::text("NPU_PROFILE").value_or(default_profile())) {
    if (name_ == kNoProfile) {
      all_native_ = device_is_cpu();
      return;
    }
    const bool is_path = name_.find('/') != std::string::npos;
    read(is_path ? name_ : data_dir() + "/profiles/" + name_ + ".txt");
  }
  bool lists(const std::string& overload) const {
    return all_native_ || overloads_.count(overload) != 0;
  }
  bool all_native() const {
    return all_native_;
  }
  std::size_t size() const {
    return overloads_.size();
  }
  const std::string& name() const {
    return name_;
  }
  const std::string& device_name() const {
    return device_name_;
  }
  bool refuses(std::string_view feature) const {
    return refused_.count(std::string(feature)) != 0;
  }

 private:
  void read(const std::string& path) {
    std::ifstream file(path);
    TORCH_CHECK(
        file,
        "npu: NPU_PROFILE: '",
        name_,
        "' is not a profile (no file ",
        path,
        "). Use ascend910b, none, or the path of a file with one "
        "overload per line.",
        pta_error(Code::kValue));
    for (std::string line; std::getline(file, line);) {
      line.erase(line.find_last_not_of(" \t\r") + 1);
      if (line.empty() || line.front() == '#') {
        continue;
      }
      if (line.front() == '@') {
        read_fact(line);
      } else {
        const bool qualified = line.find("::") != std::string::npos;
        overloads_.insert(qualified ? line : "aten::" + line);
      }
    }
  }
  // "@device NAME" and "@refuses FEATURE".
  void read_fact(const std::string& line) {
    const auto space = line.find(' ');
    const std::string key = line.substr(0, space);
    const bool known = key == "@device" || key == "@refuses";
    TORCH_CHECK(
        known && space != std::string::npos,
        "npu: NPU_PROFILE: '",
        line,
        "' is not a line of a profile. Use '@device NAME', "
        "'@refuses FEATURE', or an overload.",
        pta_error(Code::kValue));
    const std::string value = line.substr(space + 1);
    if (key == "@device") {
      device_name_ = value;
    } else {
      refused_.insert(value);
    }
  }

  std::string name_;
  std::string device_name_;
  bool all_native_ = false;
  std::unordered_set<std::string> overloads_;
  std::unordered_set<std::string> refused_;
};

const Profile& active() {
  static const auto* const instance = new Profile;
  return *instance;
}

// Operators by base name, for finding the out= sibling of an overload.
const std::vector<c10::OperatorName>& overloads_of(const std::string& base) {
  using Index = std::unordered_map<std::string, std::vector<c10::OperatorName>>;
  static const auto* const index = [] {
    auto* const made = new Index;
    for (auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
      (*made)[name.name].push_back(name);
    }
    return made;
  }();
  static const std::vector<c10::OperatorName> none;
  const auto found = index->find(base);
  return found == index->end() ? none : found->second;
}

bool same_inputs(
    const c10::FunctionSchema& schema, const c10::FunctionSchema& out) {
  const auto& wanted = schema.arguments();
  std::size_t n = 0;
  bool has_out = false;
  for (const c10::Argument& argument : out.arguments()) {
    if (argument.is_out()) {
      has_out = true;
      continue;
    }
    if (n == wanted.size() || wanted[n].name() != argument.name() ||
        *wanted[n].type() != *argument.type()) {
      return false;
    }
    ++n;
  }
  return has_out && n == wanted.size();
}

// fmax -> fmax.out, add_.Tensor -> add.out, max.dim -> max.dim_max. Core
// derives the functional and the in-place form of a structured operator from
// its out= form, so that is what a device has to have.
std::string structured_target(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  std::string base = name.name;
  if (base.size() > 1 && base.back() == '_' && base[base.size() - 2] != '_') {
    base.pop_back();
  }
  for (const c10::OperatorName& candidate : overloads_of(base)) {
    const auto sibling = c10::Dispatcher::singleton().findSchema(candidate);
    if (sibling && same_inputs(op.schema(), sibling->schema())) {
      return full_name(candidate);
    }
  }
  return full_name(name);
}

// Views share memory and compute nothing: no device leaves them to the CPU.
bool is_view(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return std::any_of(
      returns.begin(), returns.end(), [](const c10::Argument& result) {
        const c10::AliasInfo* const alias = result.alias_info();
        return alias != nullptr && !alias->isWrite();
      });
}

}  // namespace

Judgement judge(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  const std::string name = full_name(op.operator_name());
  const bool structured = op.hasKernelForDispatchKey(
      DispatchKey::CompositeExplicitAutogradNonFunctional);
  if (structured) {
    const std::string target = structured_target(op);
    const bool native = active().lists(name) || active().lists(target);
    return {target, !native};
  }
  const bool composite =
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
      is_view(op.schema());
  return {name, !composite && !active().lists(name)};
}

void set_data_dir(const std::string& dir) {
  data_dir() = dir;
}

std::string name() {
  return active().name();
}

std::string device_name() {
  const bool chosen = env::text("NPU_PROFILE").has_value();
  return chosen || default_profile() != kNoProfile ? active().device_name()
                                                   : "";
}

bool refuses(std::string_view feature) {
  return active().refuses(feature);
}

std::string info() {
  static constexpr const char* kPolicies[] = {"warn", "silent", "error"};
  const Driver* const driver = active_driver_or_null();
  const std::string what =
      active().all_native() ? "everything is native"
      : active().name() == kNoProfile && driver != nullptr
          ? std::string("what driver ") + driver->name() + " has is native"
          : std::to_string(active().size()) + " overloads native";
  return active().name() + ": " + what + ", policy " +
         kPolicies[static_cast<int>(policy())];
}

std::vector<Explanation> explain(const std::string& name) {
  std::vector<Explanation> rows;
  std::string wanted = name;
  if (wanted.find("::") == std::string::npos) {
    wanted = "aten::" + wanted;
  }
  const std::string base =
      wanted.substr(0, wanted.find('.', wanted.find("::")));
  for (const c10::OperatorName& candidate : overloads_of(base)) {
    const auto op = c10::Dispatcher::singleton().findSchema(candidate);
    const std::string full = full_name(candidate);
    if (op && (wanted == base || wanted == full)) {
      const Judgement judgement = judge(*op);
      rows.push_back(
          {full, judgement.reported, judgement.falls_back, active().name()});
    }
  }
  return rows;
}

}  // namespace npu::profile
