// SPDX-License-Identifier: Apache-2.0
// What collectives check of their arguments, and tell Gloo besides.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <string>

#include "dist/group_state.h"

namespace npu::dist {

// "all_reduce SUM Float [4, 3]"
inline std::string text_of(const std::string& name, const at::Tensor& tensor) {
  return c10::str(name, " ", tensor.scalar_type(), " ", tensor.sizes());
}

inline at::Tensor& only(Tensors& tensors, const char* name) {
  TORCH_CHECK_VALUE(
      tensors.size() == 1,
      "hccl: ",
      name,
      " takes one tensor per process, got ",
      tensors.size(),
      ".");
  TORCH_CHECK_VALUE(
      tensors[0].layout() == c10::kStrided,
      "hccl: ",
      name,
      " takes dense tensors, got one with layout ",
      tensors[0].layout(),
      ". Convert it with to_dense().");
  return tensors[0];
}

inline void check_root(int64_t root, int size, const char* name) {
  TORCH_CHECK_VALUE(
      root >= 0 && root < size,
      "hccl: ",
      name,
      ": rank ",
      root,
      " is not in the group, which has ranks 0 to ",
      size - 1,
      ".");
}

inline void check_same(
    const at::Tensor& one, const at::Tensor& other, const char* name) {
  TORCH_CHECK_TYPE(
      one.scalar_type() == other.scalar_type(),
      "hccl: ",
      name,
      ": input is ",
      one.scalar_type(),
      " and output ",
      other.scalar_type(),
      "; they must have one dtype.");
  TORCH_CHECK_VALUE(
      one.device() == other.device(),
      "hccl: ",
      name,
      ": input is on ",
      one.device(),
      " and output on ",
      other.device(),
      ".");
}

inline void check_count(std::size_t count, int size, const char* name) {
  TORCH_CHECK_VALUE(
      count == static_cast<std::size_t>(size),
      "hccl: ",
      name,
      " needs one tensor per rank: ",
      size,
      ", got ",
      count,
      ".");
}

template <class Options>
Options options_for(std::chrono::steady_clock::time_point deadline) {
  Options options;
  options.timeout = time_left(deadline);
  return options;
}

inline void gloo_broadcast(
    c10d::Backend& gloo,
    const at::Tensor& bytes,
    int64_t root,
    std::chrono::steady_clock::time_point deadline) {
  if (bytes.numel() == 0) {
    return;
  }
  auto options = options_for<c10d::BroadcastOptions>(deadline);
  options.rootRank = root;
  Tensors one{bytes};
  gloo.broadcast(one, options)->wait();
}

}  // namespace npu::dist
