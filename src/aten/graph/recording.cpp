// SPDX-License-Identifier: Apache-2.0
// Recording a run of a program.
#include "aten/graph/recording.h"

#include <ATen/Context.h>
#include <c10/core/impl/COW.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <utility>

#include "aten/core/algorithms.h"
#include "aten/graph/maker.h"

namespace npu::graph {
namespace {

// Of device memory: plans depend on it.
std::uint8_t alignment_of(const at::Tensor& tensor) {
  if (tensor.device().type() != c10::DeviceType::PrivateUse1) {
    return 0;
  }
  const auto address =
      reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return static_cast<std::uint8_t>(
      address == 0 ? 8 : std::min(std::countr_zero(address), 8));
}

// What frames may touch of a tensor's storage; nothing where they never do.
std::size_t bytes_of(const at::Tensor& tensor) {
  return is_plain_npu(tensor) ? tensor.storage().nbytes() : 0;
}

struct Range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};

// Nothing for a lazy clone, which gets memory of its own when it is first used.
Range range_of(const c10::Storage& storage) {
  if (c10::impl::cow::is_cow_data_ptr(storage.data_ptr())) {
    return {};
  }
  const auto* const begin = static_cast<const std::byte*>(storage.data());
  return {begin, begin + storage.nbytes()};
}

using Ranges = c10::SmallVector<Range, 64>;

bool any_meet(Ranges& ranges) {
  std::ranges::sort(ranges, std::less<>(), &Range::begin);
  const auto found = std::ranges::adjacent_find(
      ranges, [](const Range& a, const Range& b) { return a.end > b.begin; });
  return found != ranges.end();
}

InputKey key_of(
    const c10::IValue& value, const std::vector<c10::IValue>& inputs) {
  InputKey made;
  made.tensor = value.isTensor() && value.toTensor().defined();
  if (!made.tensor) {
    return made;
  }
  const at::Tensor& tensor = value.toTensor();
  made.spec = spec_of(tensor);
  made.alignment = alignment_of(tensor);
  made.bytes = bytes_of(tensor);
  for (BufferId i = 0; i < inputs.size(); ++i) {
    if (inputs[i].isTensor() && inputs[i].toTensor().defined() &&
        inputs[i].toTensor().storage().is_alias_of(tensor.storage())) {
      made.spec.buffer = i;
      break;
    }
  }
  return made;
}

}  // namespace

bool storages_overlap(const std::vector<c10::IValue>& inputs) {
  c10::SmallVector<const c10::StorageImpl*, 64> storages;
  Ranges ranges;
  for (const c10::IValue& input : inputs) {
    if (!input.isTensor() || !input.toTensor().defined()) {
      continue;
    }
    const c10::Storage& storage = input.toTensor().storage();
    const c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    if (std::ranges::find(storages, impl) == storages.end()) {
      storages.push_back(impl);
      ranges.push_back(range_of(storage));
    }
  }
  return any_meet(ranges);
}

bool storages_overlap(const std::vector<c10::Storage>& storages) {
  Ranges ranges;
  std::ranges::transform(storages, std::back_inserter(ranges), range_of);
  return any_meet(ranges);
}

bool overlaps_another(
    const std::vector<c10::IValue>& inputs, std::size_t place) {
  const c10::Storage& mine = inputs[place].toTensor().storage();
  const Range range = range_of(mine);
  return std::ranges::any_of(inputs, [&](const c10::IValue& input) {
    if (!input.isTensor() || !input.toTensor().defined() ||
        input.toTensor().storage().is_alias_of(mine)) {
      return false;
    }
    const Range other = range_of(input.toTensor().storage());
    return range.begin < other.end && other.begin < range.end;
  });
}

Spec spec_of(const at::Tensor& tensor) {
  Spec made;
  made.kind = Spec::kTensor;
  made.dtype = tensor.scalar_type();
  made.device =
      is_plain_npu(tensor) ? tensor.device().index() : c10::DeviceIndex{-1};
  made.offset = tensor.storage_offset();
  made.sizes = tensor.sizes().vec();
  made.strides = tensor.strides().vec();
  made.conjugate = tensor.is_conj();
  made.negative = tensor.is_neg();
  return made;
}

bool is_plain_npu(const at::Tensor& tensor) {
  return tensor.defined() &&
         tensor.device().type() == c10::DeviceType::PrivateUse1 &&
         tensor.layout() == c10::kStrided && tensor.has_storage() &&
         !tensor.is_conj() && !tensor.is_neg() &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch();
}

std::uint64_t process_settings() {
  const at::Context& context = at::globalContext();
  return algorithm_settings() << 2 |
         (context.deterministicFillUninitializedMemory() ? 1u : 0u) |
         (context.userEnabledMkldnn() ? 2u : 0u);
}

bool Spec::describes(const at::Tensor& tensor) const {
  const bool here = is_plain_npu(tensor);
  return device == (here ? tensor.device().index() : c10::DeviceIndex{-1}) &&
         has_geometry(tensor);
}

bool Spec::has_geometry(const at::Tensor& tensor) const {
  return dtype == tensor.scalar_type() && offset == tensor.storage_offset() &&
         tensor.sizes() == sizes && tensor.strides() == strides &&
         tensor.is_conj() == conjugate && tensor.is_neg() == negative;
}

bool InputKey::matches(const c10::IValue& value) const {
  if (!tensor || !value.isTensor() || !value.toTensor().defined()) {
    return tensor == (value.isTensor() && value.toTensor().defined());
  }
  return spec.describes(value.toTensor()) &&
         alignment == alignment_of(value.toTensor()) &&
         (bytes == 0 || value.toTensor().storage().nbytes() >= bytes);
}

Recording::Recording(
    const TracedGraph& program, const std::vector<c10::IValue>& inputs)
    : program_(program), settings_(process_settings()), captured_(false) {
  for (const c10::IValue& value : inputs) {
    key_.push_back(key_of(value, inputs));
  }
}

Recording::Recording(const TracedGraph& program)
    : program_(program), settings_(process_settings()), captured_(true) {}

bool Recording::matches(
    const std::vector<c10::IValue>& inputs, std::uint64_t settings) const {
  if (settings_ != settings) {
    return false;
  }
  for (std::size_t i = 0; i < key_.size(); ++i) {
    if (!key_[i].matches(inputs[i])) {
      return false;
    }
  }
  return share_alike(inputs);
}

// The same storages in the same places, and no others.
bool Recording::share_alike(const std::vector<c10::IValue>& inputs) const {
  Ranges firsts;
  for (std::size_t i = 0; i < key_.size(); ++i) {
    if (!key_[i].tensor) {
      continue;
    }
    const c10::Storage& mine = inputs[i].toTensor().storage();
    const BufferId first = key_[i].spec.buffer;
    if (first == i) {
      firsts.push_back(range_of(mine));
    } else if (!inputs[first].toTensor().storage().is_alias_of(mine)) {
      return false;
    }
  }
  return !any_meet(firsts);
}

std::vector<c10::IValue> Recording::record(std::vector<c10::IValue> inputs) {
  Maker maker(*this, inputs);
  return maker.run(std::move(inputs));
}

}  // namespace npu::graph
