// SPDX-License-Identifier: Apache-2.0
// Dispatch-table interposition: a boxed kernel registered over the computed
// one, which it calls. Dropping the registration restores the table.
#include "core/taps.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>

#include "core/call_site.h"
#include "core/engine.h"
#include "core/phase.h"
#include "core/saved_kernel.h"
#include "core/torch_compat.h"
#include "core/typed_taps.h"

namespace optools {
namespace {

using c10::DispatchKey;

std::atomic<uint64_t> g_calls{0};

struct Leave {
  ThreadState& thread;
  ToolMask busy;
  bool outermost;
  ~Leave() {
    thread.busy = busy;
    if (outermost) {
      Engine::leave(thread);
    }
  }
};

// A key's device is its own. A kernel written for every backend has its
// arguments' device: `meta` (which no list selects) if there is none.
c10::DeviceType device_of(int slot, c10::DispatchKeySet keys) {
  if (slot < kRuntimeSlots) {
    return c10::dispatchKeyToDeviceType(slot_key(slot));
  }
  const auto backend = keys.highestBackendKey();
  if (backend == c10::BackendComponent::InvalidBit) {
    return c10::DeviceType::Meta;
  }
  return c10::dispatchKeyToDeviceType(
      c10::toRuntimePerBackendFunctionalityKey(DispatchKey::Dense, backend));
}

// Autograd's own nodes have the line of their forward call already. Python in
// one, of a custom Function's backward or a hook, has a line of its own.
void find_site(Call& call) {
  if (call.phase != Phase::kBackward || call.recomputed) {
    call.origin.site = call_site();
  } else if (const uint32_t site = node_site()) {
    call.origin.site = site;
  }
}

// Note [Torn reads]: PyTorch writes a dispatch table entry word by word while
// other threads read it: state, boxed function, unboxed functions. A thread may
// therefore come here with the old kernel's state, or into the old kernel with
// the tap's. So the tap's state is the old kernel's own, which it does not use:
// it finds what it needs by the operator's address, and never frees that.
void tap(
    int slot,
    const c10::OperatorHandle& handle,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  Operator* op = find_operator(handle);
  const SavedKernel* kernel =
      op == nullptr ? nullptr
                    : op->kernels[slot].load(std::memory_order_acquire);
  TORCH_INTERNAL_ASSERT(
      kernel != nullptr, "op_tools: no kernel for ", slot_key(slot));
  auto& thread = this_thread();
  const bool outermost =
      thread.inside.load(std::memory_order_relaxed) == nullptr;
  const Program* program = ~thread.busy == 0 ? nullptr : Engine::enter(thread);
  Leave leave{thread, thread.busy, outermost};
  const ToolMask wanted =
      program != nullptr && op->index < program->wanted.size()
          ? program->wanted[op->index] & ~thread.busy
          : 0;
  if (wanted == 0) {
    if (outermost) {
      Engine::leave(thread);
      leave.outermost = false;
    }
    kernel->callBoxed(handle, keys, stack);
    return;
  }
  Call call{
      .op = *op,
      .kernel = *kernel,
      .keys = keys,
      .stack = *stack,
      .thread = thread,
      .device = device_of(slot, keys),
      .phase = Phase::kForward,
      .number = 0,
      .step = Engine::get().step(),
      .origin = {}};
  place_call(call, program->needs_origin);
  Chain chain(call);
  for (size_t i = program->tools.size(); i-- > 0;) {  // last entered, first
    Tool* tool = program->tools[i];
    const ToolMask bit = program->bits[i];
    if ((wanted & bit) != 0 && tool->selection.wants(call)) {
      chain.add(tool);
      tool->note_call();
      thread.busy |= bit;
    }
  }
  const bool taken = thread.busy != leave.busy;
  if (taken) {
    call.number = g_calls.fetch_add(1, std::memory_order_relaxed) + 1;
    if (program->needs_sites) {
      find_site(call);
    }
  }
  if (program->needs_origin) {
    remember_origin(call);  // its backward may be wanted where it is not
  }
  if (taken) {
    chain.run();
  } else {
    kernel->callBoxed(handle, keys, stack);
  }
}

// Which key a tap stands on is part of its code: torch.compile's Python
// dispatcher calls kernels of a key with a key set that says otherwise.
template <int slot>
void tap_at(
    const c10::OperatorHandle& handle,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  tap(slot, handle, keys, stack);
}

template <int... slots>
c10::KernelFunction make_tap(int slot, std::integer_sequence<int, slots...>) {
  using Make = c10::KernelFunction (*)();
  static constexpr Make kMake[] = {
      &c10::KernelFunction::makeFromBoxedFunction<&tap_at<slots>>...};
  return kMake[slot]();
}

c10::KernelFunction make_tap(int slot) {
  return make_tap(slot, std::make_integer_sequence<int, kKeySlots>());
}

// By key slot and operator; an empty list is a key without taps.
using Registrations = std::vector<std::optional<c10::RegistrationHandleRAII>>;
std::array<Registrations, kKeySlots>& installed() {
  static auto* taps = new std::array<Registrations, kKeySlots>;
  return *taps;
}

// PyTorch warns once per process that a kernel is overridden. That is what we
// do; every other warning goes on to the earlier handler.
class QuietOverride : public c10::WarningHandler {
 public:
  QuietOverride() : before_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }
  ~QuietOverride() override {
    c10::WarningUtils::set_warning_handler(before_);
  }
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("Overriding a previously registered kernel") ==
        std::string::npos) {
      before_->process(warning);
    }
  }

 private:
  c10::WarningHandler* before_;
};

bool has_backend(c10::DeviceType type) {
  return type == c10::DeviceType::CPU || c10::impl::hasDeviceGuardImpl(type);
}

bool explicit_composite(const c10::OperatorHandle& handle) {
  return handle.hasKernelForDispatchKey(
             DispatchKey::CompositeExplicitAutograd) ||
         handle.hasKernelForDispatchKey(
             DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// A tap stands on a key that has a kernel of its own, so that the set of keys
// with kernels stays what it is: autograd, functionalisation and the Python
// dispatcher's caches (which outlive the tap) decide by it. The exception is
// an operator a backend's fallback serves, where they come out the same.
// Compositions under autograd are never tapped: their parts are.
bool may_tap(const Operator& op, int slot, DispatchKey key) {
  const auto& handle = op.handle;
  if (handle.hasKernelForDispatchKey(key)) {
    return !handle.isKernelFallthroughKernel(key);
  }
  return slot < kBackends && handle.hasComputedKernelForDispatchKey(key) &&
         !explicit_composite(handle) && !is_composition(handle);
}

bool selected(DispatchKey key, uint64_t devices) {
  const auto device = c10::dispatchKeyToDeviceType(key);
  return (devices >> static_cast<int>(device) & 1) != 0;
}

// A runtime key of those devices where the kernel of the slot's key is the one
// that runs; none where the devices have kernels of their own.
std::optional<DispatchKey> runtime_key(
    const Operator& op, int slot, uint64_t devices) {
  if (slot < kRuntimeSlots) {
    return slot_key(slot);
  }
  // The non-functional kind only prepares results for its `out=` overload,
  // which has taps: what matters of it is plain tensors.
  const auto alias = slot_key(slot);
  const bool dense_only =
      alias == DispatchKey::CompositeExplicitAutogradNonFunctional;
  for (int other = 0; other < (dense_only ? kBackends : kRuntimeSlots);
       ++other) {
    const auto key = slot_key(other);
    if (selected(key, devices) && c10::isIncludedInAlias(key, alias) &&
        !op.handle.hasKernelForDispatchKey(key) &&
        op.handle.hasComputedKernelForDispatchKey(key)) {
      return key;
    }
  }
  return std::nullopt;
}

// Control, not computation: `prim` is TorchScript's own, `profiler` opens and
// closes scopes.
bool is_control(const std::string& name) {
  return name.rfind("prim::", 0) == 0 || name.rfind("profiler::", 0) == 0;
}

// Kept from the last time when it is the same one. Those that were replaced
// stay allocated: a thread may be on its way to them.
void save_kernel(Operator& op, int slot, DispatchKey key) {
  const auto* old = op.kernels[slot].load();
  if (old == nullptr ||
      !same_kernel(old->in_table, table_kernel(op.handle, key))) {
    op.kernels[slot].store(new SavedKernel(op.handle, key));
  }
}

c10::RegistrationHandleRAII install(
    Operator& op, int slot, DispatchKey key, DispatchKey runs_at) {
  save_kernel(op, slot, runs_at);
  auto tap = make_tap(slot);
  lend_state(tap, table_kernel(op.handle, runs_at));
  give_type(tap, op, slot);
  return c10::Dispatcher::singleton().registerImpl(
      op.handle.operator_name(),
      key,
      std::move(tap),
      std::nullopt,
      nullptr,
      "op_tools");
}

bool slot_in_use(int slot, uint64_t devices) {
  if (slot >= kRuntimeSlots) {
    return devices != 0;
  }
  const auto key = slot_key(slot);
  return selected(key, devices) &&
         has_backend(c10::dispatchKeyToDeviceType(key));
}

// Operators PyTorch's build made of others (`out=` from the functional one) are
// compositions: their parts have taps, they themselves only when named.
bool wants_tap(const Operator& op, int slot, const TapPlan& plan) {
  return slot < kRuntimeSlots || !op.generated || plan.named[op.index];
}

void set_tap(Operator& op, int slot, const TapPlan& plan, bool wanted) {
  auto& tap = installed()[slot][op.index];
  const auto key = slot_key(slot);
  if (!wanted || !wants_tap(op, slot, plan)) {
    tap.reset();
  } else if (!tap && may_tap(op, slot, key)) {
    if (const auto runs_at = runtime_key(op, slot, plan.devices)) {
      tap.emplace(install(op, slot, key, *runs_at));
    }
  }
}

}  // namespace

bool is_composition(const c10::OperatorHandle& handle) {
  return handle.hasKernelForDispatchKey(
             DispatchKey::CompositeImplicitAutograd) ||
         handle.hasKernelForDispatchKey(
             DispatchKey::CompositeImplicitAutogradNestedTensor);
}

const c10::KernelFunction& boxed_tap(int slot) {
  static const auto* taps = [] {
    auto* made = new std::vector<c10::KernelFunction>;
    for (int i = 0; i < kKeySlots; ++i) {
      made->push_back(make_tap(i));
    }
    return made;
  }();
  return (*taps)[slot];
}

// An operator's keys one after the other: there are thousands of operators, and
// the second key finds in the processor's cache what the first one brought.
void set_taps(const TapPlan& plan) {
  QuietOverride quiet;
  auto& taps = installed();
  std::vector<int> used;
  std::vector<int> left;
  for (int slot = 0; slot < kKeySlots; ++slot) {
    if (slot_in_use(slot, plan.devices)) {
      taps[slot].resize(plan.wanted.size());
      used.push_back(slot);
    } else if (!taps[slot].empty()) {
      left.push_back(slot);
    }
  }
  for (auto* op : all_operators()) {
    for (const int slot : left) {
      if (op->index < taps[slot].size()) {
        taps[slot][op->index].reset();
      }
    }
    const bool wanted = !used.empty() && op->alive &&
                        plan.wanted[op->index] != 0 && !is_control(op->name);
    for (const int slot : used) {
      set_tap(*op, slot, plan, wanted);
    }
  }
  for (const int slot : left) {
    taps[slot].clear();
  }
}

size_t installed_taps() {
  size_t count = 0;
  for (const auto& taps : installed()) {
    count += std::count_if(taps.begin(), taps.end(), [](const auto& tap) {
      return tap.has_value();
    });
  }
  return count;
}

std::vector<std::string> dump_dispatcher() {
  std::vector<std::string> text;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (auto handle = dispatcher.findOp(name)) {
      text.push_back(
          handle->dumpState() +
          (handle->hasSchema() ? handle->dumpComputedTable() : ""));
    }
  }
  return text;
}

}  // namespace optools
