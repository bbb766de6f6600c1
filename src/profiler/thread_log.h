// SPDX-License-Identifier: Apache-2.0
// What each thread launched: a list of its own per thread, so that threads that
// launch do not wait for one another.
#pragma once

#include <cstddef>
#include <mutex>
#include <string_view>
#include <vector>

#include "profiler/record.h"

namespace npu::profiler {

class ThreadLog {
 public:
  // Of the calling thread; lives as long as the process.
  static ThreadLog& mine();
  // Everything logged so far, of all threads; the logs are empty after it.
  static std::vector<Record> take_all();

  void add(Record&& record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    records_.push_back(std::move(record));
  }
  std::int32_t thread() const noexcept {
    return thread_;
  }
  // Calls visit(record) for each, oldest first, from the first that is not
  // resolved; it answers whether that one is resolved now, and false ends it.
  template <class Visit>
  void resolve(Visit visit) {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (resolved_ < records_.size() && visit(records_[resolved_])) {
      ++resolved_;
    }
  }
  std::size_t unresolved() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return records_.size() - resolved_;
  }

 private:
  ThreadLog();

  mutable std::mutex mutex_;
  std::vector<Record> records_;
  std::size_t resolved_ = 0;
  const std::int32_t thread_;
};

// The same text at one address, for as long as the process lives.
const std::string* lasting(std::string_view text);

}  // namespace npu::profiler
