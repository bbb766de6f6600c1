// SPDX-License-Identifier: Apache-2.0
// A thread that does jobs one after the other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace npu::dist {

// The thread starts with the first job. It may outlive the lane: a job that
// cannot be ended (Gloo's) must not block the thread that drops the lane.
class Lane {
 public:
  explicit Lane(std::string name);
  // Ends the thread once its jobs are done; does not wait for them.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const std::string& name() const {
    return name_;
  }
  // A job does not throw.
  void submit(std::function<void()> job);
  // No job runs or waits.
  bool is_idle() const;
  // False when the thread has something to do already.
  bool submit_if_idle(const std::function<void()>& job);
  // True when no job is left within that time. A job of the lane that asks gets
  // its answer at once: it is the one that is left.
  bool drain(double seconds) const;

 private:
  struct State {
    mutable std::mutex mutex;
    mutable std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    bool busy = false;
    bool ended = false;
    bool started = false;
    std::thread::id thread{};
  };
  void add(std::function<void()> job);  // with the lock held
  static void work(
      const std::shared_ptr<State>& state, const std::string& name);

  std::string name_;
  std::shared_ptr<State> state_;
};

// Note [Ending]: what a lane releases may belong to Python (tensors,
// callbacks). A thread that asks for Python's lock while the interpreter ends
// is ended inside of a destructor, and that ends the process. So before the
// interpreter ends, lanes get a moment to finish; then each stops for ever
// where it comes to, having released nothing. Work that needs Python's lock
// itself runs in run_before_end(), which end_lanes() waits for.
//
// Call without Python's lock.
void end_lanes(std::chrono::milliseconds most);
// Runs `work`, or does nothing once lanes are ending.
void run_before_end(const std::function<void()>& work);
bool lanes_are_ending() noexcept;
// Does not return while they are.
void stop_if_ending();

}  // namespace npu::dist
