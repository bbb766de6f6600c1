// SPDX-License-Identifier: Apache-2.0
// A call frame that outlives the call: everything it points to in one block,
// device pointers as (buffer, offset).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "driver/call.h"

namespace npu::graph {

using BufferId = std::uint32_t;

// A place in a buffer of the graph.
struct Ref {
  BufferId buffer = 0;
  std::uint64_t offset = 0;
  bool operator==(const Ref&) const = default;
};

// How a frame uses a place.
struct Use {
  Ref ref;
  std::uint64_t bytes = 0;    // from there on; 0: not known
  std::uint64_t covered = 0;  // how many of them for certain
  bool reads = false;
  bool writes = false;
  // Which list of the frame, and which entry of it; -1 for operands that are no
  // list's.
  std::int32_t list = -1;
  std::int32_t entry = -1;
};

// Where a pointer of a frame leads; nothing when no buffer of the graph holds
// it. `bytes` is how much of it the frame may touch, 0 when it does not say.
using Resolve =
    std::function<std::optional<Ref>(const void* pointer, std::uint64_t bytes)>;

class FrameCopy {
 public:
  // Nothing when the frame cannot be kept: a pointer that `resolve` does not
  // know, a carry between two calls, random numbers whose seed or offset lies
  // in device memory. A host workspace is left out: each run of the frame gets
  // one of its own, of host_workspace_bytes.
  static std::optional<FrameCopy> make(
      const npu_call& frame, PlanHandle plan, const Resolve& resolve);

  FrameCopy(FrameCopy&&) noexcept = default;
  FrameCopy& operator=(FrameCopy&&) noexcept = default;
  FrameCopy(const FrameCopy& other);
  FrameCopy& operator=(const FrameCopy&) = delete;
  ~FrameCopy() = default;

  // The frame with its pointers into these memories, by buffer. Valid until the
  // next bind.
  const npu_call& bind(std::span<void* const> bases) noexcept {
    for (const Patch& patch : patches_) {
      void* const pointer =
          static_cast<std::byte*>(bases[patch.ref.buffer]) + patch.ref.offset;
      *reinterpret_cast<void**>(block_.get() + patch.at) = pointer;
    }
    return *reinterpret_cast<const npu_call*>(block_.get());
  }

  const npu_call& frame() const noexcept {
    return *reinterpret_cast<const npu_call*>(block_.get());
  }
  // Every place becomes another one; false, and the copy is of no use, when
  // `change` has none for it.
  bool remap(const std::function<std::optional<Ref>(const Ref&)>& change);
  // The place that a pointer inside frame() leads to, given where the pointer
  // lies; nothing when it leads to no buffer.
  std::optional<Ref> place_of(const void* field) const;
  // Buffers it reads or writes, each once.
  std::vector<BufferId> buffers() const;
  // Every place it reads or writes; one may come more than once.
  std::vector<Use> uses() const;

  // Numbers of the host that go with a list frame, one per entry.
  struct Numbers {
    std::uint32_t at = 0;  // in the block, eight bytes each
    std::uint32_t n = 0;
    std::uint32_t first = 0;  // which entry of `source` is the first
    npu_dtype dtype = NPU_F32;
    // The recording's owner gives them before a run, by this number; -1:
    // they are part of the call.
    std::int32_t source = -1;
  };
  const Numbers& numbers() const noexcept {
    return numbers_;
  }
  void bind_numbers_to(std::int32_t source) noexcept {
    numbers_.source = source;
  }
  double number(std::uint32_t entry) const noexcept;
  void set_number(std::uint32_t entry, double value) noexcept;

  // The draw whose words the frame uses, by the number that the recording gave
  // it; -1: it draws none. Its seed and offset are set before each run.
  std::int32_t draw() const noexcept {
    return draw_;
  }
  void bind_draw_to(std::int32_t draw) noexcept {
    draw_ = draw;
  }
  void set_rng(const npu_rng& rng) noexcept {
    reinterpret_cast<npu_call*>(block_.get())->rng = rng;
  }

  // Whether it is only lists, so that entries can be computed on their own.
  bool has_only_lists() const noexcept;
  // The same frame for entries [first, last) of every list.
  FrameCopy entries(std::uint32_t first, std::uint32_t last) const;

 private:
  struct Patch {
    std::uint32_t at;  // byte offset of the pointer in the block
    Ref ref;
    Use how;  // its ref is not used
  };
  struct Inner {  // a pointer from the block into the block
    std::uint32_t at;
    std::uint32_t to;
  };
  class Writer;

  FrameCopy() = default;
  void set_inner_pointers() noexcept;

  std::unique_ptr<std::byte[]> block_;
  std::uint32_t bytes_ = 0;
  std::vector<Patch> patches_;
  std::vector<Inner> inner_;
  Numbers numbers_;
  std::int32_t draw_ = -1;
  PlanHandle plan_;
};

}  // namespace npu::graph
