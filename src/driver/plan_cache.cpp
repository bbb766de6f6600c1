// SPDX-License-Identifier: Apache-2.0
// Shards, eviction and tuning of the plan cache.
#include "driver/plan_cache.h"

#include <array>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "driver/plan_key.h"
#include "driver/services.h"
#include "driver/status.h"
#include "driver/verdict.h"
#include "npu/kinds.h"

namespace npu {

namespace {

constexpr std::size_t kShards = 16;
constexpr std::size_t kMaxPerShard = 1024;

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view key) const noexcept {
    return std::hash<std::string_view>{}(key);
  }
};

// One shard. Readers only mark what they use; who inserts into a full shard
// moves a hand over the entries, takes the marks away and replaces the first
// entry without one ("second chance").
class Shard {
 public:
  PlanHandle find(std::string_view key) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = plans_.find(key);
    if (found == plans_.end()) {
      return nullptr;
    }
    // Written only when it changes: readers share the cache line.
    if (!found->second.used.load(std::memory_order_relaxed)) {
      found->second.used.store(true, std::memory_order_relaxed);
    }
    return found->second.plan;
  }

  // What the key has now: `plan`, or what another thread put there meanwhile.
  // `dropped` leaves with the caller, because letting go calls the driver.
  PlanHandle insert(
      const std::string& key, PlanHandle plan, PlanHandle& dropped) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    const auto [place, is_new] = plans_.try_emplace(key);
    Entry& entry = place->second;
    if (!is_new) {
      dropped = std::move(plan);
      return entry.plan;
    }
    entry.plan = std::move(plan);
    PlanHandle kept = entry.plan;
    if (ring_.size() < kMaxPerShard) {
      ring_.push_back(&*place);
    } else {
      make_room();
      dropped = std::move(ring_[hand_]->second.plan);
      plans_.erase(std::string(ring_[hand_]->first));
      ring_[hand_] = &*place;
      hand_ = (hand_ + 1) % ring_.size();
    }
    return kept;
  }

  // Puts `to` where `from` is; nothing when the entry has changed or gone.
  void replace(std::string_view key, const PlanHandle& from, PlanHandle to) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end() && found->second.plan == from) {
      found->second.plan = std::move(to);
    }
  }

  void clear() {
    Plans old;
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    old.swap(plans_);
    ring_.clear();
    hand_ = 0;
  }

  std::size_t size() const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    return plans_.size();
  }

 private:
  struct Entry {
    PlanHandle plan;
    mutable std::atomic<bool> used{false};
  };
  using Plans = std::unordered_map<std::string, Entry, Hash, std::equal_to<>>;

  void make_room() {
    while (
        ring_[hand_]->second.used.exchange(false, std::memory_order_relaxed)) {
      hand_ = (hand_ + 1) % ring_.size();
    }
  }

  mutable std::shared_mutex mutex_;
  Plans plans_;
  std::vector<Plans::value_type*> ring_;  // nodes of a map do not move
  std::size_t hand_ = 0;
};

// Never destroyed: drivers are not called while the process ends.
std::array<Shard, kShards>& shards() {
  static auto* all = new std::array<Shard, kShards>;
  return *all;
}

Shard& shard_of(std::string_view key) {
  return shards()[Hash{}(key) % kShards];
}

std::string what_was_asked(
    const Driver& driver, const char* slot, const npu_call& call) {
  return std::string(driver.name()) + " op." + slot + " of " +
         (call.label != nullptr ? call.label : npu_kind_name(call.slot));
}

npu_verdict ask_driver(
    const Driver& driver, npu_device device, const npu_call& call) {
  npu_verdict verdict{};
  verdict.size = sizeof(verdict);
  const npu_status status = driver.plan(device, call, verdict);
  if (status == NPU_E_UNSUPPORTED) {
    const npu_reason reason = verdict.reason != NPU_REASON_NONE
                                  ? verdict.reason
                                  : NPU_REASON_NO_KERNEL;
    verdict.detail[sizeof(verdict.detail) - 1] = '\0';
    verdict = declined(
        reason,
        verdict.detail[0] != '\0' ? std::string(verdict.detail).c_str()
                                  : host_services()->last_error());
    host_services()->set_error(nullptr);
  } else if (status != NPU_OK) {
    check(status, what_was_asked(driver, "plan", call).c_str());
  }
  verdict.size = sizeof(verdict);
  return verdict;
}

// The driver's own status of tuning is worth a line in the log at most: the
// call runs as planned.
void tuning_failed(
    const Driver& driver, const npu_call& call, npu_status status) {
  const std::string what = what_was_asked(driver, "tune", call);
  if (status == NPU_E_ASYNC || status == NPU_E_DEVICE_LOST) {
    check(status, what.c_str());
  }
  if (status != NPU_E_UNSUPPORTED && log_enabled(NPU_LOG_WARNING)) {
    log(NPU_LOG_WARNING, failure_text(status, what.c_str()));
  }
  host_services()->set_error(nullptr);
}

}  // namespace

Plan::~Plan() {
  if (verdict.plan != nullptr && plan_owner == nullptr && !forked_child()) {
    driver.release_plan(slot, verdict.plan);
  }
}

PlanHandle find_plan(
    const Driver& driver,
    npu_device device,
    const npu_call& call,
    std::uint32_t use) {
  thread_local std::string key;
  write_plan_key(key, driver, device, call, use == NPU_PLAN_BY_SHAPE);
  Shard& shard = shard_of(key);
  if (PlanHandle known = shard.find(key)) {
    return known;
  }
  PlanHandle dropped;
  return shard.insert(
      key,
      std::make_shared<Plan>(
          driver, call.slot, ask_driver(driver, device, call)),
      dropped);
}

PlanHandle tune_plan(
    const PlanHandle& plan,
    npu_device device,
    npu_stream stream,
    const npu_call& call,
    std::uint32_t use) {
  const Driver& driver = plan->driver;
  if (!driver.can_tune(call.slot) || plan->tune_asked.exchange(true)) {
    return plan;
  }
  npu_verdict verdict = plan->verdict;
  const npu_status status = driver.op().tune(stream, &call, &verdict);
  if (status != NPU_OK) {
    tuning_failed(driver, call, status);
    return plan;
  }
  const bool same = verdict.plan == plan->verdict.plan;
  auto tuned = std::make_shared<Plan>(
      driver, call.slot, verdict, true, same ? plan : nullptr);
  if (verdict.answer != NPU_VERDICT_YES ||
      verdict.workspace_bytes > plan->verdict.workspace_bytes ||
      verdict.host_workspace_bytes > plan->verdict.host_workspace_bytes) {
    log(NPU_LOG_WARNING,
        "npu: " + what_was_asked(driver, "tune", call) +
            ": asks for more than plan did; its answer is not used.");
    return plan;
  }
  std::string key;
  write_plan_key(key, driver, device, call, use == NPU_PLAN_BY_SHAPE);
  shard_of(key).replace(key, plan, tuned);
  return tuned;
}

void clear_plans() {
  for (Shard& shard : shards()) {
    shard.clear();
  }
}

std::size_t cached_plans() {
  std::size_t n = 0;
  for (const Shard& shard : shards()) {
    n += shard.size();
  }
  return n;
}

}  // namespace npu
