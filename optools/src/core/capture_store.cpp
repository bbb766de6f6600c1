// SPDX-License-Identifier: Apache-2.0
// A capture's files and the thread that writes them.
#include "core/capture_store.h"

#include <sys/statvfs.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <system_error>

#include "core/packer.h"

namespace optools {
namespace {

// Waking a thread costs more than queueing: it is woken for this much, or
// looks by itself after a while.
constexpr uint64_t kWakeBytes = 256 * 1024;
constexpr size_t kSmallBlob = 4096;
constexpr auto kLookAgain = std::chrono::milliseconds(20);
constexpr uint64_t kCheckDiskEvery = 16ull << 20;

std::string blob_payload(
    const BlobHash& hash, const BlobPacks::Place& place, uint64_t bytes) {
  Packer packer;
  packer.array(4);
  const auto name = hash.bytes();
  packer.binary({name.data(), name.size()});
  packer.natural(place.pack);
  packer.natural(place.offset);
  packer.natural(bytes);
  return packer.take();
}

}  // namespace

CaptureStore::CaptureStore(std::string folder, const CaptureLimits& limits)
    : folder_(std::move(folder)),
      limits_(limits),
      log_(folder_ + "/records.oplog"),
      packs_(folder_, limits.pack_bytes),
      writer_([this] { write_all(); }) {}

CaptureStore::~CaptureStore() {
  close({});
}

void CaptureStore::Forget::operator()(CaptureStore* store) const {
  if (store->process_.still()) {
    delete store;
  }
}

// Waits while the queue is full. Call with the lock held.
void CaptureStore::make_room(
    std::unique_lock<std::mutex>& lock, uint64_t bytes) {
  while (queue_.bytes + writing_ != 0 &&
         queue_.bytes + writing_ + bytes > limits_.queue_bytes && open()) {
    wake_writer();
    emptied_.wait_for(lock, kLookAgain);
  }
}

void CaptureStore::wake_writer() {
  if (sleeping_) {
    sleeping_ = false;
    filled_.notify_one();
  }
}

void CaptureStore::add_blob(const BlobHash& hash, std::string_view bytes) {
  if (!open() || !process_.still()) {
    return;
  }
  {
    std::unique_lock lock(mutex_);
    totals_.seen_bytes += bytes.size();
    if (known_.contains(hash)) {
      return;
    }
    make_room(lock, bytes.size());
    if (bytes.size() <= kSmallBlob) {
      const size_t at = queue_.small.size();
      queue_.small.append(bytes);
      queue_blob({hash, nullptr, bytes.size(), at});
      return;
    }
  }
  Blob blob{hash, buffers_.take(bytes.size()), bytes.size(), 0};
  std::memcpy(blob.bytes.get(), bytes.data(), bytes.size());
  std::lock_guard lock(mutex_);
  queue_blob(std::move(blob));
}

// A hash is known only once its blob is queued. Call with the lock held.
void CaptureStore::queue_blob(Blob blob) {
  if (!open() || known_.contains(blob.hash) || !count_bytes(blob.size)) {
    buffers_.give_back(std::move(blob.bytes), blob.size);
    return;
  }
  const auto hash = blob.hash;
  const size_t size = blob.size;
  known_.insert(hash);
  try {
    queue_.blobs.push_back(std::move(blob));
  } catch (...) {
    known_.erase(hash);
    throw;
  }
  queue_.bytes += size + sizeof(Blob);
  if (queue_.bytes >= kWakeBytes) {
    wake_writer();
  }
}

// False, and nothing is taken any more, where that is beyond the limit. Call
// with the lock held.
bool CaptureStore::count_bytes(uint64_t bytes) {
  if (limits_.max_bytes != 0 && taken_ + bytes > limits_.max_bytes) {
    stop_taking(
        "the limit of " + std::to_string(limits_.max_bytes >> 20) +
        " MiB is reached");
    return false;
  }
  taken_ += bytes;
  return true;
}

void CaptureStore::add_record(const std::vector<Frame>& frames, int64_t step) {
  if (!process_.still()) {
    return;
  }
  uint64_t records = 0;
  uint64_t bytes = 0;
  bool head = false;
  for (const auto& frame : frames) {
    records += frame.kind == FrameKind::kRecord;
    head = head || frame.kind == FrameKind::kHead;
    bytes += 1 + 2 * sizeof(uint32_t) + frame.payload.size();
  }
  std::unique_lock lock(mutex_);
  if (!open() || (!head && !count_bytes(bytes + sizeof(FrameHead)))) {
    totals_.refused += records;
    return;
  }
  const bool new_step = step != step_;
  step_ = step;
  if (new_step && queue_.bytes + writing_ != 0) {
    lock.unlock();
    drain();
    lock.lock();
  }
  for (const auto& frame : frames) {
    const auto length = static_cast<uint32_t>(frame.payload.size());
    queue_.frames += static_cast<char>(frame.kind);
    const auto blobs = static_cast<uint32_t>(queue_.blobs.size());
    queue_.frames.append(
        reinterpret_cast<const char*>(&length), sizeof(length));
    queue_.frames.append(reinterpret_cast<const char*>(&blobs), sizeof(blobs));
    queue_.frames.append(frame.payload);
  }
  queue_.records += records;
  queue_.bytes += bytes;
  make_room(lock, 0);
  if (queue_.bytes >= kWakeBytes) {
    wake_writer();
  }
}

// By this thread: waiting for the writer's would cost two switches.
void CaptureStore::drain() {
  if (process_.still()) {
    while (write_next()) {
    }
  }
}

void CaptureStore::close(const std::string& end_payload) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) {
      return;
    }
    closed_ = true;
    ending_ = true;
    sleeping_ = false;
    filled_.notify_one();
  }
  writer_.join();
  drain();
  {
    std::lock_guard lock(files_);
    if (!end_payload.empty()) {
      log_.append(static_cast<uint8_t>(FrameKind::kEnd), end_payload);
    }
    finish_files();
  }
  open_ = false;
}

// Call with the lock held.
void CaptureStore::stop_taking(const std::string& why) {
  if (!open_.exchange(false)) {
    return;
  }
  why_ = why;
  std::fprintf(
      stderr,
      "OpCapture: stopped capturing, the program goes on: %s. %s holds what "
      "was captured until here.\n",
      why.c_str(),
      folder_.c_str());
}

std::string CaptureStore::why_closed() const {
  std::lock_guard lock(mutex_);
  return why_;
}

CaptureStore::Totals CaptureStore::totals() const {
  std::lock_guard lock(mutex_);
  return totals_;
}

void CaptureStore::check_disk() {
  const uint64_t bytes = log_.bytes() + packs_.bytes();
  if (limits_.min_free == 0 ||
      (checked_at_ != 0 && bytes < checked_at_ + kCheckDiskEvery)) {
    return;
  }
  checked_at_ = bytes + 1;
  struct statvfs disk;
  if (::statvfs(folder_.c_str(), &disk) != 0) {
    return;
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free < limits_.min_free) {
    std::lock_guard lock(mutex_);
    stop_taking(
        "the disk has " + std::to_string(free >> 20) + " MiB left, less than " +
        std::to_string(limits_.min_free >> 20) + " MiB");
  }
}

// The frames that need no more than so many blobs; how many records are among
// them.
uint64_t CaptureStore::write_frames(std::string_view frames, size_t blobs) {
  uint64_t records = 0;
  while (!frames.empty()) {
    uint32_t length;
    uint32_t needs;
    std::memcpy(&length, frames.data() + 1, sizeof(length));
    std::memcpy(&needs, frames.data() + 1 + sizeof(length), sizeof(needs));
    if (needs > blobs) {
      break;
    }
    const auto kind = static_cast<FrameKind>(frames[0]);
    frames.remove_prefix(1 + sizeof(length) + sizeof(needs));
    log_.append(static_cast<uint8_t>(kind), frames.substr(0, length));
    frames.remove_prefix(length);
    records += kind == FrameKind::kRecord;
  }
  return records;
}

template <class F>
void CaptureStore::tried(F&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    failed_ = true;
    std::lock_guard lock(mutex_);
    stop_taking(error.what());
  }
}

// Runs a step of writing. After a failure the writer goes on taking items, and
// drops them.
template <class F>
void CaptureStore::guarded(F&& body) {
  if (!failed_) {
    tried(body);
  }
}

// How many of the batch's blobs are in their packs, the first ones; the log
// then has their places.
size_t CaptureStore::write_blobs(Batch& batch) {
  std::vector<BlobPacks::Place> places;
  for (auto& blob : batch.blobs) {
    guarded([&] {
      const char* bytes = blob.bytes != nullptr ? blob.bytes.get()
                                                : batch.small.data() + blob.at;
      places.push_back(packs_.write(blob.hash, {bytes, blob.size}));
    });
    buffers_.give_back(std::move(blob.bytes), blob.size);
  }
  guarded([&] { packs_.flush(); });
  if (failed_) {
    tried([&] { packs_.close(); });  // gives back what a half blob took
  }
  size_t whole = 0;
  while (whole < places.size() &&
         packs_.holds(places[whole], batch.blobs[whole].size)) {
    const auto& blob = batch.blobs[whole];
    log_.append(
        static_cast<uint8_t>(FrameKind::kBlob),
        blob_payload(blob.hash, places[whole], blob.size));
    ++whole;
  }
  return whole;
}

// Blobs first: one is in its pack before the log says so. Where the disk ends
// in the middle, the records whose blobs are whole are still written; of later
// batches nothing is.
void CaptureStore::write_batch(Batch& batch, Totals& written) {
  guarded([&] { check_disk(); });
  if (failed_) {
    for (auto& blob : batch.blobs) {
      buffers_.give_back(std::move(blob.bytes), blob.size);
    }
    return;
  }
  tried([&] {
    const size_t blobs = write_blobs(batch);
    const uint64_t records = write_frames(batch.frames, blobs);
    log_.flush();
    written.blobs = blobs;
    written.records = records;
  });
}

// Writes what is queued; false when that was nothing.
bool CaptureStore::write_next() {
  std::lock_guard files(files_);
  Batch batch;
  {
    std::lock_guard lock(mutex_);
    std::swap(batch, queue_);
    writing_ = batch.bytes;
  }
  if (batch.empty()) {
    return false;
  }
  Totals written;
  write_batch(batch, written);
  std::lock_guard lock(mutex_);
  writing_ = 0;
  totals_.records += written.records;
  totals_.refused += batch.records - written.records;
  totals_.blobs += written.blobs;
  totals_.blob_bytes = packs_.bytes();
  totals_.log_bytes = log_.bytes();
  totals_.packs = packs_.packs();
  emptied_.notify_all();
  return true;
}

void CaptureStore::write_all() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    sleeping_ = true;
    filled_.wait_for(lock, kLookAgain, [&] { return !sleeping_; });
    sleeping_ = false;
    lock.unlock();
    write_next();
    lock.lock();
  }
}

void CaptureStore::finish_files() {
  for (const auto& step : {
           std::function<void()>([&] { packs_.close(); }),
           std::function<void()>([&] { log_.flush(); }),
       }) {
    try {
      step();
    } catch (const std::exception& error) {
      std::lock_guard lock(mutex_);
      stop_taking(error.what());
    }
  }
  std::lock_guard lock(mutex_);
  totals_.log_bytes = log_.bytes();
}

}  // namespace optools
