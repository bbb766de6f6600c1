// SPDX-License-Identifier: Apache-2.0
// Recording a run of a program: instruction by instruction.
#include "aten/graph/maker.h"

#include <algorithm>
#include <utility>

#include "runtime/host_work.h"

namespace npu::graph {
namespace {

// What the allocator gives and the key of a recording tells apart.
constexpr std::uintptr_t kAligned = 256;

}  // namespace

Recording::Maker::Maker(
    Recording& recording, const std::vector<c10::IValue>& inputs)
    : r_(recording), graph_(recording.graph_) {
  r_.specs_.resize(r_.program_.n_registers());
  r_.input_buffers_.assign(inputs.size(), kNoBuffer);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    impls_.emplace_back(
        inputs[i].isTensor() ? inputs[i].toTensor().getIntrusivePtr()
                             : at::Tensor().getIntrusivePtr());
    if (inputs[i].isTensor() && is_plain_npu(inputs[i].toTensor())) {
      const c10::Storage& storage = inputs[i].toTensor().storage();
      const std::size_t before = graph_.buffers.size();
      r_.input_buffers_[i] = buffer_of(storage, Owner::kInput);
      if (graph_.buffers.size() != before) {
        alive_inputs_.emplace_back(
            r_.input_buffers_[i], storage.getWeakStorageImpl());
      }
    }
  }
}

std::vector<c10::IValue> Recording::Maker::run(
    std::vector<c10::IValue> inputs) {
  const TracedGraph& program = r_.program_;
  std::vector<c10::IValue> registers = std::move(inputs);
  registers.resize(program.n_registers());
  const TracedGraph::Scope scope;
  for (std::uint32_t i = 0; i < program.instructions().size(); ++i) {
    instruction(i, registers, scope);
    TracedGraph::release(program.instructions()[i], registers);
    note_dead_inputs();
  }
  std::vector<c10::IValue> results;
  for (const Operand& output : program.outputs()) {
    results.push_back(value_of(output, registers));
  }
  finish();
  return results;
}

void Recording::Maker::instruction(
    std::uint32_t index,
    std::vector<c10::IValue>& registers,
    const TracedGraph::Scope& scope) {
  const Instruction& instruction = r_.program_.instructions()[index];
  if (instruction.kind == Instruction::kItem) {
    item(instruction, index, registers, scope);
    return;
  }
  if (instruction.kind == Instruction::kArith) {
    r_.program_.execute(instruction, registers, scope);
    step(Step::kNumbers, index);
    return;
  }
  // What it reads, while registers still hold it.
  bool only_npu = instruction.kind == Instruction::kCall;
  std::vector<at::Tensor> arguments;
  for_each_register(instruction.arguments, [&](const Operand& operand) {
    only_npu = gather(registers[operand.index], arguments) && only_npu;
  });
  std::vector<c10::IValue> given;
  for (const Operand& operand : instruction.arguments) {
    given.push_back(seen_value(operand, registers));
  }
  numbers_ = only_npu || !on_.is_on("numbers")
                 ? NumberList{}
                 : number_list(instruction, registers);
  std::vector<double> values;
  for (const Register at : numbers_.registers) {
    values.push_back(*NumberList::read(registers[at], numbers_.dtype));
  }
  const std::uint64_t host_work = host_work_of_thread();
  work_.clear();
  {
    const RecorderGuard guard(work_);
    r_.program_.execute(instruction, registers, scope);
  }
  const std::uint64_t host_works = host_work_of_thread() - host_work;
  work_.unseen |= host_works != 0 || !work_.has_all_draws() ||
                  (!only_npu && (values.empty() || !bind_numbers(values)));
  if (!try_frames(instruction, index, registers, arguments) &&
      !(host_works == 1 && on_.is_on("host_calls") &&
        try_direct(instruction, index, registers, given))) {
    island(instruction, index, registers);
  }
}

// False for numbers, lists of numbers and tensors that are elsewhere.
bool Recording::Maker::gather(
    const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    if (!is_plain_npu(value.toTensor())) {
      return false;
    }
    tensors.push_back(value.toTensor());
    return true;
  }
  if (value.isTensorList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (!gather(item, tensors)) {
        return false;
      }
    }
    return true;
  }
  return false;
}

std::optional<BufferId> Recording::Maker::known_buffer(
    const at::Tensor& tensor) const {
  const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == storages_.end() || !found->second.is_there()) {
    return std::nullopt;
  }
  return found->second.id;
}

bool Recording::Maker::Known::is_there() const {
  const c10::intrusive_ptr<c10::StorageImpl> storage = weak.lock();
  return storage && storage->data() == base;
}

// A lazy clone gets memory of its own here, as at every replay: two storages
// with one address could not be told apart.
BufferId Recording::Maker::buffer_of(const c10::Storage& storage, Owner owner) {
  const auto found = storages_.find(storage.unsafeGetStorageImpl());
  if (found != storages_.end() && !found->second.weak.expired()) {
    return found->second.id;
  }
  const auto id = static_cast<BufferId>(graph_.buffers.size());
  graph_.buffers.push_back({Buffer::kBound, storage.nbytes()});
  owners_.push_back(owner);
  r_.devices_.push_back(storage.device().index());
  aligned_.resize(graph_.buffers.size());
  aligned_.back() =
      reinterpret_cast<std::uintptr_t>(storage.mutable_data()) % kAligned == 0;
  const Known known{
      id,
      static_cast<const std::byte*>(storage.mutable_data()),
      storage.nbytes(),
      storage.getWeakStorageImpl()};
  storages_.insert_or_assign(storage.unsafeGetStorageImpl(), known);
  return id;
}

std::optional<Ref> Recording::Maker::find(
    const void* pointer, std::uint64_t bytes) const {
  const auto* const at = static_cast<const std::byte*>(pointer);
  for (const auto& [impl, known] : storages_) {
    if (at >= known.base && at + bytes <= known.base + known.bytes &&
        known.is_there()) {
      return Ref{known.id, static_cast<std::uint64_t>(at - known.base)};
    }
  }
  // Memory that the call itself has replaced by more.
  for (const Known& known : before_) {
    if (at >= known.base && at + bytes <= known.base + known.bytes) {
      return Ref{known.id, static_cast<std::uint64_t>(at - known.base)};
    }
  }
  return std::nullopt;
}

// A tensor of a register: over a buffer that is known or comes to be.
Spec Recording::Maker::result_spec(const at::Tensor& tensor, Owner owner) {
  Spec made = spec_of(tensor);
  made.buffer = buffer_of(tensor.storage(), owner);
  const auto same = std::ranges::find(
      impls_, tensor.unsafeGetTensorImpl(), &WeakTensor::_unsafe_get_target);
  if (same != impls_.end()) {
    made.kind = Spec::kSame;
    made.same = static_cast<Register>(same - impls_.begin());
    r_.same_.push_back(made.same);
  }
  return made;
}

bool Recording::Maker::try_frames(
    const Instruction& instruction,
    std::uint32_t index,
    const std::vector<c10::IValue>& registers,
    const std::vector<at::Tensor>& arguments) {
  if (work_.unseen) {
    return false;
  }
  // Which memory was there before; results may bring more.
  std::vector<at::Tensor> results;
  for (std::uint32_t k = 0; k < instruction.n_results; ++k) {
    const Register at = instruction.result + static_cast<Register>(k);
    if (!gather(registers[at], results)) {
      return false;
    }
  }
  const auto is_old = [&](const at::Tensor& tensor) {
    return std::ranges::any_of(arguments, [&](const at::Tensor& argument) {
      return argument.storage().is_alias_of(tensor.storage());
    });
  };
  const bool idle = work_.nodes.empty();
  if (idle && (results.empty() || !std::ranges::all_of(results, is_old) ||
               !instruction.target->written.empty())) {
    return false;
  }
  const std::size_t n_buffers = graph_.buffers.size();
  for (const at::Tensor& result : results) {
    buffer_of(result.storage(), Owner::kFrames);
  }
  const std::size_t first = graph_.nodes.size();
  if (!place_nodes()) {
    graph_.nodes.erase(
        graph_.nodes.begin() + static_cast<std::ptrdiff_t>(first),
        graph_.nodes.end());
    forget_buffers(n_buffers);
    return false;
  }
  describe_results(instruction, registers, Owner::kFrames);
  if (idle) {
    ++r_.counts_.views;
    return true;
  }
  Step& made = step(Step::kFrames, index);
  made.device = work_.device;
  made.first = static_cast<std::uint32_t>(first);
  made.last = static_cast<std::uint32_t>(graph_.nodes.size());
  take_draws(made);
  note_written(instruction, made);
  ++r_.counts_.frames;
  return true;
}

void Recording::Maker::forget_buffers(std::size_t kept) {
  graph_.buffers.resize(kept);
  owners_.resize(kept);
  r_.devices_.resize(kept);
  std::erase_if(
      storages_, [&](const auto& entry) { return entry.second.id >= kept; });
}

// Raw pointers become places in buffers; temporaries become buffers.
bool Recording::Maker::place_nodes() {
  std::map<const void*, BufferId> temporaries;
  const auto change = [&](const Ref& raw) -> std::optional<Ref> {
    const auto& [pointer, bytes] = work_.raw[raw.buffer];
    if (const std::optional<Ref> found = find(pointer, bytes)) {
      return found;
    }
    if (!work_.is_temporary(pointer) || bytes == 0) {
      return std::nullopt;
    }
    const auto [at, fresh] = temporaries.try_emplace(
        pointer, static_cast<BufferId>(graph_.buffers.size()));
    if (fresh) {
      graph_.buffers.push_back({Buffer::kLocal, bytes});
      owners_.push_back(Owner::kFrames);
      r_.devices_.push_back(work_.device);
    }
    Buffer& buffer = graph_.buffers[at->second];
    buffer.bytes = std::max(buffer.bytes, bytes);
    return Ref{at->second, 0};
  };
  for (Node& node : work_.nodes) {
    if (auto* const frame = std::get_if<FrameCopy>(&node)) {
      if (!frame->remap(change)) {
        return false;
      }
    } else if (auto* const bytes = std::get_if<BytesNode>(&node)) {
      const std::optional<Ref> to = change(bytes->to);
      const std::optional<Ref> from = bytes->set ? to : change(bytes->from);
      if (!to || !from) {
        return false;
      }
      bytes->to = *to;
      bytes->from = *from;
    }
    graph_.nodes.push_back(std::move(node));
  }
  return true;
}

void Recording::Maker::describe_results(
    const Instruction& instruction,
    const std::vector<c10::IValue>& registers,
    Owner owner) {
  for (std::uint32_t k = 0; k < instruction.n_results; ++k) {
    const Register at = instruction.result + static_cast<Register>(k);
    const c10::IValue& value = registers[at];
    Spec& spec = r_.specs_[at];
    if (value.isTensor()) {
      spec = result_spec(value.toTensor(), owner);
    } else {
      spec.kind = Spec::kList;
      for (const c10::IValue& item : value.toListRef()) {
        spec.items.push_back(result_spec(item.toTensor(), owner));
      }
    }
  }
}

void Recording::Maker::note_written(
    const Instruction& instruction, Step& made) {
  for (const std::uint32_t argument : instruction.target->written) {
    for_each_register(
        {instruction.arguments[argument]}, [&](const Operand& operand) {
          mark_written(r_.specs_[operand.index], operand.index, made);
        });
  }
}

// The draws of the instruction as the step's.
void Recording::Maker::take_draws(Step& made) {
  const auto first = static_cast<std::uint32_t>(r_.draws_.size());
  for (const Draw& draw : work_.draws) {
    made.draws.push_back({static_cast<std::uint32_t>(r_.draws_.size()), {}});
    r_.draws_.push_back(draw);
  }
  for (std::uint32_t n = made.first; n < made.last; ++n) {
    auto* const frame = std::get_if<FrameCopy>(&graph_.nodes[n]);
    if (frame != nullptr && frame->draw() >= 0) {
      frame->bind_draw_to(frame->draw() + static_cast<std::int32_t>(first));
    }
  }
}

// Inputs over the same memory have a version counter that a program may read.
void Recording::Maker::mark_written(const Spec& spec, Register at, Step& made) {
  const bool is_input = static_cast<std::size_t>(at) < r_.input_buffers_.size();
  const BufferId buffer = is_input ? r_.input_buffers_[at] : spec.buffer;
  for (const Spec& item : spec.items) {
    mark_written(item, r_.program_.n_registers(), made);
  }
  for (std::size_t i = 0; i < r_.input_buffers_.size(); ++i) {
    const auto input = static_cast<Register>(i);
    const bool shows =
        is_input ? input == at
                 : spec.kind != Spec::kList && r_.input_buffers_[i] == buffer;
    if (shows && r_.input_buffers_[i] != kNoBuffer) {
      made.written.push_back(input);
      return;
    }
  }
}

void Recording::Maker::item(
    const Instruction& instruction,
    std::uint32_t index,
    std::vector<c10::IValue>& registers,
    const TracedGraph::Scope& scope) {
  const Spec list = r_.specs_[instruction.arguments[0].index];
  r_.program_.execute(instruction, registers, scope);
  const auto n = static_cast<std::int64_t>(list.items.size());
  const std::int64_t at =
      instruction.item < 0 ? instruction.item + n : instruction.item;
  if (list.kind == Spec::kList && at >= 0 && at < n) {
    r_.specs_[instruction.result] = list.items[at];
    return;
  }
  island(instruction, index, registers);
}

void Recording::Maker::island(
    const Instruction& instruction,
    std::uint32_t index,
    const std::vector<c10::IValue>& registers) {
  Step& made = step(Step::kIsland, index);
  IslandNode node{index, {}};
  for_each_register(instruction.arguments, [&](const Operand& operand) {
    made.arguments.push_back(operand.index);
    use(operand.index, node);
  });
  for (std::uint32_t k = 0; k < instruction.n_results; ++k) {
    const Register at = instruction.result + static_cast<Register>(k);
    Spec seen;
    if (registers[at].isTensor() && is_plain_npu(registers[at].toTensor())) {
      const at::Tensor& tensor = registers[at].toTensor();
      const std::size_t before = graph_.buffers.size();
      seen = spec_of(tensor);
      seen.buffer = buffer_of(tensor.storage(), Owner::kIsland);
      node.buffers.push_back(seen.buffer);
      if (graph_.buffers.size() != before) {
        made.fresh.push_back(seen.buffer);
      }
    }
    made.results.push_back(std::move(seen));
    r_.specs_[at] = Spec{};  // held
  }
  made.first = static_cast<std::uint32_t>(graph_.nodes.size());
  graph_.nodes.push_back(std::move(node));
  made.last = static_cast<std::uint32_t>(graph_.nodes.size());
  ++r_.counts_.islands;
}

// An island or an output needs the memory as a tensor of its own.
void Recording::Maker::use(Register at, IslandNode& node) {
  const auto add = [&](const Spec& spec) {
    if (spec.kind == Spec::kTensor || spec.kind == Spec::kSame) {
      node.buffers.push_back(spec.buffer);
      shared_.push_back(spec.buffer);
    }
  };
  const Spec& spec = r_.specs_[at];
  add(spec);
  std::ranges::for_each(spec.items, add);
  if (static_cast<std::size_t>(at) < r_.input_buffers_.size() &&
      r_.input_buffers_[at] != kNoBuffer) {
    node.buffers.push_back(r_.input_buffers_[at]);
  }
}

Step& Recording::Maker::step(Step::Kind kind, std::uint32_t index) {
  Step made;
  made.kind = kind;
  made.instruction = index;
  made.first = made.last = static_cast<std::uint32_t>(graph_.nodes.size());
  return r_.steps_.emplace_back(std::move(made));
}

}  // namespace npu::graph
