// SPDX-License-Identifier: Apache-2.0
// What the ladder registers with PyTorch's dispatcher.
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <string_view>
#include <vector>

#include "aten/ladder/entry.h"
#include "aten/ladder/ladder.h"
#include "aten/ladder/run.h"
#include "aten/ladder/shim.h"
#include "aten/ladder/unboxed_rows.h"
#include "aten/ladder/wide_composite.h"
#include "aten/profile/gap.h"
#include "runtime/error.h"

namespace npu::ladder {
namespace {

using c10::DispatchKey;

// A key of the npu device, and where the same kind of tensor lives on the CPU.
struct KeyPair {
  DispatchKey npu;
  DispatchKey cpu;
};
constexpr KeyPair kKeyPairs[] = {
    {DispatchKey::PrivateUse1, DispatchKey::CPU},
    {DispatchKey::SparsePrivateUse1, DispatchKey::SparseCPU},
    {DispatchKey::SparseCsrPrivateUse1, DispatchKey::SparseCsrCPU},
    {DispatchKey::QuantizedPrivateUse1, DispatchKey::QuantizedCPU},
    {DispatchKey::NestedTensorPrivateUse1, DispatchKey::NestedTensorCPU},
};

[[noreturn]] void refuse(const c10::OperatorHandle& op, const KeyPair& pair) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "npu: ",
      full_name(op.operator_name()),
      ": has no kernel for the npu device (dispatch key ",
      pair.npu,
      ") and none for the CPU to run instead. Rewrite the call with operators "
      "that have one, or move its inputs to the CPU.",
      ops_error(Code::kNotSupported));
}

void fall_back(
    Entry& entry,
    const c10::OperatorHandle& op,
    const KeyPair& pair,
    torch::jit::Stack* stack) {
  if (C10_UNLIKELY(!entry.has_kernel(pair.cpu))) {
    refuse(op, pair);
  }
  if (pair.npu == DispatchKey::SparsePrivateUse1 ||
      pair.npu == DispatchKey::SparseCsrPrivateUse1) {
    note_sparse(entry.label);
  }
  run_on_cpu(entry, pair.cpu, stack, NPU_REASON_NO_KERNEL);
}

template <std::size_t kPair>
void fallback(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet,
    torch::jit::Stack* stack) {
  fall_back(entry_for(op), op, kKeyPairs[kPair], stack);
}

// The same for one operator, which saves finding its entry.
class Kernel final : public c10::OperatorKernel {
 public:
  explicit Kernel(const KeyPair& pair) : pair_(pair) {}
  void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet,
      torch::jit::Stack* stack) {
    Entry* entry = entry_.load(std::memory_order_acquire);
    if (C10_UNLIKELY(entry == nullptr)) {
      entry = &entry_for(op);
      entry_.store(entry, std::memory_order_release);
    }
    fall_back(*entry, op, pair_, stack);
  }

 private:
  const KeyPair pair_;
  std::atomic<Entry*> entry_{nullptr};
};

// Composite kernels that ask for the device by name, or call a stub that only
// CPU and CUDA have.
bool composite_needs_cpu(const c10::OperatorName& name) {
  return name.name == "aten::kaiser_window" ||
         (name.name == "aten::mode" && name.overload_name == "values");
}

// A composite kernel shadows the fallback. Where the CPU has a kernel of its
// own we want that one; where an implicit composite is what autograd goes
// through (no formula of its own), never.
bool shadowed(const c10::OperatorHandle& op, const KeyPair& pair) {
  const auto has = [&op](DispatchKey key) {
    return op.hasKernelForDispatchKey(key);
  };
  const c10::OperatorName& name = op.operator_name();
  if (std::string_view(name.name).substr(0, 6) != "aten::" || has(pair.npu)) {
    return false;
  }
  if (pair.npu == DispatchKey::PrivateUse1 && composite_needs_cpu(name)) {
    return true;
  }
  const bool implicit = has(DispatchKey::CompositeImplicitAutograd);
  if (!has(pair.cpu) || (implicit && !has(DispatchKey::Autograd))) {
    return false;
  }
  return implicit || has(DispatchKey::CompositeExplicitAutograd) ||
         has(DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// Where autograd goes through an implicit composite, no kernel of ours may
// stand in its way.
bool may_have_kernel(const c10::OperatorHandle& op) {
  return !op.hasKernelForDispatchKey(DispatchKey::PrivateUse1) &&
         (!op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
          op.hasKernelForDispatchKey(DispatchKey::Autograd));
}

using Registrations = std::vector<c10::RegistrationHandleRAII>;

void register_fallbacks(Registrations& made) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto add = [&](const KeyPair& pair, c10::KernelFunction kernel) {
    made.push_back(
        dispatcher.registerFallback(pair.npu, std::move(kernel), "npu ladder"));
  };
  using c10::KernelFunction;
  add(kKeyPairs[0], KernelFunction::makeFromBoxedFunction<&fallback<0>>());
  add(kKeyPairs[1], KernelFunction::makeFromBoxedFunction<&fallback<1>>());
  add(kKeyPairs[2], KernelFunction::makeFromBoxedFunction<&fallback<2>>());
  add(kKeyPairs[3], KernelFunction::makeFromBoxedFunction<&fallback<3>>());
  add(kKeyPairs[4], KernelFunction::makeFromBoxedFunction<&fallback<4>>());
}

// Rows whose operators have an npu kernel by now are left out. `by` is what the
// dispatcher says of who registered them.
void register_rows(
    Registrations& made,
    const std::vector<UnboxedRows>& tables,
    const char* by) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const UnboxedRows& table : tables) {
    for (std::size_t i = 0; i < table.n; ++i) {
      const UnboxedRow& row = table.rows[i];
      const c10::OperatorName name(row.name, row.overload);
      const auto op = dispatcher.findSchema(name);
      if (op && may_have_kernel(*op)) {
        made.push_back(dispatcher.registerImpl(
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

void register_shadowed(Registrations& made) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op) {
      continue;
    }
    for (const KeyPair& pair : kKeyPairs) {
      if (shadowed(*op, pair)) {
        made.push_back(dispatcher.registerImpl(
            name,
            pair.npu,
            c10::KernelFunction::makeFromBoxedFunctor(
                std::make_unique<Kernel>(pair)),
            std::nullopt,
            nullptr,
            "npu ladder"));
      }
    }
  }
}

}  // namespace

void install(const std::vector<UnboxedRows>& tables) {
  install_shim();
  save_cpu_kernels();
  // For ever: dropping a handle would deregister its kernel.
  auto* const made = new Registrations;
  register_fallbacks(*made);
  register_rows(*made, tables, "npu operators");
  register_rows(*made, unboxed_rows(), "npu ladder");
  register_wide_composites(*made, "npu ladder");
  register_shadowed(*made);
}

}  // namespace npu::ladder
