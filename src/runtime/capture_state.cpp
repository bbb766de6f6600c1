// SPDX-License-Identifier: Apache-2.0
// Captures of the process, in one small table.
#include "runtime/capture_state.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/error.h"

namespace npu {
namespace {

struct Capture {
  c10::Stream stream;
  std::thread::id thread;  // that began it
  std::string broken;
};

std::atomic<std::size_t> active{0};

struct Table {
  std::mutex mutex;
  std::vector<Capture> captures;
  std::unordered_map<const void*, c10::Stream> events;
};

Table& table() {
  static auto* const made = new Table;
  return *made;
}

Capture* find(Table& t, c10::Stream stream) {
  const auto found = std::ranges::find(
      t.captures, stream, [](const Capture& c) { return c.stream; });
  return found == t.captures.end() ? nullptr : &*found;
}

// `capture` is nullptr where nothing forbids it.
void refuse(Capture* capture, const char* what) {
  if (capture == nullptr) {
    return;
  }
  if (capture->broken.empty()) {
    capture->broken = what;
  }
  TORCH_CHECK(
      false,
      "NPU graph capture: ",
      what,
      " is not permitted while a stream is captured: it needs a value on the "
      "host, or waits for the device.",
      pta_error(Code::kNotSupported));
}

bool none_active() noexcept {
  return active.load(std::memory_order_acquire) == 0;
}

}  // namespace

bool begin_stream_capture(c10::Stream stream) {
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  if (find(t, stream) != nullptr) {
    return false;
  }
  t.captures.push_back({stream, std::this_thread::get_id(), {}});
  active.store(t.captures.size(), std::memory_order_release);
  return true;
}

std::string end_stream_capture(c10::Stream stream) {
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  std::string broken;
  if (const Capture* const capture = find(t, stream)) {
    broken = capture->broken;
  }
  std::erase_if(
      t.captures, [&](const Capture& c) { return c.stream == stream; });
  std::erase_if(
      t.events, [&](const auto& event) { return event.second == stream; });
  active.store(t.captures.size(), std::memory_order_release);
  return broken;
}

bool is_stream_capturing(c10::Stream stream) noexcept {
  if (none_active()) {
    return false;
  }
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  return find(t, stream) != nullptr;
}

void refuse_in_capture(c10::Stream stream, const char* what) {
  if (!none_active()) {
    Table& t = table();
    const std::lock_guard<std::mutex> lock(t.mutex);
    refuse(find(t, stream), what);
  }
}

// Other threads may go on using the device.
void refuse_in_capture(c10::DeviceIndex device, const char* what) {
  if (none_active()) {
    return;
  }
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  const auto found = std::ranges::find_if(t.captures, [&](const Capture& c) {
    return c.stream.device_index() == device &&
           c.thread == std::this_thread::get_id();
  });
  refuse(found == t.captures.end() ? nullptr : &*found, what);
}

void refuse_in_capture(const void* event, const char* what) {
  if (none_active()) {
    return;
  }
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  const auto found = t.events.find(event);
  refuse(found == t.events.end() ? nullptr : find(t, found->second), what);
}

void note_event(const void* event, c10::Stream stream) {
  if (none_active()) {
    return;
  }
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  t.events.erase(event);
  if (find(t, stream) != nullptr) {
    t.events.emplace(event, stream);
  }
}

void forget_event(const void* event) noexcept {
  if (!none_active()) {
    Table& t = table();
    const std::lock_guard<std::mutex> lock(t.mutex);
    t.events.erase(event);
  }
}

}  // namespace npu
