// SPDX-License-Identifier: Apache-2.0
// Body of lists_<isa>.cpp, which define NPU_ISA. Calls nothing that the linker
// could share with code for another instruction set.
#include <type_traits>

#include "kernels/dtype.h"
#include "kernels/formulas.h"
#include "kernels/isa/lists.h"

namespace npu::host {
namespace {

// The type in which T is computed.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// ---- maps ----

// Elements are independent: an output that is also an input is no dependence
// between iterations.
template <class T, class Op, bool kScalarIsY>
void map(
    void* out_bytes,
    const void* x_bytes,
    const void* y_bytes,
    const void* z_bytes,
    double scalar,
    std::int64_t n) {
  using C = Wide<T>;
  T* out = static_cast<T*>(out_bytes);
  const T* x = static_cast<const T*>(x_bytes);
  [[maybe_unused]] const T* y = static_cast<const T*>(y_bytes);
  [[maybe_unused]] const T* z = static_cast<const T*>(z_bytes);
  const Scalars<C> s(static_cast<C>(scalar));
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (kScalarIsY) {
      out[i] = T(Op::apply(static_cast<C>(x[i]), s.a, s));
    } else if constexpr (arity<Op, C>() == 1) {
      out[i] = T(Op::apply(static_cast<C>(x[i]), s));
    } else if constexpr (arity<Op, C>() == 2) {
      out[i] = T(Op::apply(static_cast<C>(x[i]), static_cast<C>(y[i]), s));
    } else {
      out[i] = T(Op::apply(
          static_cast<C>(x[i]), static_cast<C>(y[i]), static_cast<C>(z[i]), s));
    }
  }
}

// ---- folds ----

// Partial results, the same number of them on every machine.
constexpr int kLanes = 16;

struct FoldSum {
  static constexpr double kStart = 0;
  NPU_MAP_FN static double value(double x) {
    return x;
  }
  NPU_MAP_FN static double join(double a, double b) {
    return a + b;
  }
};
struct FoldAbs : FoldSum {
  NPU_MAP_FN static double value(double x) {
    return absolute(x);
  }
};
struct FoldSquare : FoldSum {
  NPU_MAP_FN static double value(double x) {
    return x * x;
  }
};
struct FoldCount : FoldSum {
  NPU_MAP_FN static double value(double x) {
    return x != 0 ? 1.0 : 0.0;
  }
};
struct FoldMax {
  static constexpr double kStart = -__builtin_inf();
  NPU_MAP_FN static double value(double x) {
    return x;
  }
  NPU_MAP_FN static double join(double a, double b) {
    return b > a || b != b ? b : a;
  }
};
struct FoldAbsMin {
  static constexpr double kStart = __builtin_inf();
  NPU_MAP_FN static double value(double x) {
    return absolute(x);
  }
  NPU_MAP_FN static double join(double a, double b) {
    return b < a || b != b ? b : a;
  }
};

template <class T, class Fold>
double fold(const void* bytes, std::int64_t n) {
  const T* x = static_cast<const T*>(bytes);
  double lanes[kLanes];
  for (double& lane : lanes) {
    lane = Fold::kStart;
  }
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const auto wide = static_cast<Wide<T>>(x[i + j]);
      lanes[j] = Fold::join(lanes[j], Fold::value(static_cast<double>(wide)));
    }
  }
  for (int j = 0; i < n; ++i, ++j) {
    const auto wide = static_cast<Wide<T>>(x[i]);
    lanes[j] = Fold::join(lanes[j], Fold::value(static_cast<double>(wide)));
  }
  double all = lanes[0];
  for (int j = 1; j < kLanes; ++j) {
    all = Fold::join(all, lanes[j]);
  }
  return all;
}

template <class T>
using BitsOf = std::conditional_t<
    sizeof(T) == 2,
    std::uint16_t,
    std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

// Without their sign, the bits of numbers are in the order of the numbers, and
// NaN comes after infinity: a maximum of integers, which vectorises.
template <class T>
double fold_abs_max(const void* bytes, std::int64_t n) {
  using Bits = BitsOf<T>;
  constexpr Bits kNoSign = static_cast<Bits>(~Bits{0}) >> 1;
  const T* x = static_cast<const T*>(bytes);
  Bits most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    Bits bits;
    __builtin_memcpy(&bits, x + i, sizeof(bits));
    bits &= kNoSign;
    most = bits > most ? bits : most;
  }
  T value;
  __builtin_memcpy(static_cast<void*>(&value), &most, sizeof(most));
  return static_cast<double>(static_cast<Wide<T>>(value));
}

// ---- optimizers ----

// The gradient as the optimizer sees it; unscaled gradients are stored. What is
// the same for all elements is a template parameter: a store that may not
// happen would keep the loop from being vectorised.
template <class T, bool kScaled>
struct Gradient {
  using C = Wide<T>;
  T* data;
  C scale;
  C sign;

  explicit Gradient(const StepLine& line)
      : data(static_cast<T*>(line.grad)),
        scale(static_cast<C>(line.grad_scale)),
        sign(line.maximize ? C(-1) : C(1)) {}

  NPU_MAP_FN C take(std::int64_t i) const {
    C g = static_cast<C>(data[i]);
    if constexpr (kScaled) {
      g = g / scale;
      data[i] = T(g);
    }
    return sign * g;
  }
};

template <class T, bool kScaled, bool kAmsgrad>
void adam_loop(const StepLine& line, std::int64_t n) {
  using C = Wide<T>;
  const Gradient<T, kScaled> grad(line);
  T* const param = static_cast<T*>(line.param);
  T* const mean = static_cast<T*>(line.state1);
  T* const square = static_cast<T*>(line.state2);
  [[maybe_unused]] T* const most = static_cast<T*>(line.state3);
  const C shrink =
      line.decoupled ? static_cast<C>(1 - line.lr * line.weight_decay) : C(1);
  const C decay = line.decoupled ? C(0) : static_cast<C>(line.weight_decay);
  const bool decays = decay != 0;
  const C weight = static_cast<C>(1 - line.beta1);
  const C beta2 = static_cast<C>(line.beta2);
  const C rest2 = static_cast<C>(1 - line.beta2);
  const C eps = static_cast<C>(line.eps);
  const C step_size = static_cast<C>(line.step_size);
  const C root2 = static_cast<C>(line.root2);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    C p = static_cast<C>(param[i]) * shrink;
    C g = grad.take(i);
    g = decays ? g + p * decay : g;
    const C m = interpolate(static_cast<C>(mean[i]), g, weight);
    const C v = beta2 * static_cast<C>(square[i]) + rest2 * g * g;
    mean[i] = T(m);
    square[i] = T(v);
    C under = v;
    if constexpr (kAmsgrad) {
      const C before = static_cast<C>(most[i]);
      under = v > before || v != v ? v : before;
      most[i] = T(under);
    }
    p = p - step_size * m / (square_root(under) / root2 + eps);
    param[i] = T(p);
  }
}

template <class T>
void adam(const StepLine& line, std::int64_t n) {
  const bool scaled = line.grad_scale != 0;
  if (line.amsgrad) {
    return scaled ? adam_loop<T, true, true>(line, n)
                  : adam_loop<T, false, true>(line, n);
  }
  return scaled ? adam_loop<T, true, false>(line, n)
                : adam_loop<T, false, false>(line, n);
}

template <class T, bool kScaled, bool kMomentum>
void sgd_loop(const StepLine& line, std::int64_t n) {
  using C = Wide<T>;
  const Gradient<T, kScaled> grad(line);
  T* const param = static_cast<T*>(line.param);
  [[maybe_unused]] T* const buffer = static_cast<T*>(line.state1);
  const C decay = static_cast<C>(line.weight_decay);
  const C lr = static_cast<C>(line.lr);
  const bool decays = decay != 0;
  [[maybe_unused]] const C momentum = static_cast<C>(line.momentum);
  [[maybe_unused]] const C fresh = static_cast<C>(1 - line.dampening);
  [[maybe_unused]] const bool first = line.first_step;
  [[maybe_unused]] const bool nesterov = line.nesterov;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const C p = static_cast<C>(param[i]);
    C g = grad.take(i);
    g = decays ? g + p * decay : g;
    if constexpr (kMomentum) {
      const C moved = momentum * static_cast<C>(buffer[i]) + fresh * g;
      const C b = first ? g : moved;
      buffer[i] = T(b);
      g = nesterov ? g + momentum * b : b;
    }
    param[i] = T(p - lr * g);
  }
}

template <class T>
void sgd(const StepLine& line, std::int64_t n) {
  const bool scaled = line.grad_scale != 0;
  if (line.state1 != nullptr) {
    return scaled ? sgd_loop<T, true, true>(line, n)
                  : sgd_loop<T, false, true>(line, n);
  }
  return scaled ? sgd_loop<T, true, false>(line, n)
                : sgd_loop<T, false, false>(line, n);
}

template <class T, bool kScaled>
void adagrad_loop(const StepLine& line, std::int64_t n) {
  using C = Wide<T>;
  const Gradient<T, kScaled> grad(line);
  T* const param = static_cast<T*>(line.param);
  T* const sum = static_cast<T*>(line.state1);
  const C decay = static_cast<C>(line.weight_decay);
  const C lr = static_cast<C>(line.lr);
  const C eps = static_cast<C>(line.eps);
  const bool decays = decay != 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const C p = static_cast<C>(param[i]);
    C g = grad.take(i);
    g = decays ? g + p * decay : g;
    const C s = static_cast<C>(sum[i]) + g * g;
    sum[i] = T(s);
    param[i] = T(p - lr * g / (square_root(s) + eps));
  }
}

template <class T>
void adagrad(const StepLine& line, std::int64_t n) {
  return line.grad_scale != 0 ? adagrad_loop<T, true>(line, n)
                              : adagrad_loop<T, false>(line, n);
}

// ---- loss scaling ----

template <class T>
bool unscale(void* bytes, float scale, std::int64_t n) {
  using C = Wide<T>;
  T* x = static_cast<T*>(bytes);
  const C by = static_cast<C>(scale);
  int bad = 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const C value = static_cast<C>(x[i]);
    // x * 0 is 0 unless x is infinite or NaN.
    bad |= value * C(0) != C(0) ? 1 : 0;
    x[i] = T(by == C(1) ? value : value * by);
  }
  return bad != 0;
}

}  // namespace

namespace NPU_ISA {

#define NPU_LIST_ROW(fn) \
  { fn<F16>, fn<BF16>, fn<float>, fn<double> }
#define NPU_LIST_MAP_ROW(name, Op, scalar_is_y) \
  {map<F16, formula::Op, scalar_is_y>,          \
   map<BF16, formula::Op, scalar_is_y>,         \
   map<float, formula::Op, scalar_is_y>,        \
   map<double, formula::Op, scalar_is_y>},
#define NPU_LIST_FOLD_ROW(Fold) \
  { fold<F16, Fold>, fold<BF16, Fold>, fold<float, Fold>, fold<double, Fold> }

extern const ListTable kLists = {
    {NPU_LIST_MAPS(NPU_LIST_MAP_ROW)},
    {NPU_LIST_FOLD_ROW(FoldSum),
     NPU_LIST_FOLD_ROW(FoldAbs),
     NPU_LIST_FOLD_ROW(FoldSquare),
     NPU_LIST_FOLD_ROW(FoldCount),
     NPU_LIST_FOLD_ROW(FoldMax),
     {fold_abs_max<F16>,
      fold_abs_max<BF16>,
      fold_abs_max<float>,
      fold_abs_max<double>},
     NPU_LIST_FOLD_ROW(FoldAbsMin)},
    NPU_LIST_ROW(adam),
    NPU_LIST_ROW(sgd),
    NPU_LIST_ROW(adagrad),
    NPU_LIST_ROW(unscale),
};

}  // namespace NPU_ISA
}  // namespace npu::host
