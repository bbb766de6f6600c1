// SPDX-License-Identifier: Apache-2.0
// Copies of bytes, between host and device and between devices.
#include <cstring>
#include <memory>

#include "host.h"

namespace npu::host {
namespace {

// Ordinary host memory up to this size is staged; a larger copy is waited for.
constexpr std::uint64_t kStageBytes = UINT64_C(1) << 20;
constexpr std::int64_t kCopyGrain = 1 << 20;

npu_status move_bytes(void* dst, const void* src, std::uint64_t bytes) {
  PageGuard guard;
  npu_status status = guard.open(dst, bytes, NPU_ACCESS_WRITE);
  status = status ? status : guard.open(src, bytes, NPU_ACCESS_READ);
  if (status != NPU_OK) {
    return status;
  }
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(
        static_cast<char*>(dst) + begin,
        static_cast<const char*>(src) + begin,
        static_cast<std::size_t>(end - begin));
  };
  return parallel(static_cast<std::int64_t>(bytes), kCopyGrain, body);
}

npu_status queue_move(
    npu_stream stream,
    void* dst,
    const void* src,
    std::uint64_t bytes,
    bool wait) {
  return enqueue(
      stream,
      [=]() -> npu_status { return move_bytes(dst, src, bytes); },
      wait);
}

// Memory the caller may reuse as soon as the call returns.
bool is_ordinary(const void* ptr) {
  Block block;
  return !find_block(ptr, block);
}

}  // namespace

npu_status copy_to_device(
    npu_stream stream, void* dst, const void* src, std::uint64_t bytes) {
  return entry(given(stream), [&]() -> npu_status {
    if (bytes == 0) {
      return NPU_OK;
    }
    if (npu_status status =
            check_range("copy_to_device", stream_device(stream), dst, bytes)) {
      return status;
    }
    if (!settings.async || !is_ordinary(src)) {
      return queue_move(stream, dst, src, bytes, false);
    }
    if (bytes > kStageBytes) {
      return queue_move(stream, dst, src, bytes, true);
    }
    std::unique_ptr<char[]> staged(new char[bytes]);
    std::memcpy(staged.get(), src, bytes);
    return enqueue(
        stream, [dst, bytes, staged = std::move(staged)]() -> npu_status {
          return move_bytes(dst, staged.get(), bytes);
        });
  });
}

npu_status copy_to_host(
    npu_stream stream, void* dst, const void* src, std::uint64_t bytes) {
  return entry(given(stream, dst), [&]() -> npu_status {
    if (bytes == 0) {
      return NPU_OK;
    }
    if (npu_status status =
            check_range("copy_to_host", stream_device(stream), src, bytes)) {
      return status;
    }
    return queue_move(
        stream, dst, src, bytes, settings.async && is_ordinary(dst));
  });
}

npu_status copy_on_device(
    npu_stream stream, void* dst, const void* src, std::uint64_t bytes) {
  const npu_device device = stream ? stream_device(stream) : -1;
  return copy_peer(stream, device, dst, device, src, bytes);
}

npu_status copy_peer(
    npu_stream stream,
    npu_device dst_device,
    void* dst,
    npu_device src_device,
    const void* src,
    std::uint64_t bytes) {
  return entry(given(stream), [&]() -> npu_status {
    if (bytes == 0) {
      return NPU_OK;
    }
    npu_status status = check_range("copy", dst_device, dst, bytes);
    status = status ? status : check_range("copy", src_device, src, bytes);
    return status ? status : queue_move(stream, dst, src, bytes, false);
  });
}

npu_status set_bytes(
    npu_stream stream, void* dst, std::int32_t value, std::uint64_t bytes) {
  return entry(given(stream), [&]() -> npu_status {
    if (bytes == 0) {
      return NPU_OK;
    }
    if (npu_status status =
            check_range("set_bytes", stream_device(stream), dst, bytes)) {
      return status;
    }
    return enqueue(stream, [=]() -> npu_status {
      PageGuard guard;
      if (npu_status open = guard.open(dst, bytes, NPU_ACCESS_WRITE)) {
        return open;
      }
      const auto body = [&](std::int64_t begin, std::int64_t end) {
        std::memset(
            static_cast<char*>(dst) + begin,
            value,
            static_cast<std::size_t>(end - begin));
      };
      return parallel(static_cast<std::int64_t>(bytes), kCopyGrain, body);
    });
  });
}

}  // namespace npu::host
