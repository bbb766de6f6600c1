// SPDX-License-Identifier: Apache-2.0
// Private pools: who holds them, which thread's requests go to them.
#include <algorithm>
#include <vector>

#include "driver/status.h"
#include "runtime/allocator/device_pool.h"

namespace npu::memory {

using Guard = std::lock_guard<SpinLock>;

namespace {

struct Route {
  const DevicePool* device;
  PrivatePool* pool;
};

// One pointer: thread-local space is scarce in a loaded library. Null until the
// thread opens its first route.
using Routes = std::vector<Route>;
thread_local std::unique_ptr<Routes> routes;

}  // namespace

PrivatePool* DevicePool::routed_pool() const {
  if (routes != nullptr) {
    for (auto it = routes->rbegin(); it != routes->rend(); ++it) {
      if (it->device == this) {
        return it->pool;
      }
    }
  }
  return nullptr;
}

PrivatePool* DevicePool::find_pool(PoolId id) {
  const auto found = private_.find(id);
  return found == private_.end() ? nullptr : found->second.get();
}

PrivatePool& DevicePool::hold(PoolId id, const PoolOptions& options) {
  std::unique_ptr<PrivatePool>& found = private_[id];
  if (found == nullptr) {
    found = std::make_unique<PrivatePool>(id, options);
  }
  ++found->holders;
  return *found;
}

// True when that was the last holder.
bool DevicePool::let_go(PoolId id) {
  PrivatePool* const pool = find_pool(id);
  return pool != nullptr && pool->holders > 0 && --pool->holders == 0;
}

void DevicePool::hold_pool(PoolId id, const PoolOptions& options) {
  const Guard guard(lock_);
  hold(id, options);
}

void DevicePool::release_pool(PoolId id) {
  const std::lock_guard<std::mutex> driver(driver_);
  PrivatePool* pool = nullptr;
  {
    const Guard guard(lock_);
    if (!let_go(id)) {
      return;
    }
    pool = find_pool(id);
  }
  poll_events(false);
  release_idle(kUnlimited, pool);
}

std::size_t DevicePool::pool_holders(PoolId id) {
  const Guard guard(lock_);
  const PrivatePool* const pool = find_pool(id);
  return pool == nullptr ? 0 : pool->holders;
}

void DevicePool::begin_route(PoolId id) {
  if (routes == nullptr) {
    routes = std::make_unique<Routes>();
  }
  routes->reserve(routes->size() + 1);
  const Guard guard(lock_);
  routes->push_back({this, &hold(id, {})});
  ++routes_;
  attend(kRouted, true);
}

void DevicePool::end_route(PoolId id) {
  const auto matches = [&](const Route& route) {
    return route.device == this && route.pool->id == id;
  };
  Routes none;
  Routes& mine = routes == nullptr ? none : *routes;
  const auto found = std::find_if(mine.rbegin(), mine.rend(), matches);
  if (found == mine.rend()) {
    throw Error(
        NPU_E_INVALID,
        "npu: memory pool: this thread does not allocate from it. End a pool "
        "on the thread that began it, once.");
  }
  mine.erase(std::next(found).base());
  {
    const Guard guard(lock_);
    attend(kRouted, --routes_ != 0);
  }
  release_pool(id);
}

void DevicePool::empty_pool(PoolId id) {
  const std::lock_guard<std::mutex> driver(driver_);
  PrivatePool* pool = nullptr;
  {
    const Guard guard(lock_);
    pool = find_pool(id);
  }
  if (pool != nullptr) {
    poll_events(true);
    release_idle(kUnlimited, pool);
  }
  raise_deferred();
}

void DevicePool::flush_private_bins() {
  for (const auto& [id, pool] : private_) {
    for (const auto& [stream, pools] : pool->streams) {
      flush_bins(*pools);
    }
  }
}

void DevicePool::forget_empty_pools() {
  std::erase_if(private_, [](const auto& entry) {
    return entry.second->holders == 0 && entry.second->segments == 0;
  });
}

// Idle blocks of pools made with use_on_oom, for a request that would fail.
Block* DevicePool::take_from_lenders(Request request) {
  if (!config_.caching) {
    return nullptr;
  }
  for (const auto& [id, pool] : private_) {
    if (pool->options.use_on_oom && pool.get() != request.apart &&
        pool->streams.contains(request.stream)) {
      request.apart = pool.get();
      if (Block* block = take(request, true)) {
        return block;
      }
    }
  }
  return nullptr;
}

}  // namespace npu::memory
