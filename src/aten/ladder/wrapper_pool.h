// SPDX-License-Identifier: Apache-2.0
// CPU tensors kept for use as wrappers: making one costs four allocations,
// pointing a used one at other bytes costs none.
#pragma once

#include <c10/core/TensorImpl.h>

#include <array>
#include <cstddef>

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

  // A CPU tensor with a storage of its own that holds no bytes.
  TensorImplPtr take(caffe2::TypeMeta dtype);
  // Takes it back if nobody else saw it; its storage lets go of the bytes.
  void give(TensorImplPtr wrapper);

 private:
  static WrapperPool& own();

  static constexpr std::size_t kMost = 16;
  std::array<TensorImplPtr, kMost> free_;
  std::size_t n_ = 0;
};

}  // namespace npu::ladder
