// SPDX-License-Identifier: Apache-2.0
// Table slots are plain functions without a context, so each locked driver gets
// its own set, made from a template by number.
#include "driver/stream_lock.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "driver/services.h"
#include "driver/status.h"

namespace npu {

namespace {

constexpr int kMaxLockedDrivers = 4;

// One lock per stream, not per driver: a thread that synchronizes one stream
// must not stop another from queueing what the first waits for.
struct Locked {
  npu_memory_table memory{};
  npu_stream_table stream{};
  npu_event_table event{};
  npu_op_table op{};
  std::shared_mutex mutex;
  std::unordered_map<npu_stream, std::shared_ptr<std::mutex>> locks;

  std::shared_ptr<std::mutex> lock_of(npu_stream handle) {
    const std::shared_lock<std::shared_mutex> guard(mutex);
    const auto found = locks.find(handle);
    return found == locks.end() ? nullptr : found->second;
  }
};

template <int N>
Locked& locked() {
  static auto* state = new Locked;
  return *state;
}

// Calls `fn` while holding the stream's lock; a foreign handle goes straight
// to the driver, whose answer it is to give.
template <int N, class Fn>
npu_status with_lock(npu_stream stream, Fn fn) noexcept {
  const auto mutex = locked<N>().lock_of(stream);
  if (mutex == nullptr) {
    return fn();
  }
  const std::lock_guard<std::mutex> guard(*mutex);
  return fn();
}

template <int N>
npu_status create(npu_device device, int32_t priority, npu_stream* out) {
  const npu_status status = locked<N>().stream.create(device, priority, out);
  if (status == NPU_OK) {
    const std::unique_lock<std::shared_mutex> guard(locked<N>().mutex);
    locked<N>().locks[*out] = std::make_shared<std::mutex>();
  }
  return status;
}

template <int N>
npu_status destroy(npu_stream stream) {
  const npu_status status =
      with_lock<N>(stream, [&] { return locked<N>().stream.destroy(stream); });
  if (status == NPU_OK) {
    const std::unique_lock<std::shared_mutex> guard(locked<N>().mutex);
    locked<N>().locks.erase(stream);
  }
  return status;
}

template <int N>
void wrap_memory(npu_memory_table& memory) {
  memory.copy_to_device =
      [](npu_stream s, void* dst, const void* src, uint64_t n) {
        return with_lock<N>(s, [&] {
          return locked<N>().memory.copy_to_device(s, dst, src, n);
        });
      };
  memory.copy_to_host =
      [](npu_stream s, void* dst, const void* src, uint64_t n) {
        return with_lock<N>(
            s, [&] { return locked<N>().memory.copy_to_host(s, dst, src, n); });
      };
  memory.copy_on_device =
      [](npu_stream s, void* dst, const void* src, uint64_t n) {
        return with_lock<N>(s, [&] {
          return locked<N>().memory.copy_on_device(s, dst, src, n);
        });
      };
  memory.copy_peer = [](npu_stream s,
                        npu_device dst_device,
                        void* dst,
                        npu_device src_device,
                        const void* src,
                        uint64_t n) {
    return with_lock<N>(s, [&] {
      return locked<N>().memory.copy_peer(
          s, dst_device, dst, src_device, src, n);
    });
  };
  memory.set_bytes = [](npu_stream s, void* dst, int32_t value, uint64_t n) {
    return with_lock<N>(
        s, [&] { return locked<N>().memory.set_bytes(s, dst, value, n); });
  };
  if (memory.discard != nullptr) {
    memory.discard = [](npu_stream s, void* ptr, uint64_t n) {
      return with_lock<N>(
          s, [&] { return locked<N>().memory.discard(s, ptr, n); });
    };
  }
}

template <int N>
LockedRun wrap(
    npu_memory_table& memory,
    npu_stream_table& stream,
    npu_event_table& event,
    npu_op_table& op) {
  locked<N>().memory = memory;
  locked<N>().stream = stream;
  locked<N>().event = event;
  locked<N>().op = op;
  wrap_memory<N>(memory);
  stream.create = &create<N>;
  stream.destroy = &destroy<N>;
  stream.synchronize = [](npu_stream s) {
    return with_lock<N>(s, [&] { return locked<N>().stream.synchronize(s); });
  };
  stream.query = [](npu_stream s) {
    return with_lock<N>(s, [&] { return locked<N>().stream.query(s); });
  };
  stream.wait_event = [](npu_stream s, npu_event e) {
    return with_lock<N>(s, [&] { return locked<N>().stream.wait_event(s, e); });
  };
  stream.host_call = [](npu_stream s, npu_host_fn fn, void* context) {
    return with_lock<N>(
        s, [&] { return locked<N>().stream.host_call(s, fn, context); });
  };
  event.record = [](npu_event e, npu_stream s) {
    return with_lock<N>(s, [&] { return locked<N>().event.record(e, s); });
  };
  op.run = [](npu_stream s, const npu_call* call) {
    return with_lock<N>(s, [&] { return locked<N>().op.run(s, call); });
  };
  op.tune = [](npu_stream s, const npu_call* call, npu_verdict* verdict) {
    return with_lock<N>(
        s, [&] { return locked<N>().op.tune(s, call, verdict); });
  };
  return [](npu_stream s,
            npu_status (*run)(npu_stream, const npu_call*),
            const npu_call* call) {
    return with_lock<N>(s, [&] { return run(s, call); });
  };
}

bool wants_lock(const npu_device_table& device) {
  int32_t count = 0;
  if (device.count(&count) != NPU_OK) {
    count = 0;
  }
  bool wants = false;
  for (npu_device i = 0; i < count; ++i) {
    npu_device_properties properties{};
    properties.size = sizeof(properties);
    wants = wants || (device.properties(i, &properties) == NPU_OK &&
                      properties.needs_stream_lock != 0);
  }
  host_services()->set_error(nullptr);
  return wants;
}

}  // namespace

LockedRun lock_streams_if_needed(
    const npu_device_table& device,
    npu_memory_table& memory,
    npu_stream_table& stream,
    npu_event_table& event,
    npu_op_table& op) {
  if (!wants_lock(device)) {
    return nullptr;
  }
  static std::atomic<int> used{0};
  switch (used++) {
    case 0:
      return wrap<0>(memory, stream, event, op);
    case 1:
      return wrap<1>(memory, stream, event, op);
    case 2:
      return wrap<2>(memory, stream, event, op);
    case 3:
      return wrap<3>(memory, stream, event, op);
    default:
      throw Error(
          NPU_E_UNSUPPORTED,
          "npu: driver: more than " + std::to_string(kMaxLockedDrivers) +
              " drivers that need stream locks in one process. Load fewer.");
  }
}

}  // namespace npu
