// SPDX-License-Identifier: Apache-2.0
// ditorch's atol and rtol.
#include "tools/tolerances.h"

#include <algorithm>
#include <cctype>

namespace optools {
namespace {

std::string capitals(const std::string& name) {
  const auto dot = name.rfind('.');
  std::string last = dot == std::string::npos ? name : name.substr(dot + 1);
  std::transform(last.begin(), last.end(), last.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  return last;
}

}  // namespace

WantedTolerance::WantedTolerance(
    const Tolerances& all, const std::string& op_name, const std::string& by)
    : tolerances(all), op(capitals(op_name)), api(capitals(by)) {}

// The more is said, the more it counts: name and dtype, dtype, all.
Tolerance tolerance_of(c10::ScalarType dtype, const void* context) {
  const auto& wanted = *static_cast<const WantedTolerance*>(context);
  using Key = Tolerances::key_type;
  for (const auto& key :
       {Key{wanted.api.empty() ? wanted.op : wanted.api, dtype},
        Key{wanted.op, dtype},
        Key{"", dtype},
        Key{"", c10::ScalarType::Undefined}}) {
    if (const auto it = wanted.tolerances.find(key);
        it != wanted.tolerances.end()) {
      return it->second;
    }
  }
  return default_tolerance(dtype);
}

}  // namespace optools
