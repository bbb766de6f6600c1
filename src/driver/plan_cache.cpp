// SPDX-License-Identifier: Apache-2.0
// Keys, shards and the bound of the plan cache.
#include "driver/plan_cache.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "driver/services.h"
#include "driver/status.h"
#include "driver/verdict.h"
#include "npu/kinds.h"

namespace npu {

namespace {

constexpr std::size_t kShards = 16;
// A shard that is full is emptied: shapes that change all the time would
// otherwise fill memory, and a plan is cheap compared with what it saves.
constexpr std::size_t kMaxPerShard = 1024;

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view key) const noexcept {
    return std::hash<std::string_view>{}(key);
  }
};

struct Shard {
  std::shared_mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<Plan>, Hash, std::equal_to<>>
      plans;
};

// Never destroyed: drivers are not called while the process ends.
std::array<Shard, kShards>& shards() {
  static auto* all = new std::array<Shard, kShards>;
  return *all;
}

class KeyWriter {
 public:
  explicit KeyWriter(std::string& key) : key_(key) {
    key_.clear();
  }
  template <class T>
  void put(const T& value) {
    put(&value, sizeof(value));
  }
  void put(const void* data, std::size_t bytes) {
    key_.append(static_cast<const char*>(data), bytes);
  }

 private:
  std::string& key_;
};

std::uint8_t alignment_class(const void* data) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return static_cast<std::uint8_t>(
      (address % 256 == 0)  ? 3
      : (address % 64 == 0) ? 2
      : (address % 16 == 0) ? 1
                            : 0);
}

void put_tensor(KeyWriter& key, const npu_tensor& tensor, bool by_shape) {
  key.put(tensor.dtype);
  if (tensor.dtype == NPU_ABSENT) {
    return;
  }
  key.put(tensor.flags);
  key.put(tensor.format);
  key.put(tensor.alias_of);
  if (by_shape) {
    key.put(tensor.ndim);
    key.put(tensor.sizes, tensor.ndim * sizeof(std::int64_t));
    key.put(tensor.strides, tensor.ndim * sizeof(std::int64_t));
    key.put(alignment_class(tensor.data));
  }
}

void put_list(KeyWriter& key, const npu_list& list, bool by_shape) {
  key.put(list.n);
  key.put(list.dtype);
  key.put(list.flags);
  for (std::uint32_t i = 0; by_shape && i < list.n; ++i) {
    if (list.tensors != nullptr) {
      put_tensor(key, list.tensors[i], true);
    } else {
      key.put(list.numel[i]);
      key.put(alignment_class(list.data[i]));
    }
  }
}

// Attributes marked `key`; a vendor's own kind is not known here, so all of it.
void put_attrs(KeyWriter& key, const npu_call& call) {
  const npu_kind_info* kind = npu_kind_of(call.slot);
  if (kind == nullptr) {
    key.put(call.attrs, call.attr_bytes);
    return;
  }
  const auto* attrs = static_cast<const char*>(call.attrs);
  for (std::uint32_t i = 0; i < kind->n_attrs; ++i) {
    const npu_attr_info& attr = kind->attrs[i];
    if (attr.key != 0 && attr.offset + attr.bytes <= call.attr_bytes) {
      key.put(attrs + attr.offset, attr.bytes);
    }
  }
}

void write_key(
    std::string& text,
    const Driver& driver,
    npu_device device,
    const npu_call& call,
    bool by_shape) {
  KeyWriter key(text);
  key.put(&driver);
  key.put(device);
  key.put(call.slot);
  key.put(call.code);
  key.put(call.flags);
  key.put(call.math_mode);
  key.put(call.compute_dtype);
  key.put(call.deterministic);
  key.put(call.n_out);
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    put_tensor(key, call.tensors[i], by_shape);
  }
  for (std::uint32_t i = 0; i < call.n_lists; ++i) {
    put_list(key, call.lists[i], by_shape);
  }
  put_attrs(key, call);
}

std::shared_ptr<Plan> ask_driver(
    const Driver& driver, npu_device device, const npu_call& call) {
  npu_verdict verdict{};
  verdict.size = sizeof(verdict);
  const npu_status status = driver.op().plan(device, &call, &verdict);
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
    const std::string what =
        std::string(driver.name()) + " op.plan of " +
        (call.label != nullptr ? call.label : npu_kind_name(call.slot));
    check(status, what.c_str());
  }
  verdict.size = sizeof(verdict);
  return std::make_shared<Plan>(driver, verdict);
}

}  // namespace

Plan::~Plan() {
  if (verdict.plan != nullptr && !forked_child()) {
    driver.op().release_plan(verdict.plan);
  }
}

std::shared_ptr<Plan> find_plan(
    const Driver& driver,
    npu_device device,
    const npu_call& call,
    std::uint32_t use) {
  thread_local std::string key;
  write_key(key, driver, device, call, use == NPU_PLAN_BY_SHAPE);
  Shard& shard = shards()[Hash{}(key) % kShards];
  {
    const std::shared_lock<std::shared_mutex> lock(shard.mutex);
    const auto found = shard.plans.find(std::string_view(key));
    if (found != shard.plans.end()) {
      return found->second;
    }
  }
  std::shared_ptr<Plan> plan = ask_driver(driver, device, call);
  // Outside the lock, because letting go of a plan calls the driver.
  decltype(shard.plans) old;
  const std::unique_lock<std::shared_mutex> lock(shard.mutex);
  if (shard.plans.size() >= kMaxPerShard) {
    old.swap(shard.plans);
  }
  return shard.plans.try_emplace(key, std::move(plan)).first->second;
}

void clear_plans() {
  for (Shard& shard : shards()) {
    decltype(shard.plans) old;
    const std::unique_lock<std::shared_mutex> lock(shard.mutex);
    old.swap(shard.plans);
  }
}

std::size_t cached_plans() {
  std::size_t n = 0;
  for (Shard& shard : shards()) {
    const std::shared_lock<std::shared_mutex> lock(shard.mutex);
    n += shard.plans.size();
  }
  return n;
}

}  // namespace npu
