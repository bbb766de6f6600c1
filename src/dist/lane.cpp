// SPDX-License-Identifier: Apache-2.0
// A thread that does jobs one after the other.
#include "dist/lane.h"

#include <pthread.h>

#include <chrono>
#include <thread>
#include <utility>

namespace npu::dist {

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

bool Lane::drain(double seconds) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(
      lock, std::chrono::duration<double>(seconds), [&] {
        return state_->jobs.empty() && !state_->busy;
      });
}

void Lane::work(const std::shared_ptr<State>& state, const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
  std::unique_lock lock(state->mutex);
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
    job();
    job = nullptr;  // what it holds is released before the lane counts as idle
    lock.lock();
    state->busy = false;
    state->changed.notify_all();
  }
}

}  // namespace npu::dist
