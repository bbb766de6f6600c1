// SPDX-License-Identifier: Apache-2.0
// Replacing the tensors inside a call's values.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

namespace optools {

// The same value with each defined tensor replaced by `change(tensor)`.
template <class F>
c10::IValue map_tensors(const c10::IValue& value, F&& change) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? c10::IValue(change(tensor)) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorList()) {
      list.push_back(tensor.defined() ? change(tensor) : tensor);
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor :
         value.toOptionalTensorList()) {
      list.push_back(
          tensor && tensor->defined() ? std::optional(change(*tensor))
                                      : tensor);
    }
    return list;
  }
  return value;
}

}  // namespace optools
