// SPDX-License-Identifier: Apache-2.0
// A pool that lives as long as the process; one parallel_for at a time, others
// that come meanwhile run on their caller's thread alone.
#include "driver/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "driver/env.h"
#include "driver/services.h"
#include "driver/status.h"

namespace npu {

namespace {

thread_local bool inside = false;

struct Job {
  npu_range_fn fn;
  void* context;
  std::int64_t n;
  std::int64_t piece;
  std::atomic<std::int64_t> next{0};
  std::atomic<npu_status> status{NPU_OK};

  void work() noexcept {
    inside = true;
    while (status.load(std::memory_order_relaxed) == NPU_OK) {
      const std::int64_t begin = next.fetch_add(piece);
      if (begin >= n) {
        break;
      }
      const npu_status answer = fn(context, begin, std::min(n, begin + piece));
      npu_status none = NPU_OK;
      if (answer != NPU_OK) {
        status.compare_exchange_strong(none, answer);
      }
    }
    inside = false;
  }
};

std::int64_t thread_count() noexcept {
  const std::int64_t cores =
      std::max<std::int64_t>(std::thread::hardware_concurrency(), 1);
  try {
    return env::integer("NPU_NUM_THREADS", 1, 1024, cores);
  } catch (const Error& error) {
    log(NPU_LOG_ERROR, error.what());
    return cores;
  }
}

class Pool {
 public:
  Pool() noexcept {
    const std::int64_t wanted = thread_count() - 1;
    for (std::int64_t i = 0; i < wanted; ++i) {
      try {
        std::thread([this] { serve(); }).detach();
      } catch (...) {
        break;  // fewer threads are fine
      }
      ++helpers_;
    }
  }

  std::int64_t helpers() const noexcept {
    return helpers_;
  }

  void run(Job& job) noexcept {
    std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) {
      job.work();
      return;
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      job_ = &job;
      ++round_;
    }
    wake_.notify_all();
    job.work();
    std::unique_lock<std::mutex> lock(mutex_);
    job_ = nullptr;
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void serve() noexcept {
    std::uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return job_ != nullptr && round_ != seen; });
      seen = round_;
      Job* job = job_;
      ++busy_;
      lock.unlock();
      job->work();
      lock.lock();
      if (--busy_ == 0) {
        done_.notify_one();
      }
    }
  }

  std::mutex turn_;  // held by the caller whose job it is
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  Job* job_ = nullptr;
  std::uint64_t round_ = 0;
  std::int64_t busy_ = 0;
  std::int64_t helpers_ = 0;
};

}  // namespace

npu_status pool_parallel_for(
    std::int64_t n,
    std::int64_t grain,
    npu_range_fn fn,
    void* context) noexcept {
  if (n <= 0) {
    return NPU_OK;
  }
  grain = std::max<std::int64_t>(grain, 1);
  // The threads of a parent do not exist in a forked child.
  if (inside || n <= grain || forked_child()) {
    return fn(context, 0, n);
  }
  // Never destroyed: its threads outlive main.
  static Pool* pool = new Pool;
  const std::int64_t threads = pool->helpers() + 1;
  // A few pieces per thread, so that a slow one does not hold up the rest.
  const std::int64_t even = (n + 4 * threads - 1) / (4 * threads);
  Job job{fn, context, n, std::max(grain, even)};
  pool->run(job);
  return job.status;
}

}  // namespace npu
