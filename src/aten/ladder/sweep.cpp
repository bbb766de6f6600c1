// SPDX-License-Identifier: Apache-2.0
// Registers the ladder's functions with PyTorch's dispatcher.
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "aten/ladder/ladder.h"
#include "aten/ladder/run.h"
#include "aten/ladder/unboxed_rows.h"
#include "aten/ladder/wide_composite.h"
#include "aten/profile/gap.h"
#include "aten/twin/twin.h"
#include "runtime/error.h"

namespace npu::ladder {
namespace {

using c10::DispatchKey;

// The keys of the npu device that have kernels; a twin has one for each.
constexpr DispatchKey kKeys[] = {
    DispatchKey::PrivateUse1,
    DispatchKey::SparsePrivateUse1,
    DispatchKey::SparseCsrPrivateUse1,
    DispatchKey::QuantizedPrivateUse1,
    DispatchKey::NestedTensorPrivateUse1,
};

DispatchKey cpu_key(DispatchKey npu) {
  return twin::cpu_twin().key_of(npu);
}

[[noreturn]] void refuse(const c10::OperatorHandle& op, DispatchKey key) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "npu: ",
      full_name(op.operator_name()),
      ": has no kernel for the npu device (dispatch key ",
      key,
      ") and none for the CPU to run instead. Rewrite the call with operators "
      "that have one, or move its inputs to the CPU.",
      ops_error(Code::kNotSupported));
}

void fall_back(
    Entry& entry,
    const c10::OperatorHandle& op,
    DispatchKey key,
    torch::jit::Stack* stack) {
  if (C10_UNLIKELY(!has_kernel(entry, key))) {
    refuse(op, key);
  }
  if (key == DispatchKey::SparsePrivateUse1 ||
      key == DispatchKey::SparseCsrPrivateUse1) {
    note_sparse(entry.label);
  }
  run_boxed(entry, key, stack, NPU_REASON_NO_KERNEL);
}

template <std::size_t kKey>
void fallback(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet,
    torch::jit::Stack* stack) {
  fall_back(twin::entry_for(op), op, kKeys[kKey], stack);
}

// The same for one operator, which saves finding its entry.
//
// Where the call would need copies and PyTorch has a composite kernel, that one
// runs: its parts may have kernels of the driver.
class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(DispatchKey key, std::optional<c10::SafeKernelFunction> composite)
      : key_(key), composite_(std::move(composite)) {}
  void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      torch::jit::Stack* stack) {
    Entry* entry = entry_.load(std::memory_order_acquire);
    if (C10_UNLIKELY(entry == nullptr)) {
      entry = &twin::entry_for(op);
      entry_.store(entry, std::memory_order_release);
    }
    if (C10_UNLIKELY(composite_ && needs_copies(*entry, *stack))) {
      composite_->callBoxed(op, keys, stack);
    } else {
      fall_back(*entry, op, key_, stack);
    }
  }

 private:
  const DispatchKey key_;
  const std::optional<c10::SafeKernelFunction> composite_;
  std::atomic<Entry*> entry_{nullptr};
};

// Composite kernels that ask for the device by name, or call a stub that only
// CPU and CUDA have.
bool composite_needs_cpu(const c10::OperatorName& name) {
  return name.name == "aten::kaiser_window" ||
         (name.name == "aten::mode" && name.overload_name == "values");
}

// A composite kernel hides the fallback. Where the CPU has a kernel of its own
// we want that one; where an implicit composite is what autograd goes through
// (no formula of its own), never.
bool is_hidden(const c10::OperatorHandle& op, DispatchKey key) {
  const auto has = [&op](DispatchKey one) {
    return op.hasKernelForDispatchKey(one);
  };
  const c10::OperatorName& name = op.operator_name();
  if (std::string_view(name.name).substr(0, 6) != "aten::" || has(key)) {
    return false;
  }
  if (key == DispatchKey::PrivateUse1 && composite_needs_cpu(name)) {
    return true;
  }
  const bool implicit = has(DispatchKey::CompositeImplicitAutograd);
  if (!has(cpu_key(key)) || (implicit && !has(DispatchKey::Autograd))) {
    return false;
  }
  return implicit || has(DispatchKey::CompositeExplicitAutograd) ||
         has(DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// Names of operators whose out= form has a CPU kernel.
std::unordered_set<std::string> find_out_forms() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::unordered_set<std::string> found;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op && op->hasKernelForDispatchKey(DispatchKey::CPU) &&
        std::ranges::any_of(
            op->schema().arguments(),
            [](const c10::Argument& one) { return one.is_out(); })) {
      found.insert(name.name);
    }
  }
  return found;
}

// The operator's composite kernel computes it by other operators. Most only
// call the operator's own out= form.
bool is_composed(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> out_forms = find_out_forms();
  const auto has = [&op](DispatchKey key) {
    return op.hasKernelForDispatchKey(key);
  };
  if (has(DispatchKey::CompositeExplicitAutograd) ||
      has(DispatchKey::CompositeImplicitAutograd)) {
    return !composite_needs_cpu(op.operator_name());
  }
  std::string name = op.operator_name().name;
  if (name.ends_with('_')) {
    name.pop_back();
  }
  return has(DispatchKey::CompositeExplicitAutogradNonFunctional) &&
         !out_forms.contains(name);
}

// Where autograd goes through an implicit composite, no kernel of ours may
// stand in its way.
bool may_have_kernel(const c10::OperatorHandle& op) {
  return !op.hasKernelForDispatchKey(DispatchKey::PrivateUse1) &&
         (!op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
          op.hasKernelForDispatchKey(DispatchKey::Autograd));
}

using Registrations = std::vector<c10::RegistrationHandleRAII>;

void register_fallbacks(Registrations& registrations) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto add = [&](DispatchKey key, c10::KernelFunction kernel) {
    registrations.push_back(
        dispatcher.registerFallback(key, std::move(kernel), "npu ladder"));
  };
  using c10::KernelFunction;
  add(kKeys[0], KernelFunction::makeFromBoxedFunction<&fallback<0>>());
  add(kKeys[1], KernelFunction::makeFromBoxedFunction<&fallback<1>>());
  add(kKeys[2], KernelFunction::makeFromBoxedFunction<&fallback<2>>());
  add(kKeys[3], KernelFunction::makeFromBoxedFunction<&fallback<3>>());
  add(kKeys[4], KernelFunction::makeFromBoxedFunction<&fallback<4>>());
}

// Rows whose operators have an npu kernel by now are left out, and those that
// `skip` names. `by` is what the dispatcher says of who registered them.
void register_rows(
    Registrations& registrations,
    const std::vector<UnboxedRows>& tables,
    bool (*skip)(const c10::OperatorHandle& op),
    const char* by) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const UnboxedRows& table : tables) {
    for (std::size_t i = 0; i < table.n; ++i) {
      const UnboxedRow& row = table.rows[i];
      const c10::OperatorName name(row.name, row.overload);
      const auto op = dispatcher.findSchema(name);
      if (op && may_have_kernel(*op) && !skip(*op)) {
        registrations.push_back(dispatcher.registerImpl(
            name,
            DispatchKey::PrivateUse1,
            row.make(*op, row.function),
            std::nullopt,
            nullptr,
            by));
      }
    }
  }
}

void register_hidden(Registrations& registrations) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op) {
      continue;
    }
    for (const DispatchKey key : kKeys) {
      if (!is_hidden(*op, key)) {
        continue;
      }
      std::optional<c10::SafeKernelFunction> composite;
      if (key == DispatchKey::PrivateUse1 && is_composed(*op)) {
        composite = op->getComputedKernelForDispatchKey(key);
      }
      registrations.push_back(dispatcher.registerImpl(
          name,
          key,
          c10::KernelFunction::makeFromBoxedFunctor(
              std::make_unique<Kernel>(key, std::move(composite))),
          std::nullopt,
          nullptr,
          "npu ladder"));
    }
  }
}

}  // namespace

void install(const std::vector<UnboxedRows>& tables) {
  twin::install_shim();
  twin::save_cpu_kernels();
  // For ever: dropping a handle would deregister its kernel.
  auto* const registrations = new Registrations;
  register_fallbacks(*registrations);
  register_rows(
      *registrations,
      tables,
      [](const c10::OperatorHandle&) { return false; },
      "npu operators");
  register_rows(*registrations, unboxed_rows(), &is_composed, "npu ladder");
  register_wide_composites(*registrations, "npu ladder");
  register_hidden(*registrations);
}

}  // namespace npu::ladder
