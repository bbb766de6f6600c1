// SPDX-License-Identifier: Apache-2.0
// Operators as the ladder sees them, found by handle.
#include "aten/twin/entry.h"

#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>

#include <array>
#include <deque>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace npu::twin {
namespace {

// The address of an operator's name is its identity while it is registered.
using Key = const c10::OperatorName*;

struct Table {
  std::mutex mutex;
  std::unordered_map<Key, Entry*> entries;
  std::deque<std::unique_ptr<Entry>> owned;
  std::unordered_map<Key, c10::SafeKernelFunction> kernels;
  // Grows when an operator is deregistered: its address may be used again.
  std::atomic<std::uint64_t> epoch{0};
};

Table& table() {
  static auto* const instance = new Table;
  return *instance;
}

class Forget final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    Table& t = table();
    const std::lock_guard<std::mutex> lock(t.mutex);
    t.entries.erase(&op.operator_name());
    t.kernels.erase(&op.operator_name());
    t.epoch.fetch_add(1, std::memory_order_release);
  }
};

std::optional<ArgKind> kind_of(const c10::Argument& argument) {
  c10::TypePtr type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return ArgKind::kTensor;
    case c10::TypeKind::ListType: {
      const c10::TypePtr element =
          type->expectRef<c10::ListType>().getElementType();
      if (element->kind() == c10::TypeKind::TensorType) {
        return ArgKind::kTensorList;
      }
      if (const auto optional = element->cast<c10::OptionalType>();
          optional != nullptr &&
          optional->getElementType()->kind() == c10::TypeKind::TensorType) {
        return ArgKind::kOptionalList;
      }
      return std::nullopt;
    }
    case c10::TypeKind::DeviceObjType:
      return ArgKind::kDevice;
    case c10::TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    case c10::TypeKind::StorageType:
      return ArgKind::kStorage;
    case c10::TypeKind::BoolType:
      return argument.name() == "pin_memory"
                 ? std::optional(ArgKind::kPinMemory)
                 : std::nullopt;
    default:
      return std::nullopt;
  }
}

// The running statistics of batch norm are written although the schema does
// not say so (the "legit" variants were made for that reason).
bool written_despite_schema(
    const std::string& op, const std::string& argument) {
  static constexpr std::array<std::string_view, 5> kOperators = {
      "aten::native_batch_norm",
      "aten::batch_norm_update_stats",
      "aten::cudnn_batch_norm",
      "aten::miopen_batch_norm",
      "aten::batch_norm_gather_stats_with_counts"};
  if (argument != "running_mean" && argument != "running_var") {
    return false;
  }
  for (const std::string_view name : kOperators) {
    if (op == name) {
      return true;
    }
  }
  return false;
}

// Arguments PyTorch itself wants, or lets be, on the CPU: indices given as an
// optional list, lengths of CTC, shapes of nested and packed tensors.
bool may_be_cpu(const std::string& op, const std::string& argument) {
  static constexpr std::array<std::string_view, 10> kArguments = {
      "input_lengths",
      "target_lengths",
      "lengths",
      "nested_size",
      "nested_strides",
      "cpu_nested_shape_example",
      "nested_shape_example",
      "offsets_cpu",
      "min_seqlen",
      "max_seqlen"};
  for (const std::string_view name : kArguments) {
    if (argument == name) {
      return true;
    }
  }
  if (op.rfind("aten::_nested_view_from_buffer", 0) == 0) {
    return argument == "offsets" || argument == "storage_offsets";
  }
  // copy_, to() and empty_like() of the layouts that have one: either side may
  // be the host's.
  return op == "aten::copy_" || op == "aten::_to_copy" ||
         op == "aten::empty_quantized" ||
         op.rfind("aten::tensor_split", 0) == 0;
}

}  // namespace

Entry::Entry(const c10::OperatorHandle& handle, std::string counted_as)
    : op(handle), label(std::move(counted_as)) {
  const c10::FunctionSchema& schema = op.schema();
  n_args = static_cast<std::uint32_t>(schema.arguments().size());
  n_returns = static_cast<std::uint32_t>(schema.returns().size());
  seeded = op.hasTag(at::Tag::nondeterministic_seeded);
  builtin = schema.name().rfind("aten::", 0) == 0;
  for (std::uint32_t i = 0; i < n_args; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const std::optional<ArgKind> kind = kind_of(argument);
    if (!kind) {
      continue;
    }
    Arg arg{};
    arg.index = static_cast<std::uint16_t>(i);
    arg.kind = *kind;
    arg.written = (argument.alias_info() != nullptr &&
                   argument.alias_info()->isWrite()) ||
                  written_despite_schema(schema.name(), argument.name());
    arg.out = argument.is_out();
    arg.cpu_allowed = *kind == ArgKind::kOptionalList ||
                      may_be_cpu(schema.name(), argument.name());
    any_written |= arg.written;
    args.push_back(arg);
  }
  wide = find_wide(schema);
  const std::lock_guard<std::mutex> lock(table().mutex);
  const auto found = table().kernels.find(&op.operator_name());
  if (found != table().kernels.end()) {
    saved_ = &found->second;
  }
}

bool Entry::has_kernel(c10::DispatchKey key) const {
  return (saved_ != nullptr && key == c10::DispatchKey::CPU) ||
         op.hasComputedKernelForDispatchKey(key);
}

void Entry::call_kernel(c10::DispatchKey key, torch::jit::Stack* stack) const {
  if (C10_LIKELY(saved_ != nullptr && key == c10::DispatchKey::CPU)) {
    saved_->callBoxed(op, c10::DispatchKeySet(key), stack);
  } else {
    op.redispatchBoxed(c10::DispatchKeySet(key), stack);
  }
}

void save_cpu_kernels() {
  Table& t = table();
  auto& dispatcher = c10::Dispatcher::singleton();
  static auto* const listener = new c10::RegistrationHandleRAII(
      dispatcher.addRegistrationListener(std::make_unique<Forget>()));
  (void)listener;
  std::unordered_map<Key, c10::SafeKernelFunction> kernels;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      kernels.emplace(
          &op->operator_name(),
          op->getComputedKernelForDispatchKey(c10::DispatchKey::CPU));
    }
  }
  const std::lock_guard<std::mutex> lock(t.mutex);
  t.kernels = std::move(kernels);
}

Entry& make_entry(const c10::OperatorHandle& op, const std::string& label) {
  auto entry = std::make_unique<Entry>(op, label);
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  return *t.owned.emplace_back(std::move(entry));
}

Entry& entry_for(const c10::OperatorHandle& op) {
  struct Slot {
    Key key = nullptr;
    Entry* entry = nullptr;
    std::uint64_t epoch = 0;
  };
  static thread_local std::array<Slot, 256> cache;
  Table& t = table();
  const Key key = &op.operator_name();
  const auto bits = reinterpret_cast<std::uintptr_t>(key);
  Slot& slot = cache[(bits >> 6 ^ bits >> 14) % cache.size()];
  const std::uint64_t epoch = t.epoch.load(std::memory_order_acquire);
  if (C10_LIKELY(slot.key == key && slot.epoch == epoch)) {
    return *slot.entry;
  }
  Entry* entry = nullptr;
  {
    const std::lock_guard<std::mutex> lock(t.mutex);
    const auto found = t.entries.find(key);
    entry = found == t.entries.end() ? nullptr : found->second;
  }
  if (entry == nullptr) {
    Entry& made = make_entry(op, full_name(op.operator_name()));
    const std::lock_guard<std::mutex> lock(t.mutex);
    // Another thread may have been faster; the loser has counted nothing.
    entry = t.entries.emplace(key, &made).first->second;
  }
  slot = {key, entry, epoch};
  return *entry;
}

void for_each_entry(const std::function<void(Entry&)>& visit) {
  std::vector<Entry*> entries;
  Table& t = table();
  {
    const std::lock_guard<std::mutex> lock(t.mutex);
    for (const auto& entry : t.owned) {
      entries.push_back(entry.get());
    }
  }
  for (Entry* const entry : entries) {
    visit(*entry);
  }
}

}  // namespace npu::twin
