// SPDX-License-Identifier: Apache-2.0
// A compiled graph as a list of operator calls.
#include "aten/graph/traced_graph.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "graph/switches.h"

namespace npu::graph {
namespace {

using Registers = std::vector<c10::IValue>;

// Casts of the autocast that was on while a graph was traced are in the graph.
constexpr c10::DispatchKeySet kBelow =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView |
    c10::autocast_dispatch_keyset;

// ---- arguments ----

c10::IValue list_of(const Operand& operand, Registers& registers) {
  c10::impl::GenericList list(operand.element);
  list.reserve(operand.items.size());
  for (const Operand& item : operand.items) {
    list.push_back(value_of(item, registers));
  }
  return list;
}

}  // namespace

at::Tensor number_tensor(const c10::Scalar& number) {
  at::Tensor made = c10::scalar_to_tensor(number);
  made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

c10::IValue value_of(const Operand& operand, Registers& registers) {
  switch (operand.kind) {
    case Operand::kConstant:
      return operand.constant;
    case Operand::kList:
      return list_of(operand, registers);
    case Operand::kRegister:
      break;
  }
  c10::IValue& held = registers[operand.index];
  if (operand.to_double && held.isInt()) {
    return static_cast<double>(held.toInt());
  }
  if (operand.to_tensor && held.isScalar()) {
    return number_tensor(held.toScalar());
  }
  return operand.last_use ? std::move(held) : held;
}

c10::IValue seen_value(const Operand& operand, Registers& registers) {
  if (operand.kind == Operand::kConstant) {
    return operand.constant;
  }
  Operand kept = operand;
  kept.last_use = false;
  for (Operand& item : kept.items) {
    item.last_use = false;
  }
  return value_of(kept, registers);
}

// ---- versions and views ----

void bump(const c10::IValue& value) {
  if (value.isTensor()) {
    c10::TensorImpl* const impl = value.toTensor().unsafeGetTensorImpl();
    if (value.toTensor().defined() && !impl->is_inference()) {
      impl->bump_version();
    }
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      bump(item);
    }
  }
}

// A view has the version counter of what it shows, so that autograd notices
// when that is written between forward and backward.
void share_version(const c10::IValue& value, const at::Tensor& source) {
  if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      share_version(item, source);
    }
    return;
  }
  if (!value.isTensor() || !value.toTensor().defined()) {
    return;
  }
  c10::TensorImpl* const view = value.toTensor().unsafeGetTensorImpl();
  c10::TensorImpl* const shown = source.unsafeGetTensorImpl();
  if (view != shown && !view->is_inference() && !shown->is_inference() &&
      view->has_storage() && shown->has_storage() &&
      view->storage().is_alias_of(shown->storage())) {
    view->set_version_counter(shown->version_counter());
  }
}

void for_each_register(
    const std::vector<Operand>& operands,
    const std::function<void(const Operand&)>& visit) {
  for (const Operand& operand : operands) {
    if (operand.kind == Operand::kRegister) {
      visit(operand);
    } else if (operand.kind == Operand::kList) {
      for_each_register(operand.items, visit);
    }
  }
}

TracedGraph::Scope::Scope()
    : caller_(c10::impl::tls_local_dispatch_key_set()), below_(kBelow) {}

// ---- instructions ----

namespace {

void call_operator(const Instruction& instruction, Registers& registers) {
  const Instruction::Target& target = *instruction.target;
  torch::jit::Stack stack;
  stack.reserve(std::max<std::size_t>(
      instruction.arguments.size(), instruction.n_results));
  for (const Operand& operand : instruction.arguments) {
    stack.push_back(value_of(operand, registers));
  }
  at::Tensor viewed;
  if (target.viewed >= 0 && stack[target.viewed].isTensor()) {
    viewed = stack[target.viewed].toTensor();
  }
  std::vector<c10::IValue> written;
  for (const std::uint32_t argument : target.written) {
    written.push_back(stack[argument]);
  }
  if (target.numbers == NumberOp::kNone ||
      !run_numbers(target.numbers, target.numbers_in_place, stack)) {
    target.op.callBoxed(stack);
  }
  std::ranges::for_each(written, bump);
  TORCH_INTERNAL_ASSERT(stack.size() == instruction.n_results);
  for (std::uint32_t i = 0; i < instruction.n_results; ++i) {
    if (viewed.defined()) {
      share_version(stack[i], viewed);
    }
    registers[instruction.result + i] = std::move(stack[i]);
  }
}

c10::IValue computed(Arith arith, std::int64_t a, std::int64_t b) {
  const auto floor_div = [](std::int64_t x, std::int64_t y) {
    const std::int64_t quotient = x / y;
    return quotient - ((x % y != 0 && (x < 0) != (y < 0)) ? 1 : 0);
  };
  switch (arith) {
    case Arith::kAdd:
      return a + b;
    case Arith::kSub:
      return a - b;
    case Arith::kMul:
      return a * b;
    case Arith::kFloorDiv:
    case Arith::kMod:
      TORCH_CHECK(b != 0, "graph: an integer is divided by zero");
      return arith == Arith::kMod ? a - floor_div(a, b) * b : floor_div(a, b);
    case Arith::kNeg:
      return -a;
    case Arith::kEq:
      return a == b;
    case Arith::kNe:
      return a != b;
    case Arith::kLt:
      return a < b;
    case Arith::kLe:
      return a <= b;
    case Arith::kGt:
      return a > b;
    case Arith::kGe:
      break;
  }
  return a >= b;
}

void compute(const Instruction& instruction, Registers& registers) {
  std::int64_t numbers[2] = {0, 0};
  for (std::size_t i = 0; i < instruction.arguments.size(); ++i) {
    const c10::IValue value = value_of(instruction.arguments[i], registers);
    TORCH_CHECK(
        value.isInt(), "graph: ", instruction.name, " of something not an int");
    numbers[i] = value.toInt();
  }
  registers[instruction.result] =
      computed(instruction.arith, numbers[0], numbers[1]);
}

void take_item(const Instruction& instruction, Registers& registers) {
  const c10::IValue& list = registers[instruction.arguments[0].index];
  const c10::ArrayRef<c10::IValue> items =
      list.isTuple() ? c10::ArrayRef<c10::IValue>(list.toTupleRef().elements())
                     : list.toListRef();
  const std::int64_t n = static_cast<std::int64_t>(items.size());
  const std::int64_t at =
      instruction.item < 0 ? instruction.item + n : instruction.item;
  TORCH_CHECK_INDEX(
      at >= 0 && at < n, "graph: item ", instruction.item, " of a list of ", n);
  registers[instruction.result] = items[at];
}

// Runs as the caller of the program would run it.
class AsCaller {
 public:
  explicit AsCaller(const c10::impl::LocalDispatchKeySet& caller)
      : mine_(c10::impl::tls_local_dispatch_key_set()) {
    c10::impl::_force_tls_local_dispatch_key_set(caller);
  }
  ~AsCaller() {
    c10::impl::_force_tls_local_dispatch_key_set(mine_);
  }
  AsCaller(const AsCaller&) = delete;
  AsCaller& operator=(const AsCaller&) = delete;

 private:
  const c10::impl::LocalDispatchKeySet mine_;
};

void call_host(
    const Instruction& instruction,
    Registers& registers,
    const c10::impl::LocalDispatchKeySet& caller) {
  std::vector<c10::IValue> values;
  values.reserve(instruction.arguments.size());
  for (const Operand& operand : instruction.arguments) {
    values.push_back(value_of(operand, registers));
  }
  const AsCaller as_caller(caller);
  registers[instruction.result] = instruction.host(std::move(values));
}

// ---- building ----

std::unique_ptr<Instruction::Target> make_target(
    const c10::OperatorHandle& op) {
  auto target = std::make_unique<Instruction::Target>(
      Instruction::Target{.op = op, .written = {}});
  if (Switches::read().is_on("numbers")) {
    target->numbers = number_op(op, &target->numbers_in_place);
  }
  const c10::FunctionSchema& schema = op.schema();
  for (std::uint32_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (alias == nullptr) {
      continue;
    }
    if (alias->isWrite()) {
      target->written.push_back(i);
    } else if (target->viewed < 0) {
      target->viewed = static_cast<std::int32_t>(i);
    }
  }
  return target;
}

// The same for operands that are still being built.
void for_each_new_register(
    std::vector<Operand>& operands,
    const std::function<void(Operand&)>& visit) {
  for_each_register(operands, [&](const Operand& operand) {
    visit(const_cast<Operand&>(operand));
  });
}

}  // namespace

Register TracedGraph::add_input() {
  TORCH_CHECK(
      instructions_.empty(), "graph: inputs come before the first instruction");
  ++n_inputs_;
  return n_registers_++;
}

Register TracedGraph::add(Instruction instruction) {
  TORCH_CHECK(!finished_, "graph: the program is finished");
  instruction.result = n_registers_;
  n_registers_ += static_cast<Register>(instruction.n_results);
  instructions_.push_back(std::move(instruction));
  return instructions_.back().result;
}

Register TracedGraph::add_call(
    const c10::OperatorHandle& op, std::vector<Operand> arguments) {
  Instruction made;
  made.kind = Instruction::kCall;
  made.n_results = static_cast<std::uint32_t>(op.schema().returns().size());
  made.arguments = std::move(arguments);
  made.target = make_target(op);
  made.name = c10::toString(op.operator_name());
  return add(std::move(made));
}

Register TracedGraph::add_item(Register list, std::int64_t item) {
  Instruction made;
  made.kind = Instruction::kItem;
  made.item = item;
  made.arguments.resize(1);
  made.arguments[0].kind = Operand::kRegister;
  made.arguments[0].index = list;
  made.name = "getitem";
  return add(std::move(made));
}

Register TracedGraph::add_arith(Arith arith, std::vector<Operand> arguments) {
  TORCH_CHECK(
      arguments.size() == (arith == Arith::kNeg ? 1u : 2u),
      "graph: integer arithmetic with ",
      arguments.size(),
      " operands");
  Instruction made;
  made.kind = Instruction::kArith;
  made.arith = arith;
  made.arguments = std::move(arguments);
  made.name = "integer arithmetic";
  return add(std::move(made));
}

Register TracedGraph::add_host(
    std::string name,
    Instruction::HostFunction function,
    std::vector<Operand> arguments) {
  Instruction made;
  made.kind = Instruction::kHost;
  made.host = std::move(function);
  made.arguments = std::move(arguments);
  made.name = std::move(name);
  return add(std::move(made));
}

void TracedGraph::take_back(Register first) {
  instructions_.pop_back();
  n_registers_ = first;
}

// From the end: the first time a register is met is its last use. Results that
// are never read die where they are made.
void TracedGraph::mark_last_uses() {
  std::vector<bool> read(n_registers_, false);
  const auto check = [&](const Operand& operand, Register limit) {
    TORCH_CHECK(
        operand.index >= 0 && operand.index < limit,
        "graph: register ",
        operand.index,
        " is read before it is written");
  };
  last_read_.assign(n_registers_, -1);
  for_each_new_register(outputs_, [&](Operand& operand) {
    check(operand, n_registers_);
    read[operand.index] = true;
    last_read_[operand.index] = static_cast<std::int64_t>(instructions_.size());
  });
  for (auto i = instructions_.rbegin(); i != instructions_.rend(); ++i) {
    for (std::uint32_t r = 0; r < i->n_results; ++r) {
      if (!read[i->result + static_cast<Register>(r)]) {
        i->dead.push_back(i->result + static_cast<Register>(r));
      }
    }
    std::vector<std::pair<Register, Operand*>> first_seen;
    for_each_new_register(i->arguments, [&](Operand& operand) {
      check(operand, i->result);
      if (read[operand.index]) {
        return;
      }
      const auto same = std::ranges::find(
          first_seen, operand.index, &std::pair<Register, Operand*>::first);
      if (same == first_seen.end()) {
        first_seen.emplace_back(operand.index, &operand);
      } else {
        same->second = nullptr;  // read twice here: not moved, cleared after
      }
    });
    for (const auto& [index, operand] : first_seen) {
      read[index] = true;
      last_read_[index] = instructions_.rend() - i - 1;
      if (operand != nullptr && i->kind != Instruction::kItem) {
        operand->last_use = true;
      } else {
        i->dead.push_back(index);
      }
    }
  }
  for (Register r = 0; r < static_cast<Register>(n_inputs_); ++r) {
    if (!read[r]) {
      unread_inputs_.push_back(r);
    }
  }
}

std::vector<Register> TracedGraph::written_inputs() const {
  // By register: the input that it shows, or -1.
  std::vector<Register> shown(n_registers_, -1);
  std::iota(
      shown.begin(),
      shown.begin() + static_cast<std::ptrdiff_t>(n_inputs_),
      Register{0});
  std::vector<Register> found;
  for (const Instruction& instruction : instructions_) {
    if (instruction.kind != Instruction::kCall) {
      continue;
    }
    for (const std::uint32_t argument : instruction.target->written) {
      for_each_register(
          {instruction.arguments[argument]}, [&](const Operand& operand) {
            if (shown[operand.index] >= 0) {
              found.push_back(shown[operand.index]);
            }
          });
    }
    const std::int32_t viewed = instruction.target->viewed;
    if (viewed >= 0 &&
        instruction.arguments[viewed].kind == Operand::kRegister) {
      std::fill_n(
          shown.begin() + instruction.result,
          instruction.n_results,
          shown[instruction.arguments[viewed].index]);
    }
  }
  return found;
}

void TracedGraph::finish(std::vector<Operand> outputs) {
  TORCH_CHECK(!finished_, "graph: the program is finished");
  outputs_ = std::move(outputs);
  mark_last_uses();
  finished_ = true;
}

std::vector<c10::IValue> TracedGraph::run(
    std::vector<c10::IValue> inputs) const {
  TORCH_CHECK(finished_, "graph: the program is not finished");
  TORCH_CHECK(
      inputs.size() == n_inputs_,
      "graph: ",
      n_inputs_,
      " inputs expected, but got ",
      inputs.size());
  Registers registers = std::move(inputs);
  registers.resize(n_registers_);
  for (const Register r : unread_inputs_) {
    registers[r] = c10::IValue();
  }
  const Scope scope;
  return run_from(0, std::move(registers), scope);
}

void TracedGraph::execute(
    const Instruction& instruction,
    Registers& registers,
    const Scope& scope) const {
  switch (instruction.kind) {
    case Instruction::kCall:
      call_operator(instruction, registers);
      break;
    case Instruction::kItem:
      take_item(instruction, registers);
      break;
    case Instruction::kArith:
      compute(instruction, registers);
      break;
    case Instruction::kHost:
      call_host(instruction, registers, scope.caller());
      break;
  }
}

void TracedGraph::release(
    const Instruction& instruction, Registers& registers) {
  for (const Register r : instruction.dead) {
    registers[r] = c10::IValue();
  }
}

std::vector<c10::IValue> TracedGraph::run_from(
    std::size_t first, Registers registers, const Scope& scope) const {
  for (std::size_t i = first; i < instructions_.size(); ++i) {
    execute(instructions_[i], registers, scope);
    release(instructions_[i], registers);
  }
  std::vector<c10::IValue> results;
  results.reserve(outputs_.size());
  for (const Operand& output : outputs_) {
    results.push_back(value_of(output, registers));
  }
  return results;
}

}  // namespace npu::graph
