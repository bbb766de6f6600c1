// SPDX-License-Identifier: Apache-2.0
// Copies of a call's tensors in host memory.
#include "tools/snapshot.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>

#include <cstring>

#include "core/host_memory.h"
#include "core/scan.h"

namespace optools {

namespace {

at::Tensor copy_dense(const at::Tensor& t, at::IntArrayRef strides) {
  const at::Tensor copy = pooled_tensor(t.sizes(), strides, t.scalar_type());
  if (t.device().is_cpu() && t.strides() == strides && !t.is_conj() &&
      !t.is_neg()) {
    std::memcpy(
        copy.mutable_data_ptr(),
        t.const_data_ptr(),
        static_cast<size_t>(t.numel()) * t.element_size());
  } else {
    copy.copy_(t);
  }
  return copy;
}

// What is repeated by a stride of zero is copied once.
at::Tensor copy_expanded(const at::Tensor& t) {
  at::Tensor small = t;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) == 0 && t.size(d) > 1) {
      small = small.narrow(d, 0, 1);
    }
  }
  return host_copy(small).expand(t.sizes());
}

bool is_expanded(const at::Tensor& t) {
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) == 0 && t.size(d) > 1) {
      return true;
    }
  }
  return false;
}

}  // namespace

at::Tensor host_copy(const at::Tensor& t) {
  at::Tensor copy;
  if (t.numel() == 0 || t.is_non_overlapping_and_dense()) {
    copy = copy_dense(t, t.strides());
  } else if (is_expanded(t)) {
    copy = copy_expanded(t);
  } else {
    copy = copy_dense(t, at::infer_dense_strides(t.sizes(), t.strides()));
  }
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

bool unchanged(const at::Tensor& now, const at::Tensor& copy) {
  if (now.strides() != copy.strides() || !now.is_non_overlapping_and_dense() ||
      now.numel() == 0) {
    return true;
  }
  // The copy of a conjugate or negative view has its bits resolved.
  const bool as_it_is = host_readable(now) && !now.is_conj() && !now.is_neg();
  const at::Tensor here = as_it_is ? now : host_copy(now);
  return std::memcmp(
             here.const_data_ptr(),
             copy.const_data_ptr(),
             static_cast<size_t>(now.numel()) * now.element_size()) == 0;
}

at::Tensor geometry(const at::Tensor& t) {
  const auto elements =
      static_cast<int64_t>(t.storage().nbytes() / t.element_size());
  auto empty = at::detail::empty_strided_meta({elements}, {1}, t.scalar_type());
  empty.unsafeGetTensorImpl()->set_sizes_and_strides(
      t.sizes(), t.strides(), t.storage_offset());
  empty._set_conj(t.is_conj());
  empty._set_neg(t.is_neg());
  return empty;
}

at::Tensor Copies::of(const at::Tensor& t) {
  for (const auto& [original, copy] : pairs_) {
    if (original.is_same(t)) {
      return copy;
    }
  }
  pairs_.emplace_back(t, host_copy(t));
  const at::Tensor& copy = pairs_.back().second;
  bytes_ += copy.storage().nbytes();
  true_strides_ =
      true_strides_ && copy.strides() == t.strides() && !is_expanded(t);
  return copy;
}

}  // namespace optools
