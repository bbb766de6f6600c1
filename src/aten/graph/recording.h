// SPDX-License-Identifier: Apache-2.0
// One recorded run of a program: which instructions became frames, and how the
// values of the others are made again.
//
// An instruction is a *frame* instruction when all it did was seen by the
// Recorder and every pointer leads to memory whose owner is known. A *view*
// launches no work; its results alias known buffers. Everything else is an
// *island* and is called again at every replay: operators that the CPU
// computed, operators with numbers that come from the graph, tensors of other
// devices. A *direct call* (direct_call.h) is such an operator whose kernel is
// called without the dispatcher.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "aten/graph/direct_call.h"
#include "aten/graph/traced_graph.h"
#include "graph/device_graph.h"
#include "graph/graph.h"
#include "runtime/generator.h"

namespace npu::graph {

// How a register's value is made at replay.
struct Spec {
  enum Kind : std::uint8_t {
    kHeld,    // the register holds it: an input, a result of an island
    kTensor,  // a tensor over a buffer
    kList,    // tensors over buffers
    kSame,    // the very object of an input
  };
  Kind kind = kHeld;
  Register same = -1;
  BufferId buffer = 0;
  std::int64_t offset = 0;  // in elements
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::DeviceIndex device = 0;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  bool conjugate = false;  // lazy bits, of tensors that a capture saw
  bool negative = false;
  std::vector<Spec> items;

  bool describes(const at::Tensor& tensor) const;
  // The same wherever the tensor is.
  bool has_geometry(const at::Tensor& tensor) const;
};

// Random numbers that frames draw: every run of them reserves as many words
// anew, in the order of the graph, so that the numbers are those of eager mode.
struct Draw {
  c10::intrusive_ptr<Generator> generator;
  std::uint64_t words = 0;
};

// What the whole process has set and frames have inside.
std::uint64_t process_settings();

// Whether two storages among these inputs hold the same memory, in part or as a
// whole: a slice that came through DLPack, for instance. A recording tells
// memory apart by storages, so it serves no such inputs.
bool storages_overlap(const std::vector<c10::IValue>& inputs);
// The same for storages, all of which are different ones.
bool storages_overlap(const std::vector<c10::Storage>& storages);
// The same between one of them and the others.
bool overlaps_another(
    const std::vector<c10::IValue>& inputs, std::size_t place);

// One input in the key of a recording.
struct InputKey {
  bool tensor = false;
  Spec spec;                   // buffer: the first input with the same storage
  std::uint8_t alignment = 0;  // of its data: lowest bit set, at most 256
  std::size_t bytes = 0;       // of its storage: views may reach over all of it
  bool matches(const c10::IValue& value) const;
};

struct Step {
  enum Kind : std::uint8_t { kFrames, kIsland, kNumbers, kDirect };
  Kind kind = kIsland;
  c10::DeviceIndex device = 0;
  std::uint32_t instruction = 0;
  std::uint32_t first = 0;  // nodes
  std::uint32_t last = 0;
  std::vector<BufferId> starts;     // bound buffers to be allocated before
  std::vector<BufferId> ends;       // storages not needed after
  std::vector<Register> arguments;  // of an island: values to be made before
  std::vector<Register> written;    // inputs whose version changes
  std::vector<Spec> results;        // of islands: what came, to be checked
  std::vector<BufferId> fresh;      // ... and the buffers that are its storages
  std::vector<Register> drops;      // values not read after
  std::vector<std::uint32_t> numbered;  // nodes that get numbers before
  // Draws to be made before, also those whose frames a pass removed, and the
  // nodes that use them.
  struct DrawnNodes {
    std::uint32_t draw;
    std::vector<std::uint32_t> nodes;
  };
  std::vector<DrawnNodes> draws;
  bool ends_arena = false;
  std::unique_ptr<DirectCall> call;  // of kDirect
};

// CPU tensors of one element whose values go with a frame, one per entry.
struct NumberList {
  std::vector<Register> registers;
  c10::ScalarType dtype = c10::kFloat;

  // The number that a register holds now; nothing when it holds anything else.
  static std::optional<double> read(
      const c10::IValue& value, c10::ScalarType dtype);
};

// Steps in a row that the driver can run as one graph of the device.
struct Segment {
  // A graph with the addresses and the stream it was recorded for.
  struct Exec {
    npu_stream stream = nullptr;
    c10::DataPtr words;  // seed and offset of each draw
    std::unique_ptr<DeviceGraph> graph;
  };
  std::size_t first = 0;  // steps
  std::size_t last = 0;
  std::vector<Exec> execs;   // the one used last is first
  bool failed = false;       // the driver failed to record it
  std::uint32_t misses = 0;  // recordings since an exec was used again
  std::uint32_t pause = 0;   // runs that go frame by frame
};

// Memory that a captured graph uses where it is.
struct Held {
  BufferId buffer = 0;
  at::Tensor tensor;     // from before the capture, or
  c10::Storage storage;  // the graph's own

  // Where it is now. Throws when it has fewer than `bytes` bytes by now.
  const c10::Storage& now(std::uint64_t bytes) const;
};

class Recording {
 public:
  class Maker;

  Recording(const TracedGraph& program, const std::vector<c10::IValue>& inputs);
  // Of a capture (capture.h), which makes it call by call: no inputs, no
  // outputs, all memory is held. Where the driver has graphs, the memory in
  // between stays the same from replay to replay too.
  explicit Recording(const TracedGraph& program);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Runs the program and records it. Throws what the program throws; the
  // recording is then of no use.
  std::vector<c10::IValue> record(std::vector<c10::IValue> inputs);

  // `settings`: process_settings() now.
  bool matches(
      const std::vector<c10::IValue>& inputs, std::uint64_t settings) const;

  // One at a time: frames are bound in place. False, and nothing was done, when
  // another thread is inside.
  bool replay(
      std::vector<c10::IValue>& inputs, std::vector<c10::IValue>& results);

  // Of a capture.
  std::vector<c10::Storage> held_memory() const;
  // Whether it is a tensor's that was there before.
  bool is_outside(const c10::Storage& storage) const;

  struct Counts {
    std::uint32_t frames = 0;
    std::uint32_t islands = 0;
    std::uint32_t views = 0;
    std::uint32_t host_calls = 0;
    std::uint32_t device_graphs = 0;
    // Of passes, by name: a pass that did not run has none.
    std::vector<std::pair<const char*, std::uint32_t>> passes;
    std::uint64_t arena_bytes = 0;
    std::uint64_t unshared_bytes = 0;
  };
  const Counts& counts() const noexcept {
    return counts_;
  }
  // Replays that were abandoned because results had other sizes.
  std::uint64_t left() const noexcept {
    return left_;
  }

 private:
  class Replay;

  bool share_alike(const std::vector<c10::IValue>& inputs) const;

  const TracedGraph& program_;
  std::vector<InputKey> key_;
  std::uint64_t settings_ = 0;  // of the process, baked into frames
  Graph graph_;
  std::vector<Step> steps_;
  std::vector<Spec> specs_;              // by register
  std::vector<BufferId> input_buffers_;  // by input; kNoBuffer
  std::vector<NumberList> numbers_;
  std::vector<Draw> draws_;
  std::vector<Register> same_;             // inputs that other registers are
  std::vector<c10::DeviceIndex> devices_;  // by buffer
  std::unique_ptr<DirectCalls> direct_;    // null: there are none
  // Of a capture: its memory, CPU tensors that calls of it read.
  const bool captured_;
  std::vector<Held> held_;
  std::vector<bool> is_held_;  // by buffer
  std::vector<std::pair<Register, c10::IValue>> constants_;
  // The memory that graphs of the device were recorded with: destroyed after
  // them.
  std::shared_ptr<c10::DataPtr> kept_arena_;
  std::vector<c10::Storage> kept_;  // by buffer
  std::vector<Segment> segments_;
  c10::DeviceIndex arena_device_ = 0;
  Counts counts_;
  std::mutex busy_;
  std::atomic<std::uint64_t> left_{0};
};

}  // namespace npu::graph
