// SPDX-License-Identifier: Apache-2.0
// A program with its recordings.
#include "aten/graph/replayer.h"

#include <ATen/record_function.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <utility>

#include "aten/core/recorder.h"
#include "runtime/error.h"

namespace npu::graph {
namespace {

// True while profilers, modes or another recorder must see every operator.
bool is_watched() {
  return at::hasCallbacks() || c10::impl::dispatch_mode_enabled() ||
         recorder() != nullptr;
}

// Sparse tensors and such have no storage to bind.
bool are_plain(const std::vector<c10::IValue>& inputs) {
  return std::ranges::all_of(inputs, [](const c10::IValue& value) {
    return !value.isTensor() || !value.toTensor().defined() ||
           (value.toTensor().layout() == c10::kStrided &&
            value.toTensor().has_storage());
  });
}

}  // namespace

Replayer::Replayer(
    std::shared_ptr<const TracedGraph> program, std::size_t limit)
    : program_(std::move(program)), limit_(limit) {}

std::shared_ptr<Recording> Replayer::find(
    const std::vector<c10::IValue>& inputs) {
  const std::uint64_t settings = process_settings();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found =
      std::ranges::find_if(recordings_, [&](const auto& recording) {
        return recording->matches(inputs, settings);
      });
  if (found == recordings_.end()) {
    return nullptr;
  }
  std::rotate(recordings_.begin(), found, found + 1);
  return recordings_.front();
}

void Replayer::keep(std::shared_ptr<Recording> recording) {
  std::shared_ptr<Recording> dropped;  // destroyed without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  recordings_.insert(recordings_.begin(), std::move(recording));
  if (recordings_.size() > limit_) {
    dropped = std::move(recordings_.back());
    recordings_.pop_back();
    ++evicted_;
  }
}

std::vector<c10::IValue> Replayer::run(std::vector<c10::IValue> inputs) {
  if (limit_ == 0 || inputs.size() != program_->n_inputs() || is_watched() ||
      !are_plain(inputs)) {
    return run_program(std::move(inputs));
  }
  if (const std::shared_ptr<Recording> recording = find(inputs)) {
    std::vector<c10::IValue> results;
    if (recording->replay(inputs, results)) {
      ++replayed_;
      return results;
    }
    return run_program(std::move(inputs));  // another thread is inside
  }
  if (storages_overlap(inputs)) {
    return run_program(std::move(inputs));
  }
  auto recording = std::make_shared<Recording>(*program_, inputs);
  std::vector<c10::IValue> results = recording->record(std::move(inputs));
  ++recorded_;
  keep(std::move(recording));
  return results;
}

std::vector<c10::IValue> Replayer::run_program(
    std::vector<c10::IValue> inputs) {
  check_writes(inputs);
  ++eager_;
  return program_->run(std::move(inputs));
}

// A traced graph writes its inputs when all else is computed.
void Replayer::check_writes(const std::vector<c10::IValue>& inputs) const {
  if (inputs.size() != program_->n_inputs() || !are_plain(inputs) ||
      !storages_overlap(inputs)) {
    return;
  }
  for (const Register written : program_->written_inputs()) {
    TORCH_CHECK(
        !overlaps_another(inputs, static_cast<std::size_t>(written)),
        "npu: compiled graph: a tensor that the graph writes shares memory "
        "with "
        "another argument through another storage, as slices that came through "
        "DLPack do. PyTorch traces graphs for arguments that share none, so "
        "the "
        "results would be wrong. Pass a copy of one of them, or a view of the "
        "other.",
        ops_error(Code::kParam));
  }
}

Replayer::Counts Replayer::counts() const {
  Counts made;
  made.recorded = recorded_;
  made.replayed = replayed_;
  made.eager = eager_;
  made.evicted = evicted_;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& recording : recordings_) {
    made.left += recording->left();
  }
  if (!recordings_.empty()) {
    made.last = recordings_.front()->counts();
  }
  return made;
}

}  // namespace npu::graph
