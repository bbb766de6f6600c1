// SPDX-License-Identifier: Apache-2.0
// The page by which a process shows its devices to `opennpu top`.
#include "profiler/page.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "driver/env.h"
#include "driver/registry.h"
#include "profiler/device_label.h"
#include "profiler/meter.h"
#include "profiler/page_file.h"
#include "profiler/watch.h"
#include "runtime/allocator/global.h"
#include "runtime/device.h"

namespace npu::profiler {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::milliseconds kEvery(100);
constexpr std::chrono::seconds kAfterRequest(2);

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& text) {
  std::snprintf(to, N, "%s", text.c_str());
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::ranges::replace(text, '\0', ' ');
  return text;
}

// What a device had done at the last sample.
struct Before {
  std::uint64_t busy = 0;
  Ticks at = 0;
  std::uint64_t carried = 0;  // a piece is counted when it ends, so it may be
                              // longer than the time since the last sample
};

constexpr std::uint64_t kAll = 1000;

// Permille of the time since `before`.
std::uint32_t share(Before& before, const Metered& now, Ticks at) {
  const auto passed = static_cast<std::uint64_t>(at - before.at);
  const std::uint64_t done = now.ticks - before.busy + before.carried;
  if (done == 0) {
    return now.under_way != 0 ? kAll : 0;
  }
  constexpr std::uint64_t kMostCarried = 20;  // times the sample
  before.carried =
      done > passed ? std::min(done - passed, kMostCarried * passed) : 0;
  return static_cast<std::uint32_t>(std::min(kAll, done * kAll / passed));
}

class Shown {
 public:
  void start() {
    if (!file_.open()) {
      return;
    }
    Page& page = *file_.page();
    std::memcpy(page.magic, "OPENNPU", sizeof(page.magic));
    page.version = kPageVersion;
    page.bytes = sizeof(Page);
    page.pid = ::getpid();
    page.started_ns = c10::getTime();
    copy_text(page.driver, active_driver().name());
    copy_text(page.command, command_line());
    std::thread([this, &page] { show(page); }).detach();
  }

  void end() noexcept {
    // A forked child must not touch the mutex: its owner may be gone.
    if (file_.page() == nullptr || file_.page()->pid != ::getpid()) {
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    file_.remove();
  }

  std::string path() const {
    return file_.page() != nullptr ? file_.path() : "";
  }

 private:
  void show(Page& page) {
    ::pthread_setname_np(::pthread_self(), "npu-top");
    std::uint32_t seen = 0;
    while (true) {
      while (page.requests.load() == seen) {
        ::syscall(
            SYS_futex, &page.requests, FUTEX_WAIT, seen, nullptr, nullptr, 0);
      }
      if (!show_for_a_while(page, seen)) {
        return;
      }
    }
  }

  // Until no request has come for two seconds. False when the process ends.
  bool show_for_a_while(Page& page, std::uint32_t& seen) {
    watch_for(Reason::kMeter, true);
    before_.fill({});
    auto until = steady_clock::now();
    while (true) {
      const std::uint32_t requests = page.requests.load();
      if (requests != seen) {
        seen = requests;
        until = steady_clock::now() + kAfterRequest;
      }
      if (steady_clock::now() >= until) {
        watch_for(Reason::kMeter, false);
        return true;
      }
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (ended_) {
          return false;
        }
        sample(page);
      }
      std::this_thread::sleep_for(kEvery);
    }
  }

  void sample(Page& page) {
    page.sequence.fetch_add(1);
    std::uint32_t n = 0;
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      if (device_is_open(device) && n < kPageDevices) {
        fill(page.devices[n++], device);
      }
    }
    page.n_devices = n;
    ++page.samples;
    page.sequence.fetch_add(1);
  }

  void fill(PageDevice& to, c10::DeviceIndex device) {
    const npu_device number = driver_device(device);
    to.number = number;
    copy_text(to.name, device_name(device));
    to.total = to.free = 0;
    active_driver().device().memory_info(number, &to.free, &to.total);
    const memory::DeviceStats stats =
        memory::global_allocator().pool(device).stats();
    to.allocated = static_cast<std::uint64_t>(stats.allocated_bytes[0].current);
    to.reserved = static_cast<std::uint64_t>(stats.reserved_bytes[0].current);
    to.peak = static_cast<std::uint64_t>(stats.allocated_bytes[0].peak);
    Before& before = before_[static_cast<std::size_t>(device)];
    const Metered now = metered(device);
    const Ticks at = c10::getApproximateTime();
    if (before.at != 0 && at > before.at) {
      to.permille = share(before, now, at);
    }
    to.pieces = now.pieces;
    before.busy = now.ticks;
    before.at = at;
  }

  PageFile file_;
  std::mutex mutex_;  // held while the driver and the allocator are asked
  bool ended_ = false;
  std::array<Before, kMaxDevices> before_{};
};

Shown& shown() {
  static auto* const instance = new Shown;
  return *instance;
}

[[maybe_unused]] const bool page_registered = [] {
  after_init([] {
    if (env::flag("NPU_TOP", true)) {
      shown().start();
      std::atexit([] { shown().end(); });
    }
  });
  return true;
}();

}  // namespace

std::string page_path() {
  return shown().path();
}

}  // namespace npu::profiler
