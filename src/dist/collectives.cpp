// SPDX-License-Identifier: Apache-2.0
// Broadcasts and reductions: what the ranks must agree on, and what Gloo is
// asked to do.
#include <ATen/ops/empty.h>

#include "dist/checks.h"
#include "dist/reduction.h"
#include "dist/shared.h"

namespace npu::dist {
using c10d::OpType;

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
  made->body = [gloo = shared_->gloo, mine, root = o.rootRank](Job& job) {
    gloo_broadcast(*gloo, job.arguments.bytes(mine), root, job.deadline);
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
  made->body = [gloo = shared_->gloo, mine, reduction](Job& job) {
    gloo_allreduce(*gloo, reduction, job.arguments.host(mine), job.deadline);
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
  made->body = [gloo = shared_->gloo, reductions](Job& job) {
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      gloo_allreduce(*gloo, reductions[i], job.arguments.host(i), job.deadline);
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
  made->body = [gloo = shared_->gloo, mine, reduction, here, root = o.rootRank](
                   Job& job) {
    at::Tensor& host = job.arguments.host(mine);
    gloo_reduce(
        *gloo, reduction, host, here ? &host : nullptr, root, job.deadline);
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
  made->body =
      [gloo = shared_->gloo, to, reduction, rank = rank_, size = size_](
          Job& job) {
        for (int r = 0; r < size; ++r) {
          gloo_reduce(
              *gloo,
              reduction,
              job.arguments.host(to + 1 + static_cast<std::size_t>(r)),
              r == rank ? &job.arguments.host(to) : nullptr,
              r,
              job.deadline);
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
  made->body = [gloo = shared_->gloo, reductions](Job& job) {
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      const at::Tensor flat = job.arguments.host(2 * i).reshape({-1});
      at::Tensor& output = job.arguments.host(2 * i + 1);
      if (flat.numel() == 0) {
        continue;
      }
      at::Tensor from = reductions[i].prepared(flat);
      at::Tensor to = at::empty({output.numel()}, from.options());
      auto options = options_for<c10d::ReduceScatterOptions>(job.deadline);
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

}  // namespace npu::dist
