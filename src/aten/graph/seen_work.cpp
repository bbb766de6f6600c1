// SPDX-License-Identifier: Apache-2.0
// What one instruction gave to the driver.
#include <algorithm>
#include <utility>

#include "aten/graph/maker.h"
#include "runtime/stream.h"

namespace npu::graph {

void SeenWork::clear() {
  nodes.clear();
  raw.clear();
  temporaries_.clear();
  unseen = false;
  stream_ = nullptr;
}

bool SeenWork::is_temporary(const void* pointer) const {
  return std::ranges::any_of(temporaries_, [&](const c10::DataPtr& memory) {
    return memory.get() == pointer;
  });
}

Ref SeenWork::note(const void* pointer, std::uint64_t bytes) {
  raw.emplace_back(pointer, bytes);
  return {static_cast<BufferId>(raw.size() - 1), 0};
}

void SeenWork::see(c10::DeviceIndex at, npu_stream stream) {
  unseen |= stream != current_stream_handle(at) ||
            (stream_ != nullptr && (stream != stream_ || at != device));
  stream_ = stream;
  device = at;
}

void SeenWork::on_frame(
    const npu_call& frame,
    const PlanHandle& plan,
    c10::DeviceIndex at,
    npu_stream stream) {
  see(at, stream);
  std::optional<FrameCopy> copy = FrameCopy::make(
      frame, plan, [&](const void* pointer, std::uint64_t bytes) {
        return std::optional<Ref>(note(pointer, bytes));
      });
  unseen |= !copy;
  if (copy) {
    nodes.push_back(std::move(*copy));
  }
}

void SeenWork::on_bytes(
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

void SeenWork::on_temporary(c10::DataPtr memory) {
  temporaries_.push_back(std::move(memory));
}

}  // namespace npu::graph
