// SPDX-License-Identifier: Apache-2.0
// Events: a second recording replaces the first, waits keep theirs.
#include "event.h"

#include "host.h"

using namespace npu::host;

struct npu_event_s {
  std::uint32_t flags = 0;
  std::mutex mutex;
  std::shared_ptr<Recording> latest;
};

namespace npu::host {

void Recording::finish() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    when_ = Clock::now();
  }
  finished_.notify_all();
}

void Recording::wait() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return done_; });
}

bool Recording::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

Recording::Clock::time_point Recording::when() {
  const std::lock_guard lock(mutex_);
  return when_;
}

std::shared_ptr<Recording> latest_recording(npu_event event) {
  const std::lock_guard lock(event->mutex);
  return event->latest;
}

namespace {

npu_status create(npu_device device, std::uint32_t flags, npu_event* out) {
  return entry(given(out), [&]() -> npu_status {
    if (npu_status status = check_device(device)) {
      return status;
    }
    auto event = std::make_unique<npu_event_s>();
    event->flags = flags;
    *out = event.release();
    return NPU_OK;
  });
}

npu_status destroy(npu_event event) {
  return entry(given(event), [&] {
    delete event;
    return NPU_OK;
  });
}

npu_status record(npu_event event, npu_stream stream) {
  return entry(given(event, stream), [&]() -> npu_status {
    auto recording = std::make_shared<Recording>();
    if (settings.async) {
      // Before the lock is taken: a host function may ask for the event.
      await_room(stream);
    }
    // Held over the queueing, so that `latest` is what was queued last when
    // two threads record.
    const std::lock_guard lock(event->mutex);
    const npu_status status = enqueue_at_once(stream, [recording] {
      recording->finish();
      return npu_status{NPU_OK};
    });
    if (status == NPU_OK) {
      event->latest = std::move(recording);
    }
    return status;
  });
}

npu_status query(npu_event event) {
  return entry(given(event), [&] {
    const std::shared_ptr<Recording> recording = latest_recording(event);
    return !recording || recording->done() ? NPU_OK : NPU_NOT_READY;
  });
}

npu_status synchronize(npu_event event) {
  return entry(given(event), [&] {
    if (const auto recording = latest_recording(event)) {
      recording->wait();
    }
    return NPU_OK;
  });
}

npu_status elapsed_ms(npu_event start, npu_event end, double* out) {
  return entry(given(start, end, out), [&]() -> npu_status {
    if (!(start->flags & end->flags & NPU_EVENT_TIMING)) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: elapsed time needs two events made with timing.");
    }
    const auto first = latest_recording(start);
    const auto last = latest_recording(end);
    if (!first || !last) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: elapsed time of an event that was not recorded.");
    }
    if (!first->done() || !last->done()) {
      return NPU_NOT_READY;
    }
    *out =
        std::chrono::duration<double, std::milli>(last->when() - first->when())
            .count();
    return NPU_OK;
  });
}

}  // namespace

const npu_event_table event_table = {
    sizeof(event_table),
    0,
    create,
    destroy,
    record,
    query,
    synchronize,
    elapsed_ms,
    nullptr,
};

}  // namespace npu::host
