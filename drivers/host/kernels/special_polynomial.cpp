// SPDX-License-Identifier: Apache-2.0
// Orthogonal polynomials, by their recurrences.
#include <algorithm>
#include <cmath>

#include "kernels/special.h"
#include "kernels/special_wide.h"

namespace npu::host {
namespace {

// p(k + 1) = next(k, p(k), p(k - 1)) from p(0) = 1 and p(1) = first.
template <class W, class Next>
W recurrence(W degree, W first, Next next) {
  constexpr W kMostSteps = 1 << 24;  // a degree nobody means must not hang
  const auto n = static_cast<long>(std::min(degree, kMostSteps));
  if (!(degree >= 1)) {
    return degree <= -1 ? W(0) : W(1);
  }
  W before = 1;
  W here = first;
  for (long k = 1; k < n && !std::isnan(here); ++k) {
    const W after = next(W(k), here, before);
    before = here;
    here = after;
  }
  return here;
}

constexpr long kTrigonometric = 8;  // from this degree on, where |x| < 1

template <class W>
W whole(W degree) {
  return std::trunc(degree);
}

// At 1 and -1 both ends of a long recurrence are known.
template <class W>
W at_end(W x, W degree, W at_one, W at_minus_one) {
  const bool even = std::fmod(whole(degree), W(2)) == 0;
  return degree <= -1 ? W(0)
         : x > 0      ? at_one
         : even       ? at_minus_one
                      : -at_minus_one;
}

template <class W>
bool use_angle(W x, W degree) {
  return degree > kTrigonometric && std::abs(x) < 1;
}
template <class W>
W chebyshev_t_of(W x, W degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, W(1), W(1));
  }
  if (use_angle(x, degree)) {
    return std::cos(whole(degree) * std::acos(x));
  }
  return recurrence(
      degree, x, [&](W, W here, W before) { return 2 * x * here - before; });
}
template <class W>
W chebyshev_u_of(W x, W degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, whole(degree) + 1, whole(degree) + 1);
  }
  if (use_angle(x, degree)) {
    const W angle = std::acos(x);
    return std::sin((whole(degree) + 1) * angle) / std::sin(angle);
  }
  return recurrence(degree, 2 * x, [&](W, W here, W before) {
    return 2 * x * here - before;
  });
}
template <class W>
W chebyshev_v_of(W x, W degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, W(1), 2 * whole(degree) + 1);
  }
  if (use_angle(x, degree)) {
    const W angle = std::acos(x);
    return std::cos((whole(degree) + W(0.5)) * angle) / std::cos(angle / 2);
  }
  return recurrence(degree, 2 * x - 1, [&](W, W here, W before) {
    return 2 * x * here - before;
  });
}
template <class W>
W chebyshev_w_of(W x, W degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, 2 * whole(degree) + 1, W(1));
  }
  if (use_angle(x, degree)) {
    const W angle = std::acos(x);
    return std::sin((whole(degree) + W(0.5)) * angle) / std::sin(angle / 2);
  }
  return recurrence(degree, 2 * x + 1, [&](W, W here, W before) {
    return 2 * x * here - before;
  });
}
template <class W>
W hermite_h_of(W x, W degree) {
  return recurrence(degree, 2 * x, [&](W k, W here, W before) {
    return 2 * x * here - 2 * k * before;
  });
}
template <class W>
W hermite_he_of(W x, W degree) {
  return recurrence(
      degree, x, [&](W k, W here, W before) { return x * here - k * before; });
}
template <class W>
W laguerre_of(W x, W degree) {
  return recurrence(degree, 1 - x, [&](W k, W here, W before) {
    return ((2 * k + 1 - x) * here - k * before) / (k + 1);
  });
}
template <class W>
W legendre_of(W x, W degree) {
  if (std::abs(x) == 1) {
    return at_end(x, degree, W(1), W(1));
  }
  return recurrence(degree, x, [&](W k, W here, W before) {
    return ((2 * k + 1) * x * here - k * before) / (k + 1);
  });
}

}  // namespace

NPU_SPECIAL2(chebyshev_t)
NPU_SPECIAL2(chebyshev_u)
NPU_SPECIAL2(chebyshev_v)
NPU_SPECIAL2(chebyshev_w)
NPU_SPECIAL2(hermite_h)
NPU_SPECIAL2(hermite_he)
NPU_SPECIAL2(laguerre)
NPU_SPECIAL2(legendre)

}  // namespace npu::host
