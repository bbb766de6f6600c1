// SPDX-License-Identifier: Apache-2.0
// All to all, in equal and in given parts. Data goes as bytes, so every dtype
// works.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "dist/checks.h"
#include "dist/shared.h"

namespace npu::dist {

using c10d::OpType;

namespace {

// Splits in bytes; without any, equal parts.
std::vector<int64_t> byte_splits(
    const at::Tensor& tensor,
    const std::vector<int64_t>& splits,
    int size,
    const char* which) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  std::vector<int64_t> found = splits;
  if (found.empty()) {
    TORCH_CHECK_VALUE(
        rows % size == 0,
        "hccl: all_to_all_single: ",
        which,
        " has ",
        rows,
        " rows, which do not fall into ",
        size,
        " equal parts. Give the split sizes.");
    found.assign(static_cast<std::size_t>(size), rows / size);
  }
  check_count(found.size(), size, "all_to_all_single");
  const int64_t sum = std::accumulate(found.begin(), found.end(), int64_t{0});
  TORCH_CHECK_VALUE(
      sum == rows &&
          std::all_of(
              found.begin(), found.end(), [](int64_t n) { return n >= 0; }),
      "hccl: all_to_all_single: the split sizes of the ",
      which,
      " sum to ",
      sum,
      ", it has ",
      rows,
      " rows.");
  const int64_t row =
      rows == 0 ? 0 : static_cast<int64_t>(tensor.nbytes()) / rows;
  for (auto& n : found) {
    n *= row;
  }
  return found;
}

std::vector<int64_t> counts_of(
    const std::vector<int64_t>& in, const std::vector<int64_t>& out) {
  std::vector<int64_t> counts = in;
  counts.insert(counts.end(), out.begin(), out.end());
  return counts;
}

}  // namespace

namespace {

// Messages of one rank to all and from all; its own part is a copy.
std::vector<Step> messages(const Tensors& sent, const Tensors& got, int rank) {
  DriverPlan plan;
  for (int r = 0; r < static_cast<int>(sent.size()); ++r) {
    const auto& from = sent[static_cast<std::size_t>(r)];
    const auto& to = got[static_cast<std::size_t>(r)];
    if (r == rank) {
      add_move(plan, Step::Kind::kCopy, from, to, r);
      continue;
    }
    add_move(plan, Step::Kind::kSend, from, {}, r);
    add_move(plan, Step::Kind::kReceive, {}, to, r);
  }
  return plan.steps;
}

}  // namespace

WorkPtr ProcessGroupHccl::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits,
    const c10d::AllToAllOptions& o) {
  check_same(input, output, "all_to_all_single");
  auto out = byte_splits(output, output_splits, size_, "output");
  auto in = byte_splits(input, input_splits, size_, "input");
  const auto made =
      job(OpType::ALLTOALL_BASE,
          c10::str("all_to_all_single ", input.scalar_type()),
          input,
          o.timeout);
  made->counts = counts_of(in, out);
  const auto from = made->arguments.read(input);
  const auto to = made->arguments.write(output);
  made->body = [gloo = shared_->gloo, from, to, out, in](Job& job) mutable {
    at::Tensor sent = job.arguments.bytes(from);
    at::Tensor got = job.arguments.bytes(to);
    gloo->alltoall_base(
            got,
            sent,
            out,
            in,
            options_for<c10d::AllToAllOptions>(job.deadline))
        ->wait();
  };
  made->on_driver = [from, to, out, in, rank = rank_](Arguments& a) {
    const at::Tensor sent = flat_bytes(a.placed(from));
    const at::Tensor got = flat_bytes(a.placed(to));
    DriverPlan plan;
    add_move(plan, Step::Kind::kAllToAll, sent, got);
    // A rank with nothing to do is part of it all the same.
    if (plan.steps.empty()) {
      plan.steps.push_back({Step::Kind::kAllToAll, sent, got});
    }
    plan.steps[0].sent = in;
    plan.steps[0].received = out;
    plan.otherwise =
        messages(sent.split_with_sizes(in), got.split_with_sizes(out), rank);
    return plan;
  };
  return start(made, {output});
}

WorkPtr ProcessGroupHccl::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& o) {
  check_count(outputs.size(), size_, "all_to_all");
  check_count(inputs.size(), size_, "all_to_all");
  const auto made =
      job(OpType::ALLTOALL,
          c10::str("all_to_all ", inputs[0].scalar_type()),
          inputs[0],
          o.timeout);
  std::vector<int64_t> in, out;
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    check_same(inputs[r], outputs[r], "all_to_all");
    check_same(inputs[r], inputs[0], "all_to_all");
    in.push_back(static_cast<int64_t>(inputs[r].nbytes()));
    out.push_back(static_cast<int64_t>(outputs[r].nbytes()));
    made->arguments.read(inputs[r]);
    made->arguments.write(outputs[r]);
  }
  made->counts = counts_of(in, out);
  made->body = [gloo = shared_->gloo, in, out](Job& job) {
    Tensors parts;
    for (std::size_t r = 0; r < in.size(); ++r) {
      parts.push_back(job.arguments.bytes(2 * r));
    }
    at::Tensor sent = at::cat(parts);
    at::Tensor got = at::empty(
        {std::accumulate(out.begin(), out.end(), int64_t{0})}, at::kByte);
    auto counts_out = out;  // Gloo takes them away
    auto counts_in = in;
    gloo->alltoall_base(
            got,
            sent,
            counts_out,
            counts_in,
            options_for<c10d::AllToAllOptions>(job.deadline))
        ->wait();
    int64_t first = 0;
    for (std::size_t r = 0; r < out.size(); ++r) {
      job.arguments.bytes(2 * r + 1).copy_(got.narrow(0, first, out[r]));
      first += out[r];
    }
  };
  made->on_driver = [n = in.size(), rank = rank_](Arguments& a) {
    Tensors sent, got;
    for (std::size_t r = 0; r < n; ++r) {
      sent.push_back(flat_bytes(a.placed(2 * r)));
      got.push_back(flat_bytes(a.placed(2 * r + 1)));
    }
    DriverPlan plan;
    plan.steps = messages(sent, got, rank);
    return plan;
  };
  return start(made, outputs);
}

}  // namespace npu::dist
