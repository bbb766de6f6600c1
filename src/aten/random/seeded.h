// SPDX-License-Identifier: Apache-2.0
// Frames that draw random numbers: the runner's, which ends on the embedded
// host driver, never with a generator of PyTorch's.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "aten/core/site.h"

namespace npu {

// A frame in parts. An undefined tensor is an absent operand.
struct SeededFrame {
  Site& site;
  std::uint32_t n_out;
  at::ArrayRef<at::Tensor> tensors;  // outputs first
  npu_rng rng;
  // Tensors are dense in one order: each is passed as one dimension.
  bool flat = true;
};

void run_seeded_bytes(
    const SeededFrame& frame, const void* attrs, std::uint32_t attr_bytes);

template <class Attrs>
void run_seeded(const SeededFrame& frame, Attrs& attrs) {
  attrs.size = sizeof(attrs);
  run_seeded_bytes(frame, &attrs, sizeof(attrs));
}

// The state for `words` words of `given` or of the device's own generator.
npu_rng reserve_random(
    const std::optional<at::Generator>& given,
    c10::DeviceIndex device,
    std::int64_t words);

// Refuses other dtypes in the words of PyTorch's kernel `name`.
void check_floating(const char* name, const at::Tensor& self);

// `tensor` itself when dense, else a contiguous temporary of its sizes.
at::Tensor dense_or_temporary(const at::Tensor& tensor);
// `tensor` expanded to `like`'s sizes, in `like`'s memory order.
at::Tensor laid_out_like(const at::Tensor& tensor, const at::Tensor& like);

}  // namespace npu
