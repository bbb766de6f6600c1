// SPDX-License-Identifier: Apache-2.0
// Appending past the page cache.
#include "core/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

namespace optools {
namespace {

// What direct writes have to be a multiple of, in memory and in the file.
constexpr size_t kSector = 4096;
constexpr size_t kChunk = size_t{4} << 20;
// One is filled while another is written; more even out what both take.
constexpr size_t kMostChunks = 4;

constexpr size_t sector_up(size_t bytes) {
  return (bytes + kSector - 1) / kSector * kSector;
}

}  // namespace

void DirectFile::FreeChunk::operator()(char* memory) const {
  std::free(memory);
}

DirectFile::~DirectFile() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
  if (file_ >= 0) {
    ::close(file_);
  }
}

void DirectFile::open(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  path_ = path;
  direct_ = true;
  file_ = ::open(path.c_str(), kFlags | O_DIRECT, 0644);
  if (file_ < 0 && errno == EINVAL) {
    direct_ = false;
    ::unlink(path.c_str());  // some systems make it before they refuse
    file_ = ::open(path.c_str(), kFlags, 0644);
  }
  if (file_ < 0) {
    throw std::system_error(errno, std::generic_category(), "creating " + path);
  }
  std::unique_lock lock(mutex_);
  error_ = 0;
  written_ = 0;
  base_ = fill_ = kept_ = 0;
}

void DirectFile::throw_failure() {
  if (error_ != 0) {
    throw std::system_error(
        error_, std::generic_category(), "writing " + path_);
  }
}

// Sets error_ where that fails, and written_ to what reached the file. Called
// without the lock, by one thread at a time.
void DirectFile::write_range(const char* bytes, size_t size, uint64_t offset) {
  size_t done = 0;
  int error = 0;
  while (done < size && error == 0) {
    const ssize_t more = ::pwrite(
        file_, bytes + done, size - done, static_cast<off_t>(offset + done));
    if (more > 0) {
      done += static_cast<size_t>(more);
    } else if (more < 0 && errno == EINVAL && direct_) {
      // Another sector size, or a limit inside of one: plainly from here on.
      direct_ = false;
      if (::fcntl(file_, F_SETFL, O_WRONLY) != 0) {
        error = errno;
      }
    } else if (more == 0 || errno != EINTR) {
      error = more == 0 ? ENOSPC : errno;
    }
  }
  const std::lock_guard lock(mutex_);
  error_ = error_ != 0 ? error_ : error;
  written_ = std::max(written_, offset + done);
}

void DirectFile::write_jobs() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) {
      return;
    }
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    const bool drop = error_ != 0;
    lock.unlock();
    if (!drop) {
      write_range(job.chunk.get() + job.from, job.size, job.offset);
    }
    lock.lock();
    busy_ = false;
    free_.push_back(std::move(job.chunk));
    changed_.notify_all();
  }
}

void DirectFile::wait_idle(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
}

void DirectFile::take_chunk(std::unique_lock<std::mutex>& lock) {
  if (free_.empty() && made_ < kMostChunks) {
    Chunk made(static_cast<char*>(std::aligned_alloc(kSector, kChunk)));
    if (made == nullptr) {
      throw std::bad_alloc();
    }
    free_.reserve(kMostChunks);  // giving one back must not fail
    ++made_;
    now_ = std::move(made);
    return;
  }
  changed_.wait(lock, [&] { return !free_.empty(); });
  now_ = std::move(free_.back());
  free_.pop_back();
}

// The full chunk goes to the thread.
void DirectFile::hand_over(std::unique_lock<std::mutex>& lock) {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { write_jobs(); });
  }
  const size_t from = kept_ / kSector * kSector;
  jobs_.push_back({std::move(now_), from, kChunk - from, base_ + from});
  base_ += kChunk;
  fill_ = kept_ = 0;
  changed_.notify_all();
  throw_failure();
  take_chunk(lock);
}

void DirectFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    if (now_ == nullptr) {
      std::unique_lock lock(mutex_);
      take_chunk(lock);
    }
    const size_t part = std::min(bytes.size(), kChunk - fill_);
    std::memcpy(now_.get() + fill_, bytes.data(), part);
    fill_ += part;
    bytes.remove_prefix(part);
    if (fill_ == kChunk) {
      std::unique_lock lock(mutex_);
      hand_over(lock);
    }
  }
}

// The last sector is written whole, with zeros after what there is, and again
// when more of it is there.
void DirectFile::flush() {
  {
    std::unique_lock lock(mutex_);
    wait_idle(lock);
    throw_failure();
  }
  if (fill_ == kept_) {
    return;
  }
  size_t end = fill_;
  if (direct_) {
    end = sector_up(fill_);
    std::memset(now_.get() + fill_, 0, end - fill_);
  }
  const size_t from = kept_ / kSector * kSector;
  write_range(now_.get() + from, end - from, base_ + from);
  const std::lock_guard lock(mutex_);
  written_ = std::min(written_, base_ + fill_);
  throw_failure();
  kept_ = fill_;
}

int DirectFile::finish() {
  try {
    flush();
  } catch (const std::system_error&) {
    // The disk is full: what is whole stays.
  }
  if (direct_) {
    ::fcntl(file_, F_SETFL, O_WRONLY);
  }
  const int file = file_;
  file_ = -1;
  return file;
}

}  // namespace optools
