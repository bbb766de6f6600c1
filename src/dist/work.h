// SPDX-License-Identifier: Apache-2.0
// A collective that was asked for and may still be under way.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

namespace npu::dist {

// What a stream's thread may wait on: it holds no tensor, whose end there
// would call the driver.
struct Completion {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;

  void set();
  void wait();
};

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

  // Once; later calls change nothing. The futures' callbacks run here.
  void complete(std::exception_ptr error);
  void set_source(int rank) {
    source_ = rank;
  }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  void blockCurrentStream() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  int sourceRank() const override;
  std::uint64_t getSequencenumber() const override;
  void abort() override;

  // The two halves of complete(): waiters go on, then the callbacks.
  bool finish_waiting(std::exception_ptr error);
  void finish_futures();

  const About& about() const {
    return about_;
  }
  // Raises the error of a call that only a stream waited for, unless somebody
  // was told of it.
  void raise_unseen();

 private:
  void rethrow();
  bool told_ = false;

  const About about_;
  std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::shared_ptr<Completion> completion_ = std::make_shared<Completion>();
  int source_ = -1;
};

}  // namespace npu::dist
