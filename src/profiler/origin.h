// SPDX-License-Identifier: Apache-2.0
// Which operator and which user's range a thread is inside of, as Kineto
// numbers them. 0 = none, or a thread that is not profiled.
#pragma once

#include <cstdint>

namespace npu::profiler {

struct Origin {
  std::uint64_t op = 0;
  std::uint64_t range = 0;
};

// Numbers of earlier sessions are forgotten: a session may end inside of an
// operator, whose number would then never be removed.
void forget_origins() noexcept;

Origin current_origin() noexcept;
void push_op(std::uint64_t id);
void pop_op() noexcept;
void push_range(std::uint64_t id);
void pop_range() noexcept;

}  // namespace npu::profiler
