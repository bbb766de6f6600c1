// SPDX-License-Identifier: Apache-2.0
// The helpers of the compatibility headers (include/torch_npu/csrc).
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <bitset>

#include "aten/formats/formats.h"
#include "aten/formats/shape.h"
#include "runtime/error.h"
#include "runtime/stream.h"
#include "torch_npu/csrc/framework/utils/OpAdapter.h"

namespace at_npu::native {

using npu::Code;
using npu::ops_error;

// ---- CalcuOpUtil

int64_t CalcuOpUtil::GetTensorNpuFormat(const at::Tensor& tensor) {
  return tensor.device().type() == c10::kPrivateUse1 ? npu::format_of(tensor)
                                                     : int64_t{ACL_FORMAT_ND};
}
bool CalcuOpUtil::IsScalarWrappedToTensor(const at::Tensor& tensor) {
  return tensor.dim() == 0 && tensor.device().type() == c10::kCPU;
}
void CalcuOpUtil::CheckMemoryOverLaps(
    c10::ArrayRef<at::Tensor> inputs, c10::ArrayRef<at::Tensor> outputs) {
  for (const at::Tensor& out : outputs) {
    if (!out.defined()) {
      continue;
    }
    at::assert_no_internal_overlap(out);
    for (const at::Tensor& in : inputs) {
      if (in.defined()) {
        at::assert_no_partial_overlap(out, in);
      }
    }
  }
}
float CalcuOpUtil::GetScalarFloatValue(const at::Scalar& scalar) {
  return scalar.toFloat();
}
aclDataType CalcuOpUtil::ConvertToAclDataType(const at::ScalarType& type) {
  switch (type) {
    case at::kFloat:
      return ACL_FLOAT;
    case at::kHalf:
      return ACL_FLOAT16;
    case at::kChar:
      return ACL_INT8;
    case at::kInt:
      return ACL_INT32;
    case at::kByte:
      return ACL_UINT8;
    case at::kShort:
      return ACL_INT16;
    case at::kLong:
      return ACL_INT64;
    case at::kDouble:
      return ACL_DOUBLE;
    case at::kBool:
      return ACL_BOOL;
    case at::kComplexFloat:
      return ACL_COMPLEX64;
    case at::kComplexDouble:
      return ACL_COMPLEX128;
    case at::kBFloat16:
      return ACL_BF16;
    default:
      TORCH_CHECK(
          false,
          "dtype ",
          type,
          " has no aclDataType.",
          ops_error(Code::kType));
  }
}
at::Tensor CalcuOpUtil::CopyScalarToDevice(
    const at::Scalar& scalar, at::ScalarType type) {
  return CopyTensorHostToDevice(
      at::scalar_tensor(scalar, at::TensorOptions(type)));
}
at::Tensor CalcuOpUtil::CopyTensorHostToDevice(const at::Tensor& tensor) {
  return tensor.to(c10::Device(c10::kPrivateUse1));
}
bool CalcuOpUtil::IsTransposeLastTwoDims(const at::Tensor& tensor) {
  return tensor.dim() >= 2 && tensor.stride(-2) == 1 &&
         tensor.stride(-1) == tensor.size(-2);
}
bool CalcuOpUtil::IsScalarOne(const at::Scalar& scalar) {
  return scalar.equal(1);
}
int64_t CalcuOpUtil::MakeWrapDim(int64_t dim, int64_t dims) {
  return at::maybe_wrap_dim(dim, dims);
}
std::string CalcuOpUtil::GetReductionStr(int64_t reduction) {
  return reduction == 0 ? "none" : reduction == 1 ? "mean" : "sum";
}

// ---- NpuUtils

bool NpuUtils::check_match(const at::Tensor* tensor) {
  return tensor->is_contiguous();
}
at::Tensor NpuUtils::format_contiguous(const at::Tensor& source) {
  return source.contiguous();
}
at::Tensor NpuUtils::format_contiguous_add_copy_optimize(
    const at::Tensor& source) {
  return source.contiguous();
}
void NpuUtils::format_fresh_view(at::Tensor& x, const at::Tensor& y) {
  x.copy_(y);
}
bool NpuUtils::check_5d_5d_match(const at::Tensor& /*unused*/) {
  return false;
}
bool NpuUtils::is_npu(const at::Tensor& tensor) {
  return tensor.device().type() == c10::kPrivateUse1;
}

// ---- OpPreparation

namespace {

void check_output(
    const std::initializer_list<at::Tensor>& inputs,
    at::Tensor& output,
    at::ScalarType dtype,
    at::IntArrayRef shape) {
  CalcuOpUtil::CheckMemoryOverLaps(
      {inputs.begin(), inputs.size()}, {&output, std::size_t{1}});
  TORCH_CHECK(
      output.scalar_type() == dtype,
      "expected dtype ",
      dtype,
      " but got dtype ",
      output.scalar_type(),
      ops_error(Code::kType));
  if (output.sizes() != shape) {
    output.resize_(shape);
  }
}

at::Tensor with_format(
    at::IntArrayRef sizes, const c10::TensorOptions& options, int64_t format) {
  const c10::Device device = options.device();
  if (device.type() != c10::kPrivateUse1 || format < 0) {
    return at::empty(sizes, options.device(c10::kPrivateUse1));
  }
  return npu::make_with_format(
      sizes,
      c10::typeMetaToScalarType(options.dtype()),
      device.has_index() ? device.index()
                         : at::empty({0}, options).device().index(),
      format);
}

UnifiedResult checked(at::Tensor& out, at::ScalarType type, bool overlap) {
  if (overlap) {
    at::assert_no_internal_overlap(out);
  }
  UnifiedResult result;
  result.common_type = type;
  result.common_shape = out.sizes();
  result.result_type_defined = true;
  return result;
}

}  // namespace

UnifiedResult OpPreparation::binary_op_check(
    at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool overlap) {
  return checked(
      out, c10::promoteTypes(a.scalar_type(), b.scalar_type()), overlap);
}
UnifiedResult OpPreparation::comparison_op_check(
    at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool overlap) {
  return binary_op_check(out, a, b, overlap);
}
UnifiedResult OpPreparation::unary_op_check(
    at::Tensor& out, const at::Tensor& a, bool overlap) {
  return checked(out, a.scalar_type(), overlap);
}
void OpPreparation::nullary_op(at::Tensor& out) {
  at::assert_no_internal_overlap(out);
}
UnifiedResult OpPreparation::reduce_op_check(
    at::Tensor& out, const at::Tensor& a) {
  return checked(out, a.scalar_type(), true);
}
UnifiedResult OpPreparation::reduce_op_check(
    at::Tensor& out1, at::Tensor& out2, const at::Tensor& a) {
  at::assert_no_internal_overlap(out2);
  return checked(out1, a.scalar_type(), true);
}
void OpPreparation::CheckOut(
    const std::initializer_list<at::Tensor>& inputs,
    at::Tensor& output,
    at::Tensor dst) {
  check_output(inputs, output, dst.scalar_type(), dst.sizes());
}
void OpPreparation::CheckOut(
    const std::initializer_list<at::Tensor>& inputs,
    at::Tensor& output,
    at::Tensor dst,
    at::IntArrayRef shape) {
  check_output(inputs, output, dst.scalar_type(), shape);
}
void OpPreparation::CheckOut(
    const std::initializer_list<at::Tensor>& inputs,
    at::Tensor& output,
    int64_t /*format*/,
    at::ScalarType dtype,
    at::IntArrayRef shape) {
  check_output(inputs, output, dtype, shape);
}
void OpPreparation::check_tensor(
    const std::initializer_list<at::Tensor>& inputs,
    at::Tensor& output,
    at::Tensor expect) {
  check_output(inputs, output, expect.scalar_type(), expect.sizes());
}
void OpPreparation::check_tensor(
    const std::initializer_list<at::Tensor>& inputs,
    at::Tensor& output,
    at::IntArrayRef expect_size) {
  check_output(inputs, output, output.scalar_type(), expect_size);
}
void OpPreparation::check_tensor(
    const std::initializer_list<at::Tensor>& inputs,
    at::Tensor& output,
    at::Tensor expect,
    at::IntArrayRef expect_size) {
  check_output(inputs, output, expect.scalar_type(), expect_size);
}
void OpPreparation::check_tensor(
    const std::initializer_list<at::Tensor>& inputs,
    at::Tensor& output,
    at::ScalarType expect_dtype,
    at::IntArrayRef expect_size) {
  check_output(inputs, output, expect_dtype, expect_size);
}
void OpPreparation::CheckMemory(
    const std::initializer_list<at::Tensor>& inputs,
    const std::initializer_list<at::Tensor>& outputs) {
  CalcuOpUtil::CheckMemoryOverLaps(
      {inputs.begin(), inputs.size()}, {outputs.begin(), outputs.size()});
}
at::Tensor OpPreparation::CastBackToOriFormat(const at::Tensor& tensor) {
  return npu::cast_format(tensor, npu::format::base_of(npu::format_of(tensor)));
}
at::Tensor& OpPreparation::CastBackToOriFormat(at::Tensor& tensor) {
  tensor = CastBackToOriFormat(static_cast<const at::Tensor&>(tensor));
  return tensor;
}
at::Tensor OpPreparation::ApplyTensor(const at::Tensor& src) {
  return ApplyTensor(src, src.sizes());
}
at::Tensor OpPreparation::ApplyTensor(
    const at::Tensor& src, at::IntArrayRef sizes) {
  return ApplyTensorWithFormat(
      sizes, src.options(), CalcuOpUtil::GetTensorNpuFormat(src));
}
at::Tensor OpPreparation::ApplyTensor(
    const at::Tensor& src, const c10::TensorOptions& options) {
  return ApplyTensorWithFormat(
      src.sizes(), options, CalcuOpUtil::GetTensorNpuFormat(src));
}
at::Tensor OpPreparation::ApplyTensor(
    at::IntArrayRef sizes,
    const c10::TensorOptions& options,
    const at::Tensor& src) {
  return ApplyTensorWithFormat(
      sizes, options, CalcuOpUtil::GetTensorNpuFormat(src));
}
at::Tensor OpPreparation::ApplyTensorWithFormat(
    const at::Tensor& src, int64_t format, bool /*keep*/) {
  return with_format(src.sizes(), src.options(), format);
}
at::Tensor OpPreparation::ApplyTensorWithFormat(
    const at::Tensor& src,
    at::IntArrayRef sizes,
    int64_t format,
    bool /*keep*/) {
  return with_format(sizes, src.options(), format);
}
at::Tensor OpPreparation::ApplyTensorWithFormat(
    at::IntArrayRef sizes,
    const c10::TensorOptions& options,
    int64_t format,
    bool /*keep*/) {
  return with_format(sizes, options, format);
}
at::Tensor OpPreparation::ApplyTensorWithSizes(
    at::IntArrayRef sizes, const c10::TensorOptions& options) {
  return at::empty(sizes, options);
}
bool OpPreparation::IsCPUScalar(const at::Tensor& tensor) {
  return CalcuOpUtil::IsScalarWrappedToTensor(tensor);
}
bool OpPreparation::is_scalar_wrapped_to_tensor(const at::Tensor& tensor) {
  return CalcuOpUtil::IsScalarWrappedToTensor(tensor);
}
int64_t OpPreparation::get_tensor_npu_format(const at::Tensor& tensor) {
  return CalcuOpUtil::GetTensorNpuFormat(tensor);
}

// ---- FormatHelper

aclFormat FormatHelper::GetFormat(const at::Tensor& tensor) {
  return static_cast<aclFormat>(CalcuOpUtil::GetTensorNpuFormat(tensor));
}
aclFormat FormatHelper::GetBaseFormat(aclFormat format) {
  return static_cast<aclFormat>(npu::format::base_of(format));
}
aclFormat FormatHelper::GetBaseFormat(const at::Tensor& tensor) {
  return GetBaseFormat(GetFormat(tensor));
}
bool FormatHelper::IsBaseFormatType(aclFormat format) {
  return GetBaseFormat(format) == format;
}
bool FormatHelper::IsBaseFormatType(const at::Tensor& tensor) {
  return IsBaseFormatType(GetFormat(tensor));
}
bool FormatHelper::IsPadded(const at::Tensor* tensor) {
  return !IsBaseFormatType(*tensor);
}

// ---- sizes

c10::SmallVector<int64_t, SIZE> array_to_small_vector(at::IntArrayRef shape) {
  return {shape.begin(), shape.end()};
}
c10::SmallVector<int64_t, SIZE> broadcast_ops_npu_output_size(
    at::IntArrayRef a, at::IntArrayRef b) {
  return array_to_small_vector(at::infer_size_dimvector(a, b));
}
c10::SmallVector<int64_t, SIZE> broadcast_ops_npu_output_size(
    const at::Tensor& a, const at::Tensor& b) {
  return broadcast_ops_npu_output_size(a.sizes(), b.sizes());
}
c10::SmallVector<int64_t, SIZE> reduce_ops_npu_output_size(
    const at::Tensor& self, at::IntArrayRef dims, bool keepdim) {
  const auto reduced = dims.empty() ? std::bitset<64>().set()
                                    : at::dim_list_to_bitset(dims, self.dim());
  c10::SmallVector<int64_t, SIZE> result;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (!reduced[static_cast<std::size_t>(i)]) {
      result.push_back(self.size(i));
    } else if (keepdim) {
      result.push_back(1);
    }
  }
  return result;
}

// ---- OpCommand

OpCommand& OpCommand::Name(const std::string& name) {
  name_ = name;
  return *this;
}
OpCommand& OpCommand::Input() {
  inputs_.emplace_back();
  return *this;
}
OpCommand& OpCommand::Input(
    const at::Tensor& input,
    const std::string& /*name*/,
    const std::optional<aclFormat>& /*format*/,
    const std::string& /*real*/) {
  inputs_.emplace_back(input);
  return *this;
}
OpCommand& OpCommand::InputWithoutContiguous(
    const at::Tensor& input,
    const std::string& /*name*/,
    const std::string& /*real*/) {
  return Input(input);
}
OpCommand& OpCommand::Inputs(const at::TensorList& tensors) {
  inputs_.emplace_back(tensors.vec());
  return *this;
}
OpCommand& OpCommand::Input(
    const at::Scalar& input, at::ScalarType type, CompileType /*when*/) {
  if (c10::isFloatingType(type)) {
    inputs_.emplace_back(input.toDouble());
  } else if (c10::isComplexType(type)) {
    inputs_.emplace_back(input.toComplexDouble());
  } else if (type == at::kBool) {
    inputs_.emplace_back(input.toBool());
  } else {
    inputs_.emplace_back(input.toLong());
  }
  return *this;
}
OpCommand& OpCommand::Input(
    const at::IntArrayRef& list,
    at::ScalarType /*type*/,
    CompileType /*when*/,
    const std::string& /*real*/,
    const std::string& /*name*/) {
  inputs_.emplace_back(list.vec());
  return *this;
}
OpCommand& OpCommand::Input(
    const c10::ArrayRef<double>& list,
    at::IntArrayRef /*shape*/,
    at::ScalarType /*type*/,
    CompileType /*when*/,
    const std::string& /*real*/) {
  inputs_.emplace_back(list.vec());
  return *this;
}
OpCommand& OpCommand::Output(
    at::Tensor& output,
    const std::string& /*name*/,
    const std::optional<aclFormat>& /*format*/,
    const std::string& /*real*/) {
  outputs_.push_back(output);
  return *this;
}
OpCommand& OpCommand::add_attribute(
    const std::string& name, c10::IValue value) {
  attributes_.emplace_back(name, std::move(value));
  return *this;
}
OpCommand& OpCommand::Sync() {
  sync_ = true;
  return *this;
}
OpCommand& OpCommand::SetCustomHandler(std::function<int()> handler) {
  handler_ = std::move(handler);
  return *this;
}
void OpCommand::Run() {
  if (handler_) {
    RunOpApi(name_, std::move(handler_), sync_);
    return;
  }
  npu::named::run(name_, std::move(inputs_), attributes_, outputs_);
  if (sync_) {
    npu::synchronize_stream(npu::current_stream());
  }
}
void OpCommand::RunOpApi(
    const std::string& name, std::function<int()> handler, bool sync) {
  RunOpApiV2(name, handler, sync);
}
void OpCommand::RunOpApiV2(
    const std::string& name, const std::function<int()>& handler, bool sync) {
  const int answer = handler();
  TORCH_CHECK(
      answer == 0, name, " failed with ", answer, ".", ops_error(Code::kAcl));
  if (sync) {
    npu::synchronize_stream(npu::current_stream());
  }
}

}  // namespace at_npu::native
