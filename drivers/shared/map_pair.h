// SPDX-License-Identifier: Apache-2.0
// Two results of one formula, and the mark of a formula that divides.
#pragma once

#include <type_traits>

#include "shared/formulas.h"

namespace npu {

template <class A, class B>
struct Pair {
  using first_type = A;
  using second_type = B;
  A first;
  B second;
};

template <class T>
struct IsPair : std::false_type {};
template <class A, class B>
struct IsPair<Pair<A, B>> : std::true_type {};

// Integers divided by zero are an error.
#define NPU_MAP_DIVIDES(name, ...)         \
  NPU_MAP2(name##Unchecked, __VA_ARGS__)   \
  struct name : name##Unchecked {          \
    static constexpr bool kDivides = true; \
  };

}  // namespace npu
