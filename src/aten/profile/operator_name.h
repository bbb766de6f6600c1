// SPDX-License-Identifier: Apache-2.0
// How an overload is named in profiles, reports and errors.
#pragma once

#include <ATen/core/operator_name.h>

#include <string>

namespace npu {

// "aten::add.Tensor"; "aten::relu" for an overload without a name.
inline std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name
                                    : name.name + "." + name.overload_name;
}

}  // namespace npu
