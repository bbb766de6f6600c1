// SPDX-License-Identifier: Apache-2.0
// Which calls a driver ran (operator, kind, code and dtype), and the time of
// each kind.
#pragma once

#include <time.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "npu/kinds.h"
#include "npu/validate.h"

class RunTally {
 public:
  void record(const npu_call& call) {
    const npu_kind_info* kind = npu_kind_of(call.slot);
    std::string line = call.label != nullptr ? call.label : "?";
    line += ' ';
    line += kind != nullptr ? kind->name : "vendor";
    if (kind != nullptr && kind->n_codes > 1) {
      line += '.';
      line += kind->codes[call.code];
    }
    line += ' ';
    line += npu_dtype_name(dtype_of(call));
    const std::lock_guard<std::mutex> lock(mutex_);
    lines_.insert(std::move(line));
  }

  // Processor time of one call.
  void record_time(const npu_call& call, std::int64_t nanoseconds) {
    const std::lock_guard<std::mutex> lock(mutex_);
    times_[npu_kind_name(call.slot)] += nanoseconds;
  }

  // The lines "kind nanoseconds" noted since the last time.
  std::string take_times() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::string text;
    for (const auto& [kind, nanoseconds] : times_) {
      text += kind + ' ' + std::to_string(nanoseconds) + '\n';
    }
    times_.clear();
    return text;
  }

  // The lines "operator kind.code dtype" noted since the last time, each once.
  std::string take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::string text;
    for (const std::string& line : lines_) {
      text += line + '\n';
    }
    lines_.clear();
    return text;
  }

 private:
  // Of the first input there is, else of the first list, else of the output.
  static npu_dtype dtype_of(const npu_call& call) {
    for (std::uint32_t i = call.n_out; i < call.n_out + call.n_in; ++i) {
      if (call.tensors[i].dtype != NPU_ABSENT) {
        return call.tensors[i].dtype;
      }
    }
    if (call.n_lists > 0) {
      return call.lists[0].dtype;
    }
    return call.n_out > 0 ? call.tensors[0].dtype : npu_dtype{NPU_ABSENT};
  }

  std::mutex mutex_;
  std::set<std::string> lines_;
  std::map<std::string, std::int64_t> times_;
};

// Processor time of this thread: a busy machine does not change it.
inline std::int64_t thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}
