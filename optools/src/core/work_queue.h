// SPDX-License-Identifier: Apache-2.0
// Work done behind the program's back, in bounded memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace optools {

class WorkQueue {
 public:
  // Threads start with the first job. Each computes alone: kernels it calls
  // use no further threads.
  WorkQueue(int threads, size_t limit_bytes);
  // Waits for what is left.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // `bytes` is what the job keeps alive. Waits while more than the limit does;
  // one job larger than that is let in alone. A job's exceptions are its own.
  void put(size_t bytes, std::function<void()> job);
  // Returns once everything that was put is done.
  void wait();
  // The same, and the threads have ended.
  void drain();

 private:
  struct State;
  // Not freed in a forked child, which has the state but not the threads.
  State* state_;
};

}  // namespace optools
