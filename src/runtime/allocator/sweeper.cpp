// SPDX-License-Identifier: Apache-2.0
// The thread behind Note [Idle memory] (device_pool.cpp).
#include "runtime/allocator/sweeper.h"

#include <pthread.h>

#include <csignal>
#include <system_error>

namespace npu::memory {

Sweeper::~Sweeper() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Sweeper::start() noexcept {
  std::call_once(started_, [this] {
    // Signals are for the threads the user knows: new threads inherit the mask.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { loop(); });
      pthread_setname_np(thread_.native_handle(), "npu idle memory");
    } catch (const std::system_error&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  });
}

void Sweeper::loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, period_, [this] { return stopping_; })) {
    sweep_();
  }
}

}  // namespace npu::memory
