// SPDX-License-Identifier: Apache-2.0
// A compiled graph as a list of operator calls, run without Python.
//
// Dynamo and AOTAutograd give graphs of ATen operators; each node becomes an
// instruction with its operator found and its constants converted, once. run()
// is what eager mode would do from there, in the same order, on the current
// streams: other addresses, aliases, mutated inputs and random numbers are
// right as they are in eager mode. Nothing of a run is kept in the program, so
// any number of threads may run it at once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "aten/graph/host_numbers.h"

namespace npu::graph {

using Register = std::int32_t;

// One argument: a constant, a register, or a list of them.
struct Operand {
  enum Kind : std::uint8_t { kConstant, kRegister, kList };
  Kind kind = kConstant;
  bool last_use = false;   // of a register: its value may be moved out
  bool to_double = false;  // an integer of the graph in a float's place
  bool to_tensor = false;  // a number of the graph in a tensor's place
  Register index = -1;
  c10::IValue constant;
  std::vector<Operand> items;
  c10::TypePtr element;  // of a list
};

// Integer arithmetic on sizes and numbers of the graph.
enum class Arith : std::uint8_t {
  kAdd,
  kSub,
  kMul,
  kFloorDiv,
  kMod,
  kNeg,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe
};

struct Instruction {
  enum Kind : std::uint8_t { kCall, kItem, kArith, kHost };
  // Everything an operator call needs beyond its arguments.
  struct Target {
    c10::OperatorHandle op;
    std::vector<std::uint32_t> written;  // arguments whose version changes
    std::int32_t viewed = -1;  // the argument that results are views of
    NumberOp numbers = NumberOp::kNone;
    bool numbers_in_place = false;
  };
  // Code that is no operator: higher order ones, users' Python functions.
  using HostFunction = std::function<c10::IValue(std::vector<c10::IValue>&&)>;

  Kind kind = kCall;
  Arith arith = Arith::kAdd;
  std::int64_t item = 0;
  Register result = -1;  // first of n_results
  std::uint32_t n_results = 1;
  std::vector<Operand> arguments;
  std::vector<Register> dead;  // registers not read after this
  std::unique_ptr<Target> target;
  HostFunction host;
  std::string name;
};

class TracedGraph {
 public:
  // Building: in the order of the graph, then finish().
  Register add_input();
  // A value that the caller of the graph makes, over memory it knows.
  Register add_value() noexcept {
    return n_registers_++;
  }
  // Results are registers from the returned one on, one per return value.
  Register add_call(
      const c10::OperatorHandle& op, std::vector<Operand> arguments);
  Register add_item(Register list, std::int64_t item);
  Register add_arith(Arith arith, std::vector<Operand> arguments);
  Register add_host(
      std::string name,
      Instruction::HostFunction function,
      std::vector<Operand> arguments);
  // Removes the last instruction, and registers from `first` on.
  void take_back(Register first);
  // Throws when a register is read that nothing has written.
  void finish(std::vector<Operand> outputs);

  // One value per output. Throws what an operator throws. Inputs are dropped as
  // soon as nothing reads them any more.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs) const;

  // Parts of run(), for callers that go step by step inside a Scope. A vector
  // of registers has n_registers() entries, inputs first.
  class Scope;
  void execute(
      const Instruction& instruction,
      std::vector<c10::IValue>& registers,
      const Scope& scope) const;
  // After execute(): drops registers that are not read any more.
  static void release(
      const Instruction& instruction, std::vector<c10::IValue>& registers);
  std::vector<c10::IValue> run_from(
      std::size_t first,
      std::vector<c10::IValue> registers,
      const Scope& scope) const;
  // The last instruction that reads a register, their number for outputs, -1
  // for none.
  std::int64_t last_read(Register r) const noexcept {
    return last_read_[r];
  }
  // Inputs that the graph writes, by themselves or through views.
  std::vector<Register> written_inputs() const;
  const std::vector<Operand>& outputs() const noexcept {
    return outputs_;
  }
  Register n_registers() const noexcept {
    return n_registers_;
  }

  std::size_t n_inputs() const noexcept {
    return n_inputs_;
  }
  const std::vector<Instruction>& instructions() const noexcept {
    return instructions_;
  }

 private:
  Register add(Instruction instruction);
  void mark_last_uses();

  std::vector<Instruction> instructions_;
  std::vector<Operand> outputs_;
  std::vector<Register> unread_inputs_;
  std::vector<std::int64_t> last_read_;  // by register
  std::size_t n_inputs_ = 0;
  Register n_registers_ = 0;
  bool finished_ = false;
};

// The dispatch state that instructions run in: AOTAutograd is above us, and
// versions and views are kept by the program itself, cheaper.
class TracedGraph::Scope {
 public:
  Scope();
  // The dispatch keys of the thread that runs the program.
  const c10::impl::LocalDispatchKeySet& caller() const noexcept {
    return caller_;
  }

 private:
  const c10::impl::LocalDispatchKeySet caller_;
  const at::NoGradGuard no_grad_;
  const c10::impl::ExcludeDispatchKeyGuard below_;
};

// A number where an operator wants a tensor, as PyTorch's own Python gives it.
at::Tensor number_tensor(const c10::Scalar& number);
c10::IValue value_of(
    const Operand& operand, std::vector<c10::IValue>& registers);
// The same, and the registers keep what they hold.
c10::IValue seen_value(
    const Operand& operand, std::vector<c10::IValue>& registers);
// Written arguments count a version, views share that of what they show.
void bump(const c10::IValue& value);
void share_version(const c10::IValue& value, const at::Tensor& source);
void for_each_register(
    const std::vector<Operand>& operands,
    const std::function<void(const Operand&)>& visit);

}  // namespace npu::graph
