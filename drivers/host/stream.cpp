// SPDX-License-Identifier: Apache-2.0
// Streams: inline, or a queue with a worker thread (NPU_HOST_ASYNC).
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "event.h"
#include "host.h"

using namespace npu::host;

namespace npu::host {
namespace {

// Of an inline stream, which is taken for every call: a free one costs one
// atomic operation to take and one to give, a third of what a std::mutex does.
class InlineLock {
 public:
  void lock() noexcept {
    if (!try_lock()) {
      while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
        state_.wait(kAwaited, std::memory_order_relaxed);
      }
    }
  }
  bool try_lock() noexcept {
    std::uint32_t expected = kFree;
    return state_.compare_exchange_strong(
        expected, kTaken, std::memory_order_acquire);
  }
  void wait_until_free() noexcept {
    if (state_.load(std::memory_order_acquire) != kFree) {
      lock();
      unlock();
    }
  }
  void unlock() noexcept {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) {
      state_.notify_one();
    }
  }

 private:
  static constexpr std::uint32_t kFree = 0, kTaken = 1, kAwaited = 2;
  std::atomic<std::uint32_t> state_{kFree};
};

}  // namespace
}  // namespace npu::host

// An inline stream uses only the lock: calls of many threads still happen one
// after the other, as they would in a queue.
struct npu_stream_s {
  npu_device device = 0;
  InlineLock running;
  std::mutex mutex;
  std::condition_variable arrived;
  std::condition_variable finished;
  std::condition_variable room;  // an eighth of the queue has become free
  std::deque<std::unique_ptr<Work>> queue;
  std::uint64_t n_queued = 0;
  std::uint64_t n_done = 0;  // counts what ran, not what left the queue
  bool stopping = false;
  npu_status late_status = NPU_OK;  // of the first failure not yet reported
  std::string late_text;
  std::thread worker;
};

namespace npu::host {
namespace {

thread_local bool is_worker = false;
// Host functions of the program that run now, on any stream: they alone may
// wait for something that a submitting thread has still to do.
std::atomic<int> host_functions{0};

struct Streams {
  std::mutex mutex;
  std::vector<npu_stream> all;
};
Streams& streams() {
  static Streams& instance = *new Streams;  // outlives worker threads
  return instance;
}

// With the stream's mutex held.
npu_status take_late_error(npu_stream stream) {
  if (stream->late_status == NPU_OK) {
    return NPU_OK;
  }
  const npu_status status = fail(
      NPU_E_ASYNC,
      "npu: host driver: earlier work on a stream of npu:%d failed: %s",
      stream->device,
      stream->late_text.c_str());
  stream->late_status = NPU_OK;
  stream->late_text.clear();
  return status;
}

void keep_late_error(npu_stream stream, npu_status status) {
  const char* text = services->last_error();
  const std::lock_guard lock(stream->mutex);
  if (stream->late_status == NPU_OK) {
    stream->late_status = status;
    stream->late_text = text ? text : "no text.";
  }
}

void run_one(npu_stream stream, Work& work) {
  if (settings.delay_us > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(settings.delay_us));
  }
  npu_status status = NPU_OK;
  try {
    status = work.run();
  } catch (...) {
    status = exception_status();
  }
  if (status != NPU_OK) {
    keep_late_error(stream, status);
  }
}

// A full queue is filled again when this much is left in it: a submitter that
// waits is not woken for every call that leaves.
std::size_t refill_level() {
  const auto limit = static_cast<std::size_t>(settings.queue_limit);
  return limit - (limit + 7) / 8;
}

void work_loop(npu_stream stream) {
  is_worker = true;
  char name[16];
  std::snprintf(name, sizeof(name), "npu:%d stream", stream->device);
  pthread_setname_np(pthread_self(), name);
  std::unique_lock lock(stream->mutex);
  for (;;) {
    stream->arrived.wait(
        lock, [&] { return stream->stopping || !stream->queue.empty(); });
    if (stream->queue.empty()) {
      return;
    }
    std::unique_ptr<Work> work = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (stream->queue.size() == refill_level()) {
      stream->room.notify_all();
    }
    lock.unlock();
    run_one(stream, *work);
    work.reset();  // release what it owns before it counts as done
    lock.lock();
    ++stream->n_done;
    stream->finished.notify_all();
  }
}

// Waits for what is queued now; later work may follow. With the mutex held.
void wait_for_queued(npu_stream stream, std::unique_lock<std::mutex>& lock) {
  const std::uint64_t target = stream->n_queued;
  stream->finished.wait(lock, [&] { return stream->n_done >= target; });
}

npu_status drain(npu_stream stream) {
  if (!settings.async) {
    stream->running.wait_until_free();
    return NPU_OK;
  }
  std::unique_lock lock(stream->mutex);
  wait_for_queued(stream, lock);
  return take_late_error(stream);
}

void stop_worker(npu_stream stream) {
  {
    const std::lock_guard lock(stream->mutex);
    stream->stopping = true;
  }
  stream->arrived.notify_all();
  stream->room.notify_all();
  if (stream->worker.joinable()) {
    stream->worker.join();
  }
}

npu_status create(npu_device device, std::int32_t, npu_stream* out) {
  return entry(given(out), [&]() -> npu_status {
    if (npu_status status = check_device(device)) {
      return status;
    }
    auto stream = std::make_unique<npu_stream_s>();
    stream->device = device;
    const std::lock_guard lock(streams().mutex);
    streams().all.reserve(streams().all.size() + 1);
    if (settings.async) {
      stream->worker = std::thread(work_loop, stream.get());
    }
    streams().all.push_back(stream.get());
    *out = stream.release();
    return NPU_OK;
  });
}

npu_status destroy(npu_stream stream) {
  return entry(given(stream), [&]() -> npu_status {
    if (is_worker) {
      return fail(
          NPU_E_INVALID, "npu: host driver: host functions may not call it.");
    }
    {
      const std::lock_guard lock(streams().mutex);
      std::erase(streams().all, stream);
    }
    stop_worker(stream);
    if (stream->late_status != NPU_OK &&
        services->log_level() <= NPU_LOG_WARNING) {
      services->log(
          NPU_LOG_WARNING,
          ("npu: host driver: work on a destroyed stream had failed: " +
           stream->late_text)
              .c_str());
    }
    delete stream;
    return NPU_OK;
  });
}

npu_status synchronize(npu_stream stream) {
  return entry(given(stream), [&] { return drain(stream); });
}

npu_status query(npu_stream stream) {
  return entry(given(stream), [&]() -> npu_status {
    if (!settings.async) {
      // Taken: another thread's call is running.
      const std::unique_lock lock(stream->running, std::try_to_lock);
      return lock.owns_lock() ? NPU_OK : NPU_NOT_READY;
    }
    const std::lock_guard lock(stream->mutex);
    if (npu_status status = take_late_error(stream)) {
      return status;
    }
    return stream->n_done == stream->n_queued ? NPU_OK : NPU_NOT_READY;
  });
}

npu_status wait_event(npu_stream stream, npu_event event) {
  return entry(given(stream, event), [&]() -> npu_status {
    std::shared_ptr<Recording> recording = latest_recording(event);
    if (!recording) {
      return NPU_OK;
    }
    return enqueue(stream, [recording = std::move(recording)]() -> npu_status {
      recording->wait();
      return NPU_OK;
    });
  });
}

npu_status host_call(npu_stream stream, npu_host_fn fn, void* context) {
  return entry(given(stream, fn), [&] {
    return enqueue(stream, [fn, context]() -> npu_status {
      ++host_functions;
      fn(context);
      --host_functions;
      return NPU_OK;
    });
  });
}

// Priorities are accepted and make no difference: threads share the CPU.
npu_status priority_range(
    npu_device device, std::int32_t* least, std::int32_t* greatest) {
  return entry(given(least, greatest), [&] {
    *least = 0;
    *greatest = -1;
    return check_device(device);
  });
}

}  // namespace

void await_room(npu_stream stream) {
  const auto limit = static_cast<std::size_t>(settings.queue_limit);
  if (limit == 0 || is_worker) {
    return;  // a host function that queues work may be what makes the room
  }
  std::unique_lock lock(stream->mutex);
  if (stream->queue.size() < limit) {
    return;
  }
  const auto has_room = [&] {
    return stream->stopping || stream->queue.size() <= refill_level();
  };
  // Work that is queued waits for earlier work only, so room comes by itself,
  // unless a host function waits for this thread: then the limit gives way.
  std::uint64_t done = stream->n_done;
  while (!stream->room.wait_for(lock, std::chrono::seconds(1), has_room)) {
    if (stream->n_done == done && host_functions.load() > 0) {
      return;
    }
    done = stream->n_done;
  }
}

npu_status submit(npu_stream stream, std::unique_ptr<Work> work, bool wait) {
  std::unique_lock lock(stream->mutex);
  if (npu_status status = take_late_error(stream)) {
    return status;
  }
  if (stream->stopping) {
    lock.unlock();
    return shutdown_status();
  }
  stream->queue.push_back(std::move(work));
  const std::uint64_t mine = ++stream->n_queued;
  stream->arrived.notify_one();
  if (!wait) {
    return NPU_OK;
  }
  stream->finished.wait(lock, [&] { return stream->n_done >= mine; });
  return take_late_error(stream);
}

npu_status run_inline(
    npu_stream stream, npu_status (*fn)(void*), void* context) {
  const std::lock_guard lock(stream->running);
  return fn(context);
}

npu_device stream_device(npu_stream stream) noexcept {
  return stream->device;
}

bool is_idle(npu_stream stream) {
  if (!settings.async) {
    return true;
  }
  const std::lock_guard lock(stream->mutex);
  return stream->n_done == stream->n_queued;
}

bool on_stream_worker() noexcept {
  return is_worker;
}

npu_status synchronize_device(npu_device device) {
  // A stream may be destroyed meanwhile, so the list stays locked.
  const std::lock_guard lock(streams().mutex);
  npu_status first = NPU_OK;
  for (npu_stream stream : streams().all) {
    if (stream->device != device) {
      continue;
    }
    if (first == NPU_OK) {
      first = drain(stream);
    } else {
      // One failure is reported now; another stream keeps its own.
      std::unique_lock own(stream->mutex);
      wait_for_queued(stream, own);
    }
  }
  return first;
}

void stop_streams() noexcept {
  const std::lock_guard lock(streams().mutex);
  for (npu_stream stream : streams().all) {
    stop_worker(stream);
  }
}

const npu_stream_table stream_table = {
    sizeof(stream_table),
    0,
    create,
    destroy,
    synchronize,
    query,
    wait_event,
    host_call,
    priority_range,
    nullptr,  // native_handle: the stream itself
    nullptr,  // mailbox: kernels report through their status
};

}  // namespace npu::host
