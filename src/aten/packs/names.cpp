// SPDX-License-Identifier: Apache-2.0
#include "aten/packs/names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <mutex>
#include <unordered_map>

#include "aten/custom/custom.h"
#include "torch_npu/named_call.h"

namespace npu::named {
namespace {

// Without case and underscores.
std::string folded(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c != '_') {
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return result;
}

struct Table {
  std::unordered_map<std::string, std::string> by_folded;
  std::unordered_map<std::string_view, const Renamed*> by_name;

  Table() {
    // Public names of ATen before those with an underscore in front.
    for (const bool hidden : {false, true}) {
      for (const c10::OperatorName& op :
           c10::Dispatcher::singleton().getAllOpNames()) {
        if (op.name.rfind("aten::", 0) == 0) {
          add("aten", op.name.substr(6), hidden);
        }
      }
      for (const custom::Operator& op : custom::operators()) {
        if (std::string_view(op.ns) == "npu") {
          add("npu", op.name, hidden);
        }
      }
    }
    for (const Renamed& row : renamed()) {
      by_name.emplace(row.name, &row);
    }
  }

  void add(const std::string& ns, std::string_view bare, bool hidden) {
    if ((bare.front() == '_') != hidden || bare.back() == '_') {
      return;
    }
    const std::string whole = ns + "::" + std::string(bare);
    by_folded.emplace(folded(bare), whole);
    if (bare.rfind("npu_", 0) == 0) {
      by_folded.emplace(folded(bare.substr(4)), whole);
    }
  }

  std::string find(const std::string& name) const {
    const auto at = by_folded.find(name);
    return at == by_folded.end() ? "" : at->second;
  }
};

const Table& table() {
  static const auto* const made = new Table;
  return *made;
}

bool drop_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix || text.size() == prefix.size()) {
    return false;
  }
  text.remove_prefix(prefix.size());
  return true;
}

// "AddV2" to "Add".
std::string_view without_version(std::string_view name) {
  const std::size_t digits = name.find_last_not_of("0123456789");
  if (digits == std::string_view::npos || digits + 1 == name.size() ||
      digits == 0 || name[digits] != 'V') {
    return name;
  }
  return name.substr(0, digits);
}

constexpr std::array<std::string_view, 14> kSuffixes = {
    "tensorscalar",
    "tensortensor",
    "scalartensor",
    "scalarlist",
    "weightnz",
    "tensor",
    "scalar",
    "value",
    "list",
    "impl",
    "dim",
    "out",
    "d",
    "s"};

std::string without_suffix(const std::string& name) {
  for (const std::string_view suffix : kSuffixes) {
    if (name.size() > suffix.size() &&
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0) {
      std::string found =
          table().find(name.substr(0, name.size() - suffix.size()));
      if (!found.empty()) {
        return found;
      }
    }
  }
  return "";
}

std::string by_rule(std::string_view name) {
  const std::string whole = folded(name);
  std::string found = table().find(whole);
  if (found.empty()) {
    found = without_suffix(whole);
  }
  // "TanhGrad", "AddGradV2": backward.
  if (found.empty() && whole.size() > 4 &&
      whole.compare(whole.size() - 4, 4, "grad") == 0) {
    found = table().find(whole.substr(0, whole.size() - 4) + "backward");
  }
  return found;
}

}  // namespace

Meaning find_meaning(std::string_view name) {
  Meaning result;
  result.overload = "*";
  const auto& by_name = table().by_name;
  const auto listed = [&](std::string_view key) {
    const auto at = by_name.find(key);
    if (at == by_name.end()) {
      return false;
    }
    const std::string_view target = at->second->target;
    const std::size_t dot = target.find('.');
    result.op = std::string(target.substr(0, dot));
    if (result.op.find("::") == std::string::npos) {
      result.op = "aten::" + result.op;
    }
    if (dot != std::string_view::npos) {
      result.overload = std::string(target.substr(dot + 1));
    }
    result.arguments = at->second->arguments;
    return true;
  };
  if (listed(name)) {
    return result;
  }
  std::string_view bare = name;
  drop_prefix(bare, "aclnn");
  result.inplace = drop_prefix(bare, "Inplace");
  const std::string_view plain = without_version(bare);
  // Rows without a prefix serve both interfaces.
  if (listed(bare) || (plain != bare && listed(plain))) {
    return result;
  }
  result.op = by_rule(bare);
  if (result.op.empty()) {
    result.op = by_rule(plain);
  }
  return result;
}

namespace {

std::function<void(const std::string&)>& definer() {
  static auto* const made = new std::function<void(const std::string&)>;
  return *made;
}

std::unordered_map<std::string, std::vector<c10::OperatorName>> all_names() {
  std::unordered_map<std::string, std::vector<c10::OperatorName>> result;
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    result[name.name].push_back(name);
  }
  return result;
}

bool has_out(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(
      schema.arguments(), [](const c10::Argument& a) { return a.is_out(); });
}

}  // namespace

void set_definer(std::function<void(const std::string&)> made) {
  definer() = std::move(made);
}

std::vector<c10::OperatorHandle> overloads_of(const Meaning& meaning) {
  static std::mutex mutex;
  static auto* const known =
      new std::unordered_map<std::string, std::vector<c10::OperatorName>>(
          all_names());
  const std::string name = meaning.op + (meaning.inplace ? "_" : "");
  std::vector<c10::OperatorName> names;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto at = known->find(name);
    if (at != known->end()) {
      names = at->second;
    }
  }
  if (names.empty() && name.rfind("npu::", 0) == 0 && definer()) {
    definer()(name.substr(5));
    auto found = all_names();
    const std::lock_guard<std::mutex> lock(mutex);
    *known = std::move(found);
    names = (*known)[name];
  }
  std::vector<c10::OperatorHandle> result;
  for (const c10::OperatorName& each : names) {
    const auto op = c10::Dispatcher::singleton().findSchema(each);
    if (op && !has_out(op->schema()) &&
        (meaning.overload == "*" || meaning.overload == each.overload_name)) {
      result.push_back(*op);
    }
  }
  return result;
}

std::string meaning(const std::string& name) {
  const Meaning found = find_meaning(name);
  return found.op.empty() ? "" : found.op + (found.inplace ? "_" : "");
}

}  // namespace npu::named
