// SPDX-License-Identifier: Apache-2.0
// A thread that does jobs one after the other.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace npu::dist {

// The thread starts with the first job. It may outlive the lane: a job that
// cannot be ended (Gloo's) must not hold up whoever drops the lane.
class Lane {
 public:
  explicit Lane(std::string name);
  // Ends the thread once its jobs are done; does not wait for them.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // A job does not throw.
  void submit(std::function<void()> job);
  // False when the thread has something to do already.
  bool submit_if_idle(const std::function<void()>& job);
  // True when no job is left within that time.
  bool drain(double seconds) const;

 private:
  struct State {
    mutable std::mutex mutex;
    mutable std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    bool busy = false;
    bool ended = false;
    bool started = false;
  };
  void add(std::function<void()> job);  // with the lock held
  static void work(
      const std::shared_ptr<State>& state, const std::string& name);

  std::string name_;
  std::shared_ptr<State> state_;
};

}  // namespace npu::dist
