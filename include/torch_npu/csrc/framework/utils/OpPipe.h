// SPDX-License-Identifier: Apache-2.0
// A function that writes an output, around which memory is checked and copied.
#pragma once

#include <functional>
#include <initializer_list>

#include "torch_npu/csrc/framework/utils/NpuUtils.h"
#include "torch_npu/csrc/framework/utils/OpPreparation.h"

namespace at_npu::native {

template <class Derived>
class OpPipe {
 public:
  using PROCESS_FUNC = std::function<void(at::Tensor&)>;
  Derived& Func(const PROCESS_FUNC& function) {
    function_ = function;
    return static_cast<Derived&>(*this);
  }

 protected:
  PROCESS_FUNC function_;
};

class OpPipeWithDefinedOut : public OpPipe<OpPipeWithDefinedOut> {
 public:
  OpPipeWithDefinedOut& CheckMemory(
      const std::initializer_list<at::Tensor>& inputs,
      const std::initializer_list<at::Tensor>& outputs) {
    OpPreparation::CheckMemory(inputs, outputs);
    return *this;
  }
  at::Tensor& Call(at::Tensor& dst) {
    if (NpuUtils::check_match(&dst)) {
      function_(dst);
    } else {
      at::Tensor contiguous = NpuUtils::format_contiguous(dst);
      function_(contiguous);
      NpuUtils::format_fresh_view(dst, contiguous);
    }
    return dst;
  }
};

class OpPipeWithApplyOut : public OpPipe<OpPipeWithApplyOut> {
 public:
  OpPipeWithApplyOut& ApplyOutputSameAs(const at::Tensor& src) {
    result_ = OpPreparation::ApplyTensor(src);
    return *this;
  }
  at::Tensor& Call() {
    function_(result_);
    return result_;
  }

 private:
  at::Tensor result_;
};

}  // namespace at_npu::native
