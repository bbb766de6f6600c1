// SPDX-License-Identifier: Apache-2.0
// How a collective is described to the flight recorder.
//
// PyTorch's reader compares the entries of all ranks that have one group and
// one number, and expects of each collective what NCCL's recorder writes: lists
// of tensors as one tensor, and the tensor of a broadcast as input and output
// on every rank.
#include <algorithm>

#include "dist/process_group.h"
#include "dist/shared.h"

namespace npu::dist {
namespace {

using c10d::OpType;
using Operands = FlightRecorder::Operands;

Operands operands_of(const Tensors& tensors) {
  Operands found;
  for (const auto& tensor : tensors) {
    found.sizes.push_back(tensor.sizes().vec());
    found.dtypes.emplace_back(c10::toString(tensor.scalar_type()));
  }
  return found;
}

bool have_one_size(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
    return tensor.sizes() == tensors[0].sizes();
  });
}

// A list as the tensor it would fill: [ranks, sizes...], or its elements.
Operands joined(const Tensors& tensors) {
  Operands found = operands_of({tensors[0]});
  if (have_one_size(tensors)) {
    auto& sizes = found.sizes[0];
    sizes.insert(sizes.begin(), static_cast<std::int64_t>(tensors.size()));
    return found;
  }
  std::int64_t all = 0;
  for (const auto& tensor : tensors) {
    all += tensor.numel();
  }
  found.sizes[0] = {all};
  return found;
}

// The names fr_trace knows.
std::string name_of(OpType type) {
  switch (type) {
    case OpType::BROADCAST:
      return "broadcast";
    case OpType::ALLREDUCE:
      return "all_reduce";
    case OpType::ALLREDUCE_COALESCED:
      return "allreduce_coalesced";
    case OpType::REDUCE:
      return "reduce";
    case OpType::ALLGATHER:
      return "all_gather";
    case OpType::_ALLGATHER_BASE:
      return "_all_gather_base";
    case OpType::GATHER:
      return "gather";
    case OpType::SCATTER:
      return "scatter";
    case OpType::REDUCE_SCATTER:
      return "reduce_scatter";
    case OpType::_REDUCE_SCATTER_BASE:
      return "_reduce_scatter_base";
    case OpType::ALLTOALL_BASE:
    case OpType::ALLTOALL:
      return "all_to_all";
    default:
      return "barrier";
  }
}

// Lists of several sizes: each rank has another input, so the entry says the
// whole, under the name NCCL's recorder has for such a call.
void describe_list(
    const Tensors& list,
    const char* uneven,
    Operands& mine,
    Operands& other,
    std::string& name) {
  mine = joined(list);
  if (!have_one_size(list)) {
    other = mine;
    name = uneven;
  }
}

}  // namespace

FlightRecorder::Group ProcessGroupHccl::flight_group() const {
  FlightRecorder::Group group;
  group.uid = pg_uid_.empty() ? shared_->group : pg_uid_;
  group.description = pg_desc_.empty() ? "undefined" : pg_desc_;
  group.ranks = options_->global_ranks_in_group;
  for (int rank = 0; group.ranks.size() < std::size_t(size_); ++rank) {
    group.ranks.push_back(static_cast<std::uint64_t>(rank));
  }
  return group;
}

// A message is a call of two ranks: in the group's own entries the reader would
// miss all others.
void ProcessGroupHccl::describe_message(
    const Job& job, FlightRecorder::Call& call) const {
  call.point_to_point = true;
  const bool sends = job.type == OpType::SEND;
  const auto ranks = std::move(call.group.ranks);
  if (job.partner < 0) {  // whoever is first: nobody to compare with
    call.group.uid += c10::str("/any ", rank_);
    call.group.ranks = {ranks[static_cast<std::size_t>(rank_)]};
    call.name = "recv 0<-0";
    return;
  }
  const int lower = std::min(rank_, job.partner);
  const int upper = std::max(rank_, job.partner);
  const auto here = rank_ == lower ? 0 : 1;
  call.name = sends ? c10::str("send ", here, "->", 1 - here)
                    : c10::str("recv ", here, "<-", 1 - here);
  const bool upwards = sends == (here == 0);
  call.group.uid += c10::str(upwards ? "/up " : "/down ", lower, "-", upper);
  if (job.tag != 0) {
    call.group.uid += c10::str(" tag ", job.tag);
  }
  call.group.ranks = {
      ranks[static_cast<std::size_t>(lower)],
      ranks[static_cast<std::size_t>(upper)]};
}

FlightRecorder::Call ProcessGroupHccl::flight_call(const Job& job) const {
  FlightRecorder::Call call;
  if (!FlightRecorder::of_process().on()) {
    return call;
  }
  call.group = flight_group();
  call.name = name_of(job.type);
  const Tensors inputs = job.arguments.inputs();
  const Tensors outputs = job.arguments.outputs();
  call.inputs = operands_of(inputs);
  call.outputs = operands_of(outputs);
  switch (job.type) {
    case OpType::BROADCAST:
    case OpType::REDUCE:  // one tensor, which only some ranks read or write
      call.inputs = call.outputs = inputs.empty() ? call.outputs : call.inputs;
      break;
    case OpType::ALLGATHER:
      describe_list(
          outputs, "_broadcast_oop", call.outputs, call.inputs, call.name);
      break;
    case OpType::REDUCE_SCATTER:
      describe_list(
          inputs, "_reduce_oop", call.inputs, call.outputs, call.name);
      break;
    case OpType::ALLTOALL:
      call.inputs = joined(inputs);
      call.outputs = joined(outputs);
      break;
    case OpType::SEND:
    case OpType::RECV:
    case OpType::RECVANYSOURCE:
      describe_message(job, call);
      break;
    default:
      break;
  }
  call.timeout = job.timeout;
  call.stack = FlightRecorder::stack_here();
  return call;
}

}  // namespace npu::dist
