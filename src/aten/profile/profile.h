// SPDX-License-Identifier: Apache-2.0
// Which overloads the imitated device runs natively.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace npu::profile {

// How the imitated device supports an operator.
struct Support {
  std::string reported;  // the overload Ascend's dispatcher would reach
  bool falls_back;       // and that one would leave the device
};

// Views and operators with a composite kernel never fall back themselves: they
// reach others. Throws when NPU_PROFILE names no profile.
Support support_of(const c10::OperatorHandle& op);

// What the imitated device does with the dtypes of an operator it has: bits
// NPU_DTYPE_BIT. Of the rest the tables say nothing.
struct Dtypes {
  std::uint64_t native = 0;
  std::uint64_t refused = 0;
};
// Nothing where dtypes are not judged: the profile has no rows about them, the
// operator leaves the device whatever its dtype, or is none of PyTorch's.
// `overload`: "aten::add.Tensor".
std::optional<Dtypes> dtypes_of(const std::string& overload);

// What the profile says about an overload, or about all overloads of a name;
// empty when there is no such operator.
struct Explanation {
  std::string overload;
  std::string resolved;
  bool falls_back;
  std::string profile;
};
std::vector<Explanation> explain(const std::string& name);

}  // namespace npu::profile
