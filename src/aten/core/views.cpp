// SPDX-License-Identifier: Apache-2.0
// View operators. They touch no memory. PyTorch composes most of them of
// as_strided, through the dispatcher; those that every model uses are written
// out here and give the same sizes and strides. Unusual arguments (names, wrong
// dimensions) go to PyTorch's functions, which have the errors for them.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/expand_native.h>
#include <ATen/ops/permute_native.h>
#include <ATen/ops/select_native.h>
#include <ATen/ops/slice_native.h>
#include <ATen/ops/split_native.h>
#include <ATen/ops/t_native.h>
#include <ATen/ops/transpose_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/unsqueeze_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/torch_compat.h"

namespace npu {
namespace {

using c10::DimVector;
using c10::IntArrayRef;

// A plain strided tensor: what the functions below are for.
const c10::TensorImpl* plain_view_of(const at::Tensor& self) {
  const c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  return impl->has_storage() && !NPU_HAS_NAMES(self) ? impl : nullptr;
}

at::Tensor view_of(
    const c10::TensorImpl& self,
    IntArrayRef sizes,
    IntArrayRef strides,
    std::int64_t offset) {
  auto out = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW,
      c10::Storage(self.unsafe_storage()),
      self.key_set(),
      self.dtype());
  out->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(out));
}

// `dim` as an index; nothing when there is no such dimension of `n`.
std::optional<std::int64_t> index_of(std::int64_t dim, std::int64_t n) {
  const std::int64_t found = dim < 0 ? dim + n : dim;
  return found >= 0 && found < n ? std::optional(found) : std::nullopt;
}

at::Tensor swap(const c10::TensorImpl& self, std::int64_t a, std::int64_t b) {
  DimVector sizes(self.sizes());
  DimVector strides(self.strides());
  std::swap(sizes[a], sizes[b]);
  std::swap(strides[a], strides[b]);
  return view_of(self, sizes, strides, self.storage_offset());
}

at::Tensor transpose(const at::Tensor& self, std::int64_t a, std::int64_t b) {
  const c10::TensorImpl* const impl = plain_view_of(self);
  const auto first = index_of(a, self.dim());
  const auto second = index_of(b, self.dim());
  return C10_LIKELY(impl != nullptr && first && second)
             ? swap(*impl, *first, *second)
             : at::native::transpose(self, a, b);
}

at::Tensor t(const at::Tensor& self) {
  const c10::TensorImpl* const impl = plain_view_of(self);
  return C10_LIKELY(impl != nullptr && impl->dim() == 2) ? swap(*impl, 0, 1)
                                                         : at::native::t(self);
}

at::Tensor permute(const at::Tensor& self, IntArrayRef dims) {
  const c10::TensorImpl* const impl = plain_view_of(self);
  const std::int64_t n = self.dim();
  if (impl == nullptr || static_cast<std::int64_t>(dims.size()) != n) {
    return at::native::permute(self, dims);
  }
  DimVector sizes;
  DimVector strides;
  std::uint64_t seen = 0;
  for (const std::int64_t dim : dims) {
    const auto from = index_of(dim, n);
    const bool twice = from && *from < 64 && (seen >> *from & 1) != 0;
    if (!from || *from >= 64 || twice) {
      return at::native::permute(self, dims);
    }
    seen |= std::uint64_t{1} << *from;
    sizes.push_back(impl->sizes()[*from]);
    strides.push_back(impl->strides()[*from]);
  }
  return view_of(*impl, sizes, strides, impl->storage_offset());
}

bool has_contiguous_strides(const c10::TensorImpl& self) {
  std::int64_t step = 1;
  for (std::int64_t d = self.dim() - 1; d >= 0; --d) {
    if (self.strides()[d] != step) {
      return false;
    }
    step *= self.sizes()[d];
  }
  return true;
}

// The sizes with -1 replaced, and their contiguous strides; false when they do
// not hold `numel` elements.
bool resolve_sizes(DimVector& sizes, DimVector& strides, std::int64_t numel) {
  std::int64_t known = 1;
  std::int64_t* open = nullptr;
  for (std::int64_t& size : sizes) {
    if (size >= 0) {
      if (__builtin_mul_overflow(known, size, &known)) {
        return false;
      }
    } else if (size == -1 && open == nullptr) {
      open = &size;
    } else {
      return false;
    }
  }
  if (open != nullptr && known > 0) {
    *open = numel / known;
    known *= *open;
  }
  strides.resize(sizes.size());
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= sizes[d];
  }
  return known == numel;
}

at::Tensor view(const at::Tensor& self, IntArrayRef size) {
  const c10::TensorImpl* const impl = plain_view_of(self);
  if (impl != nullptr && impl->numel() != 0 && has_contiguous_strides(*impl)) {
    DimVector sizes(size);
    DimVector strides;
    if (resolve_sizes(sizes, strides, impl->numel())) {
      return view_of(*impl, sizes, strides, impl->storage_offset());
    }
  }
  return at::native::view(self, size);
}

at::Tensor piece_of(
    const c10::TensorImpl& self,
    std::int64_t dim,
    std::int64_t start,
    std::int64_t size,
    std::int64_t step) {
  DimVector sizes(self.sizes());
  DimVector strides(self.strides());
  const std::int64_t offset = self.storage_offset() + start * strides[dim];
  sizes[dim] = size;
  strides[dim] *= step;
  return view_of(self, sizes, strides, offset);
}

at::Tensor slice(
    const at::Tensor& self,
    std::int64_t dim,
    std::optional<std::int64_t> start,
    std::optional<std::int64_t> end,
    std::int64_t step) {
  const c10::TensorImpl* const impl = plain_view_of(self);
  const auto at = index_of(dim, self.dim());
  if (impl == nullptr || !at || step <= 0) {
    return at::native::slice(self, dim, start, end, step);
  }
  const std::int64_t size = impl->sizes()[*at];
  const auto inside = [size](std::int64_t index, std::int64_t least) {
    return std::clamp(index < 0 ? index + size : index, least, size);
  };
  const std::int64_t first = inside(start.value_or(0), 0);
  const std::int64_t last = inside(end.value_or(size), first);
  return piece_of(*impl, *at, first, (last - first + step - 1) / step, step);
}

std::vector<at::Tensor> split(
    const at::Tensor& self, std::int64_t size, std::int64_t dim) {
  const c10::TensorImpl* const impl = plain_view_of(self);
  const auto at = index_of(dim, self.dim());
  if (impl == nullptr || !at || size <= 0 || impl->sizes()[*at] == 0) {
    return at::native::split(self, size, dim);
  }
  const std::int64_t all = impl->sizes()[*at];
  std::vector<at::Tensor> pieces;
  pieces.reserve(static_cast<std::size_t>((all - 1) / size + 1));
  for (std::int64_t start = 0; start < all; start += size) {
    pieces.push_back(
        piece_of(*impl, *at, start, std::min(size, all - start), 1));
    if (size > all - start) {
      break;  // start + size may be too large a number
    }
  }
  return pieces;
}

at::Tensor select(
    const at::Tensor& self, std::int64_t dim, std::int64_t index) {
  const c10::TensorImpl* const impl = plain_view_of(self);
  const auto at = index_of(dim, self.dim());
  const auto which = at ? index_of(index, self.sizes()[*at]) : std::nullopt;
  if (impl == nullptr || !which) {
    return at::native::select_symint(self, dim, index);
  }
  DimVector sizes(impl->sizes());
  DimVector strides(impl->strides());
  const std::int64_t offset = impl->storage_offset() + *which * strides[*at];
  sizes.erase(sizes.begin() + *at);
  strides.erase(strides.begin() + *at);
  return view_of(*impl, sizes, strides, offset);
}

at::Tensor unsqueeze(const at::Tensor& self, std::int64_t dim) {
  const c10::TensorImpl* const impl = plain_view_of(self);
  const auto at = index_of(dim, self.dim() + 1);
  if (impl == nullptr || !at) {
    return at::native::unsqueeze(self, dim);
  }
  DimVector sizes(impl->sizes());
  DimVector strides(impl->strides());
  const std::int64_t stride =
      *at == impl->dim() ? 1 : sizes[*at] * strides[*at];
  sizes.insert(sizes.begin() + *at, 1);
  strides.insert(strides.begin() + *at, stride);
  return view_of(*impl, sizes, strides, impl->storage_offset());
}

at::Tensor expand(const at::Tensor& self, IntArrayRef size, bool implicit) {
  const c10::TensorImpl* const impl = plain_view_of(self);
  if (impl == nullptr || static_cast<std::int64_t>(size.size()) < self.dim()) {
    return at::native::expand(self, size, implicit);
  }
  const auto to =
      at::inferExpandGeometry_dimvector(impl->sizes(), impl->strides(), size);
  return view_of(*impl, to.sizes, to.strides, impl->storage_offset());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("t", TORCH_FN(t));
  m.impl("transpose.int", TORCH_FN(transpose));
  m.impl("permute", TORCH_FN(permute));
  m.impl("slice.Tensor", TORCH_FN(slice));
  m.impl("split.Tensor", TORCH_FN(split));
  m.impl("select.int", TORCH_FN(select));
  m.impl("unsqueeze", TORCH_FN(unsqueeze));
  m.impl("expand", TORCH_FN(expand));
}

}  // namespace npu
