// SPDX-License-Identifier: Apache-2.0
// Communicators of the discrete driver, and how their work gets to streams.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "channels.h"
#include "discrete.h"
#include "npu/comm.h"

namespace npu::discrete {

using Clock = std::chrono::steady_clock;

struct Comm {
  Id id;
  int rank = 0, size = 1;
  npu_device device = 0;
  Clock::time_point until;  // all have to be there
  std::shared_ptr<Channels> channels;
  std::atomic<bool> given_up{false};
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t queued = 0, done = 0;  // its work runs in the order of the calls
};
using CommPtr = std::shared_ptr<Comm>;

// Known by a number that is never used again: calls about one that is gone are
// refused.
npu_comm keep(const CommPtr& comm);
CommPtr find(npu_comm comm);
void drop(npu_comm comm);

// Messages, and what is done with them once they are here.
struct Item {
  std::vector<Transfer> transfers;
  std::function<void()> finish;
};
// Now, or at the end of the group that this thread has open.
npu_status queue(const CommPtr& comm, npu_stream stream, Item piece);
npu_status group_begin();
npu_status group_end();

// `events`; with NPU_DISCRETE_COMM_WRONG=fails the third operation of a
// communicator fails, and the event recorded behind it reports that once.
const npu_event_table* reporting_events(const npu_event_table* events);

// Remembers an error for the end of the group that is open.
npu_status note(npu_status status);
// The same function; a group with an error in it queues nothing.
template <auto kFunction>
struct Noted;
template <class... Args, npu_status (*kFunction)(Args...)>
struct Noted<kFunction> {
  static npu_status call(Args... args) {
    return note(kFunction(args...));
  }
};

}  // namespace npu::discrete
