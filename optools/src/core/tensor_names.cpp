// SPDX-License-Identifier: Apache-2.0
// Names of parameters and buffers, by the memory they lie in. A weak reference
// keeps the address of a storage from being used again, so that no other
// tensor gets its name.
#include "core/tensor_names.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/fork_mutex.h"
#include "core/names.h"
#include "core/tool.h"

namespace optools {
namespace {

struct NamedElements {
  int64_t first = 0;  // in the storage
  int64_t count = 0;
  uint32_t label = 0;
};

struct NamedStorage {
  c10::weak_intrusive_ptr<c10::StorageImpl> alive;
  std::vector<NamedElements> parts;
};

struct TensorNames {
  ForkMutex<TensorNames> mutex;
  std::unordered_map<const c10::StorageImpl*, NamedStorage> storages;
  size_t sweep_at = 1024;
  Names labels;

  static TensorNames& get() {
    static auto* all = new TensorNames;
    return *all;
  }

  void sweep() {
    if (storages.size() < sweep_at) {
      return;
    }
    std::erase_if(
        storages, [](const auto& each) { return each.second.alive.expired(); });
    sweep_at = std::max<size_t>(1024, 2 * storages.size());
  }
};

}  // namespace

void name_tensor(const at::Tensor& t, const std::string& name) {
  if (!t.has_storage()) {
    return;
  }
  auto& all = TensorNames::get();
  const NamedElements part{
      t.storage_offset(), t.numel(), all.labels.number(name)};
  std::lock_guard lock(all.mutex);
  all.sweep();
  auto& parts =
      all.storages
          .try_emplace(
              storage_of(t), NamedStorage{t.storage().getWeakStorageImpl(), {}})
          .first->second.parts;
  for (auto& known : parts) {
    if (known.first == part.first && known.count == part.count) {
      known = part;
      return;
    }
  }
  parts.push_back(part);
}

uint32_t tensor_label(const at::Tensor& t) {
  if (!t.has_storage()) {
    return 0;
  }
  auto& all = TensorNames::get();
  std::lock_guard lock(all.mutex);
  const auto at = all.storages.find(storage_of(t));
  if (at == all.storages.end()) {
    return 0;
  }
  const int64_t first = t.storage_offset();
  for (const auto& part : at->second.parts) {
    if (first >= part.first &&
        first < part.first + std::max<int64_t>(part.count, 1)) {
      return part.label;
    }
  }
  return 0;
}

void name_after(
    const at::Tensor& named, const at::Tensor& t, const std::string& more) {
  if (const uint32_t label = tensor_label(named); label != 0) {
    name_tensor(t, label_text(label) + more);
  }
}

std::string label_text(uint32_t label) {
  return TensorNames::get().labels.name(label);
}

}  // namespace optools
