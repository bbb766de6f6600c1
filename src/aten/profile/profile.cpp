// SPDX-License-Identifier: Apache-2.0
// The profile file, and the rule that says how the imitated device supports an
// operator.
#include "aten/profile/profile.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "aten/profile/dtype_table.h"
#include "aten/profile/facts.h"
#include "aten/profile/operator_name.h"
#include "aten/profile/policy.h"
#include "driver/env.h"
#include "driver/registry.h"
#include "runtime/capabilities.h"
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

std::string& data_dir() {
  static auto* const dir = new std::string;
  return *dir;
}

class Profile {
 public:
  Profile() : name_(env::text("NPU_PROFILE").value_or(default_profile())) {
    if (name_ == kNoProfile) {
      all_native_ = twin_is_native();
      return;
    }
    const bool is_path = name_.find('/') != std::string::npos;
    // Shipped lists name operators of all versions of PyTorch.
    read(is_path ? name_ : shipped(name_), "NPU_PROFILE", is_path);
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
  const DtypeTable& dtypes() const {
    return dtypes_;
  }
  bool refuses(std::string_view feature) const {
    return refused_.count(std::string(feature)) != 0;
  }

 private:
  // Where a line was read.
  struct Place {
    const std::string& path;
    std::size_t line;
    bool only_known;
    unsigned file;
  };

  static std::string shipped(const std::string& name) {
    return data_dir() + "/profiles/" + name + ".txt";
  }
  // A name, or a path from the folder of the file that has the line.
  static std::string included(const std::string& value, const Place& at) {
    if (value.find('/') == std::string::npos) {
      return shipped(value);
    }
    return value.front() == '/'
               ? value
               : at.path.substr(0, at.path.find_last_of('/') + 1) + value;
  }

  void read(
      const std::string& path, const std::string& asked_by, bool only_known) {
    std::ifstream file(path);
    TORCH_CHECK(
        file,
        "npu: ",
        asked_by,
        ": '",
        files_ == 0 ? name_ : path,
        "' is not a profile (no file ",
        path,
        "). Use ascend910b, ascend910a, ascend310p, ascend910_93, none, or the "
        "path of a file with one overload per line.",
        pta_error(Code::kValue));
    Place place{path, 0, only_known, files_++};
    for (std::string line; std::getline(file, line);) {
      ++place.line;
      line.erase(line.find_last_not_of(" \t\r") + 1);
      if (line.empty() || line.front() == '#') {
        continue;
      }
      if (line.front() == '@') {
        read_fact(line, place);
      } else {
        read_overload(line, place);
      }
    }
  }
  void read_fact(const std::string& line, const Place& at) {
    const auto space = line.find(' ');
    const std::string key = line.substr(0, space);
    if (DtypeTable::reads(key)) {
      const std::string wrong = dtypes_.read(line, at.only_known, at.file);
      check_line(wrong.empty(), line, at, wrong.c_str());
      return;
    }
    const bool known =
        key == "@device" || key == "@refuses" || key == "@include";
    check_line(
        known && space != std::string::npos, line, at, "no line of a profile");
    const std::string value = line.substr(space + 1);
    if (key == "@device") {
      device_name_ = value;
    } else if (key == "@refuses") {
      refused_.insert(value);
    } else {
      check_line(
          files_ <= kMostFiles,
          line,
          at,
          "no line of a profile: the files include each other");
      read(
          included(value, at),
          at.path + ":" + std::to_string(at.line) + ": @include",
          at.only_known && value.find('/') != std::string::npos);
    }
  }
  void read_overload(const std::string& line, const Place& at) {
    const bool is_name = std::ranges::all_of(line, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == ':' || c == '.';
    });
    check_line(is_name, line, at, "no line of a profile");
    const bool qualified = line.find("::") != std::string::npos;
    const std::string name = qualified ? line : "aten::" + line;
    // Operators of other libraries may be defined later.
    const bool must_be_known = at.only_known && name.starts_with("aten::");
    check_line(
        !must_be_known || is_operator(name),
        line,
        at,
        "no overload of PyTorch's; 'opennpu explain NAME' lists those of a "
        "name");
    overloads_.insert(name);
  }
  static void check_line(
      bool good, const std::string& line, const Place& at, const char* wrong) {
    TORCH_CHECK(
        good,
        "npu: NPU_PROFILE: ",
        at.path,
        ":",
        at.line,
        ": '",
        line,
        "' is ",
        wrong,
        ". A line is '@include PROFILE', '@device NAME', '@refuses FEATURE', "
        "'@dtypes NAME = DTYPE...', '@lacks DTYPE...', "
        "'@takes DTYPE...: OPERATOR...', '@takes_at_least DTYPE...: "
        "OPERATOR...', an overload such as 'add.Tensor', or a comment that "
        "begins with #.",
        pta_error(Code::kValue));
  }
  static bool is_operator(const std::string& name) {
    const auto dot = name.find('.');
    return c10::Dispatcher::singleton()
        .findSchema(
            {name.substr(0, dot),
             dot == std::string::npos ? "" : name.substr(dot + 1)})
        .has_value();
  }

  static constexpr unsigned kMostFiles = 8;

  std::string name_;
  unsigned files_ = 0;
  std::string device_name_;
  bool all_native_ = false;
  std::unordered_set<std::string> overloads_;
  std::unordered_set<std::string> refused_;
  DtypeTable dtypes_;
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

// The kernel of a structured operator is the one of its out= form. Where the
// CPU has none (select_backward), the operator is composed of others, which are
// judged on their own.
bool computed_by_cpu_kernel(
    const c10::OperatorHandle& op, const std::string& target) {
  const std::size_t dot = target.find('.', target.find("::"));
  const auto out = c10::Dispatcher::singleton().findSchema(
      {target.substr(0, dot),
       dot == std::string::npos ? "" : target.substr(dot + 1)});
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
         (out && out->hasKernelForDispatchKey(c10::DispatchKey::CPU));
}

// The device has a kernel, and the CPU has none to fall back on. Operators of
// other namespaces, such as a pack's, are not in any profile: their kernel for
// the device is native.
bool never_on_cpu(const c10::OperatorHandle& op, const std::string& name) {
  using c10::DispatchKey;
  static constexpr DispatchKey kOnCpu[] = {
      DispatchKey::CPU,
      DispatchKey::SparseCPU,
      DispatchKey::SparseCsrCPU,
      DispatchKey::QuantizedCPU,
      DispatchKey::NestedTensorCPU};
  return op.hasKernelForDispatchKey(DispatchKey::PrivateUse1) &&
         (!name.starts_with("aten::") ||
          std::ranges::none_of(kOnCpu, [&op](DispatchKey key) {
            return op.hasKernelForDispatchKey(key);
          }));
}

}  // namespace

Support support_of(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  const std::string name = full_name(op.operator_name());
  const auto has = [&op](DispatchKey key) {
    return op.hasKernelForDispatchKey(key);
  };
  if (has(DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    const std::string target = structured_target(op);
    const bool native = active().lists(name) || active().lists(target);
    return {target, !native && computed_by_cpu_kernel(op, target)};
  }
  const bool composite = has(DispatchKey::CompositeExplicitAutograd) ||
                         has(DispatchKey::CompositeImplicitAutograd) ||
                         is_view(op.schema());
  return {name, !composite && !active().lists(name)};
}

std::optional<Dtypes> dtypes_of(const std::string& overload) {
  const DtypeTable& table = active().dtypes();
  if (table.empty() || !overload.starts_with("aten::")) {
    return std::nullopt;
  }
  const auto dot = overload.find('.');
  const auto op = c10::Dispatcher::singleton().findSchema(
      {overload.substr(0, dot),
       dot == std::string::npos ? "" : overload.substr(dot + 1)});
  if (!op || is_view(op->schema()) || support_of(*op).falls_back) {
    return std::nullopt;
  }
  return table.find(overload);
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
      const Support support = support_of(*op);
      rows.push_back(
          {full,
           support.reported,
           support.falls_back && !never_on_cpu(*op, full),
           active().name()});
    }
  }
  return rows;
}

}  // namespace npu::profile
