// SPDX-License-Identifier: Apache-2.0
// Work done behind the program's back.
#include "core/work_queue.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "core/blocking.h"
#include "core/process.h"
#include "core/thread.h"

namespace optools {
namespace {

// What PyTorch sets on a thread's first use must not come later. In a forked
// child it makes its thread pool again, and of threads that ask meanwhile some
// get an error: the next try succeeds.
void settle_threads() {
  for (int tries = 0; tries < 100; ++tries) {
    try {
      at::get_num_threads();
      return;
    } catch (const c10::Error&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// at::set_num_threads() would change the user's threads as well.
void compute_alone() {
  settle_threads();
  using SetThreads = void (*)(int);
  using SetLocal = int (*)(int);
  if (void* set = dlsym(RTLD_DEFAULT, "omp_set_num_threads")) {
    reinterpret_cast<SetThreads>(set)(1);
  }
  if (void* set = dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local")) {
    reinterpret_cast<SetLocal>(set)(1);
  }
}

}  // namespace

struct WorkQueue::State {
  struct Job {
    size_t bytes;
    std::function<void()> run;
  };
  const int wanted;
  const size_t limit;
  const OwnProcess process;
  std::mutex mutex;
  std::condition_variable there_is_work;
  std::condition_variable there_is_room;
  std::deque<Job> jobs;
  std::vector<std::thread> threads;  // some may have ended
  int running = 0;
  size_t bytes = 0;  // of jobs that wait or run
  size_t unfinished = 0;
  int draining = 0;  // then threads end where there is nothing to do

  State(int threads_wanted, size_t bytes_limit)
      : wanted(threads_wanted), limit(bytes_limit) {}

  void work() {
    Quiet quiet;
    compute_alone();
    std::unique_lock lock(mutex);
    while (true) {
      there_is_work.wait(lock, [&] { return draining > 0 || !jobs.empty(); });
      if (jobs.empty()) {
        --running;  // with the lock held: no job comes in between
        return;
      }
      Job job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job.run();
      job.run = nullptr;  // frees what it kept
      lock.lock();
      bytes -= job.bytes;
      --unfinished;
      there_is_room.notify_all();
    }
  }
};

WorkQueue::WorkQueue(int threads, size_t limit_bytes)
    : state_(new State(threads, limit_bytes)) {}

WorkQueue::~WorkQueue() {
  if (state_->process.still()) {
    drain();
    delete state_;
  }
}

void WorkQueue::put(size_t bytes, std::function<void()> job) {
  auto& s = *state_;
  {
    std::unique_lock lock(s.mutex);
    const auto room = [&] {
      return s.bytes == 0 || s.bytes + bytes <= s.limit;
    };
    while (!room()) {
      lock.unlock();
      wait_for_others([&] {
        std::unique_lock again(s.mutex);
        s.there_is_room.wait(again, room);
      });
      lock.lock();
    }
    if (s.running < s.wanted) {  // first: a job without a thread blocks waiters
      s.threads.emplace_back([&s] { s.work(); });
      ++s.running;
    }
    s.jobs.push_back({bytes, std::move(job)});
    s.bytes += bytes;
    ++s.unfinished;
  }
  s.there_is_work.notify_one();
}

void WorkQueue::wait() {
  auto& s = *state_;
  wait_for_others([&] {
    std::unique_lock lock(s.mutex);
    s.there_is_room.wait(lock, [&] { return s.unfinished == 0; });
  });
}

void WorkQueue::drain() {
  auto& s = *state_;
  wait_for_others([&] {
    std::unique_lock lock(s.mutex);
    ++s.draining;
    while (!s.threads.empty()) {
      std::vector<std::thread> threads;
      threads.swap(s.threads);
      lock.unlock();
      s.there_is_work.notify_all();
      for (auto& thread : threads) {
        thread.join();
      }
      lock.lock();
    }
    // Another thread may be waiting for its own jobs.
    s.there_is_room.wait(lock, [&] { return s.unfinished == 0; });
    --s.draining;
  });
}

}  // namespace optools
