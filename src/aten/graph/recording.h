// SPDX-License-Identifier: Apache-2.0
// One recorded run of a program: which instructions became frames, and how the
// values of the others are made again.
//
// An instruction is a *frame* instruction when all it did was seen by the
// Recorder and every pointer leads to memory whose owner is known. A *view*
// did nothing and its results show memory that is known. Everything else is an
// *island* and is called again at every replay: what the CPU read, random
// numbers, operators with numbers that come from the graph, tensors of other
// devices. A *host call* (host_call.h) is an island that the CPU computed on
// memory it can always see: its kernel is called without what is around it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "aten/graph/host_call.h"
#include "aten/graph/program.h"
#include "graph/device_graph.h"
#include "graph/graph.h"

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
  std::vector<Spec> items;

  bool describes(const at::Tensor& tensor) const;
  // The same wherever the tensor is.
  bool has_geometry(const at::Tensor& tensor) const;
};

// What has to be equal for a recording to serve a call.
struct InputKey {
  bool tensor = false;
  Spec spec;                   // buffer: the first input with the same storage
  std::uint8_t alignment = 0;  // of its data: lowest bit set, at most 256
  std::size_t bytes = 0;       // of its storage: views may reach over all of it
  bool matches(const c10::IValue& value) const;
};

struct Step {
  enum Kind : std::uint8_t { kFrames, kIsland, kNumbers, kHost };
  Kind kind = kIsland;
  c10::DeviceIndex device = 0;
  std::uint32_t instruction = 0;
  std::uint32_t first = 0;  // nodes
  std::uint32_t last = 0;
  std::vector<BufferId> starts;     // bound buffers to be allocated before
  std::vector<BufferId> ends;       // storages nobody needs after
  std::vector<Register> arguments;  // of an island: values to be made before
  std::vector<Register> written;    // inputs whose version changes
  std::vector<Spec> results;        // of islands: what came, to be checked
  std::vector<BufferId> fresh;      // ... and the buffers that are its storages
  std::vector<Register> drops;      // values nobody reads after
  std::vector<std::uint32_t> numbered;  // nodes that get numbers before
  bool ends_arena = false;
  std::unique_ptr<HostCall> call;  // of kHost
};

// CPU tensors of one element whose values go with a frame, one per entry.
struct NumberList {
  std::vector<Register> registers;
  c10::ScalarType dtype = c10::kFloat;

  // The number that a register holds now; nothing when it holds anything else.
  static std::optional<double> read(
      const c10::IValue& value, c10::ScalarType dtype);
};

// Steps in a row that are one graph of the device.
struct Segment {
  std::size_t first = 0;  // steps
  std::size_t last = 0;
  std::unique_ptr<DeviceGraph> graph;  // null after the driver failed to record
};

class Recording {
 public:
  // `device_graphs`: frames go into graphs of the device where the driver has
  // them. The recording then keeps its memory from replay to replay; for
  // programs whose inputs stay where they are and that give nothing back.
  Recording(
      const Program& program,
      const std::vector<c10::IValue>& inputs,
      bool device_graphs = false);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Runs the program and records it. Throws what the program throws; the
  // recording is then of no use.
  std::vector<c10::IValue> record(std::vector<c10::IValue> inputs);

  bool matches(const std::vector<c10::IValue>& inputs) const;

  // One at a time: frames are bound in place. False, and nothing was done, when
  // another thread is inside.
  bool replay(
      std::vector<c10::IValue>& inputs, std::vector<c10::IValue>& results);

  struct Counts {
    std::uint32_t frames = 0;
    std::uint32_t islands = 0;
    std::uint32_t views = 0;
    std::uint32_t host_calls = 0;
    std::uint32_t copies_removed = 0;
    std::uint32_t dead_removed = 0;
    std::uint32_t reused = 0;
    std::uint32_t tiled = 0;
    std::uint32_t device_graphs = 0;
    std::uint32_t fused = 0;     // frames that became parts of programs
    std::uint32_t programs = 0;  // ... and these
    std::uint64_t arena_bytes = 0;
    std::uint64_t unshared_bytes = 0;
  };
  const Counts& counts() const noexcept {
    return counts_;
  }
  // Replays that found results of other sizes and went on without the rest.
  std::uint64_t left() const noexcept {
    return left_;
  }

 private:
  class Maker;
  class Replay;

  bool share_alike(const std::vector<c10::IValue>& inputs) const;

  const Program& program_;
  std::vector<InputKey> key_;
  std::uint64_t settings_ = 0;  // of the process, baked into frames
  Graph graph_;
  std::vector<Step> steps_;
  std::vector<Spec> specs_;              // by register
  std::vector<BufferId> input_buffers_;  // by input; kNoBuffer
  std::vector<NumberList> numbers_;
  std::vector<Register> same_;             // inputs that other registers are
  std::vector<c10::DeviceIndex> devices_;  // by buffer
  HostStorages host_;
  // With graphs of the device: the memory they were recorded with, which has to
  // be there longer than they are.
  const bool device_graphs_;
  std::shared_ptr<c10::DataPtr> kept_arena_;
  std::vector<c10::Storage> kept_;    // by buffer
  std::vector<c10::Storage> inputs_;  // by input buffer
  std::vector<Segment> segments_;
  c10::DeviceIndex arena_device_ = 0;
  Counts counts_;
  std::mutex busy_;
  std::atomic<std::uint64_t> left_{0};
};

}  // namespace npu::graph
