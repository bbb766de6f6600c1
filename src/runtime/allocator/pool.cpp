// SPDX-License-Identifier: Apache-2.0
// The index of free blocks: two-level segregated fit.
#include "runtime/allocator/pool.h"

namespace npu::memory {
namespace {

// Long lists are not searched to the end for the very best block.
constexpr int kLook = 32;

// Blocks of at least max_split_size are never cut, so a small request must
// not have them, and a large one only when little is wasted.
bool usable(const Block& block, std::size_t rounded, const Config& config) {
  if (block.size < rounded || block.being_discarded) {
    return false;
  }
  if (block.size < config.max_split_size) {
    return true;
  }
  return rounded >= config.max_split_size &&
         block.size - rounded < config.max_non_split_rounding;
}

}  // namespace

void FreeIndex::insert(Block* block) {
  const SizeClass at = size_class(block->size);
  Block*& head = heads_[at.level][at.sub];
  block->prev = nullptr;
  block->next = head;
  if (head != nullptr) {
    head->prev = block;
  }
  head = block;
  levels_ |= std::uint64_t{1} << at.level;
  subs_[at.level] |= 1u << at.sub;
}

void FreeIndex::remove(Block* block) {
  const SizeClass at = size_class(block->size);
  if (block->next != nullptr) {
    block->next->prev = block->prev;
  }
  if (block->prev != nullptr) {
    block->prev->next = block->next;
  } else {
    heads_[at.level][at.sub] = block->next;
    if (block->next == nullptr) {
      subs_[at.level] &= ~(1u << at.sub);
      if (subs_[at.level] == 0) {
        levels_ &= ~(std::uint64_t{1} << at.level);
      }
    }
  }
  block->next = block->prev = nullptr;
}

Block* FreeIndex::best_in(
    SizeClass at, std::size_t rounded, const Config& config) const {
  Block* best = nullptr;
  int looked = 0;
  for (Block* block = heads_[at.level][at.sub]; block != nullptr;
       block = block->next) {
    if (usable(*block, rounded, config) &&
        (best == nullptr || block->size < best->size)) {
      best = block;
    }
    // A list may begin with blocks that are all too small: go on until one
    // fits, then stop soon.
    if (++looked >= kLook && best != nullptr) {
      break;
    }
  }
  return best;
}

Block* FreeIndex::find(std::size_t rounded, const Config& config) const {
  SizeClass at = size_class(rounded);
  std::uint32_t subs = subs_[at.level] & (~0u << at.sub);
  for (;;) {
    while (subs != 0) {
      at.sub = std::countr_zero(subs);
      subs &= subs - 1;
      if (Block* block = best_in(at, rounded, config)) {
        return block;
      }
    }
    const std::uint64_t above =
        at.level + 1 < 64 ? levels_ & (~std::uint64_t{0} << (at.level + 1)) : 0;
    if (above == 0) {
      return nullptr;
    }
    at.level = std::countr_zero(above);
    subs = subs_[at.level];
  }
}

}  // namespace npu::memory
