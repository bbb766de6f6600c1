// SPDX-License-Identifier: Apache-2.0
// One driver at a time is watched: the one the process uses.
#include "driver/launch_watch.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "driver/driver.h"

namespace npu {
namespace {

std::atomic<LaunchListener*> launch_listener{nullptr};
std::atomic<const Driver*> watched_driver{nullptr};

template <class Give>
class LaunchOf final : public Launch {
 public:
  LaunchOf(
      Kind what,
      npu_stream where,
      std::uint64_t n,
      const npu_call* frame,
      Give give)
      : Launch(what, where, n, frame), give_(std::move(give)) {}
  npu_status give(std::uint64_t correlation) const override {
    return give_(correlation);
  }

 private:
  const Give give_;
};

template <class Give>
npu_status show(
    Launch::Kind kind,
    npu_stream stream,
    std::uint64_t bytes,
    const npu_call* call,
    Give give) {
  LaunchListener* const listener =
      launch_listener.load(std::memory_order_acquire);
  if (listener == nullptr) {
    return give(0);
  }
  return listener->on_launch(LaunchOf(kind, stream, bytes, call, give));
}

// A frame is the caller's: the number goes into a copy.
template <class Run>
npu_status show_call(npu_stream stream, const npu_call& call, Run run) {
  return show(
      Launch::kKernel, stream, 0, &call, [&](std::uint64_t correlation) {
        npu_call numbered = call;
        numbered.correlation = correlation;
        return run(stream, &numbered);
      });
}

}  // namespace

// The same functions for whichever driver is watched.
void Driver::fill_watched_memory(npu_memory_table& memory) {
  memory.copy_to_device =
      [](npu_stream s, void* dst, const void* src, uint64_t n) {
        return show(Launch::kToDevice, s, n, nullptr, [=](std::uint64_t) {
          return watched_driver.load()->memory_.copy_to_device(s, dst, src, n);
        });
      };
  memory.copy_to_host =
      [](npu_stream s, void* dst, const void* src, uint64_t n) {
        return show(Launch::kToHost, s, n, nullptr, [=](std::uint64_t) {
          return watched_driver.load()->memory_.copy_to_host(s, dst, src, n);
        });
      };
  memory.copy_on_device =
      [](npu_stream s, void* dst, const void* src, uint64_t n) {
        return show(Launch::kOnDevice, s, n, nullptr, [=](std::uint64_t) {
          return watched_driver.load()->memory_.copy_on_device(s, dst, src, n);
        });
      };
  memory.copy_peer = [](npu_stream s,
                        npu_device dst_device,
                        void* dst,
                        npu_device src_device,
                        const void* src,
                        uint64_t n) {
    return show(Launch::kPeer, s, n, nullptr, [=](std::uint64_t) {
      return watched_driver.load()->memory_.copy_peer(
          s, dst_device, dst, src_device, src, n);
    });
  };
  memory.set_bytes = [](npu_stream s, void* dst, int32_t value, uint64_t n) {
    return show(Launch::kSet, s, n, nullptr, [=](std::uint64_t) {
      return watched_driver.load()->memory_.set_bytes(s, dst, value, n);
    });
  };
}

void Driver::watch_launches(LaunchListener* listener) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (listener == nullptr) {
    run_in_use_.store(op_.run, std::memory_order_release);
    memory_in_use_.store(&memory_, std::memory_order_release);
    launch_listener.store(nullptr, std::memory_order_release);
    return;
  }
  if (!watched_memory_) {
    watched_memory_ = std::make_unique<npu_memory_table>(memory_);
    fill_watched_memory(*watched_memory_);
  }
  watched_driver.store(this);
  launch_listener.store(listener, std::memory_order_release);
  memory_in_use_.store(watched_memory_.get(), std::memory_order_release);
  run_in_use_.store(
      [](npu_stream s, const npu_call* call) {
        return show_call(s, *call, watched_driver.load()->op_.run);
      },
      std::memory_order_release);
}

npu_status Driver::run_kernel_of_pack(
    npu_stream stream, const npu_op_row& row, const npu_call& call) const {
  const auto run = [&](npu_stream s, const npu_call* given) {
    return locked_run_ != nullptr ? locked_run_(s, row.run, given)
                                  : row.run(s, given);
  };
  const bool watched = watched_driver.load(std::memory_order_relaxed) == this;
  return watched ? show_call(stream, call, run) : run(stream, &call);
}

}  // namespace npu
