// SPDX-License-Identifier: Apache-2.0
// The end of a recording: passes, memory plan, when values come and go.
#include <algorithm>

#include "aten/graph/maker.h"
#include "graph/passes.h"

namespace npu::graph {

// Memory that only frames use goes into the arena; the rest is allocated when
// it is first used, and given back after its last use.
void Recording::Maker::finish() {
  IslandNode outputs;
  for_each_register(r_.program_.outputs(), [&](const Operand& operand) {
    use(operand.index, outputs);
  });
  const std::vector<BufferId> returned = outputs.buffers;
  const std::size_t n_nodes = graph_.nodes.size();
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
  run_passes(returned);
  r_.counts_.unshared_bytes = plan_memory(graph_);
  r_.counts_.arena_bytes = graph_.arena_bytes;
  const std::string wrong = verify(graph_);
  TORCH_INTERNAL_ASSERT(wrong.empty(), "graph: ", wrong);
  find_drops();
  for (BufferId id = 0; id < graph_.buffers.size(); ++id) {
    const Buffer& buffer = graph_.buffers[id];
    if (buffer.kind == Buffer::kLocal || !buffer.used) {
      continue;
    }
    for (Step& made : r_.steps_) {
      const auto holds = [&](std::uint32_t node) {
        return node >= made.first && node < made.last && node < n_nodes;
      };
      if (owners_[id] == Owner::kFrames && holds(buffer.first)) {
        made.starts.push_back(id);
      }
      if (holds(buffer.last) &&
          std::ranges::find(returned, id) == returned.end()) {
        made.ends.push_back(id);
      }
    }
  }
}

// Over the nodes, while nothing is planned.
void Recording::Maker::run_passes(const std::vector<BufferId>& returned) {
  std::vector<bool> movable;
  for (BufferId id = 0; id < graph_.buffers.size(); ++id) {
    movable.push_back(
        graph_.buffers[id].kind == Buffer::kLocal &&
        std::ranges::find(returned, id) == returned.end());
  }
  aligned_.resize(graph_.buffers.size());
  if (on_.copies) {
    for (const Moved& moved : remove_copies(
             graph_, movable, aligned_, is_host_memory(r_.arena_device_))) {
      move_specs(moved.from, moved.to);
      ++r_.counts_.copies_removed;
    }
  }
  if (on_.dead) {
    r_.counts_.dead_removed = remove_dead(graph_, movable);
  }
  if (on_.reuse) {
    for (const Moved& moved : reuse_lists(
             graph_, movable, aligned_, is_host_memory(r_.arena_device_))) {
      move_specs(moved.from, moved.to);
      ++r_.counts_.reused;
    }
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
