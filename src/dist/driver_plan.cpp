// SPDX-License-Identifier: Apache-2.0
// Collectives in terms of what a driver's communicator can do.
#include "dist/driver_plan.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>

#include "driver/registry.h"
#include "runtime/dtype.h"

namespace npu::dist {
namespace {

// Complex numbers are pairs: a driver that has none sums those.
at::Tensor as_pairs(const Reduction& reduction, const at::Tensor& tensor) {
  return reduction.splits_complex() ? at::view_as_real(tensor) : tensor;
}

void then(DriverPlan& plan, std::function<void()> more) {
  plan.after = [first = std::move(plan.after), more = std::move(more)] {
    if (first) {
      first();
    }
    more();
  };
}

// ---- the driver's functions ----

npu_status queue_all_to_all(const Communicator::Call& call, const Step& step) {
  std::vector<std::uint64_t> counts[4];  // sent, where; received, where
  for (const auto* bytes : {&step.sent, &step.received}) {
    auto& some = counts[bytes == &step.sent ? 0 : 2];
    auto& where = counts[bytes == &step.sent ? 1 : 3];
    std::uint64_t at = 0;
    for (const auto n : *bytes) {
      some.push_back(static_cast<std::uint64_t>(n));
      where.push_back(at);
      at += static_cast<std::uint64_t>(n);
    }
  }
  return call.table.all_to_all(
      call.comm,
      step.from.data_ptr(),
      counts[0].data(),
      counts[1].data(),
      step.to.data_ptr(),
      counts[2].data(),
      counts[3].data(),
      NPU_U8,
      call.stream);
}

npu_status queue_reduction(const Communicator::Call& call, const Step& step) {
  const npu_dtype dtype = to_npu_dtype(step.from.scalar_type());
  const void* const from = step.from.data_ptr();
  void* const to = step.to.defined() ? step.to.data_ptr() : nullptr;
  const auto all = static_cast<std::uint64_t>(step.from.numel());
  if (step.kind == Step::Kind::kAllReduce) {
    return call.table.all_reduce(
        call.comm, from, to, all, dtype, step.reduction, call.stream);
  }
  if (step.kind == Step::Kind::kReduce) {
    return call.table.reduce(
        call.comm,
        from,
        to,
        all,
        dtype,
        step.reduction,
        step.peer,
        call.stream);
  }
  return call.table.reduce_scatter(
      call.comm,
      from,
      to,
      static_cast<std::uint64_t>(step.to.numel()),
      dtype,
      step.reduction,
      call.stream);
}

npu_status queue_step(const Communicator::Call& call, const Step& step) {
  const std::uint64_t sent = step.from.defined() ? step.from.nbytes() : 0;
  const std::uint64_t room = step.to.defined() ? step.to.nbytes() : 0;
  const void* const from = sent ? step.from.data_ptr() : nullptr;
  void* const to = room ? step.to.data_ptr() : nullptr;
  const auto& table = call.table;
  switch (step.kind) {
    case Step::Kind::kBroadcast:
      return table.broadcast(
          call.comm, from, to, room, NPU_U8, step.peer, call.stream);
    case Step::Kind::kAllGather:
      return table.all_gather(call.comm, from, to, sent, NPU_U8, call.stream);
    case Step::Kind::kAllToAll:
      return queue_all_to_all(call, step);
    case Step::Kind::kSend:
      return table.send(call.comm, from, sent, NPU_U8, step.peer, call.stream);
    case Step::Kind::kReceive:
      return table.recv(call.comm, to, room, NPU_U8, step.peer, call.stream);
    case Step::Kind::kCopy:
      return NPU_OK;  // not the communicator's business
    default:
      return queue_reduction(call, step);
  }
}

}  // namespace

void add_all_reduce(
    DriverPlan& plan, const Reduction& reduction, at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return;
  }
  const at::Tensor values = reduction.prepared(tensor);
  const at::Tensor flat = as_pairs(reduction, values);
  plan.steps.push_back(
      {Step::Kind::kAllReduce, flat, flat, -1, reduction.of_driver()});
  then(plan, [reduction, values, tensor]() mutable {
    reduction.finish(values, tensor);
  });
}

void add_reduce(
    DriverPlan& plan,
    const Reduction& reduction,
    const at::Tensor& from,
    at::Tensor* into,
    int root) {
  if (from.numel() == 0) {
    return;
  }
  const at::Tensor values = reduction.prepared(from);
  const at::Tensor to = into != nullptr ? at::empty_like(values) : at::Tensor();
  plan.steps.push_back(
      {Step::Kind::kReduce,
       as_pairs(reduction, values),
       to.defined() ? as_pairs(reduction, to) : to,
       root,
       reduction.of_driver()});
  if (into != nullptr) {
    then(plan, [reduction, to, target = *into]() mutable {
      reduction.finish(to, target);
    });
  }
}

void add_reduce_scatter(
    DriverPlan& plan,
    const Reduction& reduction,
    const at::Tensor& from,
    at::Tensor& to) {
  if (to.numel() == 0) {
    return;
  }
  const at::Tensor values = reduction.prepared(from);
  const at::Tensor got = at::empty(to.sizes(), values.options());
  plan.steps.push_back(
      {Step::Kind::kReduceScatter,
       as_pairs(reduction, values),
       as_pairs(reduction, got),
       -1,
       reduction.of_driver()});
  then(plan, [reduction, got, to]() mutable { reduction.finish(got, to); });
}

void add_move(
    DriverPlan& plan,
    Step::Kind kind,
    const at::Tensor& from,
    const at::Tensor& to,
    int peer) {
  if ((from.defined() && from.numel() != 0) ||
      (to.defined() && to.numel() != 0)) {
    plan.steps.push_back({kind, from, to, peer});
  }
}

// Of a dense tensor. A dimension of one element may have any stride, which
// view(dtype) does not take.
at::Tensor flat_bytes(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}).view(at::kByte);
}

npu_status queue_plan(const Communicator::Call& call, const DriverPlan& plan) {
  const npu_status status = queue_steps(call, plan.steps);
  return status == NPU_E_UNSUPPORTED && !plan.otherwise.empty()
             ? queue_steps(call, plan.otherwise)
             : status;
}

npu_status queue_steps(
    const Communicator::Call& call, const std::vector<Step>& steps) {
  const bool several = steps.size() > 1;
  npu_status status = several ? call.table.group_begin() : NPU_OK;
  for (std::size_t i = 0; i < steps.size() && status == NPU_OK; ++i) {
    status = queue_step(call, steps[i]);
  }
  if (several) {
    const npu_status ended = call.table.group_end();
    status = status != NPU_OK ? status : ended;
  }
  for (const Step& step : steps) {
    if (status == NPU_OK && step.kind == Step::Kind::kCopy) {
      status = active_driver().memory().copy_on_device(
          call.stream,
          step.to.data_ptr(),
          step.from.data_ptr(),
          step.from.nbytes());
    }
  }
  return status;
}

}  // namespace npu::dist
