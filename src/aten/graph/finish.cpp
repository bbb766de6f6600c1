// SPDX-License-Identifier: Apache-2.0
// The end of a recording: passes, memory plan, when values come and go.
#include <algorithm>

#include "aten/graph/maker.h"
#include "driver/registry.h"
#include "graph/pass.h"
#include "runtime/device.h"

namespace npu::graph {
namespace {

// The plan of a program that the driver takes as it is.
std::optional<PlanHandle> plan_program(Call& call, std::int32_t device) {
  const npu_verdict verdict = call.plan(
      active_driver(), driver_device(static_cast<c10::DeviceIndex>(device)));
  const bool plain = verdict.answer == NPU_VERDICT_YES &&
                     verdict.workspace_bytes == 0 &&
                     verdict.host_workspace_bytes == 0;
  return plain ? std::optional(call.plan_handle()) : std::nullopt;
}

}  // namespace

// Memory that only frames use goes into the arena; the rest is allocated when
// it is first used, and given back after its last use.
void Recording::Maker::finish() {
  IslandNode outputs;
  for_each_register(r_.program_.outputs(), [&](const Operand& operand) {
    use(operand.index, outputs);
  });
  const std::vector<BufferId> returned = outputs.buffers;
  std::optional<c10::DeviceIndex> arena;
  for (BufferId id = 0; id < graph_.buffers.size(); ++id) {
    const bool frames_only = owners_[id] == Owner::kFrames &&
                             std::ranges::find(shared_, id) == shared_.end() &&
                             (!arena || *arena == r_.devices_[id]);
    graph_.buffers[id].kind = frames_only ? Buffer::kLocal : Buffer::kBound;
    if (frames_only) {
      arena = r_.devices_[id];
    }
  }
  r_.arena_device_ = arena.value_or(0);
  if (!in_order_) {
    run_passes(returned);
  }
  find_lives(graph_);
  r_.counts_.unshared_bytes = plan_memory(graph_, held_at_nodes(returned));
  r_.counts_.arena_bytes = graph_.arena_bytes;
  const std::string wrong = verify(graph_);
  TORCH_INTERNAL_ASSERT(wrong.empty(), "graph: ", wrong);
  find_drops();
  find_starts_and_ends(returned);
  if (on_.is_on("capture")) {
    find_segments();
  }
}

// What a replay holds beside the arena: what it gives back or islands made, and
// inputs that only the graph holds, such as activations saved for backward.
std::vector<std::uint64_t> Recording::Maker::held_at_nodes(
    const std::vector<BufferId>& returned) const {
  std::vector<std::uint64_t> held(graph_.nodes.size());
  for (BufferId id = 0; id < graph_.buffers.size(); ++id) {
    const Buffer& buffer = graph_.buffers[id];
    if (buffer.kind == Buffer::kLocal || r_.devices_[id] != r_.arena_device_) {
      continue;
    }
    std::size_t first = buffer.first;
    std::size_t last = buffer.used ? buffer.last + std::size_t{1} : 0;
    if (owners_[id] == Owner::kInput) {
      const auto gone = gone_after_.find(id);
      first = 0;
      last = gone == gone_after_.end() ? 0 : gone->second;
    } else if (std::ranges::find(returned, id) != returned.end()) {
      last = held.size();
    }
    for (std::size_t n = first; n < std::min(last, held.size()); ++n) {
      held[n] += allocated_bytes(buffer.bytes);
    }
  }
  return held;
}

void Recording::Maker::note_dead_inputs() {
  std::erase_if(alive_inputs_, [&](const auto& input) {
    const bool gone = input.second.expired();
    if (gone) {
      gone_after_[input.first] = static_cast<std::uint32_t>(
          std::max<std::size_t>(graph_.nodes.size(), 1));
    }
    return gone;
  });
}

void Recording::Maker::find_starts_and_ends(
    const std::vector<BufferId>& returned) {
  // The step that a node belongs to; steps and their nodes are in order.
  std::vector<Step*> step_of(graph_.nodes.size(), nullptr);
  for (Step& made : r_.steps_) {
    std::fill(step_of.begin() + made.first, step_of.begin() + made.last, &made);
  }
  for (BufferId id = 0; id < graph_.buffers.size(); ++id) {
    const Buffer& buffer = graph_.buffers[id];
    if (buffer.kind == Buffer::kLocal || !buffer.used) {
      continue;
    }
    Step* const starts = step_of[buffer.first];
    Step* const ends = step_of[buffer.last];
    if (owners_[id] == Owner::kFrames && starts != nullptr) {
      starts->starts.push_back(id);
    }
    if (ends != nullptr && std::ranges::find(returned, id) == returned.end()) {
      ends->ends.push_back(id);
    }
  }
  for (std::uint32_t n = 0; n < graph_.nodes.size(); ++n) {
    const auto* const frame = std::get_if<FrameCopy>(&graph_.nodes[n]);
    if (frame != nullptr && frame->numbers().source >= 0) {
      step_of[n]->numbered.push_back(n);
    }
    if (frame != nullptr && frame->draw() >= 0) {
      for (Step::DrawnNodes& drawn : step_of[n]->draws) {
        if (drawn.draw == static_cast<std::uint32_t>(frame->draw())) {
          drawn.nodes.push_back(n);
        }
      }
    }
  }
  if (graph_.arena_bytes != 0 && step_of[graph_.arena_last] != nullptr) {
    step_of[graph_.arena_last]->ends_arena = true;
  }
}

// Over the nodes, while nothing is planned.
void Recording::Maker::run_passes(const std::vector<BufferId>& returned) {
  aligned_.resize(graph_.buffers.size());
  PassContext context;
  for (BufferId id = 0; id < graph_.buffers.size(); ++id) {
    context.movable.push_back(
        graph_.buffers[id].kind == Buffer::kLocal &&
        std::ranges::find(returned, id) == returned.end());
  }
  context.aligned = aligned_;
  context.devices.assign(r_.devices_.begin(), r_.devices_.end());
  context.one_device = std::ranges::none_of(r_.steps_, [&](const Step& step) {
    return step.kind == Step::kFrames && step.device != r_.arena_device_;
  });
  context.caps = [](std::uint32_t slot, std::uint32_t code) {
    return active_driver().caps(slot, code);
  };
  context.plan = plan_program;
  for (const PassRun& run : graph::run_passes(graph_, context, on_)) {
    for (std::size_t i = 0; i < run.pass->counters.size(); ++i) {
      if (run.pass->counters[i] != nullptr) {
        r_.counts_.passes.emplace_back(
            run.pass->counters[i], run.stats.counts[i]);
      }
    }
    for (const Moved& moved : run.stats.moved) {
      move_specs(moved.from, moved.to);
    }
    if (!run.stats.place.empty()) {
      move_steps(run.stats.place);
    }
  }
}

// Of nodes that a pass put together, the first step does all; the other steps
// are empty. What it needs is there by then: only frames are among them.
void Recording::Maker::move_steps(const std::vector<std::uint32_t>& place) {
  for (Step& step : r_.steps_) {
    step.first = place[step.first];
    step.last = place[step.last];
  }
  for (auto& [id, after] : gone_after_) {
    after = place[std::min<std::size_t>(after, place.size() - 1)];
  }
}

void Recording::Maker::move_specs(BufferId from, BufferId to) {
  const auto move = [&](Spec& spec) {
    if (spec.kind == Spec::kTensor && spec.buffer == from) {
      spec.buffer = to;
    }
    for (Spec& item : spec.items) {
      if (item.kind == Spec::kTensor && item.buffer == from) {
        item.buffer = to;
      }
    }
  };
  std::ranges::for_each(r_.specs_, move);
  for (Step& step : r_.steps_) {
    std::ranges::for_each(step.results, move);
  }
}

// A value goes after the first step at or behind its last reader.
void Recording::Maker::find_drops() {
  const std::vector<Instruction>& all = r_.program_.instructions();
  std::vector<std::int64_t> until(r_.program_.n_registers());
  for (Register at = 0; at < r_.program_.n_registers(); ++at) {
    until[at] = r_.program_.last_read(at);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::uint32_t k = 0; k < all[i].n_results; ++k) {
      std::int64_t& last = until[all[i].result + static_cast<Register>(k)];
      last = std::max(last, static_cast<std::int64_t>(i));
    }
  }
  for (Register at = 0; at < r_.program_.n_registers(); ++at) {
    const auto step =
        std::ranges::find_if(r_.steps_, [&](const Step& candidate) {
          return static_cast<std::int64_t>(candidate.instruction) >= until[at];
        });
    if (step != r_.steps_.end()) {
      step->drops.push_back(at);
    }
  }
}

}  // namespace npu::graph
