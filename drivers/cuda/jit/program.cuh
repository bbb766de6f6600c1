// SPDX-License-Identifier: Apache-2.0
// What the sources of programs (source.cpp) are written with. NVRTC compiles it
// with the headers of jit/standard.h in the place of the standard library's; a
// compiler for the host takes it too, with jit/host_shim.h before it, so that
// tests run what a GPU would run.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "shared/dtype.h"
#include "shared/dtype_sets.h"
#include "shared/formulas.h"
#include "shared/map_activation.h"
#include "shared/map_binary.h"
#include "shared/map_round.h"
#include "shared/map_scalar.h"
#include "shared/map_ternary.h"
#include "shared/map_unary.h"

namespace npu::jit {

// ---- what the host hands over: laid out alike on both sides (source.h) ----

constexpr int kOperands = 16;  // four outputs, twelve inputs
constexpr int kDims = 8;
constexpr int kNumbers = 96;

struct Args {
  long long numel;  // elements, or rows
  long long row;    // elements of a row
  int ndim;
  int reserved;
  long long sizes[kDims];
  long long strides[kOperands][kDims];  // in bytes
  long long inner[kOperands];           // within a row
  char* data[kOperands];
  npu_scalar scalars[kNumbers];
};

// Entries of lists. An entry's blocks begin at first[i].
constexpr int kEntries = 64;
struct ListArgs {
  int n;
  int reserved;
  long long numel[kEntries];
  unsigned first[kEntries + 1];
  unsigned short one[kEntries];  // bit k: operand 4 + k has one element
  char* data[kOperands][kEntries];
  npu_scalar scalars[kNumbers];
};

// Of a block: the entry that it belongs to.
NPU_SHARED inline int entry_of(const ListArgs& args, unsigned block) {
  int low = 0;
  int high = args.n;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (args.first[middle] <= block ? low : high) = middle;
  }
  return low;
}

// ---- dtypes ----

using Whole = std::int64_t;

template <int kDtype>
struct Element;
#define NPU_JIT_ELEMENT(dtype, stored, unit_type) \
  template <>                                     \
  struct Element<dtype> {                         \
    using Stored = stored;                        \
    using Unit = unit_type;                       \
  };
NPU_JIT_ELEMENT(NPU_BOOL, unsigned char, bool)
NPU_JIT_ELEMENT(NPU_U8, unsigned char, std::int64_t)
NPU_JIT_ELEMENT(NPU_I8, signed char, std::int64_t)
NPU_JIT_ELEMENT(NPU_I16, short, std::int64_t)
NPU_JIT_ELEMENT(NPU_I32, int, std::int64_t)
NPU_JIT_ELEMENT(NPU_I64, std::int64_t, std::int64_t)
NPU_JIT_ELEMENT(NPU_U16, unsigned short, std::int64_t)
NPU_JIT_ELEMENT(NPU_U32, unsigned, std::int64_t)
NPU_JIT_ELEMENT(NPU_F16, unsigned short, float)
NPU_JIT_ELEMENT(NPU_BF16, unsigned short, float)
NPU_JIT_ELEMENT(NPU_F32, float, float)
NPU_JIT_ELEMENT(NPU_F64, double, double)
#undef NPU_JIT_ELEMENT

template <int kDtype>
using Stored = typename Element<kDtype>::Stored;
// The type a register of a dtype is kept in.
template <int kDtype>
using Unit = typename Element<kDtype>::Unit;

template <class T>
NPU_SHARED constexpr int unit_dtype() {
  return std::is_same_v<T, float>    ? NPU_F32
         : std::is_same_v<T, double> ? NPU_F64
         : std::is_same_v<T, bool>   ? NPU_BOOL
                                     : NPU_I64;
}

NPU_SHARED inline float half_to_float(unsigned short bits) {
#if defined(__CUDA_ARCH__)
  float made;
  asm("cvt.f32.f16 %0, %1;" : "=f"(made) : "h"(bits));
  return made;
#else
  return decode_float<kF16Format>(bits);
#endif
}
NPU_SHARED inline unsigned short float_to_half(float value) {
#if defined(__CUDA_ARCH__)
  unsigned short made;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(made) : "f"(value));
  return made;
#else
  return encode_float<kF16Format>(value);
#endif
}

// As kernels/element.cuh converts: out of range wraps through int64.
template <class To, class From>
NPU_SHARED inline To convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (
      std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return static_cast<To>(static_cast<std::int64_t>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <int kDtype>
NPU_SHARED inline Unit<kDtype> opened(Stored<kDtype> stored) {
  if constexpr (kDtype == NPU_F16) {
    return half_to_float(stored);
  } else if constexpr (kDtype == NPU_BF16) {
    return as_float(static_cast<unsigned>(stored) << 16);
  } else if constexpr (kDtype == NPU_BOOL) {
    return stored != 0;
  } else {
    return stored;
  }
}

// Any number as an element of the dtype.
template <int kDtype, class T>
NPU_SHARED inline Stored<kDtype> closed(T value) {
  if constexpr (kDtype == NPU_F16) {
    return float_to_half(convert<float>(value));
  } else if constexpr (kDtype == NPU_BF16) {
    return BF16::encode(convert<float>(value));
  } else if constexpr (kDtype == NPU_BOOL) {
    return convert<bool>(value) ? 1 : 0;
  } else {
    return convert<Stored<kDtype>>(value);
  }
}

template <int kDtype, class T>
NPU_SHARED inline Unit<kDtype> through(T value) {
  return opened<kDtype>(closed<kDtype>(value));
}

// What a formula made, as a register of `kOut` holds it after a call that
// computes in `kComputed`.
template <int kComputed, int kOut, class Made>
NPU_SHARED inline Unit<kOut> settled(Made made) {
  constexpr int kMade = unit_dtype<Made>();
  constexpr int kNarrow = map_rounding(kMade, kComputed, kOut);
  if constexpr (kNarrow != NPU_ABSENT) {
    return through<kOut>(convert<Made>(through<kNarrow>(made)));
  } else {
    return through<kOut>(made);
  }
}

// ---- formulas ----

__device__ constexpr npu_scalar kNone[4] = {};

template <class Op, class T>
NPU_SHARED inline auto apply(T x, const npu_scalar* scalars) {
  return Op::apply(x, Scalars<T>(scalars));
}
template <class Op, class T>
NPU_SHARED inline auto apply(T x, T y, const npu_scalar* scalars) {
  return Op::apply(x, y, Scalars<T>(scalars));
}
template <class Op, class T>
NPU_SHARED inline auto apply(T x, T y, T z, const npu_scalar* scalars) {
  return Op::apply(x, y, z, Scalars<T>(scalars));
}

// An input as a formula takes it: rounded to the half that is computed in.
template <class T, int kRounded, class From>
NPU_SHARED inline T taken(From value) {
  if constexpr (kRounded != NPU_ABSENT) {
    return convert<T>(through<kRounded>(value));
  } else {
    return convert<T>(value);
  }
}

// A number of the call: of a fill, or in host memory.
template <class T>
NPU_SHARED inline T number(const npu_scalar& of) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(of.re);
  } else {
    return static_cast<T>(of.i);
  }
}

// ---- memory ----

template <class T, int kEach>
struct alignas(sizeof(T) * kEach) Pack {
  T at[kEach];
};

template <class Index>
struct Offsets {
  Index of[kOperands];
};

// Where element i of every operand is, counted in the order of the sizes.
template <class Index>
NPU_SHARED inline Offsets<Index> offsets(const Args& args, Index i) {
  Offsets<Index> made{};
  for (int d = args.ndim - 1; d >= 0; --d) {
    const auto size = static_cast<Index>(args.sizes[d]);
    const Index rest = d == 0 ? 0 : i / size;
    const Index at = d == 0 ? i : i - rest * size;
    for (int k = 0; k < kOperands; ++k) {
      made.of[k] += at * static_cast<Index>(args.strides[k][d]);
    }
    i = rest;
  }
  return made;
}

// ---- rows ----

// What kind reduce makes of a row: a part for each thread, then all of them in
// one order. Sums of floats and halves are float, of doubles double.
template <class T>
struct Sum {
  T value = T(0);
  NPU_SHARED void add(T x) {
    value = value + x;
  }
  NPU_SHARED void join(T other) {
    value = value + other;
  }
};
template <>
struct Sum<std::int64_t> {
  std::int64_t value = 0;
  NPU_SHARED void add(std::int64_t x) {
    value = npu::add(value, x);
  }
  NPU_SHARED void join(std::int64_t other) {
    add(other);
  }
};
template <class T>
struct SumOfSquares : Sum<T> {
  NPU_SHARED void add(T x) {
    this->value = this->value + x * x;
  }
};
template <class T, bool kGreatest>
struct Extreme {
  T value;
  NPU_SHARED Extreme() {
    if constexpr (std::is_floating_point_v<T>) {
      value = kGreatest ? -std::numeric_limits<T>::infinity()
                        : std::numeric_limits<T>::infinity();
    } else {
      value = kGreatest ? std::numeric_limits<T>::min()
                        : std::numeric_limits<T>::max();
    }
  }
  NPU_SHARED void add(T x) {
    if constexpr (kGreatest) {
      value = is_nan(value) ? value : greater(x, value);
    } else {
      value = is_nan(value) ? value : lesser(x, value);
    }
  }
  NPU_SHARED void join(T other) {
    add(other);
  }
};

// Of all threads of a row, in each of them: lanes by a butterfly, then warps in
// their order. `shared` has room for one value per warp.
template <class State>
__device__ inline void join_threads(State& state, void* shared) {
#if defined(__CUDA_ARCH__)
  const int width = blockDim.x < 32 ? blockDim.x : 32;
  for (int step = width / 2; step > 0; step /= 2) {
    state.join(__shfl_xor_sync(0xffffffffu, state.value, step));
  }
  if (blockDim.x > 32) {
    auto* const values = static_cast<decltype(state.value)*>(shared);
    const int warps = blockDim.x / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
      values[threadIdx.x / 32] = state.value;
    }
    __syncthreads();
    State all;
    for (int w = 0; w < warps; ++w) {
      all.join(values[w]);
    }
    state = all;
  }
#else
  static_cast<void>(state);
  static_cast<void>(shared);
#endif
}

}  // namespace npu::jit
