// SPDX-License-Identifier: Apache-2.0
// Every operator the dispatcher knows, numbered.
#include "core/operators.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>

namespace optools {
namespace {

using c10::BackendComponent;
using c10::DispatchKey;

constexpr std::array<BackendComponent, kBackends> kComponents = {
    BackendComponent::CPUBit,
    BackendComponent::CUDABit,
    BackendComponent::XPUBit,
    BackendComponent::MPSBit,
    BackendComponent::HPUBit,
    BackendComponent::MTIABit,
    BackendComponent::XLABit,
    BackendComponent::PrivateUse1Bit};
constexpr std::array<DispatchKey, kFunctionalities> kKinds = {
    DispatchKey::Dense,
    DispatchKey::Sparse,
    DispatchKey::SparseCsr,
    DispatchKey::Quantized,
    DispatchKey::NestedTensor};

// Address of an operator's name -> Operator. Open addressing; published whole
// and never freed: it is rebuilt only when operators have been added.
struct Index {
  explicit Index(size_t size) : mask(size - 1), slots(size) {}
  size_t mask;
  std::vector<std::pair<const void*, Operator*>> slots;

  static size_t hash(const void* key) {
    return (reinterpret_cast<uintptr_t>(key) * 0x9E3779B97F4A7C15ull) >> 20;
  }
  void insert(const void* key, Operator* op) {
    size_t at = hash(key) & mask;
    while (slots[at].first != nullptr) {
      at = (at + 1) & mask;
    }
    slots[at] = {key, op};
  }
  Operator* find(const void* key) const {
    for (size_t at = hash(key) & mask; slots[at].first != nullptr;
         at = (at + 1) & mask) {
      if (slots[at].first == key) {
        return slots[at].second;
      }
    }
    return nullptr;
  }
};

std::atomic<const Index*> g_index{nullptr};

std::vector<Operator*>& operators() {
  static auto* list = new std::vector<Operator*>;
  return *list;
}

// Says whether operators came or went since it was last asked.
class Changes : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle& /*op*/) override {
    seen().store(true);
  }
  void onOperatorDeregistered(const c10::OperatorHandle& /*op*/) override {
    seen().store(true);
  }
  static bool take() {
    // For ever: the dispatcher outlives us.
    static const auto* listening = new c10::RegistrationHandleRAII(
        c10::Dispatcher::singleton().addRegistrationListener(
            std::make_unique<Changes>()));
    return listening != nullptr && seen().exchange(false);
  }

 private:
  static std::atomic<bool>& seen() {
    static std::atomic<bool> changed{true};
    return changed;
  }
};

bool starts_with(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

bool returned(const c10::FunctionSchema& schema, const c10::AliasInfo& memory) {
  const auto& results = schema.returns();
  return std::any_of(results.begin(), results.end(), [&](const auto& result) {
    const auto* alias = result.alias_info();
    return alias != nullptr && alias->beforeSets() == memory.beforeSets();
  });
}

}  // namespace

Operator::Operator(c10::OperatorHandle h, uint32_t i)
    : handle(std::move(h)), id(handle.operator_name()), index(i) {
  name = id.name;
  if (!id.overload_name.empty()) {
    name += "." + id.overload_name;
  }
  const auto& schema = handle.schema();
  arguments = static_cast<uint32_t>(schema.arguments().size());
  returns = static_cast<uint32_t>(schema.returns().size());
  for (const auto& argument : schema.arguments()) {
    const auto* alias = argument.alias_info();
    written.push_back(alias != nullptr && alias->isWrite());
    writes = writes || written.back();
    unreturned.push_back(written.back() && !returned(schema, *alias));
  }
  for (const auto& result : schema.returns()) {
    const auto* alias = result.alias_info();
    is_view = is_view || (alias != nullptr && !alias->isWrite());
  }
  uninitialised = starts_with(name, "aten::empty") ||
                  starts_with(name, "aten::new_empty") ||
                  starts_with(name, "aten::resize") ||
                  starts_with(name, "aten::_empty");
  // A table of logarithms, of which infinities and unwritten parts are parts.
  bookkeeping = id.name == "aten::_ctc_loss" ? 1 : -1;
  random = handle.hasTag(at::Tag::nondeterministic_seeded);
  for (const char* library :
       {"c10d::",
        "_c10d_functional",
        "c10d_functional",
        "symm_mem::",
        "fsdp::"}) {
    collective = collective || starts_with(name, library);
  }
  generated = handle.hasTag(at::Tag::generated);
}

DispatchKey slot_key(int slot) {
  if (slot >= kRuntimeSlots) {
    return slot == kRuntimeSlots
               ? DispatchKey::CompositeExplicitAutograd
               : DispatchKey::CompositeExplicitAutogradNonFunctional;
  }
  return c10::toRuntimePerBackendFunctionalityKey(
      kKinds[slot / kBackends], kComponents[slot % kBackends]);
}

Operator* find_operator(const c10::OperatorHandle& handle) {
  const Index* index = g_index.load(std::memory_order_acquire);
  return index == nullptr ? nullptr : index->find(&handle.operator_name());
}

const std::vector<Operator*>& all_operators() {
  return operators();
}

void refresh_operators() {
  if (!Changes::take()) {
    return;
  }
  auto& dispatcher = c10::Dispatcher::singleton();
  auto& list = operators();
  for (auto* op : list) {
    op->alive = false;
  }
  const size_t known = list.size();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto handle = dispatcher.findSchema(name);
    if (!handle) {
      continue;
    }
    // An operator that went may have left its address to another.
    Operator* op = find_operator(*handle);
    if (op != nullptr && op->id == name) {
      op->alive = true;
    } else {
      const auto number = static_cast<uint32_t>(list.size());
      list.push_back(new Operator(*handle, number));
    }
  }
  if (list.size() == known) {
    return;
  }
  size_t size = 1024;
  while (size < list.size() * 3) {
    size *= 2;
  }
  auto* index = new Index(size);
  for (auto* op : list) {
    if (op->alive) {
      index->insert(&op->handle.operator_name(), op);
    }
  }
  g_index.store(index, std::memory_order_release);
}

}  // namespace optools
