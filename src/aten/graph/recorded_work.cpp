// SPDX-License-Identifier: Apache-2.0
// The work that one instruction gave to the driver.
#include <algorithm>
#include <string_view>
#include <utility>

#include "aten/graph/maker.h"
#include "npu/validate.h"
#include "runtime/stream.h"

namespace npu::graph {

void RecordedWork::clear() {
  nodes.clear();
  draws.clear();
  reserved_.clear();
  drawn_.clear();
  raw.clear();
  temporaries_.clear();
  unseen = false;
  stream_ = nullptr;
}

bool RecordedWork::is_temporary(const void* pointer) const {
  return std::ranges::any_of(temporaries_, [&](const c10::DataPtr& memory) {
    return memory.get() == pointer;
  });
}

Ref RecordedWork::note(const void* pointer, std::uint64_t bytes) {
  raw.emplace_back(pointer, bytes);
  return {static_cast<BufferId>(raw.size() - 1), 0};
}

void RecordedWork::see(c10::DeviceIndex at, npu_stream stream) {
  unseen |= stream != current_stream_handle(at) ||
            (stream_ != nullptr && (stream != stream_ || at != device));
  stream_ = stream;
  device = at;
}

void RecordedWork::on_frame(
    const npu_call& frame,
    const PlanHandle& plan,
    c10::DeviceIndex at,
    npu_stream stream) {
  see(at, stream);
  std::optional<FrameCopy> copy = FrameCopy::make(
      frame, plan, [&](const void* pointer, std::uint64_t bytes) {
        return std::optional<Ref>(note(pointer, bytes));
      });
  unseen |= !copy || !bind_draw(*copy);
  if (copy) {
    nodes.push_back(std::move(*copy));
  }
}

void RecordedWork::on_draw(
    Generator& generator, std::uint64_t words, const npu_rng& rng) {
  draws.push_back(
      {c10::intrusive_ptr<Generator>::reclaim_copy(&generator), words});
  reserved_.push_back(rng);
  drawn_.push_back(false);
}

bool RecordedWork::has_all_draws() const {
  return std::ranges::find(drawn_, false) == drawn_.end();
}

// False when the frame uses random numbers of no draw of this instruction: its
// seed came from somewhere else.
bool RecordedWork::bind_draw(FrameCopy& frame) {
  const npu_call& call = frame.frame();
  const npu_kind_info* const kind = npu_kind_of(call.slot);
  const bool random =
      kind == nullptr || std::string_view(kind->family) == "random";
  if (!random && call.rng.seed == 0 && call.rng.offset == 0) {
    return true;
  }
  for (std::size_t i = 0; i < draws.size(); ++i) {
    if (reserved_[i].seed == call.rng.seed &&
        reserved_[i].offset == call.rng.offset) {
      frame.bind_draw_to(static_cast<std::int32_t>(i));
      drawn_[i] = true;
      return true;
    }
  }
  // A pack's kind may draw nothing.
  return kind == nullptr && call.rng.seed == 0 && call.rng.offset == 0;
}

void RecordedWork::on_bytes(
    const ByteWork& work, c10::DeviceIndex at, npu_stream stream) {
  see(at, stream);
  if (work.kind == ByteWork::kToDevice || work.kind == ByteWork::kToHost) {
    unseen = true;
    return;
  }
  BytesNode node;
  node.set = work.kind == ByteWork::kSet;
  node.value = work.value;
  unseen |= node.set && node.value != 0;
  node.bytes = work.bytes;
  node.to = note(work.to, work.bytes);
  node.from = node.set ? node.to : note(work.from, work.bytes);
  nodes.push_back(node);
}

void RecordedWork::on_temporary(c10::DataPtr memory) {
  temporaries_.push_back(std::move(memory));
}

}  // namespace npu::graph
