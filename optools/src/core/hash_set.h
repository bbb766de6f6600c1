// SPDX-License-Identifier: Apache-2.0
// A set of hashes: one table, one look, no allocation per element. And one that
// forgets, for runs that never end.
#pragma once

#include <vector>

#include "core/blob_hash.h"

namespace optools {

class HashSet {
 public:
  // The next insert() allocates nothing.
  void make_room() {
    if (2 * (count_ + 1) > slots_.size()) {
      grow();
    }
  }
  // True when it was not there.
  bool insert(const BlobHash& hash) {
    make_room();
    const bool fresh = put(hash);
    count_ += fresh;
    return fresh;
  }
  size_t size() const {
    return count_;
  }
  bool contains(const BlobHash& hash) const {
    for (size_t at = hash.first & mask();; at = (at + 1) & mask()) {
      if (slots_[at] == hash) {
        return true;
      }
      if (slots_[at] == BlobHash{}) {
        return false;
      }
    }
  }

 private:
  // All zeros is a free place: no contents are known to have that hash, and
  // one that had would be stored each time.
  std::vector<BlobHash> slots_ = std::vector<BlobHash>(4096);
  size_t count_ = 0;

  size_t mask() const {
    return slots_.size() - 1;
  }
  bool put(const BlobHash& hash) {
    size_t at = hash.first & mask();
    while (slots_[at] != BlobHash{}) {
      if (slots_[at] == hash) {
        return false;
      }
      at = (at + 1) & mask();
    }
    slots_[at] = hash;
    return true;
  }
  void grow() {
    std::vector<BlobHash> old(2 * slots_.size());
    old.swap(slots_);
    for (const auto& hash : old) {
      if (hash != BlobHash{}) {
        put(hash);
      }
    }
  }
};

// Holds the latest: at least `most` of them, and at most twice as many.
class RecentHashes {
 public:
  explicit RecentHashes(size_t most) : most_(most) {}
  void make_room() {
    if (young_.size() >= most_) {
      old_ = std::move(young_);
      young_ = HashSet();
    }
    young_.make_room();
  }
  void insert(const BlobHash& hash) {
    young_.insert(hash);
  }
  bool contains(const BlobHash& hash) const {
    return young_.contains(hash) || old_.contains(hash);
  }

 private:
  size_t most_;
  HashSet young_;
  HashSet old_;
};

}  // namespace optools
