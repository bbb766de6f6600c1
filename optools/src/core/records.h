// SPDX-License-Identifier: Apache-2.0
// What was called, as plain bytes: one record per call, written by the thread
// that made it into memory only that thread writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/tool.h"

namespace optools {

struct TensorEntry {
  uint8_t output;    // 0: argument, 1: result
  uint8_t position;  // of the argument or result
  uint16_t item;     // within a list
  int8_t dtype;
  int8_t device_type;
  int8_t device_index;
  uint8_t layout;
  uint8_t flags;  // kRequiresGrad, kWritten, kOpaque
  uint8_t dims;
  uint16_t unused;
  uint32_t unused2;
  uint64_t address;
  int64_t offset;
  int64_t elements;
  // int64_t sizes[dims], strides[dims] follow
};

enum EntryFlag : uint8_t { kRequiresGrad = 1, kWritten = 2, kOpaque = 4 };

struct Record {
  uint32_t bytes;  // whole record
  uint16_t entries;
  uint8_t phase;
  uint8_t raised;
  uint32_t op;
  uint32_t api;
  uint32_t module;
  uint32_t site;
  uint32_t thread;
  uint32_t unused;
  uint64_t number;
  uint64_t api_call;
  uint64_t forward;  // number of the forward call of a backward one
  int64_t sequence;
  uint64_t sequence_thread;
  int64_t step;
  int64_t start_ns;
  // TensorEntry, sizes, strides ... follow
};

int64_t now_ns();

// A list of chunks; the oldest is reused once the limit is reached.
class RecordLog {
 public:
  explicit RecordLog(size_t limit_bytes) : limit_(limit_bytes) {}

  // Begins a record with the call's inputs; finish with add_outputs() or
  // raised(). Calls of one thread do not interleave within a tool.
  void begin(const Call& call);
  void add_outputs(const Call& call);
  void raised();

  uint64_t dropped() const {
    return dropped_;
  }
  const Record& newest() const {
    return *reinterpret_cast<const Record*>(
        chunks_.back().bytes.data() + begin_);
  }
  // Oldest first.
  void each(const std::function<void(const Record&)>& body) const;
  // The last `count` up to the call of that number, oldest first.
  std::vector<const Record*> last(size_t count, uint64_t number) const;

 private:
  struct Chunk {
    std::vector<char> bytes;
    size_t used = 0;
    uint64_t records = 0;
  };
  static constexpr size_t kChunk = 256 * 1024;

  char* reserve(size_t bytes);
  void add(
      const at::Tensor& t,
      bool output,
      size_t position,
      size_t item,
      bool written);
  void add_all(
      const c10::IValue& value, bool output, size_t position, bool written);
  Record& current() {
    return *reinterpret_cast<Record*>(chunks_.back().bytes.data() + begin_);
  }

  size_t limit_;
  std::deque<Chunk> chunks_;
  size_t begin_ = 0;
  uint64_t dropped_ = 0;
};

const TensorEntry* first_entry(const Record& record);
const TensorEntry* next_entry(const TensorEntry* entry);
inline const int64_t* sizes_of(const TensorEntry* entry) {
  return reinterpret_cast<const int64_t*>(entry + 1);
}
inline const int64_t* strides_of(const TensorEntry* entry) {
  return sizes_of(entry) + entry->dims;
}

}  // namespace optools
