// SPDX-License-Identifier: Apache-2.0
// Names of parameters and buffers, by the memory they lie in.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace optools {

// A later name for the same elements replaces the earlier one.
void name_tensor(const at::Tensor& t, const std::string& name);

// The name of the first tensor, where it has one, and `more`.
void name_after(
    const at::Tensor& named, const at::Tensor& t, const std::string& more);

// A number of label_text(); 0 for a tensor that is no parameter or buffer, nor
// a view of one.
uint32_t tensor_label(const at::Tensor& t);
std::string label_text(uint32_t label);

}  // namespace optools
