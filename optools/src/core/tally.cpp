// SPDX-License-Identifier: Apache-2.0
// One pass over a result and its reference. Eight lanes, so that the compiler
// makes vectors of them without being allowed to reorder sums.
#include "core/tally.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace optools {
namespace {

constexpr int kLanes = 8;
constexpr int64_t kBlock = 512;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Below it a relative difference says nothing.
constexpr double kSmall = 1e-30;

struct Lanes {
  double v[kLanes] = {};
  double sum() const {
    double total = 0;
    for (double each : v) {
      total += each;
    }
    return total;
  }
  double max() const {
    return *std::max_element(v, v + kLanes);
  }
};

// Elements that are finite on both sides and within the dtype's range.
struct BlockTally {
  Lanes e, over, loose, max_abs, max_rel, sum_abs, dot, got2, ref2, diff2;
};

// The same loops are compiled for several instruction sets.
#define OPTOOLS_INLINE inline __attribute__((always_inline))

OPTOOLS_INLINE double larger(double a, double b) {
  return a > b ? a : b;
}

struct Values {
  const double* got;
  const double* ref;
  const double* majorant;
};

template <bool has_majorant>
OPTOOLS_INLINE void add_elements(
    const Values& in, int64_t count, const Allowance& a, BlockTally& t) {
  for (int64_t i = 0; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const double g = in.got[i + j];
      const double r = in.ref[i + j];
      const double size = std::fabs(r);
      const double m =
          has_majorant ? Allowance::terms(in.majorant[i + j], size) : size;
      const double difference = std::fabs(g - r);
      const double e =
          difference / larger(a.out * size + a.acc * m, a.floor) * a.scale;
      t.e.v[j] = larger(e, t.e.v[j]);
      t.over.v[j] += e > 1 ? 1.0 : 0.0;
      t.loose.v[j] += difference > a.atol + a.rtol * size ? 1.0 : 0.0;
      t.max_abs.v[j] = larger(difference, t.max_abs.v[j]);
      t.max_rel.v[j] =
          larger(difference / larger(size, kSmall), t.max_rel.v[j]);
      t.sum_abs.v[j] += difference;
      t.dot.v[j] += g * r;
      t.got2.v[j] += g * g;
      t.ref2.v[j] += r * r;
      t.diff2.v[j] += difference * difference;
    }
  }
}

// Is everything in the block finite and within the dtype's range?
OPTOOLS_INLINE bool all_ordinary(
    const Values& in, int64_t count, double largest) {
  Lanes bad, big;
  for (int64_t i = 0; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      bad.v[j] += in.got[i + j] * 0.0 + in.ref[i + j] * 0.0;
      big.v[j] = larger(std::fabs(in.ref[i + j]), big.v[j]);
    }
  }
  return bad.sum() == 0 && big.max() <= largest;
}

// False, and nothing added, when the block has elements that need more care.
OPTOOLS_INLINE bool add_whole_block(
    const Values& in, int64_t count, const Allowance& a, BlockTally& t) {
  if (!all_ordinary(in, count, a.largest)) {
    return false;
  }
  if (in.majorant != nullptr) {
    add_elements<true>(in, count, a, t);
  } else {
    add_elements<false>(in, count, a, t);
  }
  return true;
}

using AddBlock =
    bool (*)(const Values&, int64_t, const Allowance&, BlockTally&);

bool add_block(
    const Values& in, int64_t count, const Allowance& a, BlockTally& t) {
  return add_whole_block(in, count, a, t);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) bool add_block_avx2(
    const Values& in, int64_t count, const Allowance& a, BlockTally& t) {
  return add_whole_block(in, count, a, t);
}
AddBlock choose() {
  return __builtin_cpu_supports("avx2") ? &add_block_avx2 : &add_block;
}
#else
AddBlock choose() {
  return &add_block;
}
#endif

void note(Tally& t, double e, int64_t at) {
  if (e > t.e || (t.worst < 0 && e > 0)) {
    t.e = e;
    t.worst = at;
  }
  t.over += e > 1;
}

// An element that is not finite, or beyond the range of the dtype.
void add_odd(Tally& t, double g, double r, double largest, int64_t at) {
  if (std::isnan(r) || std::isnan(g)) {
    if (std::isnan(r) != std::isnan(g)) {
      ++t.nan_differs;
      ++t.not_close;
      note(t, kInfinity, at);
    }
    return;
  }
  const bool beyond = std::fabs(r) > largest;
  const bool same_side = (g > 0) == (r > 0);
  if (beyond && same_side && std::fabs(g) >= largest) {
    t.overflowed += std::isfinite(r);
    return;
  }
  ++t.inf_differs;
  ++t.not_close;
  note(t, kInfinity, at);
}

void add_one(Tally& t, const Values& in, const Allowance& a, int64_t at) {
  const double g = *in.got;
  const double r = *in.ref;
  if (!std::isfinite(g) || !(std::fabs(r) <= a.largest)) {
    add_odd(t, g, r, a.largest, at);
    return;
  }
  const double size = std::fabs(r);
  const double m = in.majorant != nullptr ? *in.majorant : size;
  const double difference = std::fabs(g - r);
  note(t, difference / a.allowed(r, m) * a.scale, at);
  ++t.finite;
  t.not_close += difference > a.atol + a.rtol * size;
  t.max_abs = larger(difference, t.max_abs);
  t.max_rel = larger(difference / larger(size, kSmall), t.max_rel);
  t.sum_abs += difference;
  t.dot += g * r;
  t.got2 += g * g;
  t.ref2 += r * r;
  t.diff2 += difference * difference;
}

void fold(Tally& t, const BlockTally& block, int64_t count) {
  t.finite += count;
  t.over += static_cast<int64_t>(block.over.sum());
  t.not_close += static_cast<int64_t>(block.loose.sum());
  t.max_abs = larger(block.max_abs.max(), t.max_abs);
  t.max_rel = larger(block.max_rel.max(), t.max_rel);
  t.sum_abs += block.sum_abs.sum();
  t.dot += block.dot.sum();
  t.got2 += block.got2.sum();
  t.ref2 += block.ref2.sum();
  t.diff2 += block.diff2.sum();
}

// Where in the block the worst element is.
void locate(
    Tally& t, const Values& in, int64_t count, const Allowance& a, int64_t at) {
  for (int64_t i = 0; i < count; ++i) {
    const double size = std::fabs(in.ref[i]);
    const double m = in.majorant != nullptr ? in.majorant[i] : size;
    const double e =
        std::fabs(in.got[i] - in.ref[i]) / a.allowed(in.ref[i], m) * a.scale;
    if (e > t.e) {
      t.e = e;
      t.worst = at + i;
    }
  }
}

}  // namespace

template <class T>
Tally tally(
    const T* got,
    const double* ref,
    const double* majorant,
    int64_t count,
    const Allowance& a) {
  static const AddBlock add = choose();
  Tally t;
  double wide[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    for (int64_t i = 0; i < n; ++i) {
      wide[i] = static_cast<double>(got[at + i]);
    }
    const Values in{
        wide, ref + at, majorant != nullptr ? majorant + at : nullptr};
    const int64_t whole = n / kLanes * kLanes;
    int64_t done = 0;
    BlockTally block;
    if (add(in, whole, a, block)) {
      fold(t, block, whole);
      if (block.e.max() > t.e) {
        locate(t, in, whole, a, at);
      }
      done = whole;
    }
    for (int64_t i = done; i < n; ++i) {
      const Values one{
          wide + i,
          in.ref + i,
          in.majorant != nullptr ? in.majorant + i : nullptr};
      add_one(t, one, a, at + i);
    }
  }
  return t;
}

#define OPTOOLS_TALLY(T)   \
  template Tally tally<T>( \
      const T*, const double*, const double*, int64_t, const Allowance&);
OPTOOLS_TALLY(float)
OPTOOLS_TALLY(double)
OPTOOLS_TALLY(c10::Half)
OPTOOLS_TALLY(c10::BFloat16)
#undef OPTOOLS_TALLY

}  // namespace optools
