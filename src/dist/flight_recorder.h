// SPDX-License-Identifier: Apache-2.0
// The last collectives of this process, kept for the day one of them hangs.
//
// One ring for all groups. What it writes has the keys of PyTorch's own flight
// recorder, so that torch.distributed.flight_recorder.fr_trace reads it and
// says which rank is missing where. PyTorch's class itself cannot be used: its
// package exports none of its members, in no supported version.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dist/work.h"

namespace npu::dist {

class FlightRecorder {
 public:
  // Of this process; TORCH_HCCL_TRACE_BUFFER_SIZE calls long.
  static FlightRecorder& of_process();

  struct Group {
    std::string uid;
    std::string description;
    std::vector<std::uint64_t> ranks;  // of the whole job
  };
  struct Operands {
    std::vector<std::vector<std::int64_t>> sizes;
    std::vector<std::string> dtypes;
  };
  struct Call {
    Group group;
    std::string name;  // "all_reduce", "send 0->1"
    bool point_to_point = false;
    std::uint64_t number = 0;  // within the group
    // The same on every rank of the call, and of no other call.
    std::uint64_t matched = 0;
    Operands inputs;
    Operands outputs;
    std::chrono::milliseconds timeout{};
    std::shared_ptr<torch::CapturedTraceback> stack;
  };

  bool on() const {
    return capacity_ != 0;
  }
  // This thread's Python stack; takes Python's lock.
  static std::shared_ptr<torch::CapturedTraceback> stack_here();
  // Returns the number that the others ask for.
  std::uint64_t scheduled(Call call);
  // `progress`, where a communicator has it: the record asks whether it ended.
  void started(std::uint64_t record, ProgressPtr progress);
  void completed(std::uint64_t record);
  void failed(std::uint64_t record, const std::string& why);

  // Stacks need Python's lock: leave them out where another thread may hold it.
  // A pickle of built-in types only: loading it runs nothing.
  std::string dump(bool calls, bool stacks, bool only_active);
  // Writes the file of `rank` once, if TORCH_HCCL_DUMP_ON_TIMEOUT asks for it.
  void write_after_failure(int rank) noexcept;
  // Written under another name and renamed: readers see a whole file.
  static void write(const std::string& file, const std::string& contents);
  static std::string file_of(int rank);

 private:
  struct Entry {
    std::uint64_t record = 0;
    Call call;
    std::int64_t created = 0;  // ns since the epoch
    std::optional<std::int64_t> started;
    std::optional<std::int64_t> completed;
    bool retired = false;
    std::string error;
    ProgressPtr progress;
  };

  FlightRecorder();
  Entry* find(std::uint64_t record);  // nullptr: overwritten since
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::uint64_t next_ = 0;
  std::vector<Entry> ring_;
  bool written_ = false;
};

}  // namespace npu::dist
