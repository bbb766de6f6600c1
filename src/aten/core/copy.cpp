// SPDX-License-Identifier: Apache-2.0
// copy_ and its relatives: on one device, to it and from it.
#include "aten/core/copy.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "aten/core/factories.h"
#include "aten/core/fast.h"
#include "aten/core/fill.h"
#include "aten/core/frame.h"
#include "aten/core/geometry.h"
#include "aten/core/host_view.h"
#include "aten/core/queue.h"
#include "aten/core/site.h"
#include "aten/core/transfer.h"
#include "driver/build_call.h"
#include "driver/registry.h"
#include "npu/validate.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu {

bool same_meaning(const at::Tensor& dst, const at::Tensor& src) {
  return dst.scalar_type() == src.scalar_type() && !src.is_conj() &&
         !src.is_neg();
}

bool same_bytes(const at::Tensor& dst, const at::Tensor& src) {
  if (!same_meaning(dst, src) || !dst.sizes().equals(src.sizes())) {
    return false;
  }
  if (dst.is_contiguous() && src.is_contiguous()) {
    return true;
  }
  return dst.strides().equals(src.strides()) &&
         dst.is_non_overlapping_and_dense();
}

at::TensorIterator make_copy_iterator(
    const at::Tensor& dst, const at::Tensor& src) {
  return at::TensorIteratorConfig()
      .add_output(dst)
      .add_const_input(src)
      .resize_outputs(false)
      .check_all_same_dtype(false)
      .check_all_same_device(false)
      .build();
}

namespace {

bool is_npu(const at::Tensor& tensor) {
  return tensor.device().type() == kDeviceType;
}

// Types without arithmetic (bits, sub-byte ones) move as integers.
npu_dtype dtype_of_size(std::size_t bytes) {
  switch (bytes) {
    case 1:
      return NPU_U8;
    case 2:
      return NPU_I16;
    case 4:
      return NPU_I32;
    case 8:
      return NPU_I64;
    case 16:
      return NPU_C128;
    default:
      return NPU_ABSENT;
  }
}

bool run_copy(
    const at::Tensor& dst, const at::Tensor& src, const Geometry<2>& geometry) {
  npu_tensor out = to_operand(dst);
  npu_tensor in = to_operand(src);
  geometry.apply(out, 0);
  geometry.apply(in, 1);
  if (out.dtype == NPU_ABSENT && same_meaning(dst, src)) {
    out.dtype = in.dtype = dtype_of_size(dst.element_size());
  }
  if (out.dtype == NPU_ABSENT || in.dtype == NPU_ABSENT) {
    return false;
  }
  const std::uint32_t known = active_driver().table().tensor_flags_known;
  if ((in.flags & (NPU_TENSOR_CONJ | NPU_TENSOR_NEG) & ~known) != 0) {
    return false;
  }
  if (npu_same_place(&in, &out)) {
    in.flags |= NPU_TENSOR_ALIAS;
    in.alias_of = 0;
  } else if (in.storage == out.storage && npu_ranges_meet(&in, &out)) {
    // m[:] = m[0]: drivers never get operands that overlap in part.
    return copy_with_kernel(dst, src.clone());
  }
  static Site site("aten::copy_", NPU_KIND_COPY, 0);
  Call call = site.call();
  build::copy(call, out, in);
  return site.run(call, dst.device().index()) == NPU_REASON_NONE;
}

void copy_bytes_on_device(const at::Tensor& dst, const at::Tensor& src) {
  void* const to = dst.data_ptr();
  const void* const from = src.data_ptr();
  if (to == from) {
    return;
  }
  queue_copy(
      ByteWork::kOnDevice,
      to,
      from,
      dst.nbytes(),
      dst.device().index(),
      "copy on the device");
}

void warn_when_imaginary_part_is_lost(
    const at::Tensor& dst, const at::Tensor& src) {
  if (src.is_complex() && !dst.is_complex() &&
      dst.scalar_type() != c10::kBool) {
    TORCH_WARN_ONCE(
        "Casting complex values to real discards the imaginary part");
  }
}

// Two plain tensors of one device that differ in nothing but their memory: no
// question of copy() can matter. False when they are not.
bool copy_plain(const at::Tensor& dst, const at::Tensor& src) {
  if (!dst.defined() || !src.defined()) {
    return false;
  }
  const c10::TensorImpl& to = *dst.unsafeGetTensorImpl();
  const c10::TensorImpl& from = *src.unsafeGetTensorImpl();
  if (to.device() != from.device() || to.device_type() != kDeviceType ||
      to.dtype() != from.dtype() || !is_plain_tensor(to) ||
      !is_plain_tensor(from) || to.sizes() != from.sizes() || to.numel() == 0 ||
      has_components(to) || has_components(from) || !to.has_storage() ||
      !from.has_storage()) {
    return false;
  }
  const c10::Storage& memory = to.unsafe_storage();
  if (memory.unsafeGetStorageImpl() ==
      from.unsafe_storage().unsafeGetStorageImpl()) {
    return false;
  }
  const auto item = static_cast<std::int64_t>(to.itemsize());
  const auto* const source =
      static_cast<const char*>(from.unsafe_storage().data()) +
      from.storage_offset() * item;
  queue_copy(
      ByteWork::kOnDevice,
      static_cast<char*>(memory.mutable_data()) + to.storage_offset() * item,
      source,
      static_cast<std::uint64_t>(to.numel() * item),
      to.device().index(),
      "copy on the device");
  return true;
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (!copy_plain(self, src)) {
    copy(self, src, non_blocking);
  }
  return self;
}

at::Tensor copy_from(
    const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  copy(dst, self, non_blocking);
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  at::native::resize_output(dst, self.sizes());
  copy(dst, self, false);
  return dst;
}

// A side that is no npu tensor has to be the host's.
void check_host_side(
    const at::Tensor& side, const at::Tensor& dst, const at::Tensor& src) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      side.device().is_cpu(),
      "npu: copy_: cannot copy from ",
      src.device(),
      " to ",
      dst.device(),
      ". Copy through the CPU.",
      ops_error(Code::kNotSupported));
}

}  // namespace

bool copy_with_kernel(const at::Tensor& dst, const at::Tensor& src) {
  return run_copy(dst, src, Geometry<2>(make_copy_iterator(dst, src)));
}

void copy_on_device(const at::Tensor& dst, const at::Tensor& src) {
  if (dst.numel() != 0 && same_bytes(dst, src) && !dst.is_alias_of(src)) {
    copy_bytes_on_device(dst, src);
    return;
  }
  const at::TensorIterator iter = make_copy_iterator(dst, src);
  if (dst.numel() == 0) {
    return;
  }
  if (same_bytes(dst, src)) {
    copy_bytes_on_device(dst, src);
    return;
  }
  const Geometry<2> geometry(iter);
  if (same_meaning(dst, src) && geometry.is_contiguous(0) &&
      geometry.is_contiguous(1)) {
    copy_bytes_on_device(dst, src);
    return;
  }
  if (run_copy(dst, src, geometry)) {
    return;
  }
  HostView to(dst, HostView::kWrite);
  const HostView from(src, HostView::kRead);
  to.tensor().copy_(from.tensor());
  to.write_back();
}

void copy(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  TORCH_CHECK(dst.defined(), "self is undefined");
  TORCH_CHECK(src.defined(), "src is undefined");
  if (dst.is_same(src)) {
    return;
  }
  TORCH_CHECK(
      !dst._is_zerotensor(),
      "ZeroTensors are immutable. Please materialize the tensor using "
      "`.clone()`, if you want a mutable zero tensor.");
  if (src._is_zerotensor()) {
    dst.zero_();
    return;
  }
  // What is to be stored under a bit is the value with that bit applied.
  if (dst.is_conj()) {
    return copy(dst.conj(), src.conj(), non_blocking);
  }
  if (dst.is_neg()) {
    // The sign changes in the dtype of dst: bytes and bools have none.
    const bool same = src.scalar_type() == dst.scalar_type();
    return copy(
        dst._neg_view(),
        (same ? src : src.to(dst.scalar_type()))._neg_view(),
        non_blocking);
  }
  warn_when_imaginary_part_is_lost(dst, src);
  if (dst.numel() == 0 && src.numel() == 0) {
    make_copy_iterator(dst, src);
  } else if (dst.device().is_meta()) {
    make_copy_iterator(dst, src);
  } else if (!is_npu(dst)) {
    check_host_side(dst, dst, src);
    copy_to_host(dst, src, non_blocking);
  } else if (!is_npu(src)) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !src.device().is_meta(), "Cannot copy out of meta tensor; no data!");
    check_host_side(src, dst, src);
    copy_from_host(dst, src, non_blocking);
  } else if (dst.device() == src.device()) {
    copy_on_device(dst, src);
  } else {
    copy_between_devices(dst, src);
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
}

// The copy kernels read both bits. PyTorch's fallbacks on these keys would
// clone first, and clone copies: without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace npu
