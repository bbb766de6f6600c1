// SPDX-License-Identifier: Apache-2.0
// Direct calls of a recording: PyTorch's CPU kernels on the device's own bytes.
//
// The ladder makes CPU tensors for every call and gives them back. A recording
// knows all of them beforehand: one CPU storage per buffer, one CPU tensor per
// use. A replay points the storages at the bytes and calls the kernel; where
// PyTorch has a kernel that writes into given memory, that is planned memory.
#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "aten/graph/direct_call.h"
#include "aten/graph/maker.h"
#include "aten/ladder/check_policy.h"
#include "aten/twin/shim.h"
#include "aten/twin/twin.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/allocator/allocator.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"
#include "runtime/storage.h"

namespace npu::graph {
namespace {

const c10::Device kHost(c10::DeviceType::CPU);

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// The same operator with its results as arguments behind the others.
bool is_out_form(
    const c10::FunctionSchema& schema, const c10::FunctionSchema& candidate) {
  const auto& arguments = schema.arguments();
  const auto& all = candidate.arguments();
  if (all.size() != arguments.size() + schema.returns().size()) {
    return false;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i >= arguments.size()) {
      if (!all[i].is_out() || !all[i].kwarg_only()) {
        return false;
      }
    } else if (
        is_written(all[i]) || all[i].name() != arguments[i].name() ||
        *all[i].type() != *arguments[i].type()) {
      return false;
    }
  }
  return true;
}

// Overloads by name, as they were when first asked for.
const std::unordered_multimap<std::string, c10::OperatorName>& overloads() {
  static const auto* const all = [] {
    auto* const made =
        new std::unordered_multimap<std::string, c10::OperatorName>;
    for (const c10::OperatorName& name :
         c10::Dispatcher::singleton().getAllOpNames()) {
      made->emplace(name.name, name);
    }
    return made;
  }();
  return *all;
}

// Only kernels of the CPU's own: the forms PyTorch generates for the others
// compute elsewhere and copy.
twin::Entry* find_out_form(const c10::OperatorHandle& op) {
  const auto [first, last] = overloads().equal_range(op.operator_name().name);
  for (auto at = first; at != last; ++at) {
    const auto candidate = c10::Dispatcher::singleton().findSchema(at->second);
    if (candidate && candidate->hasSchema() &&
        candidate->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        is_out_form(op.schema(), candidate->schema())) {
      return &twin::entry_for(*candidate);
    }
  }
  return nullptr;
}

bool holds_register(const Operand& operand) {
  return operand.kind == Operand::kRegister ||
         std::ranges::any_of(operand.items, holds_register);
}

bool is_npu(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         value.toTensor().device().type() == c10::DeviceType::PrivateUse1;
}

// The CPU's side of a recording's buffers: storages without bytes of their own.
class HostStorages {
 public:
  at::Tensor wrap(BufferId buffer, std::uint64_t bytes, const at::Tensor& like);
  void point(BufferId buffer, void* data) {
    if (buffer < storages_.size() && storages_[buffer] &&
        shown_[buffer] != data) {
      storages_[buffer].unsafeGetStorageImpl()->set_data_ptr_noswap(
          c10::DataPtr(data, kHost));
      shown_[buffer] = data;
    }
  }

 private:
  std::vector<c10::Storage> storages_;  // by buffer; empty where none is used
  std::vector<void*> shown_;
};

using Find = std::function<std::optional<BufferId>(const at::Tensor&)>;

// What a CPU call gets for `value`; false when it cannot be said beforehand.
class Converter {
 public:
  Converter(const Find& find, HostStorages& storages)
      : find_(find), storages_(storages) {}

  bool operator()(const c10::IValue& value, c10::IValue& made) {
    if (is_npu(value)) {
      return tensor(value.toTensor(), made);
    }
    if (value.isDevice() &&
        value.toDevice().type() == c10::DeviceType::PrivateUse1) {
      made = kHost;
      return true;
    }
    if (value.isList() && std::ranges::any_of(value.toListRef(), is_npu)) {
      return list(value, made);
    }
    made = value;
    return !value.isGenerator() && !value.isStorage();
  }

 private:
  bool tensor(const at::Tensor& tensor, c10::IValue& made) {
    const std::optional<BufferId> buffer =
        is_plain_npu(tensor) &&
                !tensor.unsafeGetTensorImpl()->is_wrapped_number()
            ? find_(tensor)
            : std::nullopt;
    if (!buffer) {
      return false;
    }
    for (const auto& [npu, cpu] : known_) {
      if (npu == tensor.unsafeGetTensorImpl()) {
        made = cpu;
        return true;
      }
    }
    const at::Tensor cpu =
        storages_.wrap(*buffer, tensor.storage().nbytes(), tensor);
    known_.emplace_back(tensor.unsafeGetTensorImpl(), cpu);
    made = cpu;
    return true;
  }

  // Of tensors, or of tensors some of which are absent.
  bool list(const c10::IValue& value, c10::IValue& made) {
    c10::impl::GenericList items(value.toList().elementType());
    for (const c10::IValue& item : value.toListRef()) {
      c10::IValue converted;
      if ((!item.isNone() && !is_npu(item)) || !(*this)(item, converted)) {
        return false;
      }
      items.push_back(std::move(converted));
    }
    made = items;
    return true;
  }

  const Find& find_;
  HostStorages& storages_;
  // One to one, as in the ladder (aten/twin/call.h).
  std::vector<std::pair<const c10::TensorImpl*, at::Tensor>> known_;
};

// Its results' sizes depend on its arguments' and on nothing else, and those
// stay as they are.
bool is_predictable(const c10::OperatorHandle& op) {
  return !op.hasTag(at::Tag::nondeterministic_seeded) &&
         !op.hasTag(at::Tag::data_dependent_output) &&
         !op.hasTag(at::Tag::dynamic_output_shape) &&
         !op.hasTag(at::Tag::inplace_view);
}

constexpr char kAttention[] =
    "aten::_scaled_dot_product_fused_attention_overrideable";
constexpr char kAttentionBackward[] =
    "aten::_scaled_dot_product_fused_attention_overrideable_backward";

class HostCall final : public DirectCall {
 public:
  // Null when the operator has to go through the dispatcher again.
  static std::unique_ptr<HostCall> make(
      const DirectCalls::Making& making, HostStorages& storages);

  bool writes_results() const noexcept override {
    return writes_results_;
  }
  void write_into(const std::vector<at::Tensor>& outs) override;
  bool can_write() const noexcept override {
    return out_form_ != nullptr;
  }
  void run(
      torch::jit::Stack& stack,
      std::vector<c10::IValue>& registers,
      c10::DeviceIndex device) const override;
  std::int32_t result_of(std::size_t k) const noexcept override {
    return results_[k];
  }
  const c10::IValue& constant(std::size_t k) const noexcept override {
    return constants_[k];
  }

 private:
  using Making = DirectCalls::Making;
  bool convert(const Making& making, HostStorages& storages);
  bool convert_attention(const Making& making, HostStorages& storages);

  twin::Entry* counted_ = nullptr;   // the operator as the ladder knows it
  twin::Entry* kernel_ = nullptr;    // what is called
  twin::Entry* out_form_ = nullptr;  // the same, into given memory
  std::vector<c10::IValue> arguments_;
  std::vector<std::pair<std::uint32_t, Operand>> moving_;
  std::vector<std::int32_t> results_;
  std::vector<c10::IValue> constants_;  // by result
  // Of attention's results, which the operator lays otherwise than the kernel.
  std::vector<std::vector<std::int64_t>> strides_;
  bool writes_results_ = false;
};

twin::Entry& entry_of(const DirectCalls::Making& making) {
  return *static_cast<twin::Entry*>(const_cast<void*>(making.kernel));
}

// Where host code may call kernels on device memory at any time: the driver has
// finished a call when it returns, and nothing has to be opened.

at::Tensor HostStorages::wrap(
    BufferId buffer, std::uint64_t bytes, const at::Tensor& like) {
  if (buffer >= storages_.size()) {
    storages_.resize(buffer + 1);
    shown_.resize(buffer + 1);
  }
  c10::Storage& storage = storages_[buffer];
  if (!storage) {
    storage = c10::Storage(
        c10::Storage::use_byte_size_t(),
        bytes,
        c10::DataPtr(nullptr, kHost),
        c10::GetCPUAllocator(),
        /*resizable=*/false);
  }
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(storage),
      c10::DispatchKeySet(c10::DispatchKey::CPU),
      like.dtype());
  impl->set_sizes_and_strides(
      like.sizes(), like.strides(), like.storage_offset());
  return at::Tensor(std::move(impl));
}

bool HostCall::convert(const Making& making, HostStorages& storages) {
  Converter converter(making.find, storages);
  arguments_.resize(making.given.size());
  for (std::uint32_t i = 0; i < making.given.size(); ++i) {
    const Operand& operand = making.instruction.arguments[i];
    const c10::IValue& value = making.given[i];
    const bool tensors =
        is_npu(value) ||
        (value.isList() && std::ranges::any_of(value.toListRef(), is_npu));
    if (holds_register(operand) && !tensors) {
      if (operand.kind != Operand::kRegister || !value.isScalar()) {
        return false;  // host tensors, sizes: through the dispatcher
      }
      moving_.emplace_back(i, operand);
    } else if (!converter(value, arguments_[i])) {
      return false;
    }
  }
  kernel_ = &entry_of(making);
  for (std::size_t k = 0; k < making.results.size(); ++k) {
    results_.push_back(static_cast<std::int32_t>(k));
  }
  constants_.resize(making.results.size());
  if (moving_.empty()) {
    out_form_ = find_out_form(making.instruction.target->op);
  }
  return true;
}

// PyTorch's pair for backends is CPU's flash kernel with more results: sizes,
// and words of a generator that is not used without dropout.
bool HostCall::convert_attention(const Making& making, HostStorages& storages) {
  const bool backward = making.instruction.target->op.schema().name() !=
                        std::string_view(kAttention);
  const auto& given = making.given;
  // Where the kernel's arguments are among the operator's.
  static const std::vector<std::uint32_t> kForward = {0, 1, 2, 4, 5, 3, 7};
  static const std::vector<std::uint32_t> kBackward = {
      0, 1, 2, 3, 6, 7, 12, 13, 4, 16};
  const auto& order = backward ? kBackward : kForward;
  const c10::IValue& dropout = given[backward ? 12 : 4];
  if (!dropout.isDouble() || dropout.toDouble() != 0) {
    return false;
  }
  Converter converter(making.find, storages);
  for (const std::uint32_t from : order) {
    c10::IValue value = given[from];
    if (value.isTensor() && !value.toTensor().defined()) {
      value = c10::IValue();
    }
    if (!converter(value, arguments_.emplace_back())) {
      return false;
    }
  }
  kernel_ = &entry_of(making);
  const std::size_t computed = backward ? 3 : 2;
  for (std::size_t k = 0; k < making.results.size(); ++k) {
    results_.push_back(k < computed ? static_cast<std::int32_t>(k) : -1);
    constants_.push_back(k < computed ? c10::IValue() : making.results[k]);
    if (k < computed) {
      strides_.push_back(making.results[k].toTensor().strides().vec());
    }
  }
  return true;
}

// Halves of these are converted around the kernel (ops/wide.yaml).
bool may_be_wide(
    const twin::Entry& entry, const std::vector<c10::IValue>& given) {
  return entry.wide != nullptr &&
         std::ranges::any_of(given, [](const c10::IValue& value) {
           return value.isTensor() && value.toTensor().defined() &&
                  at::isReducedFloatingType(value.toTensor().scalar_type());
         });
}

// Statistics beside halves: the operator converts what the kernel makes.
bool has_mixed_results(const std::vector<c10::IValue>& results) {
  std::optional<c10::ScalarType> first;
  for (const c10::IValue& result : results) {
    if (!result.isTensor() || !result.toTensor().defined() ||
        !result.toTensor().is_floating_point()) {
      continue;
    }
    const c10::ScalarType type = result.toTensor().scalar_type();
    if (first && *first != type) {
      return true;
    }
    first = type;
  }
  return false;
}

std::unique_ptr<HostCall> HostCall::make(
    const Making& making, HostStorages& storages) {
  const c10::OperatorHandle& op = making.instruction.target->op;
  const std::string& name = op.schema().name();
  const bool attention = name == kAttention || name == kAttentionBackward;
  twin::Entry& ran = entry_of(making);
  if (!ran.builtin || (!attention && (!is_predictable(op) || !(ran.op == op) ||
                                      may_be_wide(ran, making.given) ||
                                      has_mixed_results(making.results)))) {
    return nullptr;
  }
  std::unique_ptr<HostCall> made(new HostCall);
  made->counted_ = &ran;
  if (!(attention ? made->convert_attention(making, storages)
                  : made->convert(making, storages))) {
    return nullptr;
  }
  return made;
}

void HostCall::write_into(const std::vector<at::Tensor>& outs) {
  for (const at::Tensor& out : outs) {
    arguments_.emplace_back(out);
  }
  kernel_ = out_form_;
  writes_results_ = true;
}

void HostCall::run(
    torch::jit::Stack& stack,
    std::vector<c10::IValue>& registers,
    c10::DeviceIndex device) const {
  ladder::check_policy(*counted_);
  twin::drain({c10::DeviceType::PrivateUse1, device});  // a forked child's end
  stack.assign(arguments_.begin(), arguments_.end());
  for (const auto& [at, operand] : moving_) {
    stack[at] = value_of(operand, registers);
  }
  {
    const c10::impl::ExcludeDispatchKeyGuard no_casts(
        c10::autocast_dispatch_keyset);
    const twin::ShimScope shim(device, /*opens=*/false);
    kernel_->call_kernel(c10::DispatchKey::CPU, &stack);
    for (std::size_t k = 0; k < strides_.size(); ++k) {
      const at::Tensor made = stack[k].toTensor();
      if (made.strides() != c10::IntArrayRef(strides_[k])) {
        stack[k] = at::empty_strided(made.sizes(), strides_[k], made.options())
                       .copy_(made);
      }
    }
  }
  counted_->counters.calls.fetch_add(1, std::memory_order_relaxed);
}

// Memory of results came from the device's pool.
c10::Storage adopt(c10::Storage cpu, c10::DeviceIndex device) {
  c10::StorageImpl& impl = *cpu.unsafeGetStorageImpl();
  const std::size_t bytes = impl.nbytes();
  c10::DataPtr& data = impl._mutable_data_ptr_no_checks();
  if (!twin::is_pool_block(data) || cpu.use_count() != 1) {
    const c10::intrusive_ptr<c10::StorageImpl> copy =
        make_storage(bytes, device);
    if (bytes != 0) {
      std::memcpy(copy->mutable_data(), data.get(), bytes);
    }
    return c10::Storage(copy);
  }
  c10::DataPtr owned = std::move(data);
  twin::hand_over(owned, c10::Device(c10::DeviceType::PrivateUse1, device));
  return c10::Storage(
      c10::Storage::use_byte_size_t(),
      bytes,
      std::move(owned),
      device_allocator(),
      /*resizable=*/true);
}

class HostCalls final : public DirectCalls {
 public:
  std::unique_ptr<DirectCall> make(const Making& making) override {
    return host_shares_memory(making.device) ? HostCall::make(making, storages_)
                                             : nullptr;
  }
  at::Tensor wrap(
      BufferId buffer, std::uint64_t bytes, const at::Tensor& like) override {
    return storages_.wrap(buffer, bytes, like);
  }
  void point(BufferId buffer, void* data) override {
    storages_.point(buffer, data);
  }
  c10::Storage to_device(c10::Storage made, c10::DeviceIndex device) override {
    return adopt(std::move(made), device);
  }

 private:
  HostStorages storages_;
};

[[maybe_unused]] const bool registered = [] {
  set_direct_calls([](c10::DeviceIndex device) {
    return host_shares_memory(device)
               ? std::unique_ptr<DirectCalls>(std::make_unique<HostCalls>())
               : nullptr;
  });
  return true;
}();

}  // namespace
}  // namespace npu::graph
