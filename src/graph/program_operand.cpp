// SPDX-License-Identifier: Apache-2.0
// Operands of recorded frames.
#include "graph/program_operand.h"

#include <cstring>

#include "npu/validate.h"

namespace npu::graph {
namespace {

std::uint32_t low_bits(const void* pointer) {
  return static_cast<std::uint32_t>(
      reinterpret_cast<std::uintptr_t>(pointer) % 256);
}

}  // namespace

std::optional<ProgramOperand> operand_of(
    const FrameCopy& frame, const npu_tensor& tensor) {
  const std::optional<Ref> data = frame.place_of(&tensor.data);
  const std::optional<Ref> storage = frame.place_of(&tensor.storage);
  if (!data || !storage ||
      (tensor.flags & (NPU_TENSOR_CONJ | NPU_TENSOR_NEG)) != 0 ||
      tensor.format != 0) {
    return std::nullopt;
  }
  ProgramOperand made;
  made.tensor = tensor;
  made.dtype = tensor.dtype;
  made.sizes.assign(tensor.sizes, tensor.sizes + tensor.ndim);
  made.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  made.data = {*data};
  made.storage = {*storage};
  made.low_bits = {
      low_bits(tensor.storage != nullptr ? tensor.storage : tensor.data)};
  made.contiguous = (tensor.flags & NPU_TENSOR_CONTIGUOUS) != 0;
  return made;
}

std::optional<ProgramOperand> operand_of(
    const FrameCopy& frame, const npu_list& list) {
  if (list.data == nullptr || list.tensors != nullptr || list.flags != 0) {
    return std::nullopt;
  }
  ProgramOperand made;
  made.dtype = list.dtype;
  made.contiguous = true;
  for (std::uint32_t i = 0; i < list.n; ++i) {
    const std::optional<Ref> ref = frame.place_of(&list.data[i]);
    if (!ref) {
      return std::nullopt;
    }
    made.data.push_back(*ref);
    made.low_bits.push_back(low_bits(list.data[i]));
    made.sizes.push_back(list.numel[i]);
  }
  return made;
}

bool crosses(const ProgramOperand& a, const ProgramOperand& b) {
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    for (std::size_t k = 0; k < b.data.size(); ++k) {
      if (a.data[i].buffer == b.data[k].buffer &&
          !(i == k && a.data[i] == b.data[k] &&
            npu_dtype_bytes(a.dtype) == npu_dtype_bytes(b.dtype) &&
            a.sizes == b.sizes && a.strides == b.strides)) {
        return true;
      }
    }
  }
  return false;
}

std::optional<npu_scalar> number_at(npu_dtype dtype, const void* data) {
  npu_scalar made{NPU_SCALAR_FLOAT, 0, 0, 0, 0};
  const auto take = [&]<class T>(T value) {
    std::memcpy(&value, data, sizeof(value));
    return value;
  };
  switch (dtype) {
    case NPU_F32:
      made.re = static_cast<double>(take(float{}));
      break;
    case NPU_F64:
      made.re = take(double{});
      break;
    case NPU_I64:
      made.kind = NPU_SCALAR_INT;
      made.i = take(std::int64_t{});
      made.re = static_cast<double>(made.i);
      break;
    case NPU_BOOL:
      made.kind = NPU_SCALAR_BOOL;
      made.i = take(std::uint8_t{}) != 0 ? 1 : 0;
      made.re = static_cast<double>(made.i);
      break;
    default:
      return std::nullopt;
  }
  return made;
}

bool ProgramOperand::same_place(const ProgramOperand& other) const {
  return dtype == other.dtype && sizes == other.sizes &&
         strides == other.strides && data == other.data;
}

}  // namespace npu::graph
