// SPDX-License-Identifier: Apache-2.0
// Wrappers whose storage has no record.
//
// Note [Unrecorded]: an operator that writes no argument has no overlap to
// check and nothing to write back, so its arguments' storages need no record of
// what maps to what; two arguments over the same bytes may have a twin storage
// each. The wrapper alone says which storage a result shares, and whether a
// kernel kept it.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstdint>

#include "aten/twin/entry.h"

namespace npu::twin {

// Wrapped::storage of such a wrapper: neither an index nor "no storage".
inline constexpr std::uint32_t kUnrecorded = UINT32_MAX - 1;

// Kernels of other namespaces may be Python's, whose objects stay with a
// wrapper.
inline bool needs_no_record(const Entry& entry, bool copies, bool opens) {
  return !entry.any_written && entry.builtin && !copies && !opens;
}

// The unrecorded wrapper that `twin` is the storage of; nullptr when there is
// none.
template <class Wrappers>
auto* find_unrecorded(const Wrappers& wrappers, const c10::StorageImpl* twin) {
  for (const auto& wrapped : wrappers) {
    if (wrapped.storage == kUnrecorded &&
        wrapped.twin.unsafeGetTensorImpl()
                ->unsafe_storage()
                .unsafeGetStorageImpl() == twin) {
      return &wrapped;
    }
  }
  return static_cast<decltype(&*wrappers.begin())>(nullptr);
}

}  // namespace npu::twin
