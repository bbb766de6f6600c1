// SPDX-License-Identifier: Apache-2.0
// What a ReduceOp means for each dtype, in terms of what Gloo can do.
//
// Gloo rounds halves at every hop and lacks int16, the unsigned integers,
// float8, integer averages and premultiplied sums. Here halves and float8 are
// summed in float32 and rounded once; narrow integers are summed in wider ones,
// which gives the same bits.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <optional>
#include <string>

#include "npu/comm.h"

namespace npu::dist {

class Reduction {
 public:
  // Throws for a dtype the operation is not defined for.
  Reduction(const c10d::ReduceOp& op, at::ScalarType dtype, int size);

  // "SUM"; for a fingerprint.
  std::string name() const;
  c10d::ReduceOp of_gloo() const {
    return gloo_;
  }
  // For a driver that reduces these dtypes itself (NPU_DTYPE_BIT), in that
  // many ways (1 << NPU_REDUCTION_*): the same, with halves as they are where
  // it takes them. None where it lacks what this comes to.
  std::optional<Reduction> for_driver(
      std::uint64_t dtypes, std::uint64_t reductions) const;
  npu_reduction of_driver() const;
  // The driver sums complex numbers as pairs.
  bool splits_complex() const {
    return split_;
  }

  // The values as Gloo is to reduce them: `host` itself where it can.
  at::Tensor prepared(const at::Tensor& host) const;
  // Puts what Gloo made of a prepared tensor into `host`.
  void finish(const at::Tensor& reduced, at::Tensor& host) const;

 private:
  c10d::ReduceOp op_;
  c10d::ReduceOp gloo_;
  at::ScalarType dtype_;
  at::ScalarType wide_;
  int size_;
  bool split_ = false;
  bool flipped_ =
      false;  // the sign bit, so that unsigned order is signed order
};

}  // namespace npu::dist
