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

  // A CPU tensor of `from`'s dtype, with a storage of its own. The one that
  // stood for `from` last time where it is free: it often has the geometry.
  TensorImplPtr take(const c10::TensorImpl& from);
  // Takes it back if nobody else saw it; its storage lets go of the bytes.
  void give(const c10::TensorImpl& from, TensorImplPtr wrapper);

 private:
  static WrapperPool& own();

  static constexpr std::size_t kSlots = 64;
  // Two places for a wrapper, by the address of what it stands for.
  static std::size_t slot_of(const c10::TensorImpl& from) {
    const auto address = reinterpret_cast<std::uintptr_t>(&from);
    return (address >> 5 ^ address >> 11) % kSlots;
  }
  std::array<TensorImplPtr, kSlots> free_;
};

}  // namespace npu::ladder
