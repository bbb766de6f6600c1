// SPDX-License-Identifier: Apache-2.0
// One pass over a result and its reference: how far apart they are, in units
// of what rounding allows. Plain loops, no operators.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace optools {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// allowed = out |ref| + acc M, and never less than `floor`.
struct Allowance {
  double out = 0;      // 2 u_out + 1.5 sqrt(K) u_acc
  double acc = 0;      // 8 u_acc
  double floor = 0;    // one smallest subnormal of the dtype
  double largest = 0;  // finite number of the dtype
  double scale = 1;    // of E: 1/2 where the reference has no more digits
  double atol = 0;     // ditorch's columns
  double rtol = 0;

  static inline double terms(double m, double size) {
    const double finite = m < 1e300 ? m : 0;
    return finite > size ? finite : size;
  }
  double allowed(double ref, double m) const {
    const double size = ref < 0 ? -ref : ref;
    const double sum = out * size + acc * terms(m, size);
    return sum > floor ? sum : floor;
  }
};

struct Tally {
  double e = 0;           // worst
  int64_t worst = -1;     // where; -1: no element differs
  int64_t over = 0;       // elements with E > 1
  int64_t not_close = 0;  // outside atol + rtol |ref|
  int64_t nan_differs = 0;
  int64_t inf_differs = 0;
  int64_t overflowed = 0;    // beyond the dtype's range, in the reference too
  int64_t overflow_at = -1;  // the first of them
  int64_t finite = 0;        // elements finite on both sides
  double max_abs = 0;
  double max_rel = 0;
  double sum_abs = 0;
  double dot = 0, got2 = 0, ref2 = 0, diff2 = 0;
};

// M of each element, in either precision; neither: |ref|, which also stands in
// where it is smaller than that or not finite.
struct Majorant {
  const double* wide = nullptr;
  const float* narrow = nullptr;
};

// T: float, double, c10::Half, c10::BFloat16.
template <class T>
Tally tally(
    const T* got,
    const double* ref,
    const Majorant& majorant,
    int64_t count,
    const Allowance& allowance);

// Which elements have E > 1 with |ref| for a majorant.
template <class T>
std::vector<int64_t> elements_beyond(
    const T* got, const double* ref, int64_t count, const Allowance& allowance);

}  // namespace optools
