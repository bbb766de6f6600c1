// SPDX-License-Identifier: Apache-2.0
// A driver's communicator (comm/1), with a stream of its own.
#pragma once

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
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
  // Called while a thread waits; throws to end the wait.
  using Watch = std::function<void()>;
  struct Place {
    int rank = 0;
    int size = 1;
    c10::DeviceIndex device = 0;
    std::string group;
  };
  // How the ranks of a communicator agree while they make it. Every rank calls
  // the same functions in the same order.
  class Agreement {
   public:
    virtual ~Agreement() = default;
    // Rank 0's bytes, on every rank.
    virtual void share(at::Tensor& bytes) = 0;
    // True on every rank where all say yes, else false on every rank.
    virtual bool all_say(bool mine) = 0;
  };

  // What ranks must have in common to use one; "" where the driver of this
  // process has none, or NPU_COLLECTIVES=host.
  static std::string offered();
  // Dtypes that go to the driver as they are: those that it rounds at every hop
  // only with NPU_COLLECTIVES_HALVES=1, the default on CUDA.
  static std::uint64_t reduced_dtypes(const npu_comm_table& table);
  // Together with the other ranks: where one of them gets none, none has, and
  // the log says why.
  static std::shared_ptr<Communicator> make(
      const Place& place,
      Agreement& agreement,
      std::chrono::steady_clock::time_point deadline,
      const Watch& watch);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // No other code queues work there.
  c10::Stream stream() const {
    return stream_;
  }
  const npu_comm_table& table() const {
    return table_;
  }
  // Returns as soon as the driver has it. False: the driver declines, and
  // nothing was queued. Throws what else the driver answers.
  bool queue(const std::function<npu_status(const Call&)>& work);
  // Throws what went wrong with it in the background: what the driver says of
  // the communicator, or what its stream reports.
  void check() const;
  // Ends the operations that are queued. From any thread, once.
  void abort() noexcept;
  // After abort: waits until the stream goes on, for a while. A driver that
  // does not let it has its memory for good.
  void await_end() noexcept;

 private:
  Communicator(
      const npu_comm_table& table, c10::Stream stream, std::string group);
  npu_status init(const Place& place, const void* id, std::uint32_t limit);
  void wait_until_ready(const Watch& watch) const;

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
