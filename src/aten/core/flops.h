// SPDX-License-Identifier: Apache-2.0
// Floating point operations of matrix products, convolutions and attention, as
// PyTorch's flop counter counts them: a multiplication and an addition are two.
// Counts calls of every thread, forward and backward.
#pragma once

#include <cstdint>

namespace npu::flops {

// From zero; a second start without stop changes nothing.
void start();
void stop();
// What runs while paused is only in `traversed`.
void pause();
void resume();

struct Counts {
  std::int64_t recorded = 0;
  std::int64_t traversed = 0;
};
Counts counts();

}  // namespace npu::flops
