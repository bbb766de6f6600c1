// SPDX-License-Identifier: Apache-2.0
// A capture's files and the thread that writes them.
#include "core/capture_store.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "core/packer.h"

namespace optools {
namespace {

// Waking a thread costs more than queueing: it is woken for this much, or
// looks by itself after a while.
constexpr size_t kWakeItems = 256;
constexpr uint64_t kWakeBytes = 1 << 20;
constexpr auto kLookAgain = std::chrono::milliseconds(20);
constexpr uint64_t kCheckDiskEvery = 16ull << 20;

std::string blob_payload(
    const BlobHash& hash, const BlobPacks::Place& place, uint64_t bytes) {
  Packer packer;
  packer.array(4);
  packer.text(hash.hex());
  packer.natural(place.pack);
  packer.natural(place.offset);
  packer.natural(bytes);
  return packer.take();
}

}  // namespace

CaptureStore::CaptureStore(std::string folder, const CaptureLimits& limits)
    : folder_(std::move(folder)),
      limits_(limits),
      process_(::getpid()),
      log_(folder_ + "/records.oplog"),
      packs_(folder_, limits.pack_bytes),
      writer_(std::make_unique<std::thread>([this] { write_all(); })) {}

CaptureStore::~CaptureStore() {
  close({});
}

void CaptureStore::Forget::operator()(CaptureStore* store) const {
  if (store->parents_process()) {
    delete store;
  }
}

bool CaptureStore::parents_process() const {
  return ::getpid() == process_;
}

void CaptureStore::push(std::unique_lock<std::mutex>& lock, Item item) {
  while (queued_ != 0 && queued_ + item.size > limits_.queue_bytes && open()) {
    urgent_ = true;
    filled_.notify_one();
    emptied_.wait_for(lock, kLookAgain);
  }
  queued_ += item.size;
  queue_.push_back(std::move(item));
  if (sleeping_ && (queued_ >= kWakeBytes || queue_.size() >= kWakeItems)) {
    filled_.notify_one();
  }
}

void CaptureStore::add_blob(const BlobHash& hash, std::string_view bytes) {
  if (!open() || !parents_process()) {
    return;
  }
  {
    std::lock_guard lock(mutex_);
    totals_.seen_bytes += bytes.size();
    if (known_.contains(hash)) {
      return;
    }
    taken_ += bytes.size();
    if (limits_.max_bytes != 0 && taken_ > limits_.max_bytes) {
      stop_taking(
          "the limit of " + std::to_string(limits_.max_bytes >> 20) +
          " MiB is reached");
      return;
    }
    known_.insert(hash);
  }
  Item item;
  item.hash = hash;
  item.blob.reset(new char[bytes.size()]);
  std::memcpy(item.blob.get(), bytes.data(), bytes.size());
  item.blob_bytes = bytes.size();
  item.size = bytes.size() + sizeof(Item);
  std::unique_lock lock(mutex_);
  if (open()) {
    push(lock, std::move(item));
  }
}

void CaptureStore::add_record(std::vector<Frame> frames, int64_t step) {
  if (!parents_process()) {
    return;
  }
  Item item;
  item.size = sizeof(Item);
  for (const auto& frame : frames) {
    item.size += sizeof(Frame) + frame.payload.size();
  }
  item.frames = std::move(frames);
  std::unique_lock lock(mutex_);
  if (!open()) {
    ++totals_.refused;
    return;
  }
  taken_ += item.size;
  const bool new_step = step != step_;
  step_ = step;
  if (new_step) {
    while (open() && (!queue_.empty() || writing_)) {
      urgent_ = true;
      filled_.notify_one();
      emptied_.wait_for(lock, kLookAgain);
    }
  }
  push(lock, std::move(item));
}

void CaptureStore::drain() {
  if (!parents_process()) {
    return;
  }
  std::unique_lock lock(mutex_);
  while (writer_ != nullptr && (!queue_.empty() || writing_)) {
    urgent_ = true;
    filled_.notify_one();
    emptied_.wait_for(lock, kLookAgain);
  }
}

void CaptureStore::close(const std::string& end_payload) {
  if (!parents_process()) {
    return;
  }
  std::unique_ptr<std::thread> writer;
  {
    std::lock_guard lock(mutex_);
    writer = std::move(writer_);
    if (writer == nullptr) {
      return;
    }
    ending_ = true;
    end_payload_ = end_payload;
    filled_.notify_one();
  }
  writer->join();
  std::lock_guard lock(mutex_);
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

void CaptureStore::write_item(const Item& item) {
  if (item.blob != nullptr) {
    const auto place =
        packs_.write(item.hash, {item.blob.get(), item.blob_bytes});
    log_.append(
        static_cast<uint8_t>(FrameKind::kBlob),
        blob_payload(item.hash, place, item.blob_bytes));
  }
  for (const auto& frame : item.frames) {
    log_.append(static_cast<uint8_t>(frame.kind), frame.payload);
  }
  if (log_.wants_flush()) {
    packs_.flush();  // a blob is in its pack before the log says so
    log_.flush();
  }
}

// Runs a step of writing. After a failure the writer goes on taking items, and
// drops them.
template <class F>
void CaptureStore::guarded(F&& body) {
  if (failed_) {
    return;
  }
  try {
    body();
  } catch (const std::exception& error) {
    failed_ = true;
    log_.discard();  // it may speak of blobs that are not in their pack
    std::lock_guard lock(mutex_);
    stop_taking(error.what());
  }
}

void CaptureStore::write_batch(std::deque<Item>& batch) {
  guarded([&] { check_disk(); });
  uint64_t blobs = 0;
  uint64_t records = 0;
  uint64_t dropped = 0;
  for (auto& item : batch) {
    guarded([&] { write_item(item); });
    const bool blob = item.blob != nullptr;
    blobs += !failed_ && blob;
    records += !failed_ && !blob;
    dropped += failed_ && !blob;
    const auto size = item.size;
    item = {};
    std::lock_guard lock(mutex_);
    queued_ -= size;
    emptied_.notify_all();
  }
  batch.clear();
  guarded([&] {
    packs_.flush();
    log_.flush();
  });
  std::lock_guard lock(mutex_);
  totals_.records += records;
  totals_.refused += dropped;
  totals_.blobs += blobs;
  totals_.blob_bytes = packs_.bytes();
  totals_.log_bytes = log_.bytes();
  totals_.packs = packs_.packs();
}

void CaptureStore::write_all() {
  std::deque<Item> batch;
  std::unique_lock lock(mutex_);
  while (!ending_ || !queue_.empty()) {
    if (queue_.empty()) {
      urgent_ = false;
      sleeping_ = true;
      emptied_.notify_all();
      filled_.wait_for(lock, kLookAgain, [&] {
        return ending_ || urgent_ || queued_ >= kWakeBytes ||
               queue_.size() >= kWakeItems;
      });
      sleeping_ = false;
      continue;
    }
    batch.swap(queue_);
    writing_ = true;
    lock.unlock();
    write_batch(batch);
    lock.lock();
    writing_ = false;
  }
  lock.unlock();
  finish_files();
}

void CaptureStore::finish_files() {
  try {
    packs_.close();
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex_);
    stop_taking(error.what());
  }
  try {
    if (!end_payload_.empty()) {
      log_.append(static_cast<uint8_t>(FrameKind::kEnd), end_payload_);
    }
    log_.flush();
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex_);
    stop_taking(error.what());
  }
  std::lock_guard lock(mutex_);
  totals_.log_bytes = log_.bytes();
  emptied_.notify_all();
}

}  // namespace optools
