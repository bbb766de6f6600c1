// SPDX-License-Identifier: Apache-2.0
// Storage formats by number.
#pragma once

#include "third_party/acl/inc/acl/acl.h"
#include "torch_npu/csrc/framework/utils/CalcuOpUtil.h"

namespace at_npu::native {

class NPU_NAMED_EXPORT FormatHelper {
 public:
  static aclFormat GetFormat(const at::Tensor& tensor);
  static aclFormat GetBaseFormat(const at::Tensor& tensor);
  static aclFormat GetBaseFormat(aclFormat format);
  static bool IsBaseFormatType(const at::Tensor& tensor);
  static bool IsBaseFormatType(aclFormat format);
  static bool IsPadded(const at::Tensor* tensor);
  template <class... Tensors>
  static bool IsOpInputBaseFormat(const Tensors&... tensors) {
    return (is_base(tensors) && ...);
  }

 private:
  static bool is_base(const at::Tensor& tensor) {
    return !tensor.defined() || IsBaseFormatType(tensor);
  }
  template <class Other>
  static bool is_base(const Other& /*unused*/) {
    return true;
  }
};

}  // namespace at_npu::native
