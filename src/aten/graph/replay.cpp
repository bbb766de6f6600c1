// SPDX-License-Identifier: Apache-2.0
// Running a recording again.
#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "aten/core/queue.h"
#include "aten/core/runner.h"
#include "aten/graph/maker.h"
#include "driver/registry.h"
#include "npu/kinds.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/pinned.h"
#include "runtime/storage.h"
#include "runtime/stream.h"

namespace npu::graph {
namespace {

// Graphs of the device that a segment keeps, for as many sets of addresses.
constexpr std::size_t kMostExecs = 4;
// Where so many runs in a row had new addresses, some go frame by frame:
// recording costs more than it saves.
constexpr std::uint32_t kMostMisses = 8;
constexpr std::uint32_t kPause = 64;
// Of a draw: seed and offset.
constexpr std::size_t kWordBytes = 2 * sizeof(std::uint64_t);

// The driver does not take a frame any more, and nothing of its step ran.
struct Declined {};

bool is_program(const npu_call& frame) {
  return frame.slot == NPU_KIND_PROGRAM || frame.slot == NPU_KIND_MULTI_PROGRAM;
}

// Memory of the arena as a storage, for a run that leaves the recording.
c10::Storage storage_in(
    const std::shared_ptr<c10::DataPtr>& arena,
    void* data,
    std::uint64_t bytes,
    c10::DeviceIndex device) {
  auto* const owner = new std::shared_ptr<c10::DataPtr>(arena);
  c10::DataPtr pointer(
      data,
      owner,
      [](void* held) {
        delete static_cast<std::shared_ptr<c10::DataPtr>*>(held);
      },
      c10::Device(c10::DeviceType::PrivateUse1, device));
  return c10::Storage(
      c10::Storage::use_byte_size_t(), bytes, std::move(pointer), nullptr);
}

}  // namespace

class Recording::Replay final : public Launcher {
 public:
  Replay(Recording& recording, std::vector<c10::IValue>&& inputs)
      : r_(recording), registers_(std::move(inputs)) {
    take_memory();
    registers_.resize(r_.program_.n_registers());
    for (const Register at : r_.same_) {
      same_.emplace(at, registers_[at]);
    }
    for (const auto& [at, value] : r_.constants_) {
      registers_[at] = value;
    }
  }

  std::vector<c10::IValue> run() {
    const std::vector<Step>& steps = r_.steps_;
    auto segment = r_.segments_.begin();
    for (std::size_t i = 0; i < steps.size();) {
      if (segment != r_.segments_.end() && segment->first == i &&
          launch(*segment++)) {
        for (const std::size_t last = std::prev(segment)->last; i < last;) {
          finish_step(steps[i++]);
        }
        continue;
      }
      if (!run_step(steps[i])) {
        return leave(left_at_);
      }
      finish_step(steps[i++]);
    }
    std::vector<c10::IValue> results;
    for (const Operand& output : r_.program_.outputs()) {
      if (output.kind == Operand::kRegister) {
        make(output.index);
      }
      results.push_back(value_of(output, registers_));
    }
    return results;
  }

  void frame(const npu_call& frame) override {
    if (frame.host_workspace_bytes == 0) {
      run_frame(frame);
      return;
    }
    const c10::DataPtr memory =
        pinned_allocator()->allocate(frame.host_workspace_bytes);
    npu_call call = frame;
    call.host_workspace = memory.get();
    run_frame(call);
    record_pinned(memory.get(), memory.get_context(), current_stream(device_));
  }
  void run_frame(const npu_call& frame) {
    const npu_status status = queue_frame(frame, device_);
    // Operations of a program are those of several steps: none may be left out.
    if (status == NPU_E_UNSUPPORTED && is_program(frame) &&
        run_in_parts(frame, device_)) {
      queued_ = true;
      return;
    }
    if (status == NPU_E_UNSUPPORTED && !queued_ && !is_program(frame)) {
      throw Declined{};
    }
    check_driver(status, frame.label);
    queued_ = true;
  }
  void bytes(const BytesNode& node, void* to, const void* from) override {
    if (node.set) {
      queue_zeros(to, node.bytes, device_, "set bytes");
    } else {
      queue_copy(
          ByteWork::kOnDevice, to, from, node.bytes, device_, "copy bytes");
    }
    queued_ = true;
  }

 private:
  void finish_step(const Step& step) {
    for (const BufferId id : step.ends) {
      storages_[id] = c10::Storage();
      cpu_results_[id] = c10::Storage();
    }
    for (const Register at : step.drops) {
      registers_[at] = c10::IValue();
    }
    if (step.ends_arena) {
      arena_.reset();
    }
  }

  // The steps as a graph of the device, recorded again where memory is
  // elsewhere now. False, and nothing ran, when it has to go frame by frame.
  bool launch(Segment& segment) {
    if (segment.failed || segment.pause != 0) {
      segment.pause -= segment.pause != 0 ? 1 : 0;
      return false;
    }
    const std::span<const Step> steps(
        r_.steps_.data() + segment.first, segment.last - segment.first);
    for (const Step& step : steps) {
      take_starts(step);
    }
    const c10::DeviceIndex device = steps.front().device;
    const npu_stream stream = current_stream_handle(device);
    const auto found =
        std::ranges::find_if(segment.execs, [&](const Segment::Exec& exec) {
          return exec.stream == stream && exec.graph->is_at(bases_);
        });
    if (found != segment.execs.end()) {
      std::rotate(segment.execs.begin(), found, found + 1);
      segment.misses = 0;
    } else if (!record(segment, steps, stream)) {
      return false;
    }
    const Segment::Exec& exec = segment.execs.front();
    give_words(exec, steps);
    check_driver(exec.graph->launch(stream), "launch of a graph");
    std::ranges::for_each(steps, [&](const Step& s) { note_written(s); });
    return true;
  }

  // The segment for the addresses of this run, as its first exec. False, once
  // and for all, when the driver cannot record it.
  bool record(
      Segment& segment, std::span<const Step> steps, npu_stream stream) {
    const c10::DeviceIndex device = steps.front().device;
    const std::size_t most = r_.captured_ ? 1 : kMostExecs;
    const auto last = std::ranges::find(
        segment.execs.rbegin(),
        segment.execs.rend(),
        stream,
        &Segment::Exec::stream);
    if (segment.execs.size() < most || last == segment.execs.rend()) {
      if (segment.execs.size() >= most) {
        segment.execs.pop_back();
      }
      Segment::Exec made;
      made.stream = stream;
      made.graph = DeviceGraph::make(active_driver(), driver_device(device));
      if (const std::size_t n = count_draws(steps)) {
        made.words = allocate(n * kWordBytes, device);
      }
      segment.execs.insert(segment.execs.begin(), std::move(made));
    } else {
      std::rotate(segment.execs.begin(), last.base() - 1, last.base());
    }
    Segment::Exec& exec = segment.execs.front();
    point_at_words(exec, steps);
    const npu_status status = exec.graph->record(
        r_.graph_,
        steps.front().first,
        steps.back().last,
        bases_,
        [&](std::uint64_t bytes) {
          return pinned_until_passed(bytes, device);
        });
    if (status != NPU_OK) {
      segment.failed = true;
      segment.execs.clear();
      TORCH_WARN_ONCE(
          "npu: graph: the driver did not record frames into a graph of the "
          "device (status ",
          status,
          "); they are run one by one.");
      return false;
    }
    ++r_.counts_.device_graphs;
    if (!r_.captured_ && ++segment.misses >= kMostMisses) {
      segment.pause = kPause;
      --segment.misses;
    }
    return true;
  }

  // Given back to the cache when the stream has passed what was queued on it.
  static std::shared_ptr<void> pinned_until_passed(
      std::uint64_t bytes, c10::DeviceIndex device) {
    auto* const memory = new c10::DataPtr(pinned_allocator()->allocate(bytes));
    return {memory->get(), [memory, stream = current_stream(device)](void*) {
              record_pinned(memory->get(), memory->get_context(), stream);
              delete memory;
            }};
  }

  // ---- random numbers ----

  static std::size_t count_draws(std::span<const Step> steps) {
    std::size_t n = 0;
    for (const Step& step : steps) {
      n += step.draws.size();
    }
    return n;
  }

  void set_rng(const Step::DrawnNodes& drawn, const npu_rng& rng) {
    for (const std::uint32_t n : drawn.nodes) {
      std::get<FrameCopy>(r_.graph_.nodes[n]).set_rng(rng);
    }
  }

  // Frames of a graph of the device read seed and offset where each launch puts
  // them.
  void point_at_words(const Segment::Exec& exec, std::span<const Step> steps) {
    auto* at = static_cast<const std::uint64_t*>(exec.words.get());
    for (const Step& step : steps) {
      for (const Step::DrawnNodes& drawn : step.draws) {
        npu_rng rng{};
        rng.seed_ptr = at;
        rng.offset_ptr = at + 1;
        set_rng(drawn, rng);
        at += 2;
      }
    }
  }

  void give_words(const Segment::Exec& exec, std::span<const Step> steps) {
    const std::size_t n = count_draws(steps);
    if (n == 0) {
      return;
    }
    const c10::DataPtr memory = pinned_allocator()->allocate(n * kWordBytes);
    auto* at = static_cast<std::uint64_t*>(memory.get());
    for (const Step& step : steps) {
      for (const Step::DrawnNodes& drawn : step.draws) {
        const npu_rng rng = reserve(drawn.draw);
        *at++ = rng.seed;
        *at++ = rng.offset;
      }
    }
    check_driver(
        active_driver().memory().copy_to_device(
            exec.stream, exec.words.get(), memory.get(), n * kWordBytes),
        "random state of a graph");
    record_pinned(
        memory.get(),
        memory.get_context(),
        current_stream(steps.front().device));
  }

  npu_rng reserve(std::uint32_t draw) {
    return r_.draws_[draw].generator->reserve(r_.draws_[draw].words);
  }

  void draw_numbers(const Step& step) {
    drawn_.clear();
    for (const Step::DrawnNodes& drawn : step.draws) {
      const npu_rng rng = reserve(drawn.draw);
      drawn_.emplace_back(r_.draws_[drawn.draw].generator.get(), rng);
      set_rng(drawn, rng);
    }
  }

  // Of a step that will run again: it draws the same numbers then.
  void take_back_numbers() {
    for (auto drawn = drawn_.rbegin(); drawn != drawn_.rend(); ++drawn) {
      drawn->first->set_offset(drawn->second.offset);
    }
  }

  bool keeps() const {
    return r_.captured_ && !r_.segments_.empty();
  }

  // The arena, and where the inputs are.
  void take_memory() {
    const std::vector<Buffer>& buffers = r_.graph_.buffers;
    bases_.assign(buffers.size(), nullptr);
    storages_.resize(buffers.size());
    cpu_results_.resize(buffers.size());
    versions_.resize(r_.input_buffers_.size());
    if (r_.graph_.arena_bytes != 0) {
      arena_ = r_.kept_arena_ != nullptr
                   ? r_.kept_arena_
                   : std::make_shared<c10::DataPtr>(
                         allocate(r_.graph_.arena_bytes, r_.arena_device_));
      r_.kept_arena_ = keeps() ? arena_ : nullptr;
      auto* const start = static_cast<std::byte*>(arena_->get());
      for (BufferId id = 0; id < buffers.size(); ++id) {
        if (buffers[id].kind == Buffer::kLocal) {
          bases_[id] = start + buffers[id].offset;
          show(id, bases_[id]);
        }
      }
    }
    for (const Held& held : r_.held_) {
      hold(held.buffer, held.now(buffers[held.buffer].bytes));
      if (keeps()) {
        r_.kept_.resize(buffers.size());
        r_.kept_[held.buffer] = storages_[held.buffer];
      }
    }
    for (std::size_t i = 0; i < r_.input_buffers_.size(); ++i) {
      const BufferId id = r_.input_buffers_[i];
      if (id != kNoBuffer) {
        const at::Tensor& tensor = registers_[i].toTensor();
        hold(id, tensor.storage());
        versions_[i] = tensor.unsafeGetTensorImpl()->version_counter();
      }
    }
  }

  void take_starts(const Step& step) {
    for (const BufferId id : step.starts) {
      if (!storages_[id]) {
        take_storage(id);
      }
    }
  }

  // Memory of its own; in the arena for what leaves the recording.
  void take_storage(BufferId id) {
    const Buffer& buffer = r_.graph_.buffers[id];
    if (cpu_results_[id]) {
      hold(
          id,
          r_.direct_->to_device(std::move(cpu_results_[id]), r_.devices_[id]));
      return;
    }
    if (keeps() && buffer.kind == Buffer::kBound) {
      r_.kept_.resize(r_.graph_.buffers.size());
      if (!r_.kept_[id]) {
        r_.kept_[id] = make_storage(buffer.bytes, r_.devices_[id]);
      }
      hold(id, r_.kept_[id]);
      return;
    }
    hold(
        id,
        buffer.kind == Buffer::kLocal && buffer.used && arena_ != nullptr
            ? storage_in(arena_, bases_[id], buffer.bytes, r_.devices_[id])
            : c10::Storage(make_storage(buffer.bytes, r_.devices_[id])));
  }

  void show(BufferId id, void* data) {
    if (r_.direct_ != nullptr) {
      r_.direct_->point(id, data);
    }
  }

  void hold(BufferId id, const c10::Storage& storage) {
    storages_[id] = storage;
    bases_[id] = storage.mutable_data();
    show(id, bases_[id]);
  }

  // False: go on without the recording, from instruction left_at_.
  bool run_step(const Step& step) {
    left_at_ = step.instruction + 1;
    stopped_at_ = step.instruction;
    const Instruction& instruction =
        r_.program_.instructions()[step.instruction];
    if (step.kind == Step::kNumbers) {
      r_.program_.execute(instruction, registers_, scope_);
      return true;
    }
    if (step.kind == Step::kIsland) {
      for (const Register at : step.arguments) {
        make(at);
      }
      r_.program_.execute(instruction, registers_, scope_);
      return take_results(step, instruction);
    }
    take_starts(step);
    if (step.kind == Step::kDirect) {
      step.call->run(stack_, registers_, step.device);
      note_written(step);
      const bool taken = step.call->writes_results() ||
                         !instruction.target->written.empty() ||
                         take_direct_results(step, instruction);
      stack_.clear();
      return taken;
    }
    if (!give_numbers(step)) {
      left_at_ = step.instruction;
      return false;
    }
    device_ = step.device;
    queued_ = false;
    draw_numbers(step);
    try {
      run_nodes(r_.graph_, step.first, step.last, bases_, *this);
    } catch (const Declined&) {
      take_back_numbers();
      left_at_ = step.instruction;
      return false;
    }
    note_written(step);
    return true;
  }

  // False: a register holds no such number any more.
  bool give_numbers(const Step& step) {
    for (const std::uint32_t n : step.numbered) {
      auto& frame = std::get<FrameCopy>(r_.graph_.nodes[n]);
      const FrameCopy::Numbers& numbers = frame.numbers();
      const NumberList& list = r_.numbers_[numbers.source];
      for (std::uint32_t i = 0; i < numbers.n; ++i) {
        const std::optional<double> value = NumberList::read(
            registers_[list.registers[numbers.first + i]], list.dtype);
        if (!value) {
          return false;
        }
        frame.set_number(i, *value);
      }
    }
    return true;
  }

  void note_written(const Step& step) {
    for (const Register at : step.written) {
      if (versions_[at].enabled()) {
        versions_[at].bump();
      }
    }
  }

  // Results that a CPU kernel made, in memory of the device's pool.
  bool take_direct_results(const Step& step, const Instruction& instruction) {
    bool same = true;
    std::vector<BufferId> given;
    for (std::size_t k = 0; k < step.results.size(); ++k) {
      c10::IValue& place =
          registers_[instruction.result + static_cast<Register>(k)];
      const std::int32_t from = step.call->result_of(k);
      if (from < 0) {
        place = fresh_copy(step.call->constant(k));
        continue;
      }
      const Spec& spec = step.results[k];
      const at::Tensor& tensor = stack_[from].toTensor();
      if (spec.kind == Spec::kHeld || !tensor.defined()) {
        same = same && spec.kind == Spec::kHeld && !tensor.defined();
        place = tensor;
        continue;
      }
      same = same && spec.has_geometry(tensor);
      if (is_held(spec.buffer)) {
        if (std::ranges::find(given, spec.buffer) == given.end()) {
          give(
              spec.buffer,
              r_.direct_->to_device(tensor.storage(), step.device));
          given.push_back(spec.buffer);
        }
        continue;
      }
      cpu_results_[spec.buffer] = tensor.storage();
      bases_[spec.buffer] = tensor.storage().mutable_data();
      show(spec.buffer, bases_[spec.buffer]);
    }
    return same || give_direct_results(step, instruction);
  }

  bool is_held(BufferId id) const {
    return id < r_.is_held_.size() && r_.is_held_[id];
  }

  // A result into memory where a capture promised it.
  void give(BufferId id, const c10::Storage& made) {
    queue_copy(
        ByteWork::kOnDevice,
        bases_[id],
        made.data(),
        std::min<std::uint64_t>(r_.graph_.buffers[id].bytes, made.nbytes()),
        r_.devices_[id],
        "result of a captured graph");
  }

  // They are not what was recorded: the program goes on with them.
  bool give_direct_results(const Step& step, const Instruction& instruction) {
    std::map<const c10::StorageImpl*, c10::Storage> moved;
    for (std::size_t k = 0; k < step.results.size(); ++k) {
      const std::int32_t from = step.call->result_of(k);
      if (from < 0 || !stack_[from].toTensor().defined()) {
        continue;
      }
      const at::Tensor cpu = stack_[from].toTensor();
      const c10::StorageImpl* const key = cpu.storage().unsafeGetStorageImpl();
      c10::Storage& storage = moved[key];
      if (!storage) {
        storage = r_.direct_->to_device(cpu.storage(), step.device);
      }
      Spec spec = spec_of(cpu);
      registers_[instruction.result + static_cast<Register>(k)] =
          tensor_over(storage, spec);
    }
    return false;
  }

  // Callers tell tensors apart.
  static c10::IValue fresh_copy(const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) {
      return value;
    }
    return at::Tensor(
        value.toTensor().unsafeGetTensorImpl()->shallow_copy_and_detach(
            c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
  }

  // Results of an island have to be what they were when frames were recorded.
  bool take_results(const Step& step, const Instruction& instruction) {
    for (std::size_t k = 0; k < step.results.size(); ++k) {
      if (!take_result(
              step,
              step.results[k],
              registers_[instruction.result + static_cast<Register>(k)])) {
        return false;
      }
    }
    return true;
  }

  bool take_result(
      const Step& step, const Spec& spec, const c10::IValue& value) {
    if (spec.kind == Spec::kList) {
      if (!value.isList() || value.toListRef().size() != spec.items.size()) {
        return false;
      }
      for (std::size_t i = 0; i < spec.items.size(); ++i) {
        if (!take_result(step, spec.items[i], value.toListRef()[i])) {
          return false;
        }
      }
      return true;
    }
    if (spec.kind != Spec::kTensor) {
      return true;
    }
    if (!value.isTensor() || !value.toTensor().defined() ||
        !spec.describes(value.toTensor())) {
      return false;
    }
    const c10::Storage& storage = value.toTensor().storage();
    if (std::ranges::find(step.fresh, spec.buffer) == step.fresh.end()) {
      return storage.data() == bases_[spec.buffer];
    }
    if (!is_held(spec.buffer)) {
      hold(spec.buffer, storage);
    } else if (storage.data() != bases_[spec.buffer]) {
      give(spec.buffer, storage);
    }
    return true;
  }

  // The value of a register that an island or the caller wants to see.
  void make(Register at) {
    const Spec& spec = r_.specs_[at];
    if (spec.kind == Spec::kHeld || !registers_[at].isNone()) {
      return;
    }
    if (spec.kind == Spec::kList) {
      c10::impl::GenericList list(c10::TensorType::get());
      for (const Spec& item : spec.items) {
        list.push_back(tensor_of(item));
      }
      registers_[at] = list;
      return;
    }
    registers_[at] = tensor_of(spec);
  }

  c10::IValue tensor_of(const Spec& spec) {
    if (spec.kind == Spec::kSame) {
      return same_.at(spec.same);
    }
    if (!storages_[spec.buffer]) {
      take_storage(spec.buffer);
    }
    const at::Tensor tensor = tensor_over(storages_[spec.buffer], spec);
    share_input_version(spec.buffer, *tensor.unsafeGetTensorImpl());
    return tensor;
  }

  static at::Tensor tensor_over(c10::Storage storage, const Spec& spec) {
    auto impl = c10::make_intrusive<c10::TensorImpl>(
        std::move(storage),
        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        c10::scalarTypeToTypeMeta(spec.dtype));
    impl->set_sizes_and_strides(spec.sizes, spec.strides, spec.offset);
    at::Tensor made(std::move(impl));
    made._set_conj(spec.conjugate);
    made._set_neg(spec.negative);
    return made;
  }

  // Autograd notices when an input is written after a view of it was saved.
  void share_input_version(BufferId buffer, c10::TensorImpl& impl) {
    for (std::size_t i = 0; i < r_.input_buffers_.size(); ++i) {
      if (r_.input_buffers_[i] == buffer && versions_[i].enabled() &&
          !impl.is_inference()) {
        impl.set_version_counter(versions_[i]);
        return;
      }
    }
  }

  std::vector<c10::IValue> leave(std::uint32_t instruction) {
    ++r_.left_;
    const std::vector<Instruction>& all = r_.program_.instructions();
    // What a capture left out, views for instance, cannot be run.
    TORCH_CHECK(
        !r_.captured_,
        "NPUGraph.replay: ",
        all[stopped_at_].name,
        " cannot be run as it was captured: the driver does not take it any "
        "more, or its results have other sizes. Capture a new graph.",
        ops_error(Code::kInternal));
    for (Register at = 0; at < r_.program_.n_registers(); ++at) {
      const bool exists =
          static_cast<std::size_t>(at) < r_.input_buffers_.size() ||
          (instruction != 0 &&
           at < all[instruction - 1].result +
                    static_cast<Register>(all[instruction - 1].n_results));
      if (exists &&
          r_.program_.last_read(at) >= static_cast<std::int64_t>(instruction)) {
        make(at);
      }
    }
    return r_.program_.run_from(instruction, std::move(registers_), scope_);
  }

  Recording& r_;
  const TracedGraph::Scope scope_;
  std::vector<c10::IValue> registers_;
  std::map<Register, c10::IValue> same_;
  std::vector<void*> bases_;                    // by buffer
  std::vector<c10::Storage> storages_;          // by buffer
  std::vector<c10::Storage> cpu_results_;       // by buffer: the CPU's
  torch::jit::Stack stack_;                     // of host calls
  std::vector<c10::VariableVersion> versions_;  // by input
  std::shared_ptr<c10::DataPtr> arena_;
  std::vector<std::pair<Generator*, npu_rng>> drawn_;  // of a step
  c10::DeviceIndex device_ = 0;
  std::uint32_t left_at_ = 0;
  std::uint32_t stopped_at_ = 0;
  bool queued_ = false;
};

bool Recording::replay(
    std::vector<c10::IValue>& inputs, std::vector<c10::IValue>& results) {
  const std::unique_lock<std::mutex> mine(busy_, std::try_to_lock);
  if (!mine.owns_lock()) {
    return false;
  }
  Replay replay(*this, std::move(inputs));
  results = replay.run();
  return true;
}

}  // namespace npu::graph
