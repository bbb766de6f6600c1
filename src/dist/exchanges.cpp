// SPDX-License-Identifier: Apache-2.0
// Gathers and scatters. What only moves data goes to Gloo as bytes,
// so every dtype works.
#include <ATen/ops/empty.h>

#include "dist/checks.h"
#include "dist/shared.h"

namespace npu::dist {

using c10d::OpType;

// ---- gathering ----

namespace {

// Into one tensor and from there into the list; parts of different sizes are
// broadcast each.
DriverPlan gather_plan(
    Arguments& a,
    std::size_t from,
    std::size_t to,
    bool even,
    int rank,
    int size) {
  DriverPlan plan;
  const at::Tensor input = flat_bytes(a.placed(from));
  const auto part = [&](int r) {
    return flat_bytes(a.placed(to + static_cast<std::size_t>(r)));
  };
  if (even) {
    const at::Tensor all = at::empty({size * input.numel()}, input.options());
    add_move(plan, Step::Kind::kAllGather, input, all);
    std::vector<at::Tensor> parts;
    for (int r = 0; r < size; ++r) {
      parts.push_back(part(r));
    }
    plan.after = [all, parts] {
      int64_t first = 0;
      for (const auto& each : parts) {
        each.copy_(all.narrow(0, first, each.numel()));
        first += each.numel();
      }
    };
    return plan;
  }
  for (int r = 0; r < size; ++r) {
    const at::Tensor place = part(r);
    add_move(plan, Step::Kind::kBroadcast, r == rank ? input : place, place, r);
  }
  return plan;
}

// What each rank gets from one, or one from each.
DriverPlan rooted_plan(
    const std::vector<at::Tensor>& parts,  // on the root alone
    const at::Tensor& mine,
    bool gathers,
    int rank,
    int root) {
  DriverPlan plan;
  if (rank != root) {
    gathers ? add_move(plan, Step::Kind::kSend, mine, {}, root)
            : add_move(plan, Step::Kind::kReceive, {}, mine, root);
    return plan;
  }
  for (int r = 0; r < static_cast<int>(parts.size()); ++r) {
    const at::Tensor& part = parts[static_cast<std::size_t>(r)];
    if (r == rank) {
      add_move(
          plan,
          Step::Kind::kCopy,
          gathers ? mine : part,
          gathers ? part : mine,
          r);
    } else {
      gathers ? add_move(plan, Step::Kind::kReceive, {}, part, r)
              : add_move(plan, Step::Kind::kSend, part, {}, r);
    }
  }
  return plan;
}

// The lists of gather and scatter follow the rank's own tensor.
std::function<DriverPlan(Arguments&)> rooted(
    std::size_t own, bool gathers, int rank, int size, int root) {
  return [=](Arguments& a) {
    std::vector<at::Tensor> parts;
    for (int r = 0; rank == root && r < size; ++r) {
      parts.push_back(
          flat_bytes(a.placed(own + 1 + static_cast<std::size_t>(r))));
    }
    return rooted_plan(parts, flat_bytes(a.placed(own)), gathers, rank, root);
  };
}

void check_lists(
    std::size_t given,
    int rank,
    int64_t root,
    const char* name,
    const char* what) {
  TORCH_CHECK_VALUE(
      given == (rank == root ? 1 : 0),
      "hccl: ",
      name,
      ": rank ",
      root,
      " gives one list of ",
      what,
      ", the others none; rank ",
      rank,
      " gave ",
      given,
      ".");
}

void check_elements(
    const at::Tensor& other,
    const at::Tensor& own,
    const char* name,
    const char* what,
    const char* own_what) {
  TORCH_CHECK_VALUE(
      other.numel() == own.numel(),
      "hccl: ",
      name,
      ": an ",
      what,
      " has ",
      other.numel(),
      " elements, the ",
      own_what,
      " ",
      own.numel(),
      ".");
}

// One list of the `size` tensors after the rank's own; none where size is 0.
std::vector<Tensors> lists_of(Arguments& arguments, std::size_t own, int size) {
  std::vector<Tensors> lists(size > 0 ? 1 : 0);
  for (int r = 0; r < size; ++r) {
    lists[0].push_back(arguments.bytes(own + 1 + static_cast<std::size_t>(r)));
  }
  return lists;
}

}  // namespace

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
        const at::Tensor own = arguments.bytes(from);
        if (!even) {  // Gloo's has one size for all
          for (int r = 0; r < size; ++r) {
            at::Tensor part = arguments.bytes(to + static_cast<std::size_t>(r));
            if (r == rank) {
              part.copy_(own);
            }
            gloo_broadcast(*gloo, part, r, job.deadline);
          }
          return;
        }
        if (own.numel() == 0) {
          return;
        }
        std::vector<Tensors> all = lists_of(arguments, from, size);
        Tensors one{own};
        gloo->allgather(
                all, one, options_for<c10d::AllgatherOptions>(job.deadline))
            ->wait();
      };
  made->on_driver = [from, to, even, rank = rank_, size = size_](Arguments& a) {
    return gather_plan(a, from, to, even, rank, size);
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
  made->on_driver = [n = inputs.size()](Arguments& a) {
    DriverPlan plan;
    for (std::size_t i = 0; i < n; ++i) {
      add_move(
          plan,
          Step::Kind::kAllGather,
          flat_bytes(a.placed(2 * i)),
          flat_bytes(a.placed(2 * i + 1)));
    }
    return plan;
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
  check_lists(outputs.size(), rank_, o.rootRank, "gather", "outputs");
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
      check_elements(output, input, "gather", "output", "input");
      made->arguments.write(output);
    }
  }
  made->body = [gloo = shared_->gloo,
                from,
                here,
                root = o.rootRank,
                size = size_](Job& job) {
    Tensors one{job.arguments.bytes(from)};
    if (one[0].numel() == 0) {
      return;
    }
    std::vector<Tensors> all = lists_of(job.arguments, from, here ? size : 0);
    auto options = options_for<c10d::GatherOptions>(job.deadline);
    options.rootRank = root;
    gloo->gather(all, one, options)->wait();
  };
  made->on_driver =
      rooted(from, true, rank_, size_, static_cast<int>(o.rootRank));
  return start(made, here ? outputs[0] : Tensors{});
}

WorkPtr ProcessGroupHccl::scatter(
    Tensors& outputs,
    std::vector<Tensors>& inputs,
    const c10d::ScatterOptions& o) {
  const at::Tensor& output = only(outputs, "scatter");
  check_root(o.rootRank, size_, "scatter");
  const bool here = rank_ == o.rootRank;
  check_lists(inputs.size(), rank_, o.rootRank, "scatter", "inputs");
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
      check_elements(input, output, "scatter", "input", "output");
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
        std::vector<Tensors> all = lists_of(job.arguments, to, here ? size : 0);
        auto options = options_for<c10d::ScatterOptions>(job.deadline);
        options.rootRank = root;
        gloo->scatter(one, all, options)->wait();
      };
  made->on_driver =
      rooted(to, false, rank_, size_, static_cast<int>(o.rootRank));
  return start(made, {output});
}

}  // namespace npu::dist
