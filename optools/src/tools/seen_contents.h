// SPDX-License-Identifier: Apache-2.0
// Which memory the overflow check has looked at, and at which version of it.
#pragma once

#include <cstdint>
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
    const auto wanted = entry(t, false, 0);
    for (const auto offset : {wanted.first, int64_t{0}}) {
      const auto& found = entries_[place(wanted.storage, offset)];
      if (found.storage == wanted.storage && found.is_of(wanted.version) &&
          found.first <= wanted.first && found.end >= wanted.end) {
        return found.question;
      }
    }
    return 0;
  }
  // `written`: autograd raises the version after the kernel wrote, or has done
  // so (lists). Question 0: nothing is known of these contents any more.
  void put(const at::Tensor& t, bool written, uint64_t question) {
    const auto fresh = entry(t, written, question);
    entries_[place(fresh.storage, fresh.first)] = fresh;
  }

 private:
  struct Entry {
    const void* storage = nullptr;
    uint32_t version = 0;
    bool written = false;
    int64_t first = 0;  // elements, in the storage
    int64_t end = 0;
    uint64_t question = 0;

    bool is_of(uint32_t now) const {
      return now == version || (written && now == version + 1);
    }
  };
  static constexpr size_t kEntries = 4096;
  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);

  static Entry entry(const at::Tensor& t, bool written, uint64_t question) {
    int64_t end = t.storage_offset() + 1;
    for (int64_t d = 0; d < t.dim(); ++d) {
      end += (t.size(d) - 1) * t.stride(d);
    }
    return {
        t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(),
        version_of(t),
        written,
        t.storage_offset(),
        end,
        question};
  }
  static size_t place(const void* storage, int64_t offset) {
    const auto mixed = reinterpret_cast<uintptr_t>(storage) / 16 +
                       static_cast<uintptr_t>(offset) * 31;
    return (mixed * 0x9E3779B97F4A7C15ull) >> 52;
  }
};

}  // namespace optools
