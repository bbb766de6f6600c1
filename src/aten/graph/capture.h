// SPDX-License-Identifier: Apache-2.0
// Operators called between the begin and the end of a capture
// (torch.npu.NPUGraph), recorded while they run.
//
// Note [Captures]
// A compiled graph is recorded from a traced graph and replayed for other
// inputs. A capture is recorded from the calls of a program and replayed on the
// same memory. Recorder, nodes, passes, memory plan and replay are the same
// (recording.h); what differs is how the recording comes to be:
//
// - There are no inputs and no outputs. All memory that was there before the
//   capture, and all that the program still references at its end, is held by
//   the graph and used where it is. The rest is the arena's.
// - Frames name memory, so calls without work (views, memory that is only
//   allocated) leave no trace. An island or a direct call gets its tensors made
//   anew over the memory they showed.
// - The calls run while they are captured, so that sizes are real. What they
//   wrote to memory of others is put back at the end, and so are generators:
//   nothing runs while a device graph is captured.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "aten/graph/captured_random.h"
#include "aten/graph/maker.h"
#include "aten/graph/recording.h"
#include "aten/graph/traced_graph.h"

namespace npu::graph {

class CapturedGraph {
 public:
  // On the current streams.
  void replay();
  // The operators, in order.
  std::vector<std::string> names() const;
  Recording::Counts counts() const {
    return recording_->counts();
  }

 private:
  friend class Capture;
  CapturedGraph();

  std::mutex mutex_;
  TracedGraph program_;
  std::unique_ptr<Recording> recording_;
  CapturedRandom random_;
  // Tensors from before the capture: replays increase their versions.
  std::vector<at::Tensor> written_;
  // What it holds, for the sanitizer: all bytes of each storage.
  std::vector<at::Tensor> memory_;

  void show_to_sanitizer() const;
};

class Capture {
 public:
  // `stream` is the one that runtime/capture_state.h knows to be captured.
  explicit Capture(c10::Stream stream);
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Runs the operator on the stack, below autograd, and records it. Throws what
  // the operator throws, and for calls whose result the host would have to
  // know. One thread at a time.
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  // Replays another graph, now and at every replay of this one.
  void replay(const std::shared_ptr<CapturedGraph>& other);
  // Replays draw from the generator as eager mode does. Those of the devices
  // and those that a call gets are followed anyway.
  void follow(const at::Generator& generator);
  // What was written outside, and generators, as they were before.
  void restore();
  // Restores, and gives the graph. Last call.
  std::shared_ptr<CapturedGraph> finish();

 private:
  void refuse_reads(
      const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);
  void keep(const at::Tensor& written);
  void note_random_states();

  const c10::Stream stream_;
  std::shared_ptr<CapturedGraph> graph_;
  Recording::Maker maker_;
  // Storages of others, whole, and what was in them.
  std::vector<std::pair<at::Tensor, at::Tensor>> before_;
};

}  // namespace npu::graph
