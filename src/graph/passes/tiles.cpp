// SPDX-License-Identifier: Apache-2.0
// Pass tiles: runs of list frames, computed a few entries at a time.
//
// A traced optimizer is a dozen frames over the lists of all parameters, and
// each reads and writes all of them. Entries do not depend on each other, so
// the frames of a run are split: all of them for some entries, then for the
// next. Their operands stay in the cache, and what is only used in between
// takes the memory of some entries instead of all. Runs after the passes that
// look at whole lists.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "graph/pass.h"
#include "npu/kinds.h"
#include "npu/validate.h"

namespace npu::graph::passes::tiles {
namespace {

// The least that is worth a frame of its own: so many bytes, or this part of a
// tile.
constexpr std::uint64_t kLeastBytes = std::uint64_t{16} * 1024;
constexpr std::uint64_t kLeastPart = 64;

const FrameCopy* frame_of(const Node& node) {
  return std::get_if<FrameCopy>(&node);
}

bool is_list_frame(const FrameCopy& frame) {
  return frame.frame().slot == NPU_KIND_MULTI_MAP && frame.has_only_lists();
}

// Nodes in a row that can be computed entry by entry.
class Run {
 public:
  // False: the node does not go with those before it.
  bool take(const Node& node) {
    const FrameCopy* const frame = frame_of(node);
    if (frame == nullptr) {
      return std::holds_alternative<Nothing>(node);
    }
    return is_list_frame(*frame) ? take_lists(*frame) : take_alone(*frame);
  }

  bool is_worth_it() const {
    return n_lists_ > 1;
  }

  // Bounds of the tiles: entries [0], [1], ... At least four tiles where a
  // quarter is worth a frame: what two lists take in between is then less
  // than one whole list.
  std::vector<std::uint32_t> bounds(std::uint64_t bytes) const {
    std::vector<std::uint32_t> made{0};
    std::uint64_t sum = std::reduce(sizes_.begin(), sizes_.end());
    bytes =
        std::min(bytes, std::max({sum / 4, bytes / kLeastPart, kLeastBytes}));
    sum = 0;
    for (std::uint32_t i = 0; i < sizes_.size(); ++i) {
      sum += sizes_[i];
      if (sum >= bytes || i + 1 == sizes_.size()) {
        made.push_back(i + 1);
        sum = 0;
      }
    }
    return made;
  }

  // The entry that a frame of one buffer goes with; the first for those that
  // nothing of the run reads.
  std::uint32_t entry_of(const FrameCopy& frame) const {
    const auto found = entries_.find(frame.buffers().front());
    return found == entries_.end() ? 0 : found->second;
  }

 private:
  // All lists of the run have the same entries, and a buffer belongs to one.
  bool take_lists(const FrameCopy& frame) {
    const npu_list& first = frame.frame().lists[0];
    std::vector<std::uint64_t> sizes;
    for (std::uint32_t i = 0; i < first.n; ++i) {
      sizes.push_back(
          static_cast<std::uint64_t>(first.numel[i]) *
          npu_dtype_bytes(first.dtype));
    }
    if (n_lists_ != 0 && sizes != sizes_) {
      return false;
    }
    std::map<BufferId, std::uint32_t> entries = entries_;
    for (const Use& use : frame.uses()) {
      const auto entry = static_cast<std::uint32_t>(use.entry);
      const auto [at, is_new] = entries.try_emplace(use.ref.buffer, entry);
      if (use.entry < 0 || (!is_new && at->second != entry)) {
        return false;
      }
    }
    entries_ = std::move(entries);
    sizes_ = std::move(sizes);
    ++n_lists_;
    return true;
  }

  // A frame that only fills one buffer. One that draws stays with its own
  // instruction, which draws for it.
  bool take_alone(const FrameCopy& frame) {
    const std::vector<Use> uses = frame.uses();
    return frame.draw() < 0 && !uses.empty() && frame.buffers().size() == 1 &&
           std::ranges::none_of(uses, &Use::reads);
  }

  std::map<BufferId, std::uint32_t> entries_;
  std::vector<std::uint64_t> sizes_;  // of an entry, in bytes
  std::uint32_t n_lists_ = 0;
};

// The nodes of a run, tile by tile, each in its old order.
void append_tiles(
    const Run& run,
    std::span<Node> nodes,
    std::span<const std::uint32_t> bounds,
    std::vector<Node>& to) {
  for (std::size_t tile = 0; tile + 1 < bounds.size(); ++tile) {
    const std::uint32_t first = bounds[tile];
    const std::uint32_t last = bounds[tile + 1];
    for (Node& node : nodes) {
      const FrameCopy* const frame = frame_of(node);
      if (frame == nullptr) {
        continue;
      }
      if (is_list_frame(*frame)) {
        to.emplace_back(frame->entries(first, last));
      } else if (const std::uint32_t entry = run.entry_of(*frame);
                 entry >= first && entry < last) {
        to.emplace_back(FrameCopy(*frame));
      }
    }
  }
}

}  // namespace

PassStats run(Graph& graph, const PassContext& context) {
  PassStats made;
  if (!context.one_device) {
    return made;
  }
  std::vector<Node> nodes;
  const std::size_t n = graph.nodes.size();
  for (std::size_t first = 0; first < n;) {
    Run run;
    std::size_t last = first;
    while (last < n && run.take(graph.nodes[last])) {
      ++last;
    }
    const std::vector<std::uint32_t> bounds = run.bounds(context.tile_bytes);
    if (!run.is_worth_it() || bounds.size() < 3) {
      for (last = std::max(last, first + 1); first < last; ++first) {
        made.place.push_back(static_cast<std::uint32_t>(nodes.size()));
        nodes.push_back(std::move(graph.nodes[first]));
      }
      continue;
    }
    made.place.push_back(static_cast<std::uint32_t>(nodes.size()));
    append_tiles(
        run,
        std::span(graph.nodes).subspan(first, last - first),
        bounds,
        nodes);
    made.place.resize(last, static_cast<std::uint32_t>(nodes.size()));
    ++made.counts[0];
    first = last;
  }
  made.place.push_back(static_cast<std::uint32_t>(nodes.size()));
  graph.nodes = std::move(nodes);
  return made;
}

}  // namespace npu::graph::passes::tiles
