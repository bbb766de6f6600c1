// SPDX-License-Identifier: Apache-2.0
// Streams of the discrete driver: a queue and a worker thread each; events.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "optional.h"

using Clock = std::chrono::steady_clock;
// What one record of an event stands for; waits keep the one they saw.
using Moment = std::shared_future<Clock::time_point>;

struct npu_stream_s {
  npu_device device = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<npu::discrete::Work> queue;
  uint64_t queued = 0;
  uint64_t done = 0;
  bool stopping = false;
  std::string failure;  // the first one not reported yet
  npu::discrete::Captured* captured = nullptr;
  std::thread worker;
};

struct npu_event_s {
  uint32_t flags = 0;
  std::mutex mutex;
  Moment last;  // not valid: never recorded
};

namespace npu::discrete {
namespace {

// Never destroyed: worker threads live until the process ends.
auto& all_mutex = *new std::mutex;
auto& all_streams = *new std::map<npu_stream, std::shared_ptr<npu_stream_s>>;

void work_loop(npu_stream stream) {
  services->stream_worker();
  std::unique_lock lock(stream->mutex);
  for (;;) {
    stream->changed.wait(
        lock, [=] { return stream->stopping || !stream->queue.empty(); });
    if (stream->queue.empty()) {
      return;
    }
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    lock.unlock();
    if (delay_us > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    }
    std::string failure;
    work(failure);
    work = nullptr;  // what it holds is free before anyone sees it done
    lock.lock();
    stream->failure = stream->failure.empty() ? failure : stream->failure;
    ++stream->done;
    stream->changed.notify_all();
  }
}

// Reports a failure of earlier work, once. With the stream's mutex held.
npu_status take_failure(npu_stream stream) {
  const std::string text = std::exchange(stream->failure, "");
  return text.empty() ? npu_status{NPU_OK} : fail(NPU_E_ASYNC, text);
}

npu_status create(npu_device device, int32_t, npu_stream* out) {
  NPU_TRY(check_device(device, out));
  const auto made = std::make_shared<npu_stream_s>();
  *out = made.get();
  made->device = device;
  made->worker = std::thread(work_loop, *out);
  const std::lock_guard lock(all_mutex);
  all_streams[*out] = made;
  return NPU_OK;
}

npu_status destroy(npu_stream stream) {
  NPU_TRY(check(stream));
  std::shared_ptr<npu_stream_s> last;
  {
    const std::scoped_lock lock(all_mutex, stream->mutex);
    last = all_streams[stream];
    all_streams.erase(stream);
    stream->stopping = true;
    stream->changed.notify_all();
  }
  stream->worker.join();  // its queue is empty then
  return take_failure(stream);
}

npu_status query(npu_stream stream) {
  NPU_TRY(check(stream));
  NPU_TRY(refuse_capture(stream));
  const std::lock_guard lock(stream->mutex);
  return stream->done < stream->queued ? npu_status{NPU_NOT_READY}
                                       : take_failure(stream);
}

npu_status host_call(npu_stream stream, npu_host_fn fn, void* context) {
  NPU_TRY(check(stream, fn));
  return enqueue(
      stream, [=](std::string&) { fn(context); }, kNotRecorded);
}

// ---- events ----

Moment last_of(npu_event event) {
  const std::lock_guard lock(event->mutex);
  return event->last;
}

bool is_done(const Moment& moment) {
  return !moment.valid() ||
         moment.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void wait(const Moment& moment) {
  if (moment.valid()) {
    moment.wait();
  }
}

npu_status create_event(npu_device device, uint32_t flags, npu_event* out) {
  NPU_TRY(check_device(device, out));
  *out = new npu_event_s;
  (*out)->flags = flags;
  return NPU_OK;
}

npu_status record(npu_event event, npu_stream stream) {
  NPU_TRY(check(event, stream));
  auto now = std::make_shared<std::promise<Clock::time_point>>();
  const std::lock_guard lock(event->mutex);
  event->last = now->get_future().share();
  return enqueue(
      stream,
      [now](std::string&) { now->set_value(Clock::now()); },
      kNotRecorded);
}

npu_status wait_event(npu_stream stream, npu_event event) {
  NPU_TRY(check(stream, event));
  return enqueue(
      stream,
      [moment = last_of(event)](std::string&) { wait(moment); },
      kNotRecorded);
}

npu_status elapsed_ms(npu_event start, npu_event end, double* out) {
  NPU_TRY(check(start, end, out));
  const Moment from = last_of(start), to = last_of(end);
  const bool timed = (start->flags & end->flags & NPU_EVENT_TIMING) != 0;
  if (!timed || !from.valid() || !to.valid()) {
    return fail(NPU_E_INVALID, "needs two recorded events with timing.");
  }
  if (!is_done(from) || !is_done(to)) {
    return NPU_NOT_READY;
  }
  *out =
      std::chrono::duration<double, std::milli>(to.get() - from.get()).count();
  return NPU_OK;
}

}  // namespace

npu_status enqueue(npu_stream stream, Work work, uint64_t tag) {
  if (tag == kNotRecorded) {
    NPU_TRY(refuse_capture(stream));
  }
  const std::lock_guard lock(stream->mutex);
  if (Captured* const captured = stream->captured) {
    const std::lock_guard inner(captured->mutex);
    captured->items.emplace_back(tag, work);
    if (!captured->runs_too) {
      return NPU_OK;
    }
  }
  stream->queue.push_back(std::move(work));
  ++stream->queued;
  stream->changed.notify_all();
  return NPU_OK;
}

Captured* captured_by(npu_stream stream) {
  const std::lock_guard lock(stream->mutex);
  return stream->captured;
}

void set_captured(npu_stream stream, Captured* captured) {
  const std::lock_guard lock(stream->mutex);
  stream->captured = captured;
}

npu_device device_of(npu_stream stream) {
  return stream->device;
}

npu_status drain(npu_stream stream) {
  NPU_TRY(check(stream));
  NPU_TRY(refuse_capture(stream));
  std::unique_lock lock(stream->mutex);
  stream->changed.wait(
      lock, [=, target = stream->queued] { return stream->done >= target; });
  return take_failure(stream);
}

npu_status drain_device(npu_device device) {
  NPU_TRY(check_device(device));
  npu_status first = NPU_OK;
  // Without the lock: a stream may wait for a thread that makes another one.
  std::unique_lock lock(all_mutex);
  const auto known = all_streams;
  lock.unlock();
  for (const auto& [stream, held] : known) {
    const bool waits = stream->device == device && !captured_by(stream);
    const npu_status status = waits ? drain(stream) : NPU_OK;
    first = first ? first : status;
  }
  return first;
}

// clang-format off
const npu_stream_table stream_table = {
    sizeof(stream_table), 0, create, destroy, drain, query, wait_event,
    host_call, nullptr, nullptr};
const npu_event_table event_table = {
    sizeof(event_table), 0, create_event,
    [](npu_event event) { return check(event) ? check(event) : (delete event, NPU_OK); },
    record,
    [](npu_event event) {
      const npu_status status = check(event);
      return status ? status : is_done(last_of(event)) ? NPU_OK : NPU_NOT_READY;
    },
    [](npu_event event) { return check(event) ? check(event) : (wait(last_of(event)), NPU_OK); },
    elapsed_ms, nullptr};
// clang-format on

}  // namespace npu::discrete
