// SPDX-License-Identifier: Apache-2.0
// The guide's AddKernelNpu.cpp. Its includes and five functions are as printed
// (AddKernelNpu.inc); the helpers it calls and does not print are ours.
#include <ATen/Tensor.h>
#include <c10/util/SmallVector.h>

#include "torch_npu/csrc/aten/NPUNativeFunctions.h"
#include "torch_npu/csrc/core/npu/register/OptionsManager.h"
#include "torch_npu/csrc/framework/utils/CalcuOpUtil.h"
#include "torch_npu/csrc/framework/utils/OpAdapter.h"

namespace at_npu {
namespace native {

int64_t calls_of_add = 0;

namespace {

void alpha_check_npu(const at::ScalarType dtype, at::Scalar alpha) {
  TORCH_CHECK(
      !alpha.isBoolean() || dtype == at::ScalarType::Bool,
      "Boolean alpha only supported for Boolean results.");
  TORCH_CHECK(
      at::isFloatingType(dtype) || alpha.isIntegral(true),
      "For integral input tensors, argument alpha must not be a floating "
      "point number.");
}

bool check_size(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes();
}

at::Tensor stride_add_tensor_get(const at::Tensor& t) {
  return t.contiguous();
}

at::Tensor add_dest_output(const at::Tensor& self, const at::Tensor& other) {
  return CalcuOpUtil::IsScalarWrappedToTensor(self) ? other : self;
}

at::Tensor& adds_out_npu_nocheck(
    at::Tensor& result,
    const at::Tensor& self,
    at::Scalar other,
    at::Scalar alpha) {
  ++calls_of_add;
  OpCommand cmd;
  cmd.Name("Add")
      .Input(self)
      .Input(
          at::Scalar(other.toDouble() * alpha.toDouble()), self.scalar_type())
      .Output(result)
      .Run();
  return result;
}

at::Tensor& add_out_npu_nocheck(
    at::Tensor& result,
    const at::Tensor& self,
    const at::Tensor& other,
    at::Scalar alpha) {
  ++calls_of_add;
  OpCommand cmd;
  if (CalcuOpUtil::IsScalarOne(alpha)) {
    cmd.Name("Add").Input(self).Input(other).Output(result).Run();
  } else {
    cmd.Name("AxpyV2")
        .Input(self)
        .Input(other)
        .Input(alpha, self.scalar_type())
        .Output(result)
        .Run();
  }
  return result;
}

}  // namespace

#include "AddKernelNpu.inc"

}  // namespace native
}  // namespace at_npu
