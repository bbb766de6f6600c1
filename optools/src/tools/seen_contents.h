// SPDX-License-Identifier: Apache-2.0
// Contents of tensors that were looked at for infinities and NaN.
#pragma once

#include <optional>
#include <vector>

#include "core/tool.h"

namespace optools {

// Asked in host memory, where the answer came at once: clean.
inline constexpr uint64_t kClean = ~uint64_t{0};

// Which contents were looked at already: (memory, version). A small table
// where newer entries displace older ones; a miss costs one more look.
class SeenContents {
 public:
  // The question asked about these contents, or about more around them; 0 for
  // none.
  uint64_t find(const at::Tensor& t) const {
    const auto* storage = storage_of(t);
    const auto version = version_of(t);
    const int64_t first = t.storage_offset();
    const int64_t end = end_of(t);
    for (const auto offset : {first, int64_t{0}}) {
      const auto& found = entries_[place(storage, offset)];
      if (found.is_of(storage, version) && found.first <= first &&
          found.end >= end) {
        return found.question;
      }
    }
    return 0;
  }
  // `written`: autograd raises the version after the kernel wrote, or has done
  // so (lists). Question 0: nothing is known of these contents any more.
  void put(const at::Tensor& t, bool written, uint64_t question) {
    auto& entry = entries_[place(storage_of(t), t.storage_offset())];
    if (!entry.storage || entry.address() != storage_of(t)) {
      entry.storage = t.storage().getWeakStorageImpl();
    }
    entry.version = version_of(t);
    entry.written = written;
    entry.first = t.storage_offset();
    entry.end = end_of(t);
    entry.question = question;
  }

 private:
  struct Entry {
    // Weak, so that no later storage has this one's address.
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;
    uint32_t version = 0;
    bool written = false;
    int64_t first = 0;  // elements, in the storage
    int64_t end = 0;
    uint64_t question = 0;

    const c10::StorageImpl* address() const {
      return storage->_unsafe_get_target();
    }
    bool is_of(const c10::StorageImpl* other, uint32_t now) const {
      return storage && address() == other &&
             (now == version || (written && now == version + 1));
    }
  };
  static constexpr size_t kEntries = 4096;
  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);

  static int64_t end_of(const at::Tensor& t) {
    int64_t end = t.storage_offset() + 1;
    for (int64_t d = 0; d < t.dim(); ++d) {
      end += (t.size(d) - 1) * t.stride(d);
    }
    return end;
  }
  static size_t place(const void* storage, int64_t offset) {
    const auto mixed = reinterpret_cast<uintptr_t>(storage) / 16 +
                       static_cast<uintptr_t>(offset) * 31;
    return (mixed * 0x9E3779B97F4A7C15ull) >> 52;
  }
};

}  // namespace optools
