// SPDX-License-Identifier: Apache-2.0
// The out= form of an operator that is written by hand as a function.
#pragma once

#include <ATen/core/Tensor.h>

#include "aten/core/copy.h"

namespace npu {

template <class>
struct OutForm;
template <class... Arguments>
struct OutForm<at::Tensor(Arguments...)> {
  template <at::Tensor (*kFunction)(Arguments...)>
  static at::Tensor& run(Arguments... arguments, at::Tensor& out) {
    const at::Tensor result = kFunction(arguments...);
    out.resize_(result.sizes());
    copy(out, result, false);
    return out;
  }
};

// m.impl("mm.dtype_out", out_form<&mm_as>)
template <auto kFunction>
constexpr auto out_form = &OutForm<
    std::remove_pointer_t<decltype(kFunction)>>::template run<kFunction>;

}  // namespace npu
