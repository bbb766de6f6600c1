// SPDX-License-Identifier: Apache-2.0
// Types, formats and scalars: the guide's spelling and today's.
#pragma once

#include <string>

#include "third_party/acl/inc/acl/acl.h"
#include "torch_npu/csrc/framework/utils/Shared.h"
#include "torch_npu/named_call.h"

namespace at_npu::native {

class NPU_NAMED_EXPORT CalcuOpUtil {
 public:
  static int64_t GetTensorNpuFormat(const at::Tensor& tensor);
  static bool IsScalarWrappedToTensor(const at::Tensor& tensor);
  static void CheckMemoryOverLaps(
      c10::ArrayRef<at::Tensor> inputs, c10::ArrayRef<at::Tensor> outputs);
  static float GetScalarFloatValue(const at::Scalar& scalar);
  static aclDataType ConvertToAclDataType(const at::ScalarType& type);
  static at::Tensor CopyScalarToDevice(
      const at::Scalar& scalar, at::ScalarType type);
  static at::Tensor CopyTensorHostToDevice(const at::Tensor& tensor);
  static bool IsTransposeLastTwoDims(const at::Tensor& tensor);
  static bool IsScalarOne(const at::Scalar& scalar);
  static int64_t MakeWrapDim(int64_t dim, int64_t dims);
  static std::string GetReductionStr(int64_t reduction);

  static int64_t get_tensor_npu_format(const at::Tensor& tensor) {
    return GetTensorNpuFormat(tensor);
  }
  static bool is_scalar_wrapped_to_tensor(const at::Tensor& tensor) {
    return IsScalarWrappedToTensor(tensor);
  }
  static void check_memory_over_laps(
      c10::ArrayRef<at::Tensor> inputs, c10::ArrayRef<at::Tensor> outputs) {
    CheckMemoryOverLaps(inputs, outputs);
  }
  static float get_scalar_float_value(const at::Scalar& scalar) {
    return GetScalarFloatValue(scalar);
  }
  static bool is_transpose_last_two_dims(const at::Tensor& tensor) {
    return IsTransposeLastTwoDims(tensor);
  }
  static bool is_scalar_one(const at::Scalar& scalar) {
    return IsScalarOne(scalar);
  }
  static int64_t make_wrap_dim(int64_t dim, int64_t dims) {
    return MakeWrapDim(dim, dims);
  }
  static std::string get_reduction_str(int64_t reduction) {
    return GetReductionStr(reduction);
  }
};

}  // namespace at_npu::native
