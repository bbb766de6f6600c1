// SPDX-License-Identifier: Apache-2.0
// What was called, as plain bytes.
#include "core/records.h"

#include <time.h>

#include <algorithm>
#include <cstring>

namespace optools {

static_assert(sizeof(Record) % 8 == 0 && sizeof(TensorEntry) % 8 == 0);

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

namespace {

// Never throws and touches nothing: fake and lazy storages have no bytes.
uint64_t address_of(const at::Tensor& t) {
  if (!t.has_storage()) {
    return 0;
  }
  auto* storage = t.storage().unsafeGetStorageImpl();
  const auto* base =
      static_cast<const char*>(storage->_mutable_data_ptr_no_checks().get());
  return base == nullptr ? 0
                         : reinterpret_cast<uint64_t>(
                               base + t.storage_offset() * t.element_size());
}

}  // namespace

// Room in the last chunk. A record that does not fit any more moves to a new
// chunk whole, so that records are contiguous.
char* RecordLog::reserve(size_t bytes) {
  if (!chunks_.empty()) {
    auto& chunk = chunks_.back();
    if (chunk.used + bytes <= chunk.bytes.size()) {
      char* at = chunk.bytes.data() + chunk.used;
      chunk.used += bytes;
      return at;
    }
  }
  Chunk next;
  if (chunks_.size() > 1 && chunks_.size() * kChunk >= limit_) {
    dropped_ += chunks_.front().records;
    next.bytes = std::move(chunks_.front().bytes);
    chunks_.pop_front();
  }
  size_t tail = 0;
  const char* from = nullptr;
  if (!chunks_.empty()) {
    auto& chunk = chunks_.back();
    tail = chunk.used - begin_;
    from = chunk.bytes.data() + begin_;
    chunk.used = begin_;
    chunk.records -= tail != 0;
  }
  if (next.bytes.size() < tail + bytes) {
    next.bytes.resize(std::max(kChunk, 2 * (tail + bytes)));
  }
  if (tail != 0) {
    std::memcpy(next.bytes.data(), from, tail);
    next.records = 1;
  }
  next.used = tail + bytes;
  begin_ = 0;
  chunks_.push_back(std::move(next));
  return chunks_.back().bytes.data() + tail;
}

void RecordLog::begin(const Call& call) {
  if (!chunks_.empty()) {
    begin_ = chunks_.back().used;
  }
  auto* record = reinterpret_cast<Record*>(reserve(sizeof(Record)));
  ++chunks_.back().records;
  *record = Record{
      .bytes = sizeof(Record),
      .entries = 0,
      .phase = static_cast<uint8_t>(call.phase),
      .raised = 0,
      .op = call.op.index,
      .api = call.origin.api,
      .module = call.origin.module,
      .site = call.origin.site,
      .thread = call.thread.id,
      .unused = 0,
      .number = call.number,
      .api_call = call.origin.api_call,
      .forward = call.origin.number,
      .sequence = call.sequence,
      .sequence_thread = call.sequence_thread,
      .step = call.step,
      .start_ns = now_ns()};
  const auto inputs = call.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    add_all(inputs[i], false, i, call.op.written[i]);
  }
}

void RecordLog::add_outputs(const Call& call) {
  const auto outputs = call.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    add_all(outputs[i], true, i, false);
  }
}

void RecordLog::raised() {
  current().raised = 1;
}

void RecordLog::add_all(
    const c10::IValue& value, bool output, size_t position, bool written) {
  size_t item = 0;
  each_tensor(value, [&](const at::Tensor& t) {
    add(t, output, position, item++, written);
  });
}

void RecordLog::add(
    const at::Tensor& t,
    bool output,
    size_t position,
    size_t item,
    bool written) {
  // Sparse, quantised, nested: known to exist, shape asked only where it is
  // a plain one.
  const bool plain = t.layout() == c10::kStrided && !t.is_nested();
  const size_t dims = plain ? t.dim() : 0;
  const size_t bytes = sizeof(TensorEntry) + 2 * dims * sizeof(int64_t);
  auto* entry = reinterpret_cast<TensorEntry*>(reserve(bytes));
  *entry = TensorEntry{
      .output = output,
      .position = static_cast<uint8_t>(position),
      .item = static_cast<uint16_t>(item),
      .dtype = static_cast<int8_t>(t.scalar_type()),
      .device_type = static_cast<int8_t>(t.device().type()),
      .device_index = static_cast<int8_t>(t.device().index()),
      .layout = static_cast<uint8_t>(t.layout()),
      .flags = static_cast<uint8_t>(
          (t.requires_grad() ? kRequiresGrad : 0) | (written ? kWritten : 0) |
          (plain ? 0 : kOpaque)),
      .dims = static_cast<uint8_t>(dims),
      .unused = 0,
      .unused2 = 0,
      .address = plain ? address_of(t) : 0,
      .offset = plain ? t.storage_offset() : 0,
      .elements = plain ? t.numel() : 0};
  auto* numbers = reinterpret_cast<int64_t*>(entry + 1);
  if (dims != 0) {
    std::memcpy(numbers, t.sizes().data(), dims * sizeof(int64_t));
    std::memcpy(numbers + dims, t.strides().data(), dims * sizeof(int64_t));
  }
  auto& record = current();
  record.bytes += static_cast<uint32_t>(bytes);
  ++record.entries;
}

void RecordLog::each(const std::function<void(const Record&)>& body) const {
  for (const auto& chunk : chunks_) {
    for (size_t at = 0; at < chunk.used;) {
      const auto& record =
          *reinterpret_cast<const Record*>(chunk.bytes.data() + at);
      body(record);
      at += record.bytes;
    }
  }
}

std::vector<const Record*> RecordLog::last(
    size_t count, uint64_t number) const {
  std::vector<const Record*> list;
  each([&](const Record& record) {
    if (record.number <= number) {
      list.push_back(&record);
    }
  });
  if (list.size() > count) {
    list.erase(list.begin(), list.end() - static_cast<ptrdiff_t>(count));
  }
  return list;
}

const TensorEntry* first_entry(const Record& record) {
  return reinterpret_cast<const TensorEntry*>(&record + 1);
}

const TensorEntry* next_entry(const TensorEntry* entry) {
  return reinterpret_cast<const TensorEntry*>(strides_of(entry) + entry->dims);
}

}  // namespace optools
