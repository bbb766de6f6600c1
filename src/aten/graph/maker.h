// SPDX-License-Identifier: Apache-2.0
// What recording.cpp needs while it records.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "aten/core/recorder.h"
#include "aten/graph/recording.h"
#include "graph/pass.h"

namespace npu::graph {

inline constexpr BufferId kNoBuffer = ~BufferId{0};

// A strided npu tensor with a storage and no lazy bits.
bool is_plain_npu(const at::Tensor& tensor);
// Its geometry; the device is -1 where it is none of ours.
Spec spec_of(const at::Tensor& tensor);

// What one instruction gave to the driver. Places of nodes are indices of
// `raw` until they are resolved.
class RecordedWork final : public Recorder {
 public:
  void clear();
  bool is_temporary(const void* pointer) const;

  void on_frame(
      const npu_call& frame,
      const PlanHandle& plan,
      c10::DeviceIndex at,
      npu_stream stream) override;
  void on_bytes(
      const ByteWork& work, c10::DeviceIndex at, npu_stream stream) override;
  void on_temporary(c10::DataPtr memory) override;

  void on_draw(
      Generator& generator, std::uint64_t words, const npu_rng& rng) override;
  // Whether frames of `nodes` use the words of every draw.
  bool has_all_draws() const;

  std::vector<Node> nodes;
  // Frames name them by their index.
  std::vector<Draw> draws;
  std::vector<std::pair<const void*, std::uint64_t>> raw;
  bool unseen = false;  // there was work that nodes do not hold
  c10::DeviceIndex device = 0;

 private:
  Ref note(const void* pointer, std::uint64_t bytes);
  void see(c10::DeviceIndex at, npu_stream stream);

  bool bind_draw(FrameCopy& frame);

  std::vector<npu_rng> reserved_;  // by draw
  std::vector<bool> drawn_;        // by draw: a frame uses it
  std::vector<c10::DataPtr> temporaries_;
  npu_stream stream_ = nullptr;
};

class Recording::Maker {
 public:
  Maker(Recording& recording, const std::vector<c10::IValue>& inputs);
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs);

  // Of a capture, call by call (capture.cpp). `program` is the recording's.
  // Runs the operator on the stack and records what it did. Before it runs,
  // `on_write` gets the tensors from before the capture that it will write.
  using OnWrite = std::function<void(const at::Tensor&)>;
  void call(
      TracedGraph& program,
      const c10::OperatorHandle& op,
      torch::jit::Stack& stack,
      const OnWrite& on_write);
  // Code that runs again at every replay, and may use the memory of these.
  void call_host(
      TracedGraph& program,
      const std::string& name,
      Instruction::HostFunction function,
      const std::vector<at::Tensor>& memory,
      const OnWrite& on_write);
  // When the program is finished: memory that is still there is held.
  void finish_capture();

 private:
  using WeakTensor =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  enum class Owner : std::uint8_t { kInput, kFrames, kIsland };
  struct Known {
    BufferId id;
    const std::byte* base;
    std::uint64_t bytes;
    // Memory that was freed may have been reused: storages die, are
    // resized, or part from a lazy clone.
    c10::weak_intrusive_ptr<c10::StorageImpl> weak;
    bool is_there() const;
  };

  void instruction(
      std::uint32_t index,
      std::vector<c10::IValue>& registers,
      const TracedGraph::Scope& scope);
  bool try_frames(
      const Instruction& instruction,
      std::uint32_t index,
      const std::vector<c10::IValue>& registers,
      const std::vector<at::Tensor>& arguments);
  // The one argument that is a list of numbers on the CPU, when all others are
  // npu tensors; empty when not.
  NumberList number_list(
      const Instruction& instruction,
      const std::vector<c10::IValue>& registers) const;
  // Whether what was seen is one frame with these numbers: it then gets them
  // at every replay.
  bool bind_numbers(const std::vector<double>& values);
  bool try_direct(
      const Instruction& instruction,
      std::uint32_t index,
      const std::vector<c10::IValue>& registers,
      const std::vector<c10::IValue>& given);
  void take_direct_results(
      const std::vector<c10::IValue>& results,
      Register first,
      Step& made,
      IslandNode& node);
  bool are_new(const std::vector<c10::IValue>& results) const;
  void item(
      const Instruction& instruction,
      std::uint32_t index,
      std::vector<c10::IValue>& registers,
      const TracedGraph::Scope& scope);
  void island(
      const Instruction& instruction,
      std::uint32_t index,
      const std::vector<c10::IValue>& registers);
  void finish();

  static bool gather(
      const c10::IValue& value, std::vector<at::Tensor>& tensors);
  void run_passes(const std::vector<BufferId>& returned);
  void move_specs(BufferId from, BufferId to);
  void forget_buffers(std::size_t kept);
  void find_drops();
  void move_steps(const std::vector<std::uint32_t>& place);
  void find_segments();
  struct CapturedCall {
    c10::OperatorHandle op;
    Register first;  // of its values
    std::vector<c10::IValue> given;
    std::vector<c10::IValue> results = {};
    std::uint64_t host_works = 0;
    bool reads_host = false;           // a tensor of the CPU's
    std::vector<double> numbers = {};  // lists of them, as they were
  };
  void add_captured(
      TracedGraph& program, const CapturedCall& call, const OnWrite& on_write);
  void record_captured(TracedGraph& program, const CapturedCall& call);
  Operand captured_operand(TracedGraph& program, const c10::IValue& value);
  Operand captured_tensor(TracedGraph& program, const at::Tensor& tensor);
  void note_growth(std::uint32_t index, Register first);
  void know_results(const std::vector<c10::IValue>& results);
  bool captured_frames(TracedGraph& program, const CapturedCall& call);
  void captured_island(
      const Instruction& instruction,
      std::uint32_t index,
      const std::vector<c10::IValue>& results);
  Spec captured_result(const c10::IValue& value, Step& made, IslandNode& node);
  void drop_arguments(TracedGraph& program, Register first);
  void forget_values(Register first);
  void note_dead_inputs();
  std::vector<std::uint64_t> held_at_nodes(
      const std::vector<BufferId>& returned) const;
  void find_starts_and_ends(const std::vector<BufferId>& returned);
  BufferId buffer_of(const c10::Storage& storage, Owner owner);
  std::optional<BufferId> known_buffer(const at::Tensor& tensor) const;
  std::optional<Ref> find(const void* pointer, std::uint64_t bytes) const;
  bool place_nodes();
  Spec result_spec(const at::Tensor& tensor, Owner owner);
  void describe_results(
      const Instruction& instruction,
      const std::vector<c10::IValue>& registers,
      Owner owner);
  void take_draws(Step& made);
  void note_written(const Instruction& instruction, Step& made);
  void mark_written(const Spec& spec, Register at, Step& made);
  void use(Register at, IslandNode& node);
  Step& step(Step::Kind kind, std::uint32_t index);

  Recording& r_;
  Graph& graph_;
  const Switches on_ = Switches::read();
  RecordedWork work_;
  std::vector<Owner> owners_;     // by buffer
  std::vector<BufferId> shared_;  // buffers that must be tensors
  std::vector<bool> aligned_;     // by buffer: begins as the allocator's do
  NumberList numbers_;            // of the instruction
  // Inputs held by others, and after how many nodes the rest were freed.
  std::vector<std::pair<BufferId, c10::weak_intrusive_ptr<c10::StorageImpl>>>
      alive_inputs_;
  std::map<BufferId, std::uint32_t> gone_after_;
  std::map<const c10::StorageImpl*, Known> storages_;
  // Of a capture: values of the call that runs now, the memory it was given as
  // it was before, and tensors of memory that was there before the capture.
  std::vector<c10::IValue> values_;
  std::vector<Known> before_;
  struct Outside {
    BufferId buffer;
    at::Tensor tensor;
    c10::Storage storage;
  };
  std::vector<Outside> outside_;
  bool in_order_ = false;  // memory overlaps: nodes stay as they are
  // By input. Weak: an input may die, and its address be reused.
  std::vector<WeakTensor> impls_;
};

}  // namespace npu::graph
