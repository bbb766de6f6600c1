// SPDX-License-Identifier: Apache-2.0
// What attempts share: operands, outputs that begin as inputs, index errors.
#include "aten/ops/op.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "aten/core/copy.h"
#include "runtime/device.h"

namespace npu {

void begin_with(const at::Tensor& out, const at::Tensor& self) {
  if (!out.is_same(self)) {
    copy(out, self, false);
  }
}

bool is_ready(
    const at::Tensor& given,
    at::IntArrayRef sizes,
    c10::ScalarType dtype,
    std::initializer_list<const at::Tensor*> inputs) {
  return !given.defined() ||
         (given.is_privateuseone() && given.scalar_type() == dtype &&
          given.sizes() == sizes && given.is_non_overlapping_and_dense() &&
          std::none_of(
              inputs.begin(), inputs.end(), [&](const at::Tensor* input) {
                return input->defined() && given.is_alias_of(*input);
              }));
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
    Site& site,
    Call& call,
    c10::DeviceIndex device,
    IndexError error,
    Carry* carry) {
  try {
    return site.run(call, device, {.carry = carry});
  } catch (const c10::ValueError& refused) {
    TORCH_CHECK_INDEX(error == IndexError::kCpus, refused.msg());
    return kLeaveToCpu;
  }
}

}  // namespace npu
