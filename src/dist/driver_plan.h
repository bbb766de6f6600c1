// SPDX-License-Identifier: Apache-2.0
// Collectives in terms of what a driver's communicator can do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "dist/communicator.h"
#include "dist/reduction.h"

namespace npu::dist {

// One function of comm/1. Tensors are dense and on the communicator's device;
// what only moves goes as bytes.
struct Step {
  enum class Kind {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kSend,
    kReceive,
    kCopy,  // within the rank
  };
  Kind kind;
  at::Tensor from;
  at::Tensor to;
  int peer = -1;  // or root
  npu_reduction reduction = 0;
  // Of an all to all, in bytes.
  std::vector<std::int64_t> sent{};
  std::vector<std::int64_t> received{};
};

struct DriverPlan {
  std::vector<Step> steps;        // queued as one
  std::vector<Step> otherwise{};  // where the driver declines those
  std::function<void()> after{};  // once they are done; may be empty
};

// Adds one to a plan. Nothing is added where there is nothing to do.
void add_all_reduce(
    DriverPlan& plan, const Reduction& reduction, at::Tensor& tensor);
// `into` is nullptr on ranks other than `root`.
void add_reduce(
    DriverPlan& plan,
    const Reduction& reduction,
    const at::Tensor& from,
    at::Tensor* into,
    int root);
void add_reduce_scatter(
    DriverPlan& plan,
    const Reduction& reduction,
    const at::Tensor& from,
    at::Tensor& to);
void add_move(
    DriverPlan& plan,
    Step::Kind kind,
    const at::Tensor& from,
    const at::Tensor& to,
    int peer = -1);

// The bytes of a dense tensor.
at::Tensor flat_bytes(const at::Tensor& tensor);

npu_status queue_plan(const Communicator::Call& call, const DriverPlan& plan);
npu_status queue_steps(
    const Communicator::Call& call, const std::vector<Step>& steps);

}  // namespace npu::dist
