// SPDX-License-Identifier: Apache-2.0
// Making the process's allocator: environment, fork.
#include "runtime/allocator/global.h"

#include <c10/core/AllocatorConfig.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "driver/env.h"
#include "driver/status.h"
#include "runtime/allocator/allocator_api.h"
#include "runtime/allocator/driver_backend.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace npu::memory {
namespace {

constexpr const char* kOwnVariable = "PYTORCH_NPU_ALLOC_CONF";
constexpr const char* kSharedVariable = "PYTORCH_ALLOC_CONF";

using detail::g_abandoned;
using detail::g_allocator;

Config config_from_environment() {
  Config config;
  const auto own = env::text(kOwnVariable);
  const auto shared = env::text(kSharedVariable);
  if (own && shared) {
    throw Error(
        NPU_E_INVALID,
        "npu: PYTORCH_NPU_ALLOC_CONF and PYTORCH_ALLOC_CONF are both set. "
        "Keep one of them.");
  }
  if (own) {
    parse_config(*own, kOwnVariable, config);
  } else if (shared) {
    parse_config(*shared, kSharedVariable, config);
  }
  config.caching = !env::flag("PYTORCH_NO_NPU_MEMORY_CACHING", false);
  return config;
}

void before_fork() {
  g_allocator.load()->table().writer_mutex().lock();
}

void after_fork_in_parent() {
  g_allocator.load()->table().writer_mutex().unlock();
}

void after_fork_in_child() {
  CachingAllocator& allocator = *g_allocator.load();
  allocator.table().writer_mutex().unlock();
  // A child that forked before any device was used may begin afresh.
  if (allocator.used()) {
    g_abandoned.store(true);
  }
}

// PyTorch checks PYTORCH_ALLOC_CONF too (for pinned memory) and refuses names
// it does not know: tell it ours. In a build with CUDA the hook is taken.
const bool g_keys_known = [] {
  using c10::CachingAllocator::AcceleratorAllocatorConfig;
  for (std::string& key : config_keys()) {
    AcceleratorAllocatorConfig::getMutableKeys().insert(std::move(key));
  }
  auto& hook = AcceleratorAllocatorConfig::getConfigParserHook();
  if (!hook) {
    hook = [](const std::string& text) { set_settings(text); };
  }
  return true;
}();

}  // namespace

CachingAllocator& detail::make_allocator() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (CachingAllocator* made = g_allocator.load(std::memory_order_acquire)) {
    return *made;
  }
  static auto& backend = *new DriverBackend;
  const Config config = use_driver(config_from_environment);
  g_allocator.store(
      new CachingAllocator(backend, config), std::memory_order_release);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  return *g_allocator.load(std::memory_order_acquire);
}

DevicePool& device_pool(c10::DeviceIndex device) {
  CachingAllocator& allocator = global_allocator();
  const auto at = static_cast<unsigned>(device);
  if (!abandoned() && at < CachingAllocator::kDevices) [[likely]] {
    if (DevicePool* const found = allocator.existing(device)) [[likely]] {
      return *found;
    }
  }
  init();
  driver_device(device);
  return allocator.pool(device);
}

}  // namespace npu::memory
