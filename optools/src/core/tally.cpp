// SPDX-License-Identifier: Apache-2.0
// One pass over a result and its reference. Several lanes, so that the
// compiler makes vectors of them without being allowed to reorder sums; no
// division, which costs more than all the rest: the worst element is looked
// for only in a block that has one worse than those before.
#include "core/tally.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/widen.h"

namespace optools {
namespace {

constexpr int kMostLanes = 8;
constexpr int64_t kBlock = 512;
// Below it a relative difference says nothing.
constexpr double kSmall = 1e-30;

// Sums over a block of elements finite on both sides and within the range of
// the dtype.
struct BlockTally {
  double over = 0, loose = 0, max_abs = 0, sum_abs = 0;
  double dot = 0, got2 = 0, ref2 = 0, diff2 = 0;
  double worse = 0;  // above 0: an element is worse than what was known
  double largest = 0;
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

struct Known {  // of the elements before
  double e;
  double rel;
};

template <int lanes>
OPTOOLS_INLINE double sum_of(const double* v) {
  double total = 0;
  for (int j = 0; j < lanes; ++j) {
    total += v[j];
  }
  return total;
}

template <int lanes>
OPTOOLS_INLINE double max_of(const double* v) {
  double found = v[0];
  for (int j = 1; j < lanes; ++j) {
    found = larger(v[j], found);
  }
  return found;
}

template <int lanes, bool has_majorant>
OPTOOLS_INLINE BlockTally sum_block(
    const Values& in, int64_t count, const Allowance& a, const Known& known) {
  double over[lanes] = {}, loose[lanes] = {}, max_abs[lanes] = {},
         sum_abs[lanes] = {}, dot[lanes] = {}, got2[lanes] = {},
         ref2[lanes] = {}, diff2[lanes] = {}, worse[lanes] = {},
         largest[lanes] = {};
  for (int64_t i = 0; i + lanes <= count; i += lanes) {
    for (int j = 0; j < lanes; ++j) {
      const double g = in.got[i + j];
      const double r = in.ref[i + j];
      const double size = std::fabs(r);
      const double m =
          has_majorant ? Allowance::terms(in.majorant[i + j], size) : size;
      const double apart = std::fabs(g - r);
      const double scaled = apart * a.scale;
      const double allowed = larger(a.out * size + a.acc * m, a.floor);
      over[j] += scaled > allowed ? 1.0 : 0.0;
      loose[j] += apart > a.atol + a.rtol * size ? 1.0 : 0.0;
      worse[j] = larger(scaled - known.e * allowed, worse[j]);
      worse[j] = larger(apart - known.rel * larger(size, kSmall), worse[j]);
      max_abs[j] = larger(apart, max_abs[j]);
      largest[j] = larger(size, largest[j]);
      sum_abs[j] += apart;
      dot[j] += g * r;
      got2[j] += g * g;
      ref2[j] += r * r;
      diff2[j] += apart * apart;
    }
  }
  return {
      sum_of<lanes>(over),
      sum_of<lanes>(loose),
      max_of<lanes>(max_abs),
      sum_of<lanes>(sum_abs),
      sum_of<lanes>(dot),
      sum_of<lanes>(got2),
      sum_of<lanes>(ref2),
      sum_of<lanes>(diff2),
      max_of<lanes>(worse),
      max_of<lanes>(largest)};
}

template <int lanes>
OPTOOLS_INLINE BlockTally sum_any(
    const Values& in, int64_t count, const Allowance& a, const Known& known) {
  return in.majorant != nullptr ? sum_block<lanes, true>(in, count, a, known)
                                : sum_block<lanes, false>(in, count, a, known);
}

// A byte per element: is its E above 1?
OPTOOLS_INLINE void mark_any(
    const Values& in, const Allowance& a, uint8_t* beyond) {
  for (int64_t i = 0; i < kBlock; ++i) {
    const double r = in.ref[i];
    const double size = std::fabs(r);
    const double allowed = larger((a.out + a.acc) * size, a.floor);
    // Not a number is no small difference.
    beyond[i] = !(std::fabs(in.got[i] - r) * a.scale <= allowed);
  }
}

struct Loops {
  BlockTally (*sum)(const Values&, int64_t, const Allowance&, const Known&);
  void (*mark)(const Values&, const Allowance&, uint8_t*);
};

BlockTally sum_plain(
    const Values& in, int64_t count, const Allowance& a, const Known& known) {
  return sum_any<2>(in, count, a, known);
}
void mark_plain(const Values& in, const Allowance& a, uint8_t* beyond) {
  mark_any(in, a, beyond);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) BlockTally sum_avx2(
    const Values& in, int64_t count, const Allowance& a, const Known& known) {
  return sum_any<4>(in, count, a, known);
}
__attribute__((target(
    "avx2,fma,avx512f,avx512dq,avx512vl,prefer-vector-width=512"))) BlockTally
sum_avx512(
    const Values& in, int64_t count, const Allowance& a, const Known& known) {
  return sum_any<8>(in, count, a, known);
}
__attribute__((target("avx2,fma"))) void mark_avx2(
    const Values& in, const Allowance& a, uint8_t* beyond) {
  mark_any(in, a, beyond);
}
Loops choose() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return {&sum_avx512, &mark_avx2};
  }
  const bool wide =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return wide ? Loops{&sum_avx2, &mark_avx2} : Loops{&sum_plain, &mark_plain};
}
#else
Loops choose() {
  return {&sum_plain, &mark_plain};
}
#endif

const Loops& loops() {
  static const Loops chosen = choose();
  return chosen;
}

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
    if (std::isfinite(r) && t.overflowed++ == 0) {
      t.overflow_at = at;
    }
    return;
  }
  ++t.inf_differs;
  ++t.not_close;
  note(t, kInfinity, at);
}

double relative(double apart, double size) {
  return apart / larger(size, kSmall);
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
  t.max_rel = larger(relative(difference, size), t.max_rel);
  t.sum_abs += difference;
  t.dot += g * r;
  t.got2 += g * g;
  t.ref2 += r * r;
  t.diff2 += difference * difference;
}

void fold(Tally& t, const BlockTally& block, int64_t count) {
  t.finite += count;
  t.over += static_cast<int64_t>(block.over);
  t.not_close += static_cast<int64_t>(block.loose);
  t.max_abs = larger(block.max_abs, t.max_abs);
  t.sum_abs += block.sum_abs;
  t.dot += block.dot;
  t.got2 += block.got2;
  t.ref2 += block.ref2;
  t.diff2 += block.diff2;
}

// The worst of a block, and where.
void locate(
    Tally& t, const Values& in, int64_t count, const Allowance& a, int64_t at) {
  for (int64_t i = 0; i < count; ++i) {
    const double size = std::fabs(in.ref[i]);
    const double m = in.majorant != nullptr ? in.majorant[i] : size;
    const double apart = std::fabs(in.got[i] - in.ref[i]);
    const double e = apart / a.allowed(in.ref[i], m) * a.scale;
    if (e > t.e) {
      t.e = e;
      t.worst = at + i;
    }
    t.max_rel = larger(relative(apart, size), t.max_rel);
  }
}

template <class T>
const double* widened(
    const T* from, int64_t first, int64_t count, double* room) {
  if constexpr (std::is_same_v<T, double>) {
    return from + first;
  } else if constexpr (std::is_same_v<T, float>) {
    widen(from + first, room, count);
    return room;
  } else {
    for (int64_t i = 0; i < count; ++i) {
      room[i] = static_cast<double>(from[first + i]);
    }
    return room;
  }
}

}  // namespace

template <class T>
Tally tally(
    const T* got,
    const double* ref,
    const Majorant& majorant,
    int64_t count,
    const Allowance& a) {
  Tally t;
  double got_room[kBlock];
  double bound_room[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    Values in{widened(got, at, n, got_room), ref + at, nullptr};
    if (majorant.wide != nullptr) {
      in.majorant = majorant.wide + at;
    } else if (majorant.narrow != nullptr) {
      in.majorant = widened(majorant.narrow, at, n, bound_room);
    }
    const int64_t whole = n / kMostLanes * kMostLanes;
    int64_t done = 0;
    const BlockTally block = loops().sum(in, whole, a, {t.e, t.max_rel});
    // Anything that is not finite makes the sum of differences so.
    if (std::isfinite(block.sum_abs) && block.largest <= a.largest) {
      fold(t, block, whole);
      if (block.worse > 0) {
        locate(t, in, whole, a, at);
      }
      done = whole;
    }
    for (int64_t i = done; i < n; ++i) {
      const Values one{
          in.got + i,
          in.ref + i,
          in.majorant != nullptr ? in.majorant + i : nullptr};
      add_one(t, one, a, at + i);
    }
  }
  return t;
}

template <class T>
std::vector<int64_t> elements_beyond(
    const T* got, const double* ref, int64_t count, const Allowance& a) {
  std::vector<int64_t> found;
  double got_room[kBlock] = {};
  double ref_room[kBlock] = {};
  alignas(8) uint8_t beyond[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    Values in{widened(got, at, n, got_room), ref + at, nullptr};
    if (n < kBlock) {  // a last block is filled up with equal numbers
      std::copy(in.ref, in.ref + n, ref_room);
      if (in.got != got_room) {
        std::copy(in.got, in.got + n, got_room);
      }
      std::fill(ref_room + n, ref_room + kBlock, 0.0);
      std::fill(got_room + n, got_room + kBlock, 0.0);
      in = {got_room, ref_room, nullptr};
    }
    loops().mark(in, a, beyond);
    for (int64_t i = 0; i < kBlock; i += 8) {
      uint64_t eight;
      std::memcpy(&eight, beyond + i, sizeof(eight));
      for (int64_t j = i; eight != 0; ++j, eight >>= 8) {
        if ((eight & 255) != 0) {
          found.push_back(at + j);
        }
      }
    }
  }
  return found;
}

#define OPTOOLS_TALLY(T)                                                    \
  template Tally tally<T>(                                                  \
      const T*, const double*, const Majorant&, int64_t, const Allowance&); \
  template std::vector<int64_t> elements_beyond<T>(                         \
      const T*, const double*, int64_t, const Allowance&);
OPTOOLS_TALLY(float)
OPTOOLS_TALLY(double)
OPTOOLS_TALLY(c10::Half)
OPTOOLS_TALLY(c10::BFloat16)
#undef OPTOOLS_TALLY

}  // namespace optools
