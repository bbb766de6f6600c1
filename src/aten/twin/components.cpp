// SPDX-License-Identifier: Apache-2.0
// Sparse, compressed, quantised and nested tensors, member by member.
//
// Their public constructors go through the dispatcher and would come back
// here, so the Impl is built directly.
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "aten/core/copy.h"
#include "aten/twin/call.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace npu::twin {
namespace {

using at::QTensorImpl;
using at::SparseCsrTensorImpl;
using at::SparseTensorImpl;
using at::native::NestedTensorImpl;
using c10::DispatchKey;
using c10::DispatchKeySet;

// Where a tensor is going.
struct Side {
  c10::Device device;
  DispatchKey sparse, compressed, quantized, nested;
};

Side twin_side(const TwinCall& call) {
  const Twin& twin = call.twin();
  return {
      call.twin_device(),
      twin.key_of(DispatchKey::SparsePrivateUse1),
      twin.key_of(DispatchKey::SparseCsrPrivateUse1),
      twin.key_of(DispatchKey::QuantizedPrivateUse1),
      twin.key_of(DispatchKey::NestedTensorPrivateUse1)};
}

Side npu_side(c10::Device device) {
  return {
      device,
      DispatchKey::SparsePrivateUse1,
      DispatchKey::SparseCsrPrivateUse1,
      DispatchKey::QuantizedPrivateUse1,
      DispatchKey::NestedTensorPrivateUse1};
}

bool is_compressed(const at::Tensor& tensor) {
  const c10::Layout layout = tensor.layout();
  return layout == c10::kSparseCsr || layout == c10::kSparseCsc ||
         layout == c10::kSparseBsr || layout == c10::kSparseBsc;
}

template <class Convert>
at::Tensor move_sparse(
    const SparseTensorImpl& from, const Side& to, const Convert& convert) {
  const c10::DeviceGuard guard(to.device);
  auto impl = c10::make_intrusive<SparseTensorImpl>(
      DispatchKeySet(to.sparse), from.dtype());
  impl->raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
  impl->set_indices_and_values_unsafe(
      convert(from.indices_), convert(from.values_));
  impl->set_coalesced(from.coalesced());
  return at::Tensor(std::move(impl));
}

template <class Convert>
at::Tensor move_compressed(
    const at::Tensor& tensor, const Side& to, const Convert& convert) {
  auto& from = static_cast<SparseCsrTensorImpl&>(*tensor.unsafeGetTensorImpl());
  const c10::DeviceGuard guard(to.device);
  auto impl = c10::make_intrusive<SparseCsrTensorImpl>(
      DispatchKeySet(to.compressed), to.device, from.layout(), from.dtype());
  impl->set_member_tensors(
      convert(from.compressed_indices()),
      convert(from.plain_indices()),
      convert(from.values()),
      from.sizes());
  return at::Tensor(std::move(impl));
}

// Scale and zero point are numbers, or tensors that have to move too.
template <class Convert>
at::QuantizerPtr move_quantizer(
    const at::QuantizerPtr& quantizer, const Convert& convert) {
  if (quantizer->qscheme() != at::kPerChannelAffine &&
      quantizer->qscheme() != at::kPerChannelAffineFloatQParams) {
    return quantizer;
  }
  const auto& from =
      static_cast<const at::PerChannelAffineQuantizer&>(*quantizer);
  at::Tensor scales = convert(from.scales());
  at::Tensor zero_points = convert(from.zero_points());
  if (quantizer->qscheme() == at::kPerChannelAffine) {
    return c10::make_intrusive<at::PerChannelAffineQuantizer>(
        quantizer->scalar_type(), scales, zero_points, from.axis());
  }
  return c10::make_intrusive<at::PerChannelAffineFloatQParamsQuantizer>(
      quantizer->scalar_type(), scales, zero_points, from.axis());
}

template <class Convert>
at::Tensor move_quantized(
    const at::Tensor& tensor,
    const Side& to,
    c10::Storage storage,
    const Convert& convert) {
  auto& from = static_cast<QTensorImpl&>(*tensor.unsafeGetTensorImpl());
  auto impl = c10::make_intrusive<QTensorImpl>(
      std::move(storage),
      DispatchKeySet(to.quantized),
      from.dtype(),
      move_quantizer(from.quantizer(), convert));
  impl->set_sizes_and_strides(
      from.sizes(), from.strides(), from.storage_offset());
  return at::Tensor(std::move(impl));
}

// Sizes, strides and offsets of a nested tensor are CPU tensors everywhere.
at::Tensor move_nested(
    TwinCall& call,
    const at::Tensor& tensor,
    const Side& to,
    c10::Storage storage) {
  const NestedTensorImpl& from = *at::native::get_nested_tensor_impl(tensor);
  for (const at::Tensor& shape :
       {from.get_nested_sizes(),
        from.get_nested_strides(),
        from.get_storage_offsets()}) {
    call.remember(shape, shape, false);
  }
  return at::Tensor(c10::make_intrusive<NestedTensorImpl>(
      std::move(storage),
      // As PyTorch makes them: matmul has a formula under this key only.
      DispatchKeySet({to.nested, DispatchKey::AutogradNestedTensor}),
      from.dtype(),
      from.get_nested_sizes(),
      from.get_nested_strides(),
      from.get_storage_offsets()));
}

// The integers of a quantised tensor: the same bytes, without the quantiser.
at::Tensor integers_of(const at::Tensor& tensor) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(tensor.storage()),
      DispatchKeySet(
          tensor.is_cpu() ? DispatchKey::CPU : DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(c10::toUnderlying(tensor.scalar_type())));
  impl->set_sizes_and_strides(
      tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return at::Tensor(std::move(impl));
}

// What copy_ of quantised tensors ends in. It has given dst the quantiser of
// src, whose scales may be tensors on the other device.
at::Tensor copy_quantized(
    const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  copy(integers_of(dst), integers_of(src), non_blocking);
  auto& to = static_cast<QTensorImpl&>(*dst.unsafeGetTensorImpl());
  to.set_quantizer_(move_quantizer(
      to.quantizer(),
      [&](const at::Tensor& member) { return member.to(dst.device()); }));
  return dst;
}

[[noreturn]] void refuse_layout(const at::Tensor& tensor) {
  TORCH_CHECK(
      false,
      "npu: layout ",
      tensor.layout(),
      " is not available on the npu device. Keep the tensor strided, or work "
      "on the CPU.",
      ops_error(Code::kNotSupported));
}

template <class Convert, class ConvertStorage>
at::Tensor move_components(
    TwinCall& call,
    const at::Tensor& tensor,
    const Side& to,
    const Convert& convert,
    const ConvertStorage& convert_storage) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (tensor.is_sparse()) {
    return move_sparse(static_cast<const SparseTensorImpl&>(impl), to, convert);
  }
  if (is_compressed(tensor)) {
    return move_compressed(tensor, to, convert);
  }
  if (tensor.is_quantized()) {
    return move_quantized(
        tensor, to, convert_storage(impl.unsafe_storage()), convert);
  }
  if (tensor.is_nested()) {
    return move_nested(
        call, tensor, to, convert_storage(impl.unsafe_storage()));
  }
  refuse_layout(tensor);
}

}  // namespace

at::Tensor components_to_twin(
    TwinCall& call, const at::Tensor& original, const Arg& arg) {
  return move_components(
      call,
      original,
      twin_side(call),
      [&](const at::Tensor& member) { return call.to_twin(member, arg); },
      [&](const c10::Storage& s) { return call.storage_to_twin(s, arg); });
}

at::Tensor components_to_npu(TwinCall& call, const at::Tensor& twin) {
  return move_components(
      call,
      twin,
      npu_side(call.device()),
      [&](const at::Tensor& member) { return call.to_npu(member); },
      [&](const c10::Storage& s) { return call.storage_to_npu(s); });
}

void write_back_components(
    TwinCall& call, const at::Tensor& original, const at::Tensor& twin) {
  if (original.is_same(twin)) {
    return;
  }
  if (original.is_sparse()) {
    const auto& from =
        static_cast<const SparseTensorImpl&>(*twin.unsafeGetTensorImpl());
    auto& to = static_cast<SparseTensorImpl&>(*original.unsafeGetTensorImpl());
    to.raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
    to.set_indices_and_values_unsafe(
        call.to_npu(from.indices_), call.to_npu(from.values_));
    to.set_coalesced(from.coalesced());
  } else if (is_compressed(original)) {
    auto& from = static_cast<SparseCsrTensorImpl&>(*twin.unsafeGetTensorImpl());
    auto& to =
        static_cast<SparseCsrTensorImpl&>(*original.unsafeGetTensorImpl());
    to.set_member_tensors(
        call.to_npu(from.compressed_indices()),
        call.to_npu(from.plain_indices()),
        call.to_npu(from.values()),
        from.sizes());
  } else if (original.is_quantized()) {
    auto& from = static_cast<QTensorImpl&>(*twin.unsafeGetTensorImpl());
    auto& to = static_cast<QTensorImpl&>(*original.unsafeGetTensorImpl());
    to.set_quantizer_(move_quantizer(
        from.quantizer(),
        [&](const at::Tensor& member) { return call.to_npu(member); }));
  }
}

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_quantized));
}

}  // namespace npu::twin
