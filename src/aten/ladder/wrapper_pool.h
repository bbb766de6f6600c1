// SPDX-License-Identifier: Apache-2.0
// CPU tensors kept for use as wrappers: making one costs four allocations,
// pointing a used one at other bytes costs none.
#pragma once

#include <c10/core/TensorImpl.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace npu::ladder {

using TensorImplPtr = c10::intrusive_ptr<c10::TensorImpl>;

// One per thread.
class WrapperPool {
 public:
  // Asks for the thread's own pool once: a plain pointer needs no guard.
  static WrapperPool& here() {
    static thread_local WrapperPool* known = nullptr;
    if (C10_UNLIKELY(known == nullptr)) {
      known = &own();
    }
    return *known;
  }

  // A CPU tensor of `from`'s dtype, with a storage of its own that holds no
  // bytes: one that had the same geometry last time, where there is one.
  TensorImplPtr take(const c10::TensorImpl& from);
  // Takes it back if nobody else saw it; its storage lets go of the bytes.
  void give(TensorImplPtr wrapper);

 private:
  static WrapperPool& own();

  static constexpr std::size_t kSlots = 64;
  // A wrapper has two places, by its geometry: setting sizes and strides costs
  // more than all else that wrapping does.
  static std::size_t slot_of(const c10::TensorImpl& tensor) {
    const auto strides = tensor.strides();
    auto mixed = static_cast<std::uint64_t>(tensor.numel()) * 5;
    if (C10_LIKELY(!strides.empty())) {
      mixed += static_cast<std::uint64_t>(strides.front());
      mixed = mixed * 3 + strides.size();
    }
    return (mixed ^ mixed >> 6 ^ mixed >> 12) % kSlots;
  }
  std::array<TensorImplPtr, kSlots> free_;
};

}  // namespace npu::ladder
