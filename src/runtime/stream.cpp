// SPDX-License-Identifier: Apache-2.0
// Streams: pools per device and priority, the current one per thread.
#include "runtime/stream.h"

#include <array>
#include <atomic>
#include <mutex>
#include <string>

#include "driver/env.h"
#include "driver/registry.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/external_stream.h"
#include "runtime/host_wait.h"
#include "runtime/host_work.h"
#include "runtime/sanitizer/sanitizer.h"

namespace npu {
namespace {

constexpr int kPositionBits = 5;
constexpr std::size_t kStreamsPerPool = 1u << kPositionBits;
constexpr c10::StreamId kNormalPool = 3;
constexpr c10::StreamId kHighPool = 4;
constexpr c10::StreamId kSyncLaunchPool = 5;
constexpr c10::StreamId kExternalPool = 6;
constexpr c10::StreamId kOwnPool = 7;
constexpr std::size_t kPools = 5;
constexpr std::uint32_t kSyncLaunchStreams = 4;
constexpr std::int32_t kHighPriority = -1;

struct Pool {
  std::array<std::atomic<npu_stream>, kStreamsPerPool> handles{};
  std::atomic<std::uint32_t> next{0};
};

struct DeviceStreams {
  std::atomic<npu_stream> first{nullptr};  // the default stream
  std::array<Pool, kPools> pools;          // from kNormalPool on
};

// Never destroyed: streams live as long as the process.
std::array<DeviceStreams, kMaxDevices> all_streams;
std::mutex create_mutex;

// Every id fits in a byte; thread-local space is scarce in a loaded library.
thread_local std::array<std::uint8_t, kMaxDevices> current_ids{};
static_assert((kOwnPool << kPositionBits) + kStreamsPerPool - 1 <= UINT8_MAX);

std::size_t position_of(c10::StreamId id) noexcept {
  return static_cast<std::size_t>(id) & (kStreamsPerPool - 1);
}

// nullptr for an id that names no stream.
std::atomic<npu_stream>* find_handle(
    c10::DeviceIndex device, c10::StreamId id) noexcept {
  DeviceStreams& streams = all_streams[static_cast<std::size_t>(device)];
  if (id == 0) {
    return &streams.first;
  }
  const c10::StreamId pool = id >> kPositionBits;
  if (pool < kNormalPool || pool > kOwnPool ||
      (pool == kSyncLaunchPool && position_of(id) >= kSyncLaunchStreams)) {
    return nullptr;
  }
  const auto which = static_cast<std::size_t>(pool - kNormalPool);
  return &streams.pools[which].handles[position_of(id)];
}

// Streams of a pool come into being when they are used, external ones only
// when a program creates them.
bool exists(c10::DeviceIndex device, c10::StreamId id) noexcept {
  const std::atomic<npu_stream>* const handle = find_handle(device, id);
  return handle != nullptr &&
         (id >> kPositionBits != kExternalPool || handle->load() != nullptr);
}

Pool& external_streams(c10::DeviceIndex device) {
  return all_streams[static_cast<std::size_t>(device)]
      .pools[kExternalPool - kNormalPool];
}

void check_stream(c10::Stream stream) {
  TORCH_CHECK(
      stream.device_type() == kDeviceType,
      "npu: stream: expected a stream of an npu device, got ",
      stream,
      pta_error(Code::kParam));
  check_device_index(stream.device_index());
  TORCH_CHECK(
      exists(stream.device_index(), stream.id()),
      "npu: stream: ",
      stream.id(),
      " is no stream id. Make streams with torch.npu.Stream().",
      pta_error(Code::kParam));
}

npu_stream create(c10::Stream stream, std::atomic<npu_stream>& handle) {
  const npu_device device = driver_device(stream.device_index());
  const std::lock_guard<std::mutex> lock(create_mutex);
  npu_stream made = handle.load();
  if (made == nullptr) {
    check_driver(
        active_driver().stream().create(device, stream_priority(stream), &made),
        "create stream");
    handle.store(made, std::memory_order_release);
  }
  return made;
}

std::uint32_t streams_per_pool() {
  static const std::uint32_t value = use_driver([] {
    constexpr std::uint32_t sizes[] = {8, 32};
    return sizes[env::choice("STREAMS_PER_DEVICE", {"8", "32"}, 1)];
  });
  return value;
}

c10::Stream make_stream(c10::StreamId id, c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, device), id);
}

c10::DeviceIndex checked(c10::DeviceIndex device) {
  device = device_or_current(device);
  check_device_index(device);
  return device;
}

}  // namespace

c10::Stream default_stream(c10::DeviceIndex device) {
  return make_stream(0, checked(device));
}

c10::Stream current_stream(c10::DeviceIndex device) {
  device = checked(device);
  return make_stream(current_ids[static_cast<std::size_t>(device)], device);
}

void set_current_stream(c10::Stream stream) {
  check_stream(stream);
  current_ids[static_cast<std::size_t>(stream.device_index())] =
      static_cast<std::uint8_t>(stream.id());
}

c10::Stream stream_from_pool(int priority, c10::DeviceIndex device) {
  device = checked(device);
  const bool high = priority < 0;
  DeviceStreams& streams = all_streams[static_cast<std::size_t>(device)];
  const std::uint32_t position =
      streams.pools[high ? 1 : 0].next.fetch_add(1) % streams_per_pool();
  const c10::StreamId pool = high ? kHighPool : kNormalPool;
  return make_stream((pool << kPositionBits) | position, device);
}

c10::Stream sync_launch_stream(c10::DeviceIndex device) {
  device = checked(device);
  Pool& pool = all_streams[static_cast<std::size_t>(device)]
                   .pools[kSyncLaunchPool - kNormalPool];
  const std::uint32_t position = pool.next.fetch_add(1) % kSyncLaunchStreams;
  return make_stream((kSyncLaunchPool << kPositionBits) | position, device);
}

// `next` of the own pool: a bit for each stream that is lent; the first is
// copy_stream().
c10::Stream copy_stream(c10::DeviceIndex device) {
  return make_stream(kOwnPool << kPositionBits, checked(device));
}

std::optional<c10::Stream> lend_stream(c10::DeviceIndex device) {
  device = checked(device);
  auto& lent = all_streams[static_cast<std::size_t>(device)]
                   .pools[kOwnPool - kNormalPool]
                   .next;
  for (std::uint32_t i = 1; i < kStreamsPerPool; ++i) {
    const std::uint32_t bit = 1u << i;
    if ((lent.fetch_or(bit) & bit) == 0) {
      return make_stream(
          (kOwnPool << kPositionBits) | static_cast<c10::StreamId>(i), device);
    }
  }
  return std::nullopt;
}

void take_back_stream(c10::Stream stream) noexcept {
  all_streams[static_cast<std::size_t>(stream.device_index())]
      .pools[kOwnPool - kNormalPool]
      .next.fetch_and(~(1u << position_of(stream.id())));
}

npu_stream create_external_stream(c10::DeviceIndex device) {
  device = checked(device);
  const npu_device number = driver_device(device);
  const std::lock_guard<std::mutex> lock(create_mutex);
  for (auto& handle : external_streams(device).handles) {
    if (handle.load() == nullptr) {
      npu_stream made = nullptr;
      check_driver(
          active_driver().stream().create(number, 0, &made), "create stream");
      handle.store(made, std::memory_order_release);
      return made;
    }
  }
  TORCH_CHECK(
      false,
      "npu: stream: ",
      kStreamsPerPool,
      " external streams of npu:",
      static_cast<int>(device),
      " are open. Destroy one first.",
      pta_error(Code::kUnavailable));
}

bool destroy_external_stream(npu_stream stream) {
  const std::lock_guard<std::mutex> lock(create_mutex);
  for (c10::DeviceIndex device = 0; device < kMaxDevices; ++device) {
    for (auto& handle : external_streams(device).handles) {
      if (stream != nullptr && handle.load() == stream) {
        const npu_stream_table& table = active_driver().stream();
        check_driver(table.synchronize(stream), "synchronize stream");
        handle.store(nullptr, std::memory_order_release);
        check_driver(table.destroy(stream), "destroy stream");
        return true;
      }
    }
  }
  return false;
}

c10::StreamId external_stream_id(npu_stream stream, c10::DeviceIndex device) {
  const auto& handles = external_streams(checked(device)).handles;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if (stream != nullptr && handles[i].load() == stream) {
      return (kExternalPool << kPositionBits) | static_cast<c10::StreamId>(i);
    }
  }
  return -1;
}

bool stream_exists(c10::Stream stream) noexcept {
  return exists(stream.device_index(), stream.id());
}

c10::Stream stream_from_id(c10::StreamId id, c10::DeviceIndex device) {
  const c10::Stream stream = make_stream(id, checked(device));
  check_stream(stream);
  return stream;
}

int stream_priority(c10::Stream stream) {
  return stream.id() >> kPositionBits == kHighPool ? kHighPriority : 0;
}

npu_stream stream_handle(c10::Stream stream) {
  init();  // a forked child learns here why its streams are gone
  check_stream(stream);
  auto& handle = *find_handle(stream.device_index(), stream.id());
  const npu_stream found = handle.load(std::memory_order_acquire);
  return found != nullptr ? found : create(stream, handle);
}

npu_stream current_stream_handle(c10::DeviceIndex device) {
  // Ids in current_ids were checked when they were set.
  const auto at = static_cast<std::size_t>(device);
  if (at < current_ids.size() && is_initialized()) [[likely]] {
    const npu_stream found =
        find_handle(device, current_ids[at])->load(std::memory_order_acquire);
    if (found != nullptr) [[likely]] {
      return found;
    }
  }
  return stream_handle(current_stream(device));
}

std::optional<c10::Stream> find_stream(npu_stream handle) noexcept {
  const c10::DeviceIndex count = handle != nullptr ? device_count() : 0;
  for (c10::DeviceIndex device = 0; device < count; ++device) {
    const DeviceStreams& streams =
        all_streams[static_cast<std::size_t>(device)];
    if (streams.first.load(std::memory_order_acquire) == handle) {
      return make_stream(0, device);
    }
    for (std::size_t pool = 0; pool < kPools; ++pool) {
      const auto& handles = streams.pools[pool].handles;
      for (std::size_t i = 0; i < handles.size(); ++i) {
        if (handles[i].load(std::memory_order_acquire) == handle) {
          const auto number = kNormalPool + static_cast<c10::StreamId>(pool);
          return make_stream(
              (number << kPositionBits) | static_cast<c10::StreamId>(i),
              device);
        }
      }
    }
  }
  return std::nullopt;
}

c10::StreamId current_stream_id(c10::DeviceIndex device) noexcept {
  return current_ids[static_cast<std::size_t>(device)];
}

void synchronize_stream(c10::Stream stream) {
  note_host_work();
  const npu_stream handle = stream_handle(stream);
  const HostWait wait(WaitFor::kStream, stream.device_index());
  check_driver(
      active_driver().stream().synchronize(handle), "synchronize stream");
  sanitizer::on_stream_done(stream);
}

bool query_stream(c10::Stream stream) {
  const npu_stream handle = stream_handle(stream);
  const npu_status status = active_driver().stream().query(handle);
  if (status == NPU_NOT_READY) {
    return false;
  }
  check_driver(status, "query stream");
  sanitizer::on_stream_done(stream);
  return true;
}

void* stream_native_handle(c10::Stream stream) {
  const npu_stream handle = stream_handle(stream);
  const auto native = active_driver().stream().native_handle;
  return native != nullptr ? native(handle) : static_cast<void*>(handle);
}

}  // namespace npu
