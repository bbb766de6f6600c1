// SPDX-License-Identifier: Apache-2.0
// Recording an operator as a direct call.
#include <algorithm>

#include "aten/graph/maker.h"
#include "runtime/host_work.h"

namespace npu::graph {
namespace {

// Nothing but this tensor is in its memory.
bool fills_its_storage(const at::Tensor& tensor) {
  return tensor.numel() > 0 && tensor.storage_offset() == 0 &&
         tensor.is_non_overlapping_and_dense() &&
         tensor.storage().nbytes() == tensor.nbytes();
}

bool is_plain_result(const c10::IValue& value) {
  return value.isTensor() && is_plain_npu(value.toTensor());
}

// What a kernel can give back as it is.
bool is_nothing(const c10::IValue& value) {
  return value.isNone() || (value.isTensor() && !value.toTensor().defined());
}

MakeDirectCalls make_calls = nullptr;

}  // namespace

void set_direct_calls(MakeDirectCalls make) noexcept {
  make_calls = make;
}

std::unique_ptr<DirectCalls> make_direct_calls(c10::DeviceIndex device) {
  return make_calls == nullptr ? nullptr : make_calls(device);
}

// Memory that the recording has not seen: two of them may share theirs.
bool Recording::Maker::are_new(const std::vector<c10::IValue>& results) const {
  return std::ranges::none_of(results, [&](const c10::IValue& value) {
    if (!is_plain_result(value)) {
      return false;
    }
    const auto found =
        storages_.find(value.toTensor().storage().unsafeGetStorageImpl());
    return found != storages_.end() && !found->second.weak.expired();
  });
}

bool Recording::Maker::try_direct(
    const Instruction& instruction,
    std::uint32_t index,
    const std::vector<c10::IValue>& registers,
    const std::vector<c10::IValue>& given) {
  const void* const ran = last_host_work();
  if (instruction.kind != Instruction::kCall || ran == nullptr ||
      !work_.nodes.empty()) {
    return false;
  }
  std::vector<c10::IValue> results(
      registers.begin() + instruction.result,
      registers.begin() + instruction.result + instruction.n_results);
  const auto first = std::ranges::find_if(results, is_plain_result);
  if (first == results.end()) {
    return false;
  }
  const c10::DeviceIndex device = first->toTensor().device().index();
  const bool writes = !instruction.target->written.empty();
  if (r_.direct_ == nullptr) {
    r_.direct_ = make_direct_calls(device);
  }
  if (r_.direct_ == nullptr || (!writes && !are_new(results))) {
    return false;
  }
  IslandNode node{index, {}};
  bool here = true;
  const auto find = [&](const at::Tensor& tensor) {
    const std::optional<BufferId> found = known_buffer(tensor);
    here = here && tensor.device().index() == device;
    if (found) {
      node.buffers.push_back(*found);
    }
    return found;
  };
  auto call =
      r_.direct_->make({instruction, ran, given, results, find, device});
  if (call == nullptr || !here) {
    return false;
  }
  for (std::size_t k = 0; k < results.size(); ++k) {
    if (!is_plain_result(results[k]) && !is_nothing(results[k]) &&
        call->result_of(k) >= 0) {
      return false;
    }
  }
  Step& made = step(Step::kDirect, index);
  made.device = device;
  made.call = std::move(call);
  if (writes) {
    describe_results(instruction, registers, Owner::kIsland);
  } else {
    take_direct_results(results, instruction.result, made, node);
  }
  note_written(instruction, made);
  graph_.nodes.push_back(std::move(node));
  made.last = static_cast<std::uint32_t>(graph_.nodes.size());
  ++r_.counts_.host_calls;
  return true;
}

// Into planned memory where the kernel can write there.
void Recording::Maker::take_direct_results(
    const std::vector<c10::IValue>& results,
    Register first,
    Step& made,
    IslandNode& node) {
  std::vector<const c10::StorageImpl*> seen;
  // Some out forms compute by other formulas or resize what they get; a capture
  // has the bits of eager mode.
  const bool planned =
      !r_.captured_ && made.call->can_write() &&
      std::ranges::all_of(results, [&](const c10::IValue& value) {
        if (!is_plain_result(value) || !fills_its_storage(value.toTensor())) {
          return false;
        }
        seen.push_back(value.toTensor().storage().unsafeGetStorageImpl());
        return std::ranges::count(seen, seen.back()) == 1;
      });
  std::vector<at::Tensor> outs;
  for (std::size_t k = 0; k < results.size(); ++k) {
    Spec& spec = r_.specs_[first + static_cast<Register>(k)];
    spec = Spec{};
    made.results.emplace_back();
    if (!is_plain_result(results[k])) {
      continue;
    }
    const at::Tensor& tensor = results[k].toTensor();
    const std::size_t before = graph_.buffers.size();
    spec = result_spec(tensor, planned ? Owner::kFrames : Owner::kIsland);
    node.buffers.push_back(spec.buffer);
    if (graph_.buffers.size() != before) {
      made.fresh.push_back(spec.buffer);
    }
    made.results.back() = spec;
    if (planned) {
      outs.push_back(
          r_.direct_->wrap(spec.buffer, tensor.storage().nbytes(), tensor));
    }
  }
  if (planned) {
    made.call->write_into(outs);
  }
}

}  // namespace npu::graph
