// SPDX-License-Identifier: Apache-2.0
// Which overloads the imitated device runs natively.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace npu::ladder {

struct Judgement {
  std::string reported;  // the overload Ascend's dispatcher would reach
  bool falls_back;       // and that one would leave the device
};

// Views and operators with a composite kernel never fall back themselves: they
// reach others. Throws when NPU_PROFILE names no profile.
Judgement judge(const c10::OperatorHandle& op);

}  // namespace npu::ladder
