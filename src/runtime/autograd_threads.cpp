// SPDX-License-Identifier: Apache-2.0
// Autograd's device threads, started and ended by us; see the Note.
#include "runtime/autograd_threads.h"

#include <c10/core/AutogradState.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "driver/services.h"
#include "runtime/device.h"
#include "runtime/parallel.h"

namespace npu {
namespace {

using torch::autograd::Engine;
using torch::autograd::ReadyQueue;

// The engine's queues are protected members; nothing else is reached for.
class EngineQueues : public Engine {
 public:
  static std::vector<std::shared_ptr<ReadyQueue>>& of(Engine& engine) {
    return engine.*(&EngineQueues::device_ready_queues_);
  }
};

thread_local bool hiding = false;

class HideDevices {
 public:
  HideDevices() {
    hiding = true;
  }
  ~HideDevices() {
    hiding = false;
  }
  HideDevices(const HideDevices&) = delete;
  HideDevices& operator=(const HideDevices&) = delete;
};

// A GPU build of torch has a guard of its own with devices. The engine would
// start threads for them that we cannot wait for at exit, so for the moment it
// sees no guard but ours, which hides; we start theirs too.
class HideOtherGuards {
 public:
  HideOtherGuards() {
    for (auto& slot : c10::impl::device_guard_impl_registry) {
      const auto* const guard = slot.load();
      saved_.push_back(guard);
      if (guard != nullptr && guard->type() != c10::DeviceType::CPU &&
          guard->type() != kDeviceType) {
        devices_ = std::max(devices_, guard->deviceCount());
        slot.store(nullptr);
      }
    }
  }
  ~HideOtherGuards() {
    for (std::size_t i = 0; i < saved_.size(); ++i) {
      c10::impl::device_guard_impl_registry[i].store(saved_[i]);
    }
  }
  HideOtherGuards(const HideOtherGuards&) = delete;
  HideOtherGuards& operator=(const HideOtherGuards&) = delete;
  c10::DeviceIndex devices() const {
    return devices_;
  }

 private:
  std::vector<const c10::impl::DeviceGuardImplInterface*> saved_;
  c10::DeviceIndex devices_ = 0;
};

struct Running {
  std::mutex mutex;
  std::condition_variable changed;
  int threads = 0;
  std::size_t started = 0;
};

// Leaked: a thread may outlive static destructors.
Running& running() {
  static auto* const instance = new Running;
  return *instance;
}

// Of the thread that began a backward pass last.
std::atomic<int> wanted_threads{0};
// 0 on every thread but the engine's for our devices.
thread_local int used_threads = 0;

void thread_body(
    Engine& engine,
    c10::DeviceIndex device,
    const std::shared_ptr<ReadyQueue>& queue) {
  exchange_device_unchecked(device);
  used_threads = thread_count();
  engine.thread_init(device, queue, /*should_increment=*/true);
  // thread_init has released its Python thread state by now; the engine's own
  // count is decremented before that, so it is not enough.
  Running& all = running();
  std::lock_guard<std::mutex> lock(all.mutex);
  --all.threads;
  all.changed.notify_all();
}

void start_thread(Engine& engine, c10::DeviceIndex device) {
  auto queue = std::make_shared<ReadyQueue>();
  Running& all = running();
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    ++all.threads;
  }
  try {
    std::thread([&engine, device, queue] {
      thread_body(engine, device, queue);
    }).detach();
  } catch (...) {
    std::lock_guard<std::mutex> lock(all.mutex);
    --all.threads;
    throw;
  }
  EngineQueues::of(engine).push_back(std::move(queue));
  ++all.started;
}

constexpr auto kPatience = std::chrono::seconds(1);

bool engine_thread_lives() {
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name.starts_with("pt_autograd_")) {
      return true;
    }
  }
  return false;
}

// For threads that PyTorch started itself, at a backward before our init() on a
// machine with a GPU: only when they have ended are they known not to need
// Python.
void wait_for_engine_threads() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (engine_thread_lives() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

bool hiding_devices() noexcept {
  return hiding;
}

void start_autograd_threads(c10::DeviceIndex devices) {
  Engine& engine = Engine::get_default_engine();
  {
    // The engine does this once per process: now.
    HideDevices ours;
    HideOtherGuards others;
    engine.initialize_device_threads_pool();
    devices = std::max(devices, others.devices());
  }
  auto& queues = EngineQueues::of(engine);
  queues.reserve(static_cast<std::size_t>(devices));
  for (auto i = queues.size(); i < static_cast<std::size_t>(devices); ++i) {
    start_thread(engine, static_cast<c10::DeviceIndex>(i));
  }
}

void run_backward_on_this_thread() noexcept {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

void note_thread_count_of_caller() noexcept {
  if (used_threads == 0) {
    const int threads = thread_count();
    if (wanted_threads.load(std::memory_order_relaxed) != threads) {
      wanted_threads.store(threads, std::memory_order_relaxed);
    }
  }
}

void follow_thread_count_of_caller() noexcept {
  if (used_threads == 0) {
    return;
  }
  const int wanted = wanted_threads.load(std::memory_order_relaxed);
  if (wanted != used_threads && wanted != 0) {
    renew_thread_count();
    used_threads = wanted;
  }
}

void stop_autograd_threads() noexcept {
  try {
    Engine& engine = Engine::get_default_engine();
    if (in_bad_fork()) {
      engine.release_workers();
      return;
    }
    if (!is_initialized()) {
      return;
    }
    // Waits for the threads, except when a daemon thread is in backward: then
    // they go on, and are left behind.
    engine.stop();
    Running& all = running();
    std::unique_lock<std::mutex> lock(all.mutex);
    const bool gone = all.changed.wait_for(
        lock, kPatience, [&all] { return all.threads == 0; });
    if (gone) {
      auto& queues = EngineQueues::of(engine);
      if (queues.size() > all.started) {
        wait_for_engine_threads();
      }
      // A later backward on npu then raises instead of waiting for ever.
      queues.clear();
    }
  } catch (const std::exception& e) {
    log(NPU_LOG_WARNING, std::string("npu: exit: ") + e.what());
  }
}

}  // namespace npu
