// SPDX-License-Identifier: Apache-2.0
// A thread that does jobs one after the other.
#include "dist/lane.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <utility>

namespace npu::dist {
namespace {

// Never destroyed: threads outlive main().
std::atomic<bool>& ending() {
  static auto* const flag = new std::atomic<bool>(false);
  return *flag;
}
std::atomic<int>& busy_lanes() {
  static auto* const count = new std::atomic<int>(0);
  return *count;
}
// Held while a thread of this library may ask for Python's lock.
std::mutex& python_use() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

}  // namespace

bool lanes_are_ending() noexcept {
  return ending().load();
}

void stop_if_ending() {
  while (lanes_are_ending()) {
    ::pause();
  }
}

void end_lanes(std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  while (busy_lanes().load() != 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ending().store(true);
  // A lane between two jobs sees it now; a job that runs ends soon.
  for (int i = 0; i < 50 && busy_lanes().load() != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::lock_guard unused(python_use());
}

void run_before_end(const std::function<void()>& work) {
  const std::lock_guard lock(python_use());
  if (!lanes_are_ending()) {
    work();
  }
}

Lane::Lane(std::string name)
    : name_(std::move(name)), state_(std::make_shared<State>()) {}

Lane::~Lane() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
  }
  state_->changed.notify_all();
}

void Lane::add(std::function<void()> job) {
  state_->jobs.push_back(std::move(job));
  if (!state_->started) {
    state_->started = true;
    std::thread([state = state_, name = name_] { work(state, name); }).detach();
  }
}

void Lane::submit(std::function<void()> job) {
  {
    const std::lock_guard lock(state_->mutex);
    add(std::move(job));
  }
  state_->changed.notify_all();
}

bool Lane::submit_if_idle(const std::function<void()>& job) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->busy || !state_->jobs.empty()) {
      return false;
    }
    add(job);
  }
  state_->changed.notify_all();
  return true;
}

bool Lane::is_idle() const {
  const std::lock_guard lock(state_->mutex);
  return !state_->busy && state_->jobs.empty();
}

bool Lane::drain(double seconds) const {
  std::unique_lock lock(state_->mutex);
  if (state_->thread == std::this_thread::get_id()) {
    return false;
  }
  return state_->changed.wait_for(
      lock, std::chrono::duration<double>(seconds), [&] {
        return state_->jobs.empty() && !state_->busy;
      });
}

void Lane::work(const std::shared_ptr<State>& state, const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
  std::unique_lock lock(state->mutex);
  state->thread = std::this_thread::get_id();
  while (true) {
    state->changed.wait(
        lock, [&] { return state->ended || !state->jobs.empty(); });
    if (state->jobs.empty()) {
      return;
    }
    std::function<void()> job = std::move(state->jobs.front());
    state->jobs.pop_front();
    state->busy = true;
    lock.unlock();
    busy_lanes().fetch_add(1);
    stop_if_ending();
    job();
    stop_if_ending();
    job = nullptr;  // what it holds is released before the lane counts as idle
    busy_lanes().fetch_sub(1);
    lock.lock();
    state->busy = false;
    state->changed.notify_all();
  }
}

}  // namespace npu::dist
