// SPDX-License-Identifier: Apache-2.0
// A collective or message that was asked for and may still be under way.
#pragma once

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/event.h"

namespace npu::dist {

// How far a call has come. It holds no tensor: threads of streams may own it,
// and a tensor that ended there would call the driver.
class Progress {
 public:
  ~Progress();
  // The call ends when `stream` has passed the work it holds now.
  void queue_behind(c10::Stream stream);
  // Ends the call, with an error unless `error` is null. Only the first one
  // counts; false for the others.
  bool finish(std::exception_ptr error);

  // True once it is finished or its stream has passed it. False where the
  // driver reports an error instead: the watch ends the call then.
  bool is_done() const;
  // That error, which a driver reports once; empty: none.
  std::string device_error() const;
  bool has_failed() const;
  // Where it was queued; none before that.
  std::optional<c10::Stream> stream() const;

  // Blocks until finish(), or until Python ends.
  void wait_until_finished() const;
  // Blocks the host until it is done; false when the time is over or Python
  // ends. Without a limit where `limit` is kNoTimeout.
  bool wait(std::chrono::milliseconds limit) const;
  // `stream` waits, the host does not.
  static void hold_up(
      const std::shared_ptr<Progress>& progress, c10::Stream stream);

  // Throws the error, if there is one; the caller has been told of it then.
  void rethrow();
  void rethrow_unless_told();
  std::exception_ptr error() const;

 private:
  bool is_done_locked() const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::string device_error_;
  bool finished_ = false;
  bool told_ = false;
  std::exception_ptr error_;
  std::optional<c10::Stream> stream_;
  Event end_;  // recorded when stream_ is set
};
using ProgressPtr = std::shared_ptr<Progress>;

// What an exception says, without the stack of C++ functions.
std::string words_of(const std::exception& error);

class HcclWork : public c10d::Work {
 public:
  struct About {
    int rank = 0;
    c10d::OpType type = c10d::OpType::UNKNOWN;
    std::uint64_t number = 0;
    std::string text;
    c10::DeviceIndex device = 0;
    bool stream_waits = false;  // wait() holds up the stream, not the host
  };
  HcclWork(About about, std::vector<at::Tensor> outputs);

  const ProgressPtr& progress() const {
    return progress_;
  }
  // Completes the future once, on the communicator's stream where the work is
  // there; callbacks run here.
  void finish_future();
  void set_source(int rank) {
    source_ = rank;
  }
  const About& about() const {
    return about_;
  }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  void blockCurrentStream() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  int sourceRank() const override;
  std::uint64_t getSequencenumber() const override;
  void abort() override;

 private:
  const About about_;
  const ProgressPtr progress_ = std::make_shared<Progress>();
  std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<bool> future_taken_{false};
  int source_ = -1;
};

}  // namespace npu::dist
