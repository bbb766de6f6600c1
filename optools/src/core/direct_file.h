// SPDX-License-Identifier: Apache-2.0
// A file that is appended to past the page cache, by a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace optools {

// Copying into fresh pages of the page cache takes more time than the disk
// does, and once many pages are dirty the kernel makes writers wait.
// Where the file system has no direct writes, plain ones are made. One thread
// calls; one file is open at a time, and the memory is used again for the next.
class DirectFile {
 public:
  DirectFile() = default;
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Makes the file, which must not exist. All of these throw
  // std::system_error, also for what an earlier append() could not write.
  void open(const std::string& path);
  void append(std::string_view bytes);
  // Everything appended is in the file when this returns.
  void flush();
  // Ends appending; what is whole is in the file. The descriptor, of plain
  // writes from now on, is the caller's to close.
  int finish();

  bool is_open() const {
    return file_ >= 0;
  }
  // Bytes in the file, from its beginning; all of them after flush().
  uint64_t written() const {
    const std::lock_guard lock(mutex_);
    return written_;
  }

 private:
  struct FreeChunk {
    void operator()(char* memory) const;
  };
  using Chunk = std::unique_ptr<char, FreeChunk>;
  struct Job {
    Chunk chunk;
    size_t from;  // in the chunk
    size_t size;
    uint64_t offset;  // in the file
  };

  void write_range(const char* bytes, size_t size, uint64_t offset);
  void hand_over(std::unique_lock<std::mutex>& lock);
  void take_chunk(std::unique_lock<std::mutex>& lock);
  void wait_idle(std::unique_lock<std::mutex>& lock);
  void throw_failure();
  void write_jobs();

  std::string path_;
  int file_ = -1;
  bool direct_ = false;
  Chunk now_;          // being filled
  size_t fill_ = 0;    // bytes in it
  size_t kept_ = 0;    // of them in the file, from the beginning
  uint64_t base_ = 0;  // its place in the file

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<Chunk> free_;
  size_t made_ = 0;  // chunks there are
  bool busy_ = false;
  bool ending_ = false;
  int error_ = 0;  // the first one's
  uint64_t written_ = 0;
  std::thread thread_;  // from the first full chunk on
};

}  // namespace optools
