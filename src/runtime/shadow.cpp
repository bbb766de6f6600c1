// SPDX-License-Identifier: Apache-2.0
// Shadows by address: found, claimed, dropped, bounded. See Note [Shadows].
#include "runtime/shadow.h"

#include <unistd.h>

#include <algorithm>
#include <bit>

#include "driver/env.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/allocator/block_freed.h"
#include "runtime/error.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

namespace npu {
namespace {

std::atomic<Shadows*> made_shadows{nullptr};
thread_local c10::ArrayRef<Shadows::Claim> mirrored_claims;

std::size_t default_limit() {
  constexpr std::size_t kMost = std::size_t{4} << 30;
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGE_SIZE);
  const std::size_t ram =
      pages > 0 && page > 0
          ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page)
          : kMost;
  return std::min(ram / 8, kMost);
}

// The pinned allocator hands out powers of two.
std::size_t cost_of(const HostCopy& copy) {
  return is_pinned(copy.data.get()) ? std::bit_ceil(copy.bytes) : copy.bytes;
}

bool is_idle(npu_stream stream) {
  const npu_status status = active_driver().stream().query(stream);
  if (status == NPU_NOT_READY) {
    return false;
  }
  check_driver(status, "ask whether a stream is idle");
  return true;
}

}  // namespace

void HostCopy::read_by(c10::Stream stream) {
  // Ordinary memory was read when the driver took the copy.
  if (is_pinned(data.get())) {
    record_pinned(data.get(), data.get_context(), stream);
    upload = stream_handle(stream);
  }
}

Shadows::Shadows(std::size_t limit) : limit_(limit) {}

Shadows* Shadows::make() {
  // Never destroyed: blocks are freed until the process ends.
  static Shadows* const made = []() -> Shadows* {
    const std::size_t limit = use_driver(
        [] { return env::bytes("NPU_SHADOW_MEMORY", default_limit()); });
    if (limit == 0 || !writes_are_watched(*active_driver().table().memory)) {
      return nullptr;
    }
    auto* const shadows = new Shadows(limit);
    set_write_listener(shadows);
    set_block_freed(&Shadows::on_block_freed);
    made_shadows.store(shadows, std::memory_order_release);
    return shadows;
  }();
  return made;
}

Shadows* Shadows::active() {
  if (write_watch_distrusted() || forked_child()) {
    return nullptr;
  }
  return make();
}

Shadows& Shadows::made() noexcept {
  return *made_shadows.load(std::memory_order_acquire);
}

// ---- one shadow ----

void Shadows::insert_newest(Shadow& shadow) {
  shadow.newer = nullptr;
  shadow.older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = &shadow;
  newest_ = &shadow;
  bytes_ += shadow.cost;
  published_ += 1;
}

void Shadows::remove_age(Shadow& shadow) {
  (shadow.newer != nullptr ? shadow.newer->older : newest_) = shadow.older;
  (shadow.older != nullptr ? shadow.older->newer : oldest_) = shadow.newer;
  bytes_ -= shadow.cost;
  published_ -= 1;
}

Shadows::Map::iterator Shadows::erase(Map::iterator at, Dropped& dropped) {
  Shadow& shadow = at->second;
  if (shadow.claim == 0) {
    remove_age(shadow);
  }
  if (shadow.copy) {
    dropped.push_back(std::move(shadow.copy));
  }
  return map_.erase(at);
}

void Shadows::erase_overlap(
    DeviceRange range, Dropped& dropped, bool spare_mirrored) {
  auto at = map_.upper_bound(range.begin);
  if (at != map_.begin() && std::prev(at)->second.end > range.begin) {
    --at;
  }
  while (at != map_.end() && at->first < range.end) {
    const auto is_this = [&](const Claim& claim) {
      return claim.id == at->second.claim;
    };
    const bool is_mine =
        spare_mirrored && at->second.claim != 0 &&
        std::any_of(mirrored_claims.begin(), mirrored_claims.end(), is_this);
    at = is_mine ? std::next(at) : erase(at, dropped);
  }
}

// The published shadow that covers the range, used last from now on.
Shadows::Map::iterator Shadows::covering(DeviceRange range) {
  auto at = map_.upper_bound(range.begin);
  if (at == map_.begin()) {
    return map_.end();
  }
  --at;
  if (at->second.end < range.end || at->second.claim != 0) {
    return map_.end();
  }
  remove_age(at->second);
  insert_newest(at->second);
  return at;
}

Shadows::Map::iterator Shadows::find_claim(const Claim& claim) {
  const auto found = map_.find(claim.begin);
  return found != map_.end() && claim && found->second.claim == claim.id
             ? found
             : map_.end();
}

Shadows::Found Shadows::find(DeviceRange range) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = covering(range);
  if (at == map_.end()) {
    return {};
  }
  hits_.fetch_add(1, std::memory_order_relaxed);
  return {at->second.copy, at->second.at + (range.begin - at->first)};
}

// Nobody else looks at the memory, no queued copy reads it, and it is as large
// as `held`.
bool Shadows::is_free(const Map::value_type& item, DeviceRange held) {
  const Shadow& shadow = item.second;
  HostCopy& copy = *shadow.copy;
  const auto before = static_cast<std::size_t>(
      shadow.at - static_cast<const char*>(copy.data.get()));
  DeviceRange reach;
  reach.begin = item.first - before;
  reach.end = reach.begin + copy.bytes;
  if (shadow.copy.use_count() != 1 || !reach.covers(held)) {
    return false;
  }
  if (copy.upload != nullptr && is_idle(copy.upload)) {
    copy.upload = nullptr;
  }
  return copy.upload == nullptr;
}

Shadows::Taken Shadows::take(DeviceRange range, DeviceRange held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = covering(range);
  if (at == map_.end()) {
    return {};
  }
  Shadow& shadow = at->second;
  Taken taken;
  taken.range.begin = at->first;
  taken.range.end = shadow.end;
  taken.in_place = is_free(*at, held);
  if (!taken.in_place && !held.covers(taken.range)) {
    return {};
  }
  hits_.fetch_add(1, std::memory_order_relaxed);
  remove_age(shadow);
  shadow.claim = ++last_claim_;
  taken.copy = std::move(shadow.copy);
  taken.at = shadow.at + (range.begin - at->first);
  taken.claim = {shadow.claim, at->first};
  return taken;
}

// ---- claims ----

Shadows::Claim Shadows::claim(DeviceRange range) {
  if (range.bytes() == 0 || range.bytes() > limit_) {
    return {};
  }
  Dropped dropped;  // freed after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_barred(range)) {
    return {};
  }
  erase_overlap(range, dropped, false);
  Shadow& shadow = map_[range.begin];
  shadow.begin = range.begin;
  shadow.end = range.end;
  shadow.claim = ++last_claim_;
  return {shadow.claim, range.begin};
}

void Shadows::publish(const Claim& claim, HostCopyPtr copy, char* at) {
  const std::size_t cost = cost_of(*copy);
  Dropped dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = find_claim(claim);
  if (found == map_.end()) {
    return;
  }
  Shadow& shadow = found->second;
  shadow.claim = 0;
  shadow.copy = std::move(copy);
  shadow.at = at;
  shadow.cost = cost;
  insert_newest(shadow);
  shrink(dropped);
}

void Shadows::drop(const Claim& claim) {
  Dropped dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = find_claim(claim); found != map_.end()) {
    erase(found, dropped);
  }
}

void Shadows::forget(const HostCopy& copy) {
  Dropped dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = map_.begin(); at != map_.end(); ++at) {
    if (at->second.copy.get() == &copy) {
      erase(at, dropped);
      return;
    }
  }
}

void Shadows::bar(DeviceRange range) {
  if (range.bytes() == 0) {
    return;
  }
  Dropped dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  erase_overlap(range, dropped, false);
  std::uintptr_t& end = barred_[range.begin];
  end = std::max(end, range.end);
}

// Ranges may overlap, but few are barred at a time.
bool Shadows::is_barred(DeviceRange range) const {
  return std::any_of(barred_.begin(), barred_.end(), [&](const auto& one) {
    return one.first < range.end && range.begin < one.second;
  });
}

void Shadows::shrink(Dropped& dropped) {
  while (bytes_ > limit_ && oldest_ != nullptr) {
    erase(map_.find(oldest_->begin), dropped);
  }
}

// ---- writes ----

void Shadows::on_write(
    npu_stream stream, const void* ptr, std::uint64_t bytes) noexcept {
  Dropped dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::find(writers_.begin(), writers_.end(), stream) == writers_.end()) {
    writers_.push_back(stream);
  }
  erase_overlap(DeviceRange(ptr, bytes), dropped, true);
}

void Shadows::on_stream_end(npu_stream stream) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = std::find(writers_.begin(), writers_.end(), stream);
  if (known != writers_.end()) {
    writers_.erase(known);
  }
  for (auto& [begin, shadow] : map_) {
    if (shadow.copy && shadow.copy->upload == stream) {
      shadow.copy->upload = nullptr;  // drained before it is destroyed
    }
  }
}

bool Shadows::others_idle(npu_stream mine) {
  // Under the lock, so that no stream is destroyed meanwhile.
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::size_t i = writers_.size(); i-- > 0;) {
    if (writers_[i] == mine) {
      continue;
    }
    if (!is_idle(writers_[i])) {
      return false;
    }
    writers_.erase(writers_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return true;
}

void Shadows::on_block_freed(const void* ptr, std::size_t bytes) {
  Shadows& self = made();
  Dropped dropped;
  const std::lock_guard<std::mutex> lock(self.mutex_);
  const DeviceRange range(ptr, bytes);
  self.erase_overlap(range, dropped, false);
  self.barred_.erase(
      self.barred_.lower_bound(range.begin),
      self.barred_.lower_bound(range.end));
}

void Shadows::on_distrust(const char* why) noexcept {
  if (log_enabled(NPU_LOG_INFO)) {
    log(NPU_LOG_INFO,
        std::string("npu: CPU kernels copy their arguments at every call from "
                    "now on: ") +
            why);
  }
  Dropped dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = map_.begin(); at != map_.end();) {
    at = erase(at, dropped);
  }
}

Shadows::Stats Shadows::stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {hits_.load(), misses_.load(), published_, bytes_, limit_};
}

Mirrored::Mirrored(c10::ArrayRef<Shadows::Claim> claims) noexcept
    : before_(mirrored_claims) {
  mirrored_claims = claims;
}

Mirrored::~Mirrored() {
  mirrored_claims = before_;
}

}  // namespace npu
