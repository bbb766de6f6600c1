// SPDX-License-Identifier: Apache-2.0
// Captures: see Note [Captures].
#include "aten/graph/capture.h"

#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/capture_state.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/generator.h"
#include "runtime/host_work.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu::graph {
namespace {

constexpr char kRandomState[] = "random state";
constexpr char kReplay[] = "replay of another graph";

bool is_npu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

// Also those of lists.
void for_each_tensor(
    const c10::IValue& value,
    const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      for_each_tensor(item, visit);
    }
  }
}

bool any_tensor(
    c10::ArrayRef<c10::IValue> values,
    const std::function<bool(const at::Tensor&)>& is) {
  bool found = false;
  for (const c10::IValue& value : values) {
    for_each_tensor(
        value, [&](const at::Tensor& tensor) { found = found || is(tensor); });
  }
  return found;
}

// Memory that nothing is written to.
bool only_allocates(const c10::FunctionSchema& schema) {
  constexpr std::array<std::string_view, 6> kNames = {
      "aten::empty",
      "aten::empty_like",
      "aten::empty_permuted",
      "aten::empty_strided",
      "aten::new_empty",
      "aten::new_empty_strided"};
  return std::ranges::find(kNames, schema.name()) != kNames.end() &&
         std::ranges::none_of(schema.arguments(), [](const auto& argument) {
           return argument.alias_info() != nullptr;
         });
}

// Batch norm writes its statistics, and its schema does not say so.
bool is_written(const c10::Argument& argument) {
  return (argument.alias_info() != nullptr &&
          argument.alias_info()->isWrite()) ||
         argument.name() == "running_mean" || argument.name() == "running_var";
}

bool is_mask(const c10::IValue& index) {
  return index.isTensor() && index.toTensor().defined() &&
         (index.toTensor().scalar_type() == c10::kBool ||
          index.toTensor().scalar_type() == c10::kByte);
}

// Whether a copy is one between npu and memory of the host that is not pinned.
// Numbers, which are read while they are given, and host memory that is yet to
// be made are told apart.
bool crosses(
    const at::Tensor& source, c10::DeviceType to, const at::Tensor& target) {
  const c10::DeviceType from = source.device().type();
  const bool down = from == kDeviceType && to == c10::DeviceType::CPU;
  const bool up = from == c10::DeviceType::CPU && to == kDeviceType;
  const at::Tensor& host = up ? source : target;
  return (down || up) &&
         (!host.defined() || (host.numel() > 1 && !host.is_pinned()));
}

// Results are values of tensors, or sizes that depend on them.
bool reads(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const std::string& name = op.schema().name();
  if (name == "aten::_to_copy") {
    const at::Tensor& source = arguments[0].toTensor();
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      if (arguments[i].isDevice()) {
        return crosses(source, arguments[i].toDevice().type(), {});
      }
    }
    return false;
  }
  if (name == "aten::copy_") {
    const at::Tensor& target = arguments[0].toTensor();
    return crosses(arguments[1].toTensor(), target.device().type(), target);
  }
  if (!any_tensor(arguments, is_npu)) {
    return false;
  }
  // Results have the sizes of the indices, unless one is a mask.
  if ((name == "aten::index" || name == "aten::_unsafe_index") &&
      op.schema().overload_name() == "Tensor") {
    return std::ranges::any_of(arguments[1].toListRef(), is_mask);
  }
  return name == "aten::is_nonzero" ||
         op.hasTag(at::Tag::data_dependent_output) ||
         op.hasTag(at::Tag::dynamic_output_shape);
}

// All of its bytes.
at::Tensor whole_of(const c10::Storage& storage) {
  at::Tensor made = at::empty(
      {0}, at::TensorOptions().device(storage.device()).dtype(c10::kByte));
  made.set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())}, {1});
  return made;
}

// Views of memory are captured; tensors made of several others are not.
void check_have_memory(
    c10::ArrayRef<c10::IValue> values, const c10::OperatorHandle& op) {
  const auto has_none = [&](const at::Tensor& tensor) {
    return is_npu(tensor) &&
           (tensor.layout() != c10::kStrided || !tensor.has_storage());
  };
  TORCH_CHECK(
      !any_tensor(values, has_none),
      "NPU graph capture: ",
      op.operator_name(),
      " of a tensor that is not strided is not permitted while a stream is "
      "captured: only strided tensors are captured.",
      pta_error(Code::kNotSupported));
}

}  // namespace

const c10::Storage& Held::now(std::uint64_t bytes) const {
  const c10::Storage& found = tensor.defined() ? tensor.storage() : storage;
  TORCH_CHECK(
      found.nbytes() >= bytes,
      "NPUGraph.replay: a tensor that the graph uses has ",
      found.nbytes(),
      " bytes of memory; it had ",
      bytes,
      " when it was captured. Give it back its size, or capture a new graph.",
      ops_error(Code::kParam));
  return found;
}

std::vector<c10::Storage> Recording::held_memory() const {
  std::vector<c10::Storage> found;
  for (const Held& held : held_) {
    found.push_back(held.now(0));
  }
  return found;
}

bool Recording::is_outside(const c10::Storage& storage) const {
  return std::ranges::any_of(held_, [&](const Held& held) {
    return held.tensor.defined() && held.tensor.storage().is_alias_of(storage);
  });
}

// ---- the recording ----

Operand Recording::Maker::captured_tensor(
    TracedGraph& program, const at::Tensor& tensor) {
  Operand made;
  const c10::DeviceType type =
      tensor.defined() ? tensor.device().type() : c10::DeviceType::Meta;
  // Numbers are part of the call.
  if ((type != kDeviceType && type != c10::DeviceType::CPU) ||
      (type == c10::DeviceType::CPU &&
       tensor.unsafeGetTensorImpl()->is_wrapped_number())) {
    made.constant = tensor;
    return made;
  }
  made.kind = Operand::kRegister;
  made.index = program.add_value();
  values_.resize(program.n_registers());
  r_.specs_.resize(program.n_registers());
  values_[made.index] = tensor;
  if (type == kDeviceType) {
    const c10::Storage& storage = tensor.storage();
    Spec& spec = r_.specs_[made.index];
    spec = spec_of(tensor);
    const std::optional<BufferId> known = known_buffer(tensor);
    spec.buffer = known ? *known : buffer_of(storage, Owner::kInput);
    if (!known) {
      outside_.push_back({spec.buffer, tensor, storage});
    }
    before_.push_back(storages_.at(storage.unsafeGetStorageImpl()));
  }
  return made;
}

Operand Recording::Maker::captured_operand(
    TracedGraph& program, const c10::IValue& value) {
  if (value.isTensor()) {
    return captured_tensor(program, value.toTensor());
  }
  Operand made;
  const bool tensors =
      value.isList() &&
      std::ranges::any_of(value.toListRef(), &c10::IValue::isTensor);
  if (!tensors) {
    made.constant = value;
    return made;
  }
  made.kind = Operand::kList;
  made.element = value.toList().elementType();
  for (const c10::IValue& item : value.toListRef()) {
    made.items.push_back(captured_operand(program, item));
  }
  return made;
}

// The call replaced memory by a larger block, as resize_ and out= do, and moved
// the bytes along. Memory from before the capture stays replaced.
void Recording::Maker::note_growth(std::uint32_t index, Register first) {
  for (Register at = first; at < r_.program_.n_registers(); ++at) {
    if (!values_[at].isTensor() || !is_npu(values_[at].toTensor())) {
      continue;
    }
    const at::Tensor& tensor = values_[at].toTensor();
    const BufferId old = r_.specs_[at].buffer;
    const auto was = std::ranges::find(before_, old, &Known::id);
    const c10::Storage& storage = tensor.storage();
    if (was == before_.end() ||
        was->weak.lock().get() != storage.unsafeGetStorageImpl() ||
        storage.data() == was->base) {
      continue;
    }
    BufferId grown = 0;
    if (const std::optional<BufferId> known = known_buffer(tensor)) {
      grown = *known;
    } else {
      const Owner owner = owners_[old];
      storages_.erase(storage.unsafeGetStorageImpl());
      grown = buffer_of(storage, owner);
      if (owner == Owner::kInput) {
        outside_.push_back({grown, tensor, storage});
      } else if (was->bytes != 0) {
        Step& made = step(Step::kFrames, index);
        made.device = r_.devices_[grown];
        BytesNode node;
        node.bytes = std::min<std::uint64_t>(was->bytes, storage.nbytes());
        node.to = {grown, 0};
        node.from = {old, 0};
        graph_.nodes.emplace_back(node);
        made.last = static_cast<std::uint32_t>(graph_.nodes.size());
      }
    }
    r_.specs_[at].buffer = grown;
  }
}

void Recording::Maker::know_results(const std::vector<c10::IValue>& results) {
  for (const c10::IValue& result : results) {
    for_each_tensor(result, [&](const at::Tensor& tensor) {
      if (is_npu(tensor) && !known_buffer(tensor)) {
        buffer_of(tensor.storage(), Owner::kFrames);
      }
    });
  }
}

bool Recording::Maker::captured_frames(
    TracedGraph& program, const CapturedCall& call) {
  const std::size_t n = graph_.nodes.size();
  const auto index =
      static_cast<std::uint32_t>(program.instructions().size() - 1);
  if (!place_nodes()) {
    graph_.nodes.erase(
        graph_.nodes.begin() + static_cast<std::ptrdiff_t>(n),
        graph_.nodes.end());
    return false;
  }
  Step& made = step(Step::kFrames, index);
  made.device = work_.device;
  made.first = static_cast<std::uint32_t>(n);
  take_draws(made);
  ++r_.counts_.frames;
  if (call.numbers.empty()) {
    drop_arguments(program, call.first);
  }
  return true;
}

// Frames need no arguments.
void Recording::Maker::drop_arguments(TracedGraph& program, Register first) {
  const c10::OperatorHandle op = program.instructions().back().target->op;
  program.take_back(first);
  program.add_call(op, {});
  std::fill(values_.begin() + first, values_.end(), c10::IValue());
  std::fill(r_.specs_.begin() + first, r_.specs_.end(), Spec{});
}

Spec Recording::Maker::captured_result(
    const c10::IValue& value, Step& made, IslandNode& node) {
  Spec seen;
  if (value.isList()) {
    seen.kind = Spec::kList;
    for (const c10::IValue& item : value.toListRef()) {
      seen.items.push_back(captured_result(item, made, node));
    }
  } else if (value.isTensor() && is_npu(value.toTensor())) {
    const at::Tensor& tensor = value.toTensor();
    seen = spec_of(tensor);
    if (const std::optional<BufferId> known = known_buffer(tensor)) {
      seen.buffer = *known;
    } else {
      seen.buffer = buffer_of(tensor.storage(), Owner::kIsland);
      made.fresh.push_back(seen.buffer);
    }
    node.buffers.push_back(seen.buffer);
  }
  return seen;
}

void Recording::Maker::captured_island(
    const Instruction& instruction,
    std::uint32_t index,
    const std::vector<c10::IValue>& results) {
  Step& made = step(Step::kIsland, index);
  IslandNode node{index, {}};
  for_each_register(instruction.arguments, [&](const Operand& operand) {
    made.arguments.push_back(operand.index);
    use(operand.index, node);
  });
  for (const c10::IValue& result : results) {
    made.results.push_back(captured_result(result, made, node));
  }
  graph_.nodes.emplace_back(std::move(node));
  made.last = static_cast<std::uint32_t>(graph_.nodes.size());
  ++r_.counts_.islands;
}

// What is held here only would seem to be alive.
void Recording::Maker::forget_values(Register first) {
  values_.resize(r_.program_.n_registers());
  r_.specs_.resize(r_.program_.n_registers());
  for (auto at = static_cast<std::size_t>(first); at < values_.size(); ++at) {
    if (values_[at].isTensor() && values_[at].toTensor().defined() &&
        values_[at].toTensor().is_cpu()) {
      r_.constants_.emplace_back(
          static_cast<Register>(at), std::move(values_[at]));
    }
    values_[at] = c10::IValue();
  }
  before_.clear();
  work_.clear();
}

// As the last instruction, whose values are registers from `first` on.
void Recording::Maker::add_captured(
    TracedGraph& program, const CapturedCall& call, const OnWrite& on_write) {
  const std::vector<c10::Argument>& arguments = call.op.schema().arguments();
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < call.given.size(); ++i) {
    operands.push_back(captured_operand(program, call.given[i]));
    if (is_written(arguments[i])) {
      for_each_tensor(call.given[i], [&](const at::Tensor& tensor) {
        if (is_npu(tensor) && owners_[*known_buffer(tensor)] == Owner::kInput) {
          on_write(tensor);
        }
      });
    }
  }
  program.add_call(call.op, std::move(operands));
  values_.resize(program.n_registers());
  r_.specs_.resize(program.n_registers());
}

// Frames, a direct call or an island: what the call was.
void Recording::Maker::record_captured(
    TracedGraph& program, const CapturedCall& call) {
  const auto index =
      static_cast<std::uint32_t>(program.instructions().size() - 1);
  const std::size_t n_steps = r_.steps_.size();
  note_growth(index, call.first);
  const std::size_t n_buffers = graph_.buffers.size();
  const bool brings_memory = any_tensor(call.results, [&](const auto& tensor) {
    return is_npu(tensor) && !known_buffer(tensor) &&
           tensor.storage().nbytes() != 0;
  });
  const bool idle = work_.nodes.empty() && !work_.unseen &&
                    call.host_works == 0 && work_.draws.empty();
  if (idle && (!brings_memory || only_allocates(call.op.schema()))) {
    know_results(call.results);
    if (r_.steps_.size() == n_steps) {
      program.take_back(call.first);
    } else {  // memory that grew
      drop_arguments(program, call.first);
    }
    return;
  }
  work_.unseen |= call.host_works != 0 || !work_.has_all_draws() ||
                  (call.reads_host &&
                   (call.numbers.empty() || !bind_numbers(call.numbers)));
  if (!work_.unseen) {
    know_results(call.results);
    if (captured_frames(program, call)) {
      return;
    }
    forget_buffers(n_buffers);
  }
  const Instruction& instruction = program.instructions().back();
  if (call.host_works == 1 && on_.is_on("host_calls")) {
    std::ranges::copy(call.results, values_.begin() + instruction.result);
    const bool plain =
        instruction.target->written.empty() ||
        (!brings_memory &&
         std::ranges::all_of(call.results, [](const c10::IValue& result) {
           return result.isTensor() && result.toTensor().defined();
         }));
    if (plain && try_direct(instruction, index, values_, call.given)) {
      return;
    }
    forget_buffers(n_buffers);
  }
  captured_island(instruction, index, call.results);
}

void Recording::Maker::call(
    TracedGraph& program,
    const c10::OperatorHandle& op,
    torch::jit::Stack& stack,
    const OnWrite& on_write) {
  const auto n_results =
      static_cast<std::ptrdiff_t>(op.schema().returns().size());
  CapturedCall call{
      op,
      program.n_registers(),
      {stack.end() -
           static_cast<std::ptrdiff_t>(op.schema().arguments().size()),
       stack.end()}};
  call.reads_host = any_tensor(call.given, [](const at::Tensor& tensor) {
    return tensor.is_cpu() &&
           !tensor.unsafeGetTensorImpl()->is_wrapped_number();
  });
  std::erase_if(
      storages_, [](const auto& entry) { return entry.second.weak.expired(); });
  add_captured(program, call, on_write);
  numbers_ = call.reads_host && on_.is_on("numbers")
                 ? number_list(program.instructions().back(), values_)
                 : NumberList{};
  for (const Register at : numbers_.registers) {
    call.numbers.push_back(*NumberList::read(values_[at], numbers_.dtype));
  }
  const std::uint64_t host_work = host_work_of_thread();
  work_.clear();
  try {
    const RecorderGuard guard(work_);
    op.callBoxed(stack);
    call.results.assign(stack.end() - n_results, stack.end());
    check_have_memory(call.results, op);
  } catch (...) {
    program.take_back(call.first);
    forget_values(call.first);
    throw;
  }
  call.host_works = host_work_of_thread() - host_work;
  if (any_tensor(call.given, is_npu) || any_tensor(call.results, is_npu)) {
    record_captured(program, call);
  } else {
    program.take_back(call.first);
  }
  forget_values(call.first);
}

void Recording::Maker::call_host(
    TracedGraph& program,
    const std::string& name,
    Instruction::HostFunction function,
    const std::vector<at::Tensor>& memory,
    const OnWrite& on_write) {
  const Register first = program.n_registers();
  std::vector<Operand> operands;
  for (const at::Tensor& tensor : memory) {
    operands.push_back(captured_tensor(program, tensor));
    if (owners_[*known_buffer(tensor)] == Owner::kInput) {
      on_write(tensor);
    }
  }
  program.add_host(name, std::move(function), std::move(operands));
  forget_values(first);
  captured_island(
      program.instructions().back(),
      static_cast<std::uint32_t>(program.instructions().size() - 1),
      {});
}

void Recording::Maker::finish_capture() {
  r_.is_held_.assign(graph_.buffers.size(), false);
  for (Outside& outside : outside_) {
    Held& held = r_.held_.emplace_back();
    held.buffer = outside.buffer;
    r_.is_held_[held.buffer] = true;
    // A tensor that the program gave other memory no longer leads to this one.
    if (outside.tensor.storage().is_alias_of(outside.storage)) {
      held.tensor = std::move(outside.tensor);
    } else {
      held.storage = std::move(outside.storage);
    }
  }
  outside_.clear();
  for (const auto& [impl, known] : storages_) {
    c10::intrusive_ptr<c10::StorageImpl> storage = known.weak.lock();
    if (storage && storage->data() == known.base && !r_.is_held_[known.id]) {
      owners_[known.id] = Owner::kInput;
      Held& held = r_.held_.emplace_back();
      held.buffer = known.id;
      held.storage = c10::Storage(std::move(storage));
      r_.is_held_[known.id] = true;
    }
  }
  in_order_ = storages_overlap(r_.held_memory());
  finish();
  r_.is_held_.resize(graph_.buffers.size(), false);
}

// ---- the graph ----

CapturedGraph::CapturedGraph()
    : recording_(std::make_unique<Recording>(program_)) {}

std::vector<std::string> CapturedGraph::names() const {
  std::vector<std::string> found;
  for (const Instruction& instruction : program_.instructions()) {
    found.push_back(instruction.name);
  }
  return found;
}

// Frames come without the dispatcher. The graph's own memory is written.
void CapturedGraph::show_to_sanitizer() const {
  std::vector<sanitizer::Operand> operands;
  for (const at::Tensor& tensor : memory_) {
    const bool read = recording_->is_outside(tensor.storage()) &&
                      std::ranges::none_of(written_, [&](const auto& written) {
                        return written.storage().is_alias_of(tensor.storage());
                      });
    operands.push_back({&tensor, !read, "memory of the graph"});
  }
  sanitizer::on_work("NPUGraph.replay", operands);
}

void CapturedGraph::replay() {
  if (sanitizer::finds_races()) {
    show_to_sanitizer();
    sanitizer::raise_pending();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  random_.begin();
  std::vector<c10::IValue> none;
  std::vector<c10::IValue> results;
  recording_->replay(none, results);
  for (const at::Tensor& tensor : written_) {
    bump(tensor);
  }
}

// ---- the capture ----

Capture::Capture(c10::Stream stream)
    : stream_(stream),
      graph_(new CapturedGraph),
      maker_(*graph_->recording_, {}) {
  for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
    follow(default_generator(i));
  }
}

void Capture::follow(const at::Generator& generator) {
  graph_->random_.follow(generator);
}

void Capture::refuse_reads(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  if (reads(op, arguments)) {
    refuse_in_capture(stream_, c10::toString(op.operator_name()).c_str());
  }
}

void Capture::keep(const at::Tensor& written) {
  const auto is_same = [&](const at::Tensor& tensor) {
    return tensor.is_same(written);
  };
  if (std::ranges::none_of(graph_->written_, is_same)) {
    graph_->written_.push_back(written);
  }
  const c10::Storage& storage = written.storage();
  const bool known = std::ranges::any_of(before_, [&](const auto& kept) {
    return kept.first.storage().is_alias_of(storage);
  });
  if (!known) {
    const at::Tensor whole = whole_of(storage);
    before_.emplace_back(whole, whole.clone());
  }
}

void Capture::note_random_states() {
  for (const std::function<void()>& set_again : graph_->random_.changes()) {
    maker_.call_host(
        graph_->program_,
        kRandomState,
        [set_again](auto&&) {
          set_again();
          return c10::IValue();
        },
        {},
        {});
  }
}

void Capture::call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto n = static_cast<std::size_t>(op.schema().arguments().size());
  const c10::ArrayRef<c10::IValue> arguments(
      stack.data() + stack.size() - n, n);
  refuse_reads(op, arguments);
  check_have_memory(arguments, op);
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator() &&
        argument.toGenerator().device().type() == kDeviceType) {
      follow(argument.toGenerator());
    }
  }
  note_random_states();
  const auto on_write = [this](const at::Tensor& tensor) { keep(tensor); };
  if (op.schema().name() == "aten::_lazy_clone") {
    // Two tensors with one address could not be told apart.
    static const c10::OperatorHandle clone =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
    stack.emplace_back();
    maker_.call(graph_->program_, clone, stack, on_write);
  } else {
    maker_.call(graph_->program_, op, stack, on_write);
  }
  graph_->random_.note_call();
}

// Its replay becomes a part of this graph's.
void Capture::replay(const std::shared_ptr<CapturedGraph>& other) {
  note_random_states();
  std::vector<at::Tensor> memory;
  for (const c10::Storage& storage : other->recording_->held_memory()) {
    memory.push_back(whole_of(storage));
  }
  maker_.call_host(
      graph_->program_,
      kReplay,
      [other](auto&&) {
        other->replay();
        return c10::IValue();
      },
      memory,
      [this](const at::Tensor& tensor) { keep(tensor); });
  other->replay();
  graph_->random_.note_call();
}

void Capture::restore() {
  for (auto kept = before_.rbegin(); kept != before_.rend(); ++kept) {
    kept->first.copy_(kept->second);
  }
  before_.clear();
  graph_->random_.restore();
  // Other streams do not wait for the one that was captured.
  synchronize_stream(stream_);
}

std::shared_ptr<CapturedGraph> Capture::finish() {
  note_random_states();
  restore();
  graph_->program_.finish({});
  maker_.finish_capture();
  for (const c10::Storage& storage : graph_->recording_->held_memory()) {
    graph_->memory_.push_back(whole_of(storage));
  }
  return graph_;
}

}  // namespace npu::graph
