// SPDX-License-Identifier: Apache-2.0
// Gathers, scatters and all-to-all. What only moves data goes to Gloo as bytes,
// so every dtype works.
#include <ATen/Functions.h>

#include <algorithm>
#include <numeric>

#include "dist/checks.h"
#include "dist/shared.h"

namespace npu::dist {

using c10d::OpType;

// ---- gathering ----

WorkPtr ProcessGroupHccl::allgather(
    std::vector<Tensors>& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& o) {
  const at::Tensor& input = only(inputs, "all_gather");
  TORCH_CHECK_VALUE(
      outputs.size() == 1, "hccl: all_gather takes one list of outputs.");
  check_count(outputs[0].size(), size_, "all_gather");
  bool even = true;
  std::string text = c10::str("all_gather ", input.scalar_type());
  for (const auto& output : outputs[0]) {
    check_same(input, output, "all_gather");
    even = even && output.numel() == outputs[0][0].numel();
    text += c10::str(" ", output.numel());
  }
  TORCH_CHECK_VALUE(
      input.numel() == outputs[0][rank_].numel(),
      "hccl: all_gather: this rank gives ",
      input.numel(),
      " elements, but output ",
      rank_,
      " has room for ",
      outputs[0][rank_].numel(),
      ".");
  const auto made = job(OpType::ALLGATHER, text, input, o.timeout);
  const auto from = made->arguments.read(input);
  const auto to = from + 1;
  for (const auto& output : outputs[0]) {
    made->arguments.write(output);
  }
  made->body =
      [gloo = shared_->gloo, from, to, even, rank = rank_, size = size_](
          Job& job) {
        auto& arguments = job.arguments;
        const at::Tensor input = arguments.bytes(from);
        if (!even) {  // Gloo's has one size for all
          for (int r = 0; r < size; ++r) {
            at::Tensor part = arguments.bytes(to + static_cast<std::size_t>(r));
            if (r == rank) {
              part.copy_(input);
            }
            gloo_broadcast(*gloo, part, r, job.deadline);
          }
          return;
        }
        if (input.numel() == 0) {
          return;
        }
        std::vector<Tensors> all(1);
        for (int r = 0; r < size; ++r) {
          all[0].push_back(arguments.bytes(to + static_cast<std::size_t>(r)));
        }
        Tensors one{input};
        gloo->allgather(
                all, one, options_for<c10d::AllgatherOptions>(job.deadline))
            ->wait();
      };
  return start(made, outputs[0]);
}

WorkPtr ProcessGroupHccl::allgather_coalesced(
    std::vector<Tensors>& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& o) {
  // PyTorch gives a list per rank here, of one tensor per input.
  check_count(outputs.size(), size_, "all_gather_coalesced");
  std::vector<WorkPtr> works;
  startCoalescing();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Tensors> each(1);
    for (auto& of_rank : outputs) {
      TORCH_CHECK_VALUE(
          of_rank.size() == inputs.size(),
          "hccl: all_gather_coalesced: ",
          inputs.size(),
          " inputs, but ",
          of_rank.size(),
          " outputs of one rank.");
      each[0].push_back(of_rank[i]);
    }
    Tensors one{inputs[i]};
    allgather(each, one, o);
  }
  return endCoalescing();
}

WorkPtr ProcessGroupHccl::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& o) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, o);
}

WorkPtr ProcessGroupHccl::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& o) {
  TORCH_CHECK_VALUE(
      !inputs.empty() && inputs.size() == outputs.size(),
      "hccl: all_gather_into_tensor: ",
      inputs.size(),
      " inputs and ",
      outputs.size(),
      " outputs.");
  std::string text = "all_gather_into_tensor";
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_same(inputs[i], outputs[i], "all_gather_into_tensor");
    TORCH_CHECK_VALUE(
        outputs[i].numel() == inputs[i].numel() * size_,
        "hccl: all_gather_into_tensor: ",
        inputs[i].numel(),
        " elements from ",
        size_,
        " ranks do not fill an output of ",
        outputs[i].numel(),
        ".");
    text = text_of(text, inputs[i]);
  }
  const auto made = job(OpType::_ALLGATHER_BASE, text, inputs[0], o.timeout);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    made->arguments.read(inputs[i]);
    made->arguments.write(outputs[i]);
  }
  made->body = [gloo = shared_->gloo, n = inputs.size()](Job& job) {
    for (std::size_t i = 0; i < n; ++i) {
      at::Tensor from = job.arguments.bytes(2 * i);
      at::Tensor to = job.arguments.bytes(2 * i + 1);
      if (from.numel() != 0) {
        gloo->_allgather_base(
                to, from, options_for<c10d::AllgatherOptions>(job.deadline))
            ->wait();
      }
    }
  };
  return start(made, outputs);
}

WorkPtr ProcessGroupHccl::gather(
    std::vector<Tensors>& outputs,
    Tensors& inputs,
    const c10d::GatherOptions& o) {
  const at::Tensor& input = only(inputs, "gather");
  check_root(o.rootRank, size_, "gather");
  const bool here = rank_ == o.rootRank;
  TORCH_CHECK_VALUE(
      here ? outputs.size() == 1 : outputs.empty(),
      "hccl: gather: rank ",
      o.rootRank,
      " gives one list of outputs, the "
      "others none; rank ",
      rank_,
      " gave ",
      outputs.size(),
      ".");
  const auto made =
      job(OpType::GATHER,
          text_of(c10::str("gather to rank ", o.rootRank), input),
          input,
          o.timeout);
  const auto from = made->arguments.read(input);
  if (here) {
    check_count(outputs[0].size(), size_, "gather");
    for (const auto& output : outputs[0]) {
      check_same(input, output, "gather");
      TORCH_CHECK_VALUE(
          output.numel() == input.numel(),
          "hccl: gather: an output has ",
          output.numel(),
          " elements, the input ",
          input.numel(),
          ".");
      made->arguments.write(output);
    }
  }
  made->body =
      [gloo = shared_->gloo, from, here, root = o.rootRank, size = size_](
          Job& job) {
        Tensors one{job.arguments.bytes(from)};
        if (one[0].numel() == 0) {
          return;
        }
        std::vector<Tensors> all;
        if (here) {
          all.emplace_back();
          for (int r = 0; r < size; ++r) {
            all[0].push_back(
                job.arguments.bytes(from + 1 + static_cast<std::size_t>(r)));
          }
        }
        auto options = options_for<c10d::GatherOptions>(job.deadline);
        options.rootRank = root;
        gloo->gather(all, one, options)->wait();
      };
  return start(made, here ? outputs[0] : Tensors{});
}

WorkPtr ProcessGroupHccl::scatter(
    Tensors& outputs,
    std::vector<Tensors>& inputs,
    const c10d::ScatterOptions& o) {
  const at::Tensor& output = only(outputs, "scatter");
  check_root(o.rootRank, size_, "scatter");
  const bool here = rank_ == o.rootRank;
  TORCH_CHECK_VALUE(
      here ? inputs.size() == 1 : inputs.empty(),
      "hccl: scatter: rank ",
      o.rootRank,
      " gives one list of inputs, the "
      "others none; rank ",
      rank_,
      " gave ",
      inputs.size(),
      ".");
  const auto made =
      job(OpType::SCATTER,
          text_of(c10::str("scatter from rank ", o.rootRank), output),
          output,
          o.timeout);
  const auto to = made->arguments.write(output);
  if (here) {
    check_count(inputs[0].size(), size_, "scatter");
    for (const auto& input : inputs[0]) {
      check_same(input, output, "scatter");
      TORCH_CHECK_VALUE(
          output.numel() == input.numel(),
          "hccl: scatter: an input has ",
          input.numel(),
          " elements, the output ",
          output.numel(),
          ".");
      made->arguments.read(input);
    }
  }
  made->body =
      [gloo = shared_->gloo, to, here, root = o.rootRank, size = size_](
          Job& job) {
        Tensors one{job.arguments.bytes(to)};
        if (one[0].numel() == 0) {
          return;
        }
        std::vector<Tensors> all;
        if (here) {
          all.emplace_back();
          for (int r = 0; r < size; ++r) {
            all[0].push_back(
                job.arguments.bytes(to + 1 + static_cast<std::size_t>(r)));
          }
        }
        auto options = options_for<c10d::ScatterOptions>(job.deadline);
        options.rootRank = root;
        gloo->scatter(one, all, options)->wait();
      };
  return start(made, {output});
}

// ---- all to all ----

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
  return start(made, outputs);
}

}  // namespace npu::dist
