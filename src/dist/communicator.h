// SPDX-License-Identifier: Apache-2.0
// A driver's communicator (comm/1) of one group, and one operation at a time on
// it, watched until it is done.
#pragma once

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "npu/comm.h"

namespace npu::dist {

class Communicator {
 public:
  // What one operation is queued with.
  struct Call {
    const npu_comm_table& table;
    npu_comm comm;
    npu_stream stream;
  };
  // Called while somebody waits; throws to end the wait.
  using Watch = std::function<void()>;
  struct Place {
    int rank = 0;
    int size = 1;
    c10::DeviceIndex device = 0;
    std::string group;
  };

  // What ranks must have in common to use one; "" where the driver of this
  // process has none, or NPU_COLLECTIVES=host.
  static std::string offered();
  // Together with the other ranks, which agree through Gloo: where one of them
  // gets none, none has, and the log says why.
  static std::shared_ptr<Communicator> make(
      const Place& place,
      c10d::Backend& gloo,
      std::chrono::steady_clock::time_point deadline,
      const Watch& watch);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Nobody else uses it.
  c10::Stream stream() const {
    return stream_;
  }
  const npu_comm_table& table() const {
    return table_;
  }
  // Queues it and waits until it is done. False: the driver declines, and
  // nothing was done. Whatever is thrown, the communicator is gone then.
  bool run(
      const std::function<npu_status(const Call&)>& queue, const Watch& watch);
  // From any thread: ends what is under way.
  void abort() noexcept;
  // The driver did not end an operation: its memory must not be used again.
  bool is_stuck() const {
    return stuck_.load();
  }

 private:
  Communicator(
      const npu_comm_table& table, c10::Stream stream, std::string group);
  npu_status init(const Place& place, const void* id, std::uint32_t limit);
  void wait_until_ready(const Watch& watch) const;
  bool start(const std::function<npu_status(const Call&)>& queue);
  void wait_for_the_stream(const Watch& watch);
  void let_the_stream_end() noexcept;

  const npu_comm_table& table_;
  const c10::Stream stream_;
  const std::string group_;
  // Held while the driver is given the handle, so that abort does not take it
  // away in between.
  mutable std::timed_mutex mutex_;
  std::atomic<npu_comm> comm_{nullptr};
  std::atomic<bool> stuck_{false};
};

}  // namespace npu::dist
