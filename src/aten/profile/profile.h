// SPDX-License-Identifier: Apache-2.0
// Which overloads the imitated device runs natively.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace npu::profile {

struct Judgement {
  std::string reported;  // the overload Ascend's dispatcher would reach
  bool falls_back;       // and that one would leave the device
};

// Views and operators with a composite kernel never fall back themselves: they
// reach others. Throws when NPU_PROFILE names no profile.
Judgement judge(const c10::OperatorHandle& op);

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
