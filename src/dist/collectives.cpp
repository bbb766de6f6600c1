// SPDX-License-Identifier: Apache-2.0
// The collectives and messages: what the ranks must agree on, what Gloo is
// asked to do, and what a driver's communicator is asked to do. What only moves
// data goes as bytes, so every dtype works.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "dist/checks.h"
#include "dist/process_group.h"
#include "dist/reduction.h"
#include "runtime/device.h"

namespace npu::dist {

using c10d::OpType;

// ---- broadcast ----

WorkPtr ProcessGroupHccl::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& o) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  check_root(o.rootRank, size_, "broadcast");
  const auto made =
      job(OpType::BROADCAST,
          text_of(c10::str("broadcast from rank ", o.rootRank), tensor),
          tensor,
          o.timeout);
  const auto mine = rank_ == o.rootRank ? made->arguments.read(tensor)
                                        : made->arguments.write(tensor);
  made->on_gloo = [gloo = state_->gloo, mine, root = o.rootRank](Job& job) {
    gloo_broadcast(*gloo, job.arguments.bytes(mine), root, job.note.deadline);
  };
  made->on_driver = [mine, root = static_cast<int>(o.rootRank)](Arguments& a) {
    DriverPlan plan;
    const at::Tensor bytes = flat_bytes(a.placed(mine));
    add_move(plan, Step::Kind::kBroadcast, bytes, bytes, root);
    return plan;
  };
  return start(made, {tensor});
}

// ---- reductions ----

namespace {

void gloo_allreduce(
    c10d::Backend& gloo,
    const Reduction& reduction,
    at::Tensor& host,
    std::chrono::steady_clock::time_point deadline) {
  if (host.numel() == 0) {
    return;
  }
  auto options = options_for<c10d::AllreduceOptions>(deadline);
  options.reduceOp = reduction.of_gloo();
  Tensors one{reduction.prepared(host)};
  gloo.allreduce(one, options)->wait();
  reduction.finish(one[0], host);
}

// Reduces on `root`; what Gloo leaves in the others' memory is its own.
void gloo_reduce(
    c10d::Backend& gloo,
    const Reduction& reduction,
    const at::Tensor& input,
    at::Tensor* into,
    int64_t root,
    std::chrono::steady_clock::time_point deadline) {
  if (input.numel() == 0) {
    return;
  }
  auto options = options_for<c10d::ReduceOptions>(deadline);
  options.reduceOp = reduction.of_gloo();
  options.rootRank = root;
  const at::Tensor prepared = reduction.prepared(input);
  Tensors one{prepared.is_alias_of(input) ? prepared.clone() : prepared};
  gloo.reduce(one, options)->wait();
  if (into != nullptr) {
    reduction.finish(one[0], *into);
  }
}

}  // namespace

WorkPtr ProcessGroupHccl::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& o) {
  const at::Tensor& tensor = only(tensors, "all_reduce");
  const Reduction reduction(o.reduceOp, tensor.scalar_type(), size_);
  const auto made =
      job(OpType::ALLREDUCE,
          text_of("all_reduce " + reduction.name(), tensor),
          tensor,
          o.timeout);
  const auto mine = made->arguments.update(tensor);
  made->on_gloo = [gloo = state_->gloo, mine, reduction](Job& job) {
    gloo_allreduce(
        *gloo, reduction, job.arguments.host(mine), job.note.deadline);
  };
  if (const auto native = on_driver(reduction)) {
    made->on_driver = [mine, reduction = *native](Arguments& a) {
      DriverPlan plan;
      add_all_reduce(plan, reduction, a.placed(mine));
      return plan;
    };
  }
  return start(made, {tensor});
}

WorkPtr ProcessGroupHccl::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& o) {
  TORCH_CHECK_VALUE(
      !tensors.empty(), "hccl: all_reduce_coalesced got an empty list.");
  std::string text = "all_reduce_coalesced";
  std::vector<Reduction> reductions;
  for (const auto& tensor : tensors) {
    reductions.emplace_back(o.reduceOp, tensor.scalar_type(), size_);
    text = text_of(text + " " + reductions.back().name(), tensor);
  }
  const auto made =
      job(OpType::ALLREDUCE_COALESCED, text, tensors[0], o.timeout);
  for (const auto& tensor : tensors) {
    made->arguments.update(tensor);
  }
  made->on_gloo = [gloo = state_->gloo, reductions](Job& job) {
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      gloo_allreduce(
          *gloo, reductions[i], job.arguments.host(i), job.note.deadline);
    }
  };
  if (const auto natives = all_on_driver(reductions)) {
    made->on_driver = [reductions = *natives](Arguments& a) {
      DriverPlan plan;
      for (std::size_t i = 0; i < reductions.size(); ++i) {
        add_all_reduce(plan, reductions[i], a.placed(i));
      }
      return plan;
    };
  }
  return start(made, tensors);
}

WorkPtr ProcessGroupHccl::reduce(
    Tensors& tensors, const c10d::ReduceOptions& o) {
  const at::Tensor& tensor = only(tensors, "reduce");
  check_root(o.rootRank, size_, "reduce");
  const Reduction reduction(o.reduceOp, tensor.scalar_type(), size_);
  const auto made =
      job(OpType::REDUCE,
          text_of(
              c10::str("reduce ", reduction.name(), " to rank ", o.rootRank),
              tensor),
          tensor,
          o.timeout);
  const bool here = rank_ == o.rootRank;
  const auto mine =
      here ? made->arguments.update(tensor) : made->arguments.read(tensor);
  made->on_gloo =
      [gloo = state_->gloo, mine, reduction, here, root = o.rootRank](
          Job& job) {
        at::Tensor& host = job.arguments.host(mine);
        gloo_reduce(
            *gloo,
            reduction,
            host,
            here ? &host : nullptr,
            root,
            job.note.deadline);
      };
  if (const auto native = on_driver(reduction)) {
    made->on_driver = [mine,
                       reduction = *native,
                       here,
                       root = static_cast<int>(o.rootRank)](Arguments& a) {
      DriverPlan plan;
      at::Tensor& placed = a.placed(mine);
      add_reduce(plan, reduction, placed, here ? &placed : nullptr, root);
      return plan;
    };
  }
  return start(made, {tensor});
}

// ---- reducing and scattering ----

WorkPtr ProcessGroupHccl::reduce_scatter(
    Tensors& outputs,
    std::vector<Tensors>& inputs,
    const c10d::ReduceScatterOptions& o) {
  const at::Tensor& output = only(outputs, "reduce_scatter");
  TORCH_CHECK_VALUE(
      inputs.size() == 1, "hccl: reduce_scatter takes one list of inputs.");
  check_count(inputs[0].size(), size_, "reduce_scatter");
  const Reduction reduction(o.reduceOp, output.scalar_type(), size_);
  std::string text =
      c10::str("reduce_scatter ", reduction.name(), " ", output.scalar_type());
  for (const auto& input : inputs[0]) {
    check_same(input, output, "reduce_scatter");
    text += c10::str(" ", input.numel());
  }
  TORCH_CHECK_VALUE(
      inputs[0][rank_].numel() == output.numel(),
      "hccl: reduce_scatter: input ",
      rank_,
      " has ",
      inputs[0][rank_].numel(),
      " elements, the output ",
      output.numel(),
      ".");
  const auto made = job(OpType::REDUCE_SCATTER, text, output, o.timeout);
  const auto to = made->arguments.write(output);
  for (const auto& input : inputs[0]) {
    made->arguments.read(input);
  }
  made->on_gloo =
      [gloo = state_->gloo, to, reduction, rank = rank_, size = size_](
          Job& job) {
        for (int r = 0; r < size; ++r) {
          gloo_reduce(
              *gloo,
              reduction,
              job.arguments.host(to + 1 + static_cast<std::size_t>(r)),
              r == rank ? &job.arguments.host(to) : nullptr,
              r,
              job.note.deadline);
        }
      };
  if (const auto native = on_driver(reduction)) {
    made->on_driver =
        [to, reduction = *native, rank = rank_, size = size_](Arguments& a) {
          DriverPlan plan;
          for (int r = 0; r < size; ++r) {
            add_reduce(
                plan,
                reduction,
                a.placed(to + 1 + static_cast<std::size_t>(r)),
                r == rank ? &a.placed(to) : nullptr,
                r);
          }
          return plan;
        };
  }
  return start(made, {output});
}

WorkPtr ProcessGroupHccl::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& o) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, o);
}

WorkPtr ProcessGroupHccl::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& o) {
  TORCH_CHECK_VALUE(
      !inputs.empty() && inputs.size() == outputs.size(),
      "hccl: reduce_scatter_tensor: ",
      inputs.size(),
      " inputs and ",
      outputs.size(),
      " outputs.");
  std::string text = "reduce_scatter_tensor";
  std::vector<Reduction> reductions;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_same(inputs[i], outputs[i], "reduce_scatter_tensor");
    TORCH_CHECK_VALUE(
        inputs[i].numel() == outputs[i].numel() * size_,
        "hccl: reduce_scatter_tensor: an input of ",
        inputs[i].numel(),
        " elements does not fall into ",
        size_,
        " outputs of ",
        outputs[i].numel(),
        ".");
    reductions.emplace_back(o.reduceOp, inputs[i].scalar_type(), size_);
    text = text_of(text + " " + reductions.back().name(), outputs[i]);
  }
  const auto made =
      job(OpType::_REDUCE_SCATTER_BASE, text, inputs[0], o.timeout);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    made->arguments.read(inputs[i]);
    made->arguments.write(outputs[i]);
  }
  made->on_gloo = [gloo = state_->gloo, reductions](Job& job) {
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      const at::Tensor flat = job.arguments.host(2 * i).reshape({-1});
      at::Tensor& output = job.arguments.host(2 * i + 1);
      if (flat.numel() == 0) {
        continue;
      }
      at::Tensor from = reductions[i].prepared(flat);
      at::Tensor to = at::empty({output.numel()}, from.options());
      auto options = options_for<c10d::ReduceScatterOptions>(job.note.deadline);
      options.reduceOp = reductions[i].of_gloo();
      gloo->_reduce_scatter_base(to, from, options)->wait();
      at::Tensor place = output.reshape({-1});
      reductions[i].finish(to, place);
    }
  };
  if (const auto natives = all_on_driver(reductions)) {
    made->on_driver = [reductions = *natives](Arguments& a) {
      DriverPlan plan;
      for (std::size_t i = 0; i < reductions.size(); ++i) {
        add_reduce_scatter(
            plan, reductions[i], a.placed(2 * i), a.placed(2 * i + 1));
      }
      return plan;
    };
  }
  return start(made, outputs);
}

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
  made->on_gloo = [gloo = state_->gloo,
                   from,
                   to,
                   even,
                   rank = rank_,
                   size = size_](Job& job) {
    auto& arguments = job.arguments;
    const at::Tensor own = arguments.bytes(from);
    if (!even) {  // Gloo's has one size for all
      for (int r = 0; r < size; ++r) {
        at::Tensor part = arguments.bytes(to + static_cast<std::size_t>(r));
        if (r == rank) {
          part.copy_(own);
        }
        gloo_broadcast(*gloo, part, r, job.note.deadline);
      }
      return;
    }
    if (own.numel() == 0) {
      return;
    }
    std::vector<Tensors> all = lists_of(arguments, from, size);
    Tensors one{own};
    gloo->allgather(
            all, one, options_for<c10d::AllgatherOptions>(job.note.deadline))
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
  for (const auto& of_rank : outputs) {
    TORCH_CHECK_VALUE(
        of_rank.size() == inputs.size(),
        "hccl: all_gather_coalesced: ",
        inputs.size(),
        " inputs, but ",
        of_rank.size(),
        " outputs of one rank.");
  }
  startCoalescing();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Tensors> each(1);
    for (auto& of_rank : outputs) {
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
  made->on_gloo = [gloo = state_->gloo, n = inputs.size()](Job& job) {
    for (std::size_t i = 0; i < n; ++i) {
      at::Tensor from = job.arguments.bytes(2 * i);
      at::Tensor to = job.arguments.bytes(2 * i + 1);
      if (from.numel() != 0) {
        gloo->_allgather_base(
                to,
                from,
                options_for<c10d::AllgatherOptions>(job.note.deadline))
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
  made->on_gloo = [gloo = state_->gloo,
                   from,
                   here,
                   root = o.rootRank,
                   size = size_](Job& job) {
    Tensors one{job.arguments.bytes(from)};
    if (one[0].numel() == 0) {
      return;
    }
    std::vector<Tensors> all = lists_of(job.arguments, from, here ? size : 0);
    auto options = options_for<c10d::GatherOptions>(job.note.deadline);
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
  made->on_gloo =
      [gloo = state_->gloo, to, here, root = o.rootRank, size = size_](
          Job& job) {
        Tensors one{job.arguments.bytes(to)};
        if (one[0].numel() == 0) {
          return;
        }
        std::vector<Tensors> all = lists_of(job.arguments, to, here ? size : 0);
        auto options = options_for<c10d::ScatterOptions>(job.note.deadline);
        options.rootRank = root;
        gloo->scatter(one, all, options)->wait();
      };
  made->on_driver =
      rooted(to, false, rank_, size_, static_cast<int>(o.rootRank));
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
  made->note.counts = counts_of(in, out);
  const auto from = made->arguments.read(input);
  const auto to = made->arguments.write(output);
  made->on_gloo = [gloo = state_->gloo, from, to, out, in](Job& job) mutable {
    at::Tensor sent = job.arguments.bytes(from);
    at::Tensor got = job.arguments.bytes(to);
    gloo->alltoall_base(
            got,
            sent,
            out,
            in,
            options_for<c10d::AllToAllOptions>(job.note.deadline))
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
  made->note.counts = counts_of(in, out);
  made->on_gloo = [gloo = state_->gloo, in, out](Job& job) {
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
            options_for<c10d::AllToAllOptions>(job.note.deadline))
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

// ---- messages ----

namespace {

at::Tensor& single(Tensors& tensors, const char* name) {
  TORCH_CHECK_VALUE(
      tensors.size() == 1,
      "hccl: ",
      name,
      " takes one tensor, got ",
      tensors.size(),
      ".");
  return tensors[0];
}

std::string message_text(
    const std::string& name, const at::Tensor& tensor, int tag) {
  return c10::str(
      name, " ", tensor.scalar_type(), " ", tensor.sizes(), " tag ", tag);
}

void check_partner(int other, int rank, int size, const char* name) {
  TORCH_CHECK_VALUE(
      other >= 0 && other < size && other != rank,
      "hccl: ",
      name,
      ": rank ",
      other,
      " is no partner of rank ",
      rank,
      " in a group of ",
      size,
      ".");
}

// Gloo has no time-out of a call here, only of the wait.
bool await(
    const WorkPtr& work, std::chrono::steady_clock::time_point deadline) {
  return work->wait(time_left(deadline));
}

}  // namespace

WorkPtr ProcessGroupHccl::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = single(tensors, "send");
  check_partner(to, rank_, size_, "send");
  const auto made =
      job(OpType::SEND,
          message_text(c10::str("send to rank ", to), tensor, tag),
          tensor,
          c10d::kUnsetTimeout);
  made->note.partner = to;
  made->tag = tag;
  const auto from = made->arguments.read(tensor);
  made->on_gloo = [gloo = state_->gloo, from, to, tag](Job& job) {
    at::Tensor data = job.arguments.bytes(from);
    Tensors size{at::full({1}, data.numel(), at::kLong)};
    await(gloo->send(size, to, tag), job.note.deadline);
    if (data.numel() != 0) {
      Tensors one{data};
      await(gloo->send(one, to, tag), job.note.deadline);
    }
  };
  made->on_driver = [from](Arguments& a) {
    DriverPlan plan;
    add_move(plan, Step::Kind::kSend, flat_bytes(a.placed(from)), {}, 1);
    return plan;
  };
  return start_message(made, tensor);
}

WorkPtr ProcessGroupHccl::receive(Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = single(tensors, "recv");
  const auto made =
      job(from < 0 ? OpType::RECVANYSOURCE : OpType::RECV,
          message_text(
              from < 0 ? std::string("recv from any rank")
                       : c10::str("recv from rank ", from),
              tensor,
              tag),
          tensor,
          c10d::kUnsetTimeout);
  made->note.partner = from;
  made->tag = tag;
  const auto to = made->arguments.write(tensor);
  made->on_gloo = [gloo = state_->gloo, to, from, tag](Job& job) {
    Tensors size{at::zeros({1}, at::kLong)};
    int source = from;
    if (from < 0) {
      const auto first = gloo->recvAnysource(size, tag);
      await(first, job.note.deadline);
      source = first->sourceRank();
    } else {
      await(gloo->recv(size, from, tag), job.note.deadline);
    }
    job.work->set_source(source);
    const int64_t sent = size[0].const_data_ptr<int64_t>()[0];
    at::Tensor room = job.arguments.bytes(to);
    Tensors one{sent == room.numel() ? room : at::empty({sent}, at::kByte)};
    if (sent != 0) {
      await(gloo->recv(one, source, tag), job.note.deadline);
    }
    if (sent != room.numel()) {
      throw_disagreement(c10::str(
          "hccl: ",
          job.note.text,
          " has room for ",
          room.numel(),
          " bytes, but rank ",
          source,
          " sent ",
          sent,
          ". The message was dropped."));
    }
  };
  made->on_driver = [to](Arguments& a) {
    DriverPlan plan;
    add_move(plan, Step::Kind::kReceive, {}, flat_bytes(a.placed(to)), 0);
    return plan;
  };
  return start_message(made, tensor);
}

WorkPtr ProcessGroupHccl::recv(Tensors& tensors, int from, int tag) {
  check_partner(from, rank_, size_, "recv");
  return receive(tensors, from, tag);
}

WorkPtr ProcessGroupHccl::recvAnysource(Tensors& tensors, int tag) {
  TORCH_CHECK_VALUE(
      tag != 0 || !messages_use_driver(),
      "hccl: recv from any rank needs a tag other than 0 here: messages "
      "with tag 0 go through the driver's communicators, which need to know "
      "the sender. NPU_COLLECTIVES=host leaves those alone.");
  return receive(tensors, -1, tag);
}

// ---- barriers ----

WorkPtr ProcessGroupHccl::barrier(const c10d::BarrierOptions& o) {
  const auto index = !o.device_ids.empty()
                         ? static_cast<c10::DeviceIndex>(o.device_ids[0])
                         : current_device();
  const at::Tensor nothing =
      at::empty({0}, at::TensorOptions().device(kDeviceType, index));
  const auto made = job(OpType::BARRIER, "barrier", nothing, o.timeout);
  const bool met = state_->board != nullptr;  // where meeting is one already
  made->on_gloo = [gloo = state_->gloo, met](Job& job) {
    if (!met) {
      c10d::BarrierOptions options;
      options.timeout = time_left(job.note.deadline);
      gloo->barrier(options)->wait();
    }
  };
  return start(made, {});
}

void ProcessGroupHccl::monitoredBarrier(
    const c10d::BarrierOptions& o, bool /*all*/) {
  // The meeting names every rank that did not come.
  barrier(o)->wait(kNoTimeout);
}

}  // namespace npu::dist
