// SPDX-License-Identifier: Apache-2.0
// The operators that PyTorch dispatches, as launches with their accesses.
//
// Note [Accesses of an operator]: the schema says what an operator writes:
// arguments marked (a!), and results that alias no argument. What it marks (a)
// is only looked at, like the tensors that *_like and new_* take a shape from.
// The rest is read. Operators that PyTorch composes of others are left to these
// others. So every rung, every driver and every pack's operator is judged
// alike.
#include "runtime/sanitizer/launches.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/record_function.h>

#include <array>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/device.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

namespace npu::sanitizer {
namespace {

// ---- what is known of an operator ----

enum class Role : std::uint8_t { kRead, kWrite, kLook };

enum class Waits : std::uint8_t {
  kNever,
  kAlways,    // a value or a size comes from the device
  kForMasks,  // the number of elements a mask selects
  kForSize,   // unless the argument that says it is given
  kForBytes,  // copies between host and device
};

struct OpFacts {
  std::string name;      // "aten::add"
  std::string overload;  // "Tensor"
  std::string label;     // "aten::add.Tensor"
  bool launches = false;
  bool copies = false;  // uses memory of the host on the device's stream
  Waits waits = Waits::kNever;
  std::vector<std::string> arguments;
  std::vector<Role> roles;
  std::vector<Role> results;  // kLook: an argument, or a view of one
  int size_argument = -1;     // output_size, num_classes
};

bool is_one_of(
    std::string_view name, std::initializer_list<std::string_view> all) {
  return std::ranges::find(all, name) != all.end();
}

// Their results have memory and no values.
bool is_empty_factory(std::string_view name) {
  return is_one_of(
      name,
      {"empty",
       "empty_like",
       "empty_strided",
       "empty_permuted",
       "empty_quantized",
       "new_empty",
       "new_empty_strided",
       "_empty_affine_quantized",
       "_efficientzerotensor"});
}

bool takes_only_shapes(std::string_view name) {
  return name.starts_with("new_") || name.ends_with("_like");
}

Waits waits_of(std::string_view name, const c10::OperatorHandle& op) {
  if (is_one_of(
          name,
          {"index",
           "index_put_",
           "_index_put_impl_",
           "_unsafe_index",
           "_unsafe_index_put"})) {
    return Waits::kForMasks;
  }
  if (is_one_of(name, {"repeat_interleave", "one_hot"})) {
    return Waits::kForSize;
  }
  if (is_one_of(name, {"copy_", "_copy_from", "_copy_from_and_resize"})) {
    return Waits::kForBytes;
  }
  return op.hasTag(at::Tag::data_dependent_output) ||
                 op.hasTag(at::Tag::dynamic_output_shape)
             ? Waits::kAlways
             : Waits::kNever;
}

Role role_of(const c10::Argument& argument) {
  const c10::AliasInfo* const alias = argument.alias_info();
  if (alias == nullptr) {
    return Role::kRead;
  }
  return alias->isWrite() ? Role::kWrite : Role::kLook;
}

bool may_hold_tensors(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::TensorType::get()) ||
         argument.type()->str().find("Tensor") != std::string::npos;
}

OpFacts make_facts(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  OpFacts facts;
  facts.name = schema.name();
  facts.overload = schema.overload_name();
  facts.label =
      facts.overload.empty() ? facts.name : facts.name + "." + facts.overload;
  const auto colon = facts.name.find("::");
  const std::string_view name = std::string_view(facts.name).substr(colon + 2);
  const bool shapes = takes_only_shapes(name);
  bool writes = false;
  for (const c10::Argument& argument : schema.arguments()) {
    Role role = role_of(argument);
    writes = writes || role == Role::kWrite;
    facts.arguments.push_back(argument.name());
    facts.roles.push_back(shapes && role == Role::kRead ? Role::kLook : role);
    if (is_one_of(argument.name(), {"output_size", "num_classes"})) {
      facts.size_argument = static_cast<int>(facts.roles.size()) - 1;
    }
  }
  bool makes = false;
  for (const c10::Argument& result : schema.returns()) {
    const bool fresh = result.alias_info() == nullptr &&
                       !is_empty_factory(name) && may_hold_tensors(result);
    facts.results.push_back(fresh ? Role::kWrite : Role::kLook);
    makes = makes || fresh;
  }
  const bool composed =
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1);
  facts.waits = waits_of(name, op);
  facts.copies = facts.waits == Waits::kForBytes;
  const bool reads_values =
      writes || makes || op.hasTag(at::Tag::data_dependent_output);
  facts.launches = reads_values && !composed &&
                   !op.hasTag(at::Tag::inplace_view) &&
                   !is_one_of(
                       name,
                       {"record_stream",
                        "set_data",
                        "_unsafe_view",
                        "_resize_output_",
                        "_backward",
                        "requires_grad_",
                        "retain_grad",
                        "rename_",
                        "_lazy_clone"}) &&
                   !facts.name.starts_with("prim::") &&
                   !facts.name.starts_with("profiler::");
  if (composed) {
    facts.waits = Waits::kNever;
  }
  return facts;
}

// By the address of the schema's name, which is the same at every call.
const OpFacts* facts_of(const at::RecordFunction& fn) {
  static thread_local std::unordered_map<const char*, const OpFacts*> known;
  const char* const name = fn.name();
  const OpFacts*& place = known[name];
  if (place != nullptr && place->name == name &&
      place->overload == fn.overload_name()) {
    return place;
  }
  const auto operator_name = fn.operator_name();
  const auto op = operator_name
                      ? c10::Dispatcher::singleton().findSchema(*operator_name)
                      : std::nullopt;
  if (!op) {
    known.erase(name);
    return nullptr;
  }
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::unordered_map<std::string, OpFacts>;
  OpFacts made = make_facts(*op);
  const std::lock_guard<std::mutex> lock(*mutex);
  place = &all->try_emplace(made.label, std::move(made)).first->second;
  return place;
}

// ---- forward calls by autograd's number ----

// A table that newer calls displace older ones from: a graph deeper than this
// loses its oldest lines.
class ForwardStacks {
 public:
  void put(std::uint64_t thread, std::int64_t number, std::shared_ptr<void> s) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry& entry = all_[place(thread, number)];
    entry = {thread, number, std::move(s)};
  }
  std::shared_ptr<void> get(std::uint64_t thread, std::int64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Entry& entry = all_[place(thread, number)];
    return entry.thread == thread && entry.number == number ? entry.stack
                                                            : nullptr;
  }
  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    all_ = std::vector<Entry>(kEntries);
  }

 private:
  struct Entry {
    std::uint64_t thread = 0;
    std::int64_t number = -1;
    std::shared_ptr<void> stack;
  };
  static constexpr std::size_t kEntries = 1 << 15;
  static std::size_t place(std::uint64_t thread, std::int64_t number) {
    return (static_cast<std::uint64_t>(number) + thread * 7919) % kEntries;
  }
  std::mutex mutex_;
  std::vector<Entry> all_ = std::vector<Entry>(kEntries);
};

ForwardStacks& forward_stacks() {
  static auto* const only = new ForwardStacks;
  return *only;
}

// The node whose backward this thread runs.
struct Node {
  std::uint64_t thread = 0;
  std::int64_t number = -1;
};
thread_local Node current_node;
// Operators that this thread is inside of and that were reported as waiting.
thread_local int reported_waits = 0;

// ---- one call ----

template <class F>
void each_tensor(const c10::IValue& value, F visit) {
  if (value.isTensor()) {
    if (const at::Tensor& tensor = value.toTensor(); tensor.defined()) {
      visit(tensor);
    }
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) {
      if (tensor.defined()) {
        visit(tensor);
      }
    }
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      each_tensor(item, visit);
    }
  }
}

bool is_npu(const at::Tensor& tensor) {
  return tensor.device().type() == kDeviceType;
}

struct CallContext final : at::ObserverContext {
  const OpFacts* facts = nullptr;
  LaunchPtr launch;
  std::vector<std::pair<c10::DeviceIndex, RaceTable::Point>> points;
  std::vector<const c10::StorageImpl*> storages;  // of its arguments
  bool is_node = false;
  Node node_before;
  bool reported = false;

  RaceTable::Point point(c10::DeviceIndex device) {
    for (const auto& [known, at] : points) {
      if (known == device) {
        return at;
      }
    }
    points.emplace_back(
        device, table().launch({device, current_stream_id(device)}));
    return points.back().second;
  }
  LaunchPtr facts_now() {
    if (launch == nullptr) {
      launch = facts_of_launch(
          facts->label,
          current_node.number < 0
              ? nullptr
              : forward_stacks().get(current_node.thread, current_node.number));
    }
    return launch;
  }
};

bool pinned_memory(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.has_storage() &&
         is_pinned(tensor.storage().data());
}

// "aten::copy_ (npu:0 to cpu)", or empty.
std::string host_wait(
    const OpFacts& facts, c10::ArrayRef<const c10::IValue> inputs) {
  bool on_npu = false;
  for (const c10::IValue& input : inputs) {
    each_tensor(input, [&](const at::Tensor& t) {
      on_npu =
          on_npu ||
          (is_npu(t) && t.has_storage() && !t.is_meta() &&
           !t.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python));
    });
  }
  if (!on_npu) {
    return {};
  }
  switch (facts.waits) {
    case Waits::kAlways:
      return facts.label;
    case Waits::kForSize: {
      const auto at = static_cast<std::size_t>(facts.size_argument);
      const bool given = facts.size_argument >= 0 && !inputs[at].isNone() &&
                         !(inputs[at].isInt() && inputs[at].toInt() < 0);
      return given ? std::string() : facts.label;
    }
    case Waits::kForMasks: {
      bool masked = false;
      each_tensor(inputs[1], [&](const at::Tensor& index) {
        masked = masked || index.scalar_type() == c10::kBool ||
                 index.scalar_type() == c10::kByte;
      });
      // A mask that is filled with one value is no index (index_put_): the
      // number of its elements is not asked for.
      if (masked && inputs.size() > 2 && inputs[2].isTensor() &&
          inputs[2].toTensor().numel() == 1) {
        return {};
      }
      return masked ? facts.label : std::string();
    }
    case Waits::kForBytes: {
      const bool from = facts.name != "aten::copy_";
      const at::Tensor& dst = inputs[from ? 1 : 0].toTensor();
      const at::Tensor& src = inputs[from ? 0 : 1].toTensor();
      const bool non_blocking =
          inputs.size() > 2 && inputs[2].isBool() && inputs[2].toBool();
      if (!dst.defined() || !src.defined() || src.sym_numel() == 0 ||
          dst.device().type() == src.device().type() ||
          dst.device().is_meta() || src.device().is_meta()) {
        return {};
      }
      // The driver stages what goes up; only pinned memory can be filled later.
      if (non_blocking && (is_npu(dst) || pinned_memory(dst))) {
        return {};
      }
      return facts.label + " from " + src.device().str() + " to " +
             dst.device().str() +
             (non_blocking ? " into memory that is not pinned" : "");
    }
    default:
      return {};
  }
}

void enter_arguments(
    CallContext& context, c10::ArrayRef<const c10::IValue> inputs) {
  const OpFacts& facts = *context.facts;
  c10::DeviceIndex device = -1;
  for (const c10::IValue& input : inputs) {
    each_tensor(input, [&](const at::Tensor& t) {
      if (is_npu(t) && device < 0) {
        device = t.device().index();
      }
    });
  }
  std::vector<Race> found;
  for (std::size_t i = 0; i < inputs.size() && i < facts.roles.size(); ++i) {
    each_tensor(inputs[i], [&](const at::Tensor& t) {
      const bool npu = is_npu(t);
      if (npu && t.has_storage()) {
        context.storages.push_back(
            t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
      }
      if (facts.roles[i] == Role::kLook || (!npu && !pinned_memory(t))) {
        return;
      }
      Access access;
      if (!describe(t, access)) {
        return;
      }
      access.write = facts.roles[i] == Role::kWrite;
      // _copy_from(self, dst) says nothing of what it writes.
      if (facts.copies && facts.name != "aten::copy_" && i == 1) {
        access.write = true;
      }
      access.argument = facts.arguments[i];
      access.launch = context.facts_now();
      if (npu) {
        table().access(
            t.device().index(),
            context.point(t.device().index()),
            std::move(access),
            found);
      } else if (facts.copies && device >= 0) {
        table().access(
            kHostMemory, context.point(device), std::move(access), found);
      } else {
        table().access_of_host(std::move(access), found);
      }
    });
  }
  show(found);
}

void enter_results(
    CallContext& context, const std::vector<c10::IValue>& outputs) {
  const OpFacts& facts = *context.facts;
  std::vector<Race> found;
  for (std::size_t i = 0; i < outputs.size() && i < facts.results.size(); ++i) {
    if (facts.results[i] == Role::kLook) {
      continue;
    }
    each_tensor(outputs[i], [&](const at::Tensor& t) {
      Access access;
      if (!is_npu(t) || !t.has_storage() ||
          std::ranges::find(
              context.storages,
              t.unsafeGetTensorImpl()
                  ->unsafe_storage()
                  .unsafeGetStorageImpl()) != context.storages.end() ||
          !describe(t, access)) {
        return;
      }
      access.write = true;
      access.argument = "the result";
      access.launch = context.facts_now();
      table().access(
          t.device().index(),
          context.point(t.device().index()),
          std::move(access),
          found);
    });
  }
  show(found);
}

bool touches_devices(
    const OpFacts& facts, c10::ArrayRef<const c10::IValue> inputs) {
  bool touched = false;
  for (const c10::IValue& input : inputs) {
    each_tensor(input, [&](const at::Tensor& t) {
      touched = touched || is_npu(t) || pinned_memory(t);
    });
    touched =
        touched || (input.isDevice() && input.toDevice().type() == kDeviceType);
  }
  return touched || (facts.roles.empty() && !facts.results.empty());
}

std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& fn) {
  if (detail::is_quiet()) {
    return nullptr;
  }
  if (fn.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    auto context = std::make_unique<CallContext>();
    context->is_node = true;
    context->node_before =
        std::exchange(current_node, Node{fn.forwardThreadId(), fn.seqNr()});
    return context;
  }
  const OpFacts* const facts = facts_of(fn);
  if (facts == nullptr || (!facts->launches && facts->waits == Waits::kNever) ||
      !touches_devices(*facts, fn.inputs())) {
    return nullptr;
  }
  auto context = std::make_unique<CallContext>();
  context->facts = facts;
  if (reports_syncs() && facts->waits != Waits::kNever && reported_waits == 0) {
    if (const std::string what = host_wait(*facts, fn.inputs());
        !what.empty()) {
      on_host_wait(what);
      context->reported = true;
      ++reported_waits;
    }
  }
  if (finds_races() && facts->launches) {
    enter_arguments(*context, fn.inputs());
    if (fn.seqNr() >= 0 && current_node.number < 0) {
      const LaunchPtr launch = context->facts_now();
      forward_stacks().put(
          at::RecordFunction::currentThreadId(), fn.seqNr(), launch->stack);
    }
  }
  return context;
}

void end(const at::RecordFunction& fn, at::ObserverContext* given) {
  auto* const context = static_cast<CallContext*>(given);
  if (context == nullptr) {
    return;
  }
  if (context->is_node) {
    current_node = context->node_before;
    return;
  }
  if (context->reported) {
    --reported_waits;
  }
  if (finds_races() && context->facts->launches) {
    enter_results(*context, fn.outputs());
  }
}

}  // namespace

void observe_operators(bool on) {
  static at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
  if (on && handle == at::INVALID_CALLBACK_HANDLE) {
    handle =
        at::addGlobalCallback(at::RecordFunctionCallback(&start, &end)
                                  .needsInputs(true)
                                  .needsOutputs(true)
                                  .scopes(
                                      {at::RecordScope::FUNCTION,
                                       at::RecordScope::BACKWARD_FUNCTION}));
  } else if (!on && handle != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
}

void forget_forward_stacks() {
  forward_stacks().clear();
}

}  // namespace npu::sanitizer
