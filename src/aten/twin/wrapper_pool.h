// SPDX-License-Identifier: Apache-2.0
// Twin tensors kept for use as wrappers: making one costs four allocations,
// pointing a used one at other bytes costs none.
#pragma once

#include <c10/core/TensorImpl.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "aten/twin/twin.h"

namespace npu::twin {

using TensorImplPtr = c10::intrusive_ptr<c10::TensorImpl>;

// One per thread and device of a twin.
class WrapperPool {
 public:
  explicit WrapperPool(const Twin& twin, c10::Device device)
      : twin_(twin), device_(device) {}

  static WrapperPool& of(const Twin& twin, c10::Device device) {
    return C10_LIKELY(device.is_cpu()) ? of_cpu() : find(twin, device);
  }

  // A twin tensor of `from`'s dtype, with a storage of its own that holds no
  // bytes: one that had the same geometry last time, where there is one.
  TensorImplPtr take(const c10::TensorImpl& from);
  // Takes it back if it has no other owner; its storage releases the bytes.
  void give(TensorImplPtr wrapper);

 private:
  // Asks for the thread's own pool once: a plain pointer needs no guard.
  static WrapperPool& of_cpu() {
    static thread_local WrapperPool* known = nullptr;
    if (C10_UNLIKELY(known == nullptr)) {
      known = &make_of_cpu();
    }
    return *known;
  }
  static WrapperPool& make_of_cpu();
  static WrapperPool& find(const Twin& twin, c10::Device device);

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
  const Twin& twin_;
  const c10::Device device_;
  std::array<TensorImplPtr, kSlots> free_;
};

}  // namespace npu::twin
