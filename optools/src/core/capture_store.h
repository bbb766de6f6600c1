// SPDX-License-Identifier: Apache-2.0
// A capture's files: records and blobs go in from any thread, one thread of
// its own writes them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/blob_packs.h"
#include "core/buffer_pool.h"
#include "core/frame_log.h"
#include "core/process.h"
#include "core/recent_hashes.h"

namespace optools {

// Kinds of frames in the record log; see docs/capture-format.md.
enum class FrameKind : uint8_t {
  kHead = 1,
  kDefinition = 2,
  kBlob = 3,
  kRecord = 4,
  kLate = 5,
  kEnd = 6,
};

struct CaptureLimits {
  uint64_t queue_bytes = 256ull << 20;
  uint64_t pack_bytes = 256ull << 20;
  uint64_t max_bytes = 0;  // of files; 0: no limit
  uint64_t min_free = 0;   // bytes the disk must keep free
};

class CaptureStore {
 public:
  // Makes the folder's files; the folder exists and holds no capture.
  CaptureStore(std::string folder, const CaptureLimits& limits);
  ~CaptureStore();
  CaptureStore(const CaptureStore&) = delete;
  CaptureStore& operator=(const CaptureStore&) = delete;

  // Deletes a store, except in a forked child: it has neither the thread nor a
  // say in the files.
  struct Forget {
    void operator()(CaptureStore* store) const;
  };

  // Stores the bytes unless they are stored already; copies them before it
  // returns. Waits while the queue is full.
  void add_blob(const BlobHash& hash, std::string_view bytes);

  struct Frame {
    FrameKind kind;
    std::string payload;
  };
  // A record and what it needs defined first. When its step is another one
  // than the last record's, all that came before is in the files when this
  // returns.
  void add_record(const std::vector<Frame>& frames, int64_t step);

  // Waits until everything is in the files.
  void drain();
  // Drains and closes the files, with a last frame of this payload.
  void close(const std::string& end_payload);

  // False once nothing more is taken: a limit was met or the disk is full.
  bool open() const {
    return open_.load(std::memory_order_relaxed);
  }
  std::string why_closed() const;

  struct Totals {
    uint64_t records = 0;     // frames of that kind, and no others
    uint64_t refused = 0;     // those that came after a limit was met
    uint64_t seen_bytes = 0;  // of contents read
    uint64_t blob_bytes = 0;  // of them stored
    uint64_t log_bytes = 0;
    uint64_t blobs = 0;
    uint64_t packs = 0;
  };
  Totals totals() const;

 private:
  struct Blob {
    BlobHash hash;
    BufferPool::Buffer bytes;  // null for a small one
    size_t size;
    size_t at;  // of a small one, in Batch::small
  };
  // What waits to be written: blobs go before the frames that speak of them.
  struct Batch {
    std::vector<Blob> blobs;
    std::string small;  // contents of small blobs
    // Kind (1 byte), length (4), how many of `blobs` were there (4), payload.
    std::string frames;
    uint64_t records = 0;
    uint64_t bytes = 0;
    bool empty() const {
      return bytes == 0;
    }
  };
  void write_all();
  bool write_next();
  void write_batch(Batch& batch, Totals& written);
  size_t write_blobs(Batch& batch);
  uint64_t write_frames(std::string_view frames, size_t blobs);
  void finish_files();
  template <class F>
  void tried(F&& body);
  template <class F>
  void guarded(F&& body);
  void queue_blob(Blob blob);
  bool count_bytes(uint64_t bytes);
  void make_room(std::unique_lock<std::mutex>& lock, uint64_t bytes);
  void wake_writer();
  void stop_taking(const std::string& why);
  void check_disk();

  const std::string folder_;
  const CaptureLimits limits_;
  const OwnProcess process_;

  mutable std::mutex mutex_;
  std::condition_variable filled_;
  std::condition_variable emptied_;
  Batch queue_;
  uint64_t writing_ = 0;  // bytes taken from the queue and not written yet
  bool sleeping_ = false;
  bool ending_ = false;
  bool closed_ = false;
  int64_t step_ = -1;
  // What was stored long ago is stored again: a pack holds far fewer, so that
  // no name is in one twice.
  RecentHashes known_{size_t{1} << 18};
  BufferPool buffers_;
  Totals totals_;
  uint64_t taken_ = 0;  // bytes taken, for max_bytes
  std::atomic<bool> open_{true};
  std::string why_;

  // Held while writing; taken before mutex_.
  std::mutex files_;
  FrameLog log_;
  BlobPacks packs_;
  uint64_t checked_at_ = 0;
  bool failed_ = false;
  std::thread writer_;
};

}  // namespace optools
