// SPDX-License-Identifier: Apache-2.0
// ditorch's atol and rtol, which say nothing about a verdict.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "core/verdict.h"

namespace optools {

// By operator or API name in capitals ("LINEAR"; empty for all) and dtype
// (Undefined for all).
using Tolerances = std::map<std::pair<std::string, c10::ScalarType>, Tolerance>;

// Those of one call: its operator, and the API it was made through.
struct WantedTolerance {
  WantedTolerance(
      const Tolerances& all, const std::string& op, const std::string& api);

  const Tolerances& tolerances;
  std::string op;
  std::string api;
};

// `context` is a WantedTolerance.
Tolerance tolerance_of(c10::ScalarType dtype, const void* context);

}  // namespace optools
