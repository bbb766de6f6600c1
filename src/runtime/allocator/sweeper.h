// SPDX-License-Identifier: Apache-2.0
// A thread that calls a function once in a while.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace npu::memory {

class Sweeper {
 public:
  Sweeper(std::chrono::milliseconds period, std::function<void()> sweep)
      : period_(period), sweep_(std::move(sweep)) {}
  ~Sweeper();
  Sweeper(const Sweeper&) = delete;
  Sweeper& operator=(const Sweeper&) = delete;

  // The first call starts the thread. A system that has no thread to give is
  // no error: idle memory then waits for the next growth.
  void start() noexcept;

 private:
  void loop();

  const std::chrono::milliseconds period_;
  const std::function<void()> sweep_;
  std::once_flag started_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace npu::memory
