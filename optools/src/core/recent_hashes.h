// SPDX-License-Identifier: Apache-2.0
// A set of hashes that forgets the oldest, for runs that never end.
#pragma once

#include <unordered_set>
#include <utility>

#include "core/blob_hash.h"

namespace optools {

// Holds the latest: at least `most` of them, and at most twice as many.
class RecentHashes {
 public:
  explicit RecentHashes(size_t most) : most_(most) {}

  bool contains(const BlobHash& hash) const {
    return young_.contains(hash) || old_.contains(hash);
  }
  // Throws std::bad_alloc; the set is unchanged then.
  void insert(const BlobHash& hash) {
    if (young_.size() >= most_) {
      old_ = std::exchange(young_, {});
    }
    young_.insert(hash);
  }
  void erase(const BlobHash& hash) {
    young_.erase(hash);
  }

 private:
  struct FirstHalf {
    size_t operator()(const BlobHash& hash) const noexcept {
      return hash.first;
    }
  };
  using Hashes = std::unordered_set<BlobHash, FirstHalf>;
  size_t most_;
  Hashes young_;
  Hashes old_;
};

}  // namespace optools
