// SPDX-License-Identifier: Apache-2.0
// Neighbouring frames as one program.
#include "graph/passes/fuse.h"

#include <algorithm>
#include <set>

#include "graph/program_builder.h"

namespace npu::graph {
namespace {

class Fuser {
 public:
  Fuser(Graph& graph, const PassContext& context, Join what)
      : graph_(graph),
        rows_(what == Join::kRows),
        context_(context),
        movable_(context.movable),
        devices_(context.devices),
        last_reader_(graph.buffers.size(), -1) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const BufferId id : read_by(graph.nodes[n])) {
        last_reader_[id] = static_cast<std::int64_t>(n);
      }
    }
  }

  PassStats run() {
    std::size_t at = 0;
    while (at < graph_.nodes.size()) {
      at = fuse_from(at);
    }
    return made_;
  }

 private:
  // What is tried to become one program: members, and fills between them.
  struct Group {
    std::vector<std::size_t> members;
    std::vector<std::size_t> fills;
    std::size_t to_rows = 0;  // members up to the last reduction
    ProgramBuilder program;
  };

  static std::vector<BufferId> read_by(const Node& node) {
    std::vector<BufferId> found;
    if (const auto* const frame = std::get_if<FrameCopy>(&node)) {
      for (const Use& use : frame->uses()) {
        if (use.reads) {
          found.push_back(use.ref.buffer);
        }
      }
    } else if (const auto* const bytes = std::get_if<BytesNode>(&node)) {
      if (!bytes->set) {
        found.push_back(bytes->from.buffer);
      }
    } else {
      found = buffers_of(node);
    }
    return found;
  }

  const FrameCopy* frame_at(std::size_t n) const {
    return std::get_if<FrameCopy>(&graph_.nodes[n]);
  }
  bool is_nothing(std::size_t n) const {
    return std::holds_alternative<Nothing>(graph_.nodes[n]);
  }

  // A fill of memory that is the graph's own.
  std::optional<FillOfBuffer> fill_at(std::size_t n) const {
    const FrameCopy* const frame = frame_at(n);
    std::optional<FillOfBuffer> fill =
        frame == nullptr ? std::nullopt : fill_of(*frame);
    const bool whole = fill && movable_[fill->buffer] &&
                       fill->bytes == graph_.buffers[fill->buffer].bytes;
    return whole && !blocked_.contains(n) ? fill : std::nullopt;
  }

  // As many nodes from `first` on as go together, but at most `most` members.
  Group grow(std::size_t first, std::size_t most) const {
    Group group;
    ProgramBuilder::FilledBuffers filled;
    std::vector<std::size_t> fills;
    for (std::size_t n = first;
         n < graph_.nodes.size() && group.members.size() < most;
         ++n) {
      if (is_nothing(n)) {
        continue;
      }
      if (const auto fill = fill_at(n)) {
        filled[fill->buffer] = fill->filled;
        fills.push_back(n);
        continue;
      }
      const FrameCopy* const frame = frame_at(n);
      ProgramBuilder longer = group.program;
      if (frame == nullptr || !joins(longer, *frame, filled) ||
          !on_one_device(longer) || writes_filled(longer, filled)) {
        break;
      }
      group.program = std::move(longer);
      group.members.push_back(n);
      if (frame->frame().slot == NPU_KIND_REDUCE) {
        group.to_rows = group.members.size();
      }
    }
    // Nodes after the last member stay outside.
    for (const std::size_t fill : fills) {
      if (!group.members.empty() && fill < group.members.back()) {
        group.fills.push_back(fill);
      }
    }
    return group;
  }

  bool joins(
      ProgramBuilder& program,
      const FrameCopy& frame,
      const ProgramBuilder::FilledBuffers& filled) const {
    return frame.frame().slot == NPU_KIND_REDUCE
               ? rows_ && program.join_reduction(frame)
               : program.join(frame, filled);
  }

  bool on_one_device(const ProgramBuilder& program) const {
    const std::int32_t device =
        devices_[program.results()[0].place.data[0].buffer];
    return !program.touches(
        [&](BufferId id) { return devices_[id] != device; });
  }
  static bool writes_filled(
      const ProgramBuilder& program,
      const ProgramBuilder::FilledBuffers& filled) {
    return program.touches([&](BufferId id) { return filled.contains(id); });
  }

  // Results that are read after the group.
  std::vector<std::size_t> outputs_of(const Group& group) const {
    std::vector<std::size_t> needed;
    const auto last = static_cast<std::int64_t>(group.members.back());
    for (std::size_t i = 0; i < group.program.results().size(); ++i) {
      const auto& places = group.program.results()[i].place.data;
      if (std::ranges::any_of(places, [&](const Ref& ref) {
            return !movable_[ref.buffer] || last_reader_[ref.buffer] > last;
          })) {
        needed.push_back(i);
      }
    }
    return needed;
  }

  // A fill between members whose memory is read outside the group, or never.
  std::optional<std::size_t> useful_fill(const Group& group) const {
    for (const std::size_t n : group.fills) {
      const auto fill = fill_of(*frame_at(n));
      const auto& used = group.program.constants();
      const auto last = static_cast<std::int64_t>(group.members.back());
      if (fill && (std::ranges::find(used, fill->buffer) == used.end() ||
                   last_reader_[fill->buffer] > last)) {
        return n;
      }
    }
    return std::nullopt;
  }

  // Where to go on.
  std::size_t fuse_from(std::size_t first) {
    std::size_t most = graph_.nodes.size();
    for (;;) {
      Group group = grow(first, most);
      if (rows_) {
        if (group.to_rows == 0) {
          return first + 1;
        }
        // What comes behind the last reduction is left to chains.
        if (group.to_rows < group.members.size()) {
          most = group.to_rows;
          continue;
        }
      }
      if (group.members.size() + group.fills.size() < 2 ||
          group.members.empty()) {
        return first + 1;
      }
      if (const auto fill = useful_fill(group)) {
        blocked_.insert(*fill);
        continue;
      }
      const std::int32_t device =
          devices_[group.program.results()[0].place.data[0].buffer];
      std::optional<FrameCopy> made = group.program.finish(
          outputs_of(group),
          [&](Call& call) { return context_.plan(call, device); });
      if (made) {
        put(group, std::move(*made));
        return group.members.back() + 1;
      }
      most = group.members.size() - 1;
    }
  }

  void put(const Group& group, FrameCopy made) {
    for (const std::vector<std::size_t>* nodes :
         {&group.members, &group.fills}) {
      for (const std::size_t n : *nodes) {
        graph_.nodes[n] = Nothing{};
        ++made_.counts[0];
      }
    }
    graph_.nodes[group.members.back()] = std::move(made);
    ++made_.counts[1];
  }

  Graph& graph_;
  const bool rows_;
  const PassContext& context_;
  const std::vector<bool>& movable_;
  const std::vector<std::int32_t>& devices_;
  std::vector<std::int64_t> last_reader_;  // by buffer: node; -1
  std::set<std::size_t> blocked_;          // fills that stay
  PassStats made_;
};

}  // namespace

PassStats fuse(Graph& graph, const PassContext& context, Join what) {
  return Fuser(graph, context, what).run();
}

}  // namespace npu::graph
