// SPDX-License-Identifier: Apache-2.0
// What attempts share: operands, outputs that begin as inputs, index errors.
#include "aten/ops/op.h"

#include <ATen/ops/scalar_tensor.h>

#include "aten/core/copy.h"
#include "runtime/device.h"

namespace npu {

const at::Tensor& begin_with(Outputs& out, const at::Tensor& self) {
  const at::Tensor& result = out.at(0);
  if (!result.is_same(self)) {
    copy(result, self, false);
  }
  return result;
}

npu_tensor input_operand(const at::Tensor& input, const at::Tensor& out) {
  npu_tensor operand = to_operand(input);
  if (input.is_same(out) ||
      (input.is_alias_of(out) && input.data_ptr() == out.data_ptr() &&
       input.strides() == out.strides())) {
    operand.flags |= NPU_TENSOR_ALIAS;
    operand.alias_of = 0;
  }
  return operand;
}

npu_tensor optional_operand(const std::optional<at::Tensor>& input) {
  return input && input->defined() ? to_operand(*input) : npu_tensor{};
}

NumberOperand::NumberOperand(const c10::Scalar& value, const at::Tensor& like)
    : value_(at::scalar_tensor(
          value, c10::TensorOptions(like.scalar_type()).device(c10::kCPU))),
      operand_() {
  operand_.data = operand_.storage = value_.data_ptr();
  operand_.storage_bytes = value_.nbytes();
  operand_.numel = 1;
  operand_.dtype = to_npu_dtype(value_.scalar_type());
  operand_.flags =
      NPU_TENSOR_HOST_SCALAR | NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  operand_.device = driver_device(like.device().index());
}

npu_reason run_checked(
    NativeSite& site,
    Call& call,
    const at::Tensor& on,
    IndexError error,
    Carry* carry) {
  try {
    return site.run(call, on.device().index(), {.carry = carry});
  } catch (const c10::ValueError& refused) {
    TORCH_CHECK_INDEX(error == IndexError::kCpus, refused.msg());
    return kOdd;
  }
}

}  // namespace npu
