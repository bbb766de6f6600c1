// SPDX-License-Identifier: Apache-2.0
// Which calls a driver ran: operator, kind, code and dtype.
#pragma once

#include <cstdint>
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
};
