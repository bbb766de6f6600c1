// SPDX-License-Identifier: Apache-2.0
// A tensor's contents as dense bytes.
#include "core/tensor_bytes.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/host_memory.h"
#include "core/torch_compat.h"

namespace optools {
namespace {

template <class Word>
char* gather_row(const char* from, char* to, int64_t count, int64_t stride) {
  const auto* words = reinterpret_cast<const Word*>(from);
  for (int64_t i = 0; i < count; ++i, to += sizeof(Word)) {
    std::memcpy(to, words + i * stride, sizeof(Word));
  }
  return to;
}

struct Pair16 {
  uint64_t words[2];
};

char* gather_elements(
    const char* from, char* to, int64_t count, int64_t stride, size_t item) {
  switch (item) {
    case 1:
      return gather_row<uint8_t>(from, to, count, stride);
    case 2:
      return gather_row<uint16_t>(from, to, count, stride);
    case 4:
      return gather_row<uint32_t>(from, to, count, stride);
    case 8:
      return gather_row<uint64_t>(from, to, count, stride);
    case 16:
      return gather_row<Pair16>(from, to, count, stride);
    default:
      for (int64_t i = 0; i < count; ++i, to += item) {
        std::memcpy(to, from + i * stride * static_cast<int64_t>(item), item);
      }
      return to;
  }
}

// Copies the elements of a packed form, in its order.
void gather(const DenseForm& form, const char* base, char* to, size_t item) {
  const int last = static_cast<int>(form.sizes.size()) - 1;
  const int64_t row = form.sizes[last];
  const int64_t stride = form.strides[last];
  const auto width = static_cast<int64_t>(item);
  c10::SmallVector<int64_t, 6> at(form.sizes.size(), 0);
  for (int64_t done = 0; done < form.elements; done += row) {
    if (stride == 1) {
      std::memcpy(to, base, row * width);
      to += row * width;
    } else {
      to = gather_elements(base, to, row, stride, item);
    }
    for (int d = last - 1; d >= 0; --d) {
      base += form.strides[d] * width;
      if (++at[d] < form.sizes[d]) {
        break;
      }
      base -= form.sizes[d] * form.strides[d] * width;
      at[d] = 0;
    }
  }
}

}  // namespace

DenseForm dense_form(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  DenseForm form;
  int64_t elements = 1;
  int64_t span = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    elements *= sizes[d];
    span += (sizes[d] - 1) * strides[d];
  }
  if (elements == 0) {
    return form;
  }
  if (span <= elements) {
    form.elements = span;
    return form;
  }
  form.packed = true;
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return strides[a] > strides[b];
  });
  form.elements = 1;
  for (const size_t d : order) {
    if (sizes[d] != 1 && strides[d] != 0) {
      form.sizes.push_back(sizes[d]);
      form.strides.push_back(strides[d]);
      form.elements *= sizes[d];
    }
  }
  return form;
}

const char* unreadable(const at::Tensor& t) {
  const auto* impl = t.unsafeGetTensorImpl();
  if (t.is_nested()) {
    return "nested";
  }
  if (t.layout() != c10::kStrided) {
    return "sparse";
  }
  if (t.is_quantized()) {
    return "quantised";
  }
  if (t.is_meta()) {
    return "meta";
  }
  if (impl->is_python_dispatch() || !t.has_storage() || t._is_zerotensor()) {
    return "no memory of its own";
  }
  if (t.numel() == 0) {
    return nullptr;
  }
  int64_t last = t.storage_offset();
  for (int64_t d = 0; d < t.dim(); ++d) {
    last += (t.size(d) - 1) * t.stride(d);
  }
  const auto needed = static_cast<size_t>(last + 1) * t.element_size();
  if (t.storage().nbytes() < needed || impl->storage().data() == nullptr) {
    return "its memory was freed";
  }
  return nullptr;
}

const char* recorded(const at::Tensor& t) {
  return !t.is_cpu() && records_graph(t.device()) ? "a graph was being recorded"
                                                  : nullptr;
}

TensorBytes::TensorBytes(const at::Tensor& t, const DenseForm& form)
    : form_(form) {
  if (form_.elements == 0) {
    return;
  }
  if (t.is_cpu()) {
    read_host(t);
  } else {
    read_device(t);
  }
}

void TensorBytes::read_host(const at::Tensor& t) {
  const size_t item = t.element_size();
  const auto bytes = static_cast<size_t>(form_.elements) * item;
  const auto* base = static_cast<const char*>(t.const_data_ptr());
  if (form_.packed) {
    own_.reset(new char[bytes]);
    gather(form_, base, own_.get(), item);
    base = own_.get();
  }
  bytes_ = {base, bytes};
}

void TensorBytes::read_device(const at::Tensor& t) {
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor memory =
      form_.packed
          ? at::as_strided(t, form_.sizes, form_.strides, t.storage_offset())
          : at::as_strided(t, {form_.elements}, {1}, t.storage_offset());
  // A conjugate or negative view is recorded as one, so its memory is read as
  // it is: a copy of a tensor with the flag would resolve it.
  memory._set_conj(false);
  memory._set_neg(false);
  copy_ = pooled_tensor({form_.elements}, {1}, t.scalar_type());
  copy_.copy_(
      form_.packed ? memory.contiguous().view({form_.elements}) : memory);
  bytes_ = {
      static_cast<const char*>(copy_.const_data_ptr()),
      static_cast<size_t>(form_.elements) * t.element_size()};
}

}  // namespace optools
