// SPDX-License-Identifier: Apache-2.0
// Typed taps: one function per operator and key, since neither can be told by
// what a caller passes.
#include "core/typed_taps.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_reshape_alias_ops.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/_unsafe_view_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/alias_ops.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/detach_ops.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/expand_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/permute_ops.h>
#include <ATen/ops/resize_ops.h>
#include <ATen/ops/scalar_tensor_ops.h>
#include <ATen/ops/select_ops.h>
#include <ATen/ops/slice_ops.h>
#include <ATen/ops/split_ops.h>
#include <ATen/ops/squeeze_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/t_ops.h>
#include <ATen/ops/transpose_ops.h>
#include <ATen/ops/unsqueeze_ops.h>
#include <ATen/ops/view_ops.h>
#include <ATen/ops/zero_ops.h>
#include <ATen/ops/zeros_ops.h>

#include <unordered_map>
#include <utility>

#include "core/engine.h"
#include "core/saved_kernel.h"
#include "core/taps.h"

namespace optools {
namespace {

// Is it certain that no tool wants the call? The boxed tap decides the rest.
bool passes(const Operator& op) {
  const auto& thread = this_thread();
  if (~thread.busy == 0) {
    return true;
  }
  const Program* inside = thread.inside.load(std::memory_order_relaxed);
  return inside != nullptr && (op.index >= inside->wanted.size() ||
                               (inside->wanted[op.index] & ~thread.busy) == 0);
}

template <class Op>
const Operator& operator_of() {
  static const Operator& op = [&]() -> const Operator& {
    const auto* found =
        find_operator(c10::Dispatcher::singleton().findSchemaOrThrow(
            Op::name, Op::overload_name));
    TORCH_INTERNAL_ASSERT(found != nullptr, "op_tools: unknown ", Op::name);
    return *found;
  }();
  return op;
}

template <class Op, int slot, class Schema = typename Op::schema>
struct TypedTap;

template <class Op, int slot, class Return, class... Args>
struct TypedTap<Op, slot, Return(Args...)> {
  static constexpr bool kSymbolic = (c10::has_symint<Args>::value || ...);

  // See Note [Torn reads] for why the state is not used.
  static Return call(
      c10::OperatorKernel* /*state*/, c10::DispatchKeySet keys, Args... args) {
    const auto& op = operator_of<Op>();
    const auto* kernel = op.kernels[slot].load(std::memory_order_acquire);
    const auto& next = passes(op) ? kernel->in_table : boxed_tap(slot);
    return next.template call<Return, Args...>(
        op.handle, keys, std::forward<Args>(args)...);
  }
};

// Dense tensors of every backend, and kernels written for all of them.
constexpr int kTypedSlots = kBackends + kKeySlots - kRuntimeSlots;
constexpr int typed_slot(int i) {
  return i < kBackends ? i : i - kBackends + kRuntimeSlots;
}

struct Row {
  std::string name;
  std::array<void*, kTypedSlots> code;
  bool symbolic;
};

template <class Op>
Row row() {
  std::string name = Op::name;
  if (*Op::overload_name != '\0') {
    name += std::string(".") + Op::overload_name;
  }
  return [&]<int... i>(std::integer_sequence<int, i...>)->Row {
    return {
        name,
        {reinterpret_cast<void*>(&TypedTap<Op, typed_slot(i)>::call)...},
        TypedTap<Op, 0>::kSymbolic};
  }
  (std::make_integer_sequence<int, kTypedSlots>());
}

std::unordered_map<std::string, Row> make_rows() {
  std::unordered_map<std::string, Row> rows;
  for (auto& made : {
           row<at::_ops::_reshape_alias>(),
           row<at::_ops::_to_copy>(),
           row<at::_ops::_unsafe_view>(),
           row<at::_ops::add_Tensor>(),
           row<at::_ops::alias>(),
           row<at::_ops::as_strided>(),
           row<at::_ops::clone>(),
           row<at::_ops::copy_>(),
           row<at::_ops::detach>(),
           row<at::_ops::empty_like>(),
           row<at::_ops::empty_memory_format>(),
           row<at::_ops::empty_strided>(),
           row<at::_ops::expand>(),
           row<at::_ops::fill__Scalar>(),
           row<at::_ops::index_select>(),
           row<at::_ops::mul_Tensor>(),
           row<at::_ops::permute>(),
           row<at::_ops::resize_>(),
           row<at::_ops::scalar_tensor>(),
           row<at::_ops::select_int>(),
           row<at::_ops::slice_Tensor>(),
           row<at::_ops::split_Tensor>(),
           row<at::_ops::squeeze_dim>(),
           row<at::_ops::sub_Tensor>(),
           row<at::_ops::t>(),
           row<at::_ops::transpose_int>(),
           row<at::_ops::unsqueeze>(),
           row<at::_ops::view>(),
           row<at::_ops::zero_>(),
           row<at::_ops::zeros>(),
       }) {
    rows.emplace(made.name, made);
  }
  return rows;
}

}  // namespace

void give_type(c10::KernelFunction& tap, const Operator& op, int slot) {
  static const auto* rows =
      new std::unordered_map<std::string, Row>(make_rows());
  if (slot >= kBackends && slot < kRuntimeSlots) {
    return;
  }
  if (const auto found = rows->find(op.name); found != rows->end()) {
    const auto& [name, code, symbolic] = found->second;
    set_typed_entrance(
        tap,
        code[slot < kBackends ? slot : slot - kRuntimeSlots + kBackends],
        symbolic);
  }
}

}  // namespace optools
