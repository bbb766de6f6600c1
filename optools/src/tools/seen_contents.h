// SPDX-License-Identifier: Apache-2.0
// Contents of tensors that were looked at for infinities and NaN.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/tool.h"

namespace optools {

// Asked in host memory, where the answer came at once: clean.
inline constexpr uint64_t kClean = ~uint64_t{0};

// Which contents were looked at already: (memory, version). A small table of
// sets in which the newest displaces memory that is gone, else what was used
// longest ago; a miss costs one more look.
class SeenContents {
 public:
  // The question asked about these contents, or about more around them; 0 for
  // none.
  uint64_t find(const at::Tensor& t) {
    auto* const storage = storage_of(t);
    const auto version = version_of(t);
    const int64_t first = t.storage_offset();
    const int64_t end = end_of(t);
    for (const auto offset : {first, int64_t{0}}) {
      for (auto& found : sets_[place(storage, offset)]) {
        if (found.first == offset && found.end >= end &&
            found.is_of(storage, version)) {
          found.used_at = ++uses_;
          return found.question;
        }
      }
    }
    return 0;
  }
  // `written`: autograd raises the version after the kernel wrote, or has done
  // so (lists). Question 0: nothing is known of these contents any more.
  void put(const at::Tensor& t, bool written, uint64_t question) {
    auto& entry = entry_for(storage_of(t), t.storage_offset());
    if (!entry.is_at(storage_of(t))) {
      entry.storage = t.storage().getWeakStorageImpl();
    }
    entry.version = version_of(t);
    entry.written = written;
    entry.first = t.storage_offset();
    entry.end = end_of(t);
    entry.question = question;
    entry.used_at = ++uses_;
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
    uint64_t used_at = 0;  // 0: empty

    bool is_at(const c10::StorageImpl* other) const {
      return storage && storage->_unsafe_get_target() == other;
    }
    bool is_gone() const {
      return !storage || storage->expired();
    }
    bool is_of(const c10::StorageImpl* other, uint32_t now) const {
      return is_at(other) &&
             (now == version || (written && now == version + 1));
    }
  };
  static constexpr int kSetBits = 10;
  using Set = std::array<Entry, 4>;
  std::vector<Set> sets_ = std::vector<Set>(size_t{1} << kSetBits);
  uint64_t uses_ = 0;

  // The one of this memory, else one of memory that is gone or an empty one,
  // else the one used longest ago.
  Entry& entry_for(c10::StorageImpl* storage, int64_t offset) {
    auto& set = sets_[place(storage, offset)];
    for (auto& entry : set) {
      if (entry.first == offset && entry.is_at(storage)) {
        return entry;
      }
    }
    return *std::min_element(
        set.begin(), set.end(), [](const Entry& a, const Entry& b) {
          return a.is_gone() != b.is_gone() ? a.is_gone()
                                            : a.used_at < b.used_at;
        });
  }
  static int64_t end_of(const at::Tensor& t) {
    int64_t end = t.storage_offset() + 1;
    for (int64_t d = 0; d < t.dim(); ++d) {
      end += (t.size(d) - 1) * t.stride(d);
    }
    return end;
  }
  // By the data's address. The storage's own would gather entries in one set:
  // an entry that is displaced frees the storage it refers to, the next storage
  // is made at that address, and displaces one of the same set.
  static size_t place(c10::StorageImpl* storage, int64_t offset) {
    const void* const data = storage->_mutable_data_ptr_no_checks().get();
    const auto mixed = reinterpret_cast<uintptr_t>(data) / 16 +
                       static_cast<uintptr_t>(offset) * 31;
    return (mixed * 0x9E3779B97F4A7C15ull) >> (64 - kSetBits);
  }
};

}  // namespace optools
