// SPDX-License-Identifier: Apache-2.0
// Lists of tensors in a call frame.
#include "aten/core/list_frame.h"

#include <algorithm>
#include <vector>

#include "aten/core/frame.h"
#include "runtime/device.h"

namespace npu {
namespace {

// Memory for the lists of a call. A call made while another one is being
// filled on the same thread takes memory of its own.
struct Arena {
  std::vector<std::uint64_t> words;
  bool in_use = false;
};

Arena& arena() {
  static thread_local Arena mine;
  return mine;
}

bool is_list_dtype(c10::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf ||
         type == at::kDouble;
}

bool is_plain(const at::Tensor& tensor, c10::Device device) {
  return tensor.device() == device && tensor.layout() == at::kStrided &&
         is_list_dtype(tensor.scalar_type()) && !tensor.is_neg() &&
         tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

struct Range {
  const char* begin;
  const char* end;
  std::size_t entry;
};

Range range_of(const at::Tensor& tensor, std::size_t entry) {
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + tensor.nbytes(), entry};
}

// Whether `range` touches one of `sorted`, ranges that do not overlap, other
// than the very same one at the same place of its list.
bool touches(const std::vector<Range>& sorted, const Range& range) {
  auto at = std::upper_bound(
      sorted.begin(),
      sorted.end(),
      range.begin,
      [](const char* begin, const Range& r) { return begin < r.end; });
  for (; at != sorted.end() && at->begin < range.end; ++at) {
    const bool same = at->begin == range.begin && at->end == range.end &&
                      at->entry == range.entry;
    if (!same) {
      return true;
    }
  }
  return false;
}

}  // namespace

ListFrame::ListFrame(at::TensorList leading) : leading_(leading) {
  const std::size_t words = (kMaxRoles + 1) * leading.size();
  Arena& mine = arena();
  if (mine.in_use) {
    own_.reset(new std::uint64_t[words]);
    words_ = own_.get();
  } else {
    mine.in_use = true;
    if (mine.words.size() < words) {
      mine.words.resize(words);
    }
    words_ = mine.words.data();
  }
  auto* const numel = reinterpret_cast<std::int64_t*>(take());
  for (const at::Tensor& tensor : leading) {
    if (const std::int64_t elements = tensor.numel()) {
      numel[n_++] = elements;
    }
  }
  numel_ = numel;
}

ListFrame::~ListFrame() {
  if (!own_) {
    arena().in_use = false;
  }
}

std::uint64_t* ListFrame::take() {
  TORCH_INTERNAL_ASSERT(used_ < kMaxRoles + 1);
  return words_ + leading_.size() * used_++;
}

npu_list ListFrame::of(at::TensorList tensors) {
  auto** const data = reinterpret_cast<void**>(take());
  std::uint32_t n = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (leading_[i].numel() != 0) {
      data[n++] = tensors[i].data_ptr();
    }
  }
  npu_list list{};
  list.n = n_;
  list.dtype = to_npu_dtype(tensors[0].scalar_type());
  list.data = data;
  list.numel = numel_;
  return list;
}

npu_list ListFrame::scalars(
    at::ArrayRef<at::Scalar> values, c10::ScalarType compute) {
  auto** const data = reinterpret_cast<void**>(take());
  std::uint64_t* const numbers = take();
  const bool wide = compute == at::kDouble;
  std::uint32_t n = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (leading_[i].numel() == 0) {
      continue;
    }
    if (wide) {
      *reinterpret_cast<double*>(numbers + n) = values[i].toDouble();
    } else {
      *reinterpret_cast<float*>(numbers + n) =
          static_cast<float>(values[i].toDouble());
    }
    data[n] = numbers + n;
    ++n;
  }
  npu_list list = single_elements(data, wide ? NPU_F64 : NPU_F32);
  list.flags = NPU_TENSOR_HOST_SCALAR;
  return list;
}

npu_list ListFrame::repeated(const at::Tensor& scalar) {
  auto** const data = reinterpret_cast<void**>(take());
  std::fill_n(data, n_, scalar.data_ptr());
  return single_elements(data, to_npu_dtype(scalar.scalar_type()));
}

npu_list ListFrame::single_of(at::TensorList tensors) {
  npu_list list = of(tensors);
  return single_elements(list.data, list.dtype);
}

npu_list ListFrame::single_elements(void* const* data, npu_dtype dtype) {
  if (ones_ == nullptr) {
    ones_ = reinterpret_cast<std::int64_t*>(take());
    std::fill_n(ones_, n_, 1);
  }
  npu_list list{};
  list.n = n_;
  list.numel = ones_;
  list.data = data;
  list.dtype = dtype;
  return list;
}

bool goes_as_lists(
    at::TensorList leading,
    std::initializer_list<at::TensorList> others,
    bool any_float) {
  if (leading.empty()) {
    return false;
  }
  const c10::Device device = leading[0].device();
  const c10::ScalarType dtype = leading[0].scalar_type();
  if (device.type() != kDeviceType) {
    return false;
  }
  for (const at::Tensor& tensor : leading) {
    if (!is_plain(tensor, device) || tensor.scalar_type() != dtype) {
      return false;
    }
  }
  for (const at::TensorList& list : others) {
    if (list.empty()) {
      continue;
    }
    if (list.size() != leading.size()) {
      return false;
    }
    const c10::ScalarType its = any_float ? list[0].scalar_type() : dtype;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!is_plain(list[i], device) || list[i].scalar_type() != its ||
          !list[i].sizes().equals(leading[i].sizes()) ||
          !list[i].strides().equals(leading[i].strides())) {
        return false;
      }
    }
  }
  return true;
}

bool writes_apart(
    at::TensorList written, std::initializer_list<at::TensorList> read) {
  static thread_local std::vector<Range> ranges;
  ranges.clear();
  for (std::size_t i = 0; i < written.size(); ++i) {
    ranges.push_back(range_of(written[i], i));
  }
  const auto before = [](const Range& a, const Range& b) {
    return a.begin < b.begin;
  };
  if (!std::is_sorted(ranges.begin(), ranges.end(), before)) {
    std::sort(ranges.begin(), ranges.end(), before);
  }
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin < ranges[i - 1].end) {
      return false;
    }
  }
  for (const at::TensorList& list : read) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Range range = range_of(list[i], i);
      if (range.begin != range.end && touches(ranges, range)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace npu
