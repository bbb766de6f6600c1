// SPDX-License-Identifier: Apache-2.0
// softmax, layer norm, their backward, for rows of one dtype that lie densely:
// what large models have. Memory is read once and written once; a row that is
// read again comes from the cache.
#include "kernels/wide_rows.h"

#include "kernels/wide_rows.cuh"
#include "shared/arithmetic.h"

namespace npu::cuda {
namespace {

__device__ inline float lowest() {
  return __int_as_float(static_cast<int>(0xff800000u));
}

// ---- softmax ----

// exp(x - most) of what has been seen, for the greatest so far.
struct Online {
  float most;
  float sum;

  __device__ void add(float x) {
    if (x > most || x != x) {
      sum = sum * scale(most, x) + 1;
      most = x;
    } else {
      sum += scale(x, most);
    }
  }
  // Nothing has been seen of a part whose most is the lowest.
  __device__ static float scale(float x, float most) {
    return x == lowest() && most == lowest() ? 0.0F : expf(x - most);
  }
};

template <int kLanes>
__device__ inline Online joined_in_group(Online part, float* scratch) {
  using G = Group<kLanes>;
  const float most = G::all(
      part.most, scratch, [](float a, float b) { return greater(a, b); });
  const float sum = G::sum(part.sum * Online::scale(part.most, most), scratch);
  return {most, sum};
}

template <class S, int kLanes, int kPacks>
__global__ void softmax_held(const __grid_constant__ WideSoftmaxArgs args) {
  using G = Group<kLanes>;
  using Stored = typename S::Stored;
  __shared__ float scratch[kThreads / 32];
  const int packs = args.length / kPack<S>;
  for (std::int64_t row = G::first(); row < args.rows; row += G::step()) {
    const std::int64_t first = row * args.length;
    HeldRow<S, kLanes, kPacks> held;
    held.read(static_cast<const Stored*>(args.in) + first, packs);
    float most = lowest();
    held.each(packs, [&](float& x, int, int) { most = greater(most, x); });
    most =
        G::all(most, scratch, [](float a, float b) { return greater(a, b); });
    float sum = 0;
    held.each(packs, [&](float& x, int, int) {
      x -= most;
      sum += expf(x);
    });
    sum = G::sum(sum, scratch);
    const float log_sum = logf(sum);
    held.each(packs, [&](float& x, int, int) {
      x = args.log ? x - log_sum : expf(x) / sum;
    });
    held.write(static_cast<Stored*>(args.out) + first, packs);
  }
}

template <class S>
__global__ void softmax_long(const __grid_constant__ WideSoftmaxArgs args) {
  constexpr int kLanes = kThreads;
  using G = Group<kLanes>;
  using Stored = typename S::Stored;
  __shared__ float scratch[kThreads / 32];
  for (std::int64_t row = G::first(); row < args.rows; row += G::step()) {
    const Stored* const in =
        static_cast<const Stored*>(args.in) + row * args.length;
    Stored* const out = static_cast<Stored*>(args.out) + row * args.length;
    const Span span = span_of<S>(in, args.length);
    // A pack's greatest first: one rescaling for all of it.
    Online part{lowest(), 0};
    walk<S, kLanes>(
        span,
        [&](int k) { part.add(S::read(in[k])); },
        [&](int k) {
          float x[kPack<S>];
          read_pack<S>(x, in + k);
          float most = part.most;
#pragma unroll
          for (int j = 0; j < kPack<S>; ++j) {
            most = greater(most, x[j]);
          }
          float sum = part.sum * Online::scale(part.most, most);
#pragma unroll
          for (int j = 0; j < kPack<S>; ++j) {
            sum += Online::scale(x[j], most);
          }
          part = {most, sum};
        });
    const Online all = joined_in_group<kLanes>(part, scratch);
    const float log_sum = logf(all.sum);
    const auto result = [&](float x) {
      return args.log ? x - all.most - log_sum : expf(x - all.most) / all.sum;
    };
    walk<S, kLanes>(
        span,
        [&](int k) { out[k] = S::write(result(S::read(in[k]))); },
        [&](int k) {
          float x[kPack<S>];
          read_pack<S>(x, in + k);
#pragma unroll
          for (int j = 0; j < kPack<S>; ++j) {
            x[j] = result(x[j]);
          }
          write_pack<S>(out + k, x);
        });
  }
}

// plain: (g - sum(g y)) y, log: g - exp(y) sum(g).
template <class S, int kLanes, int kPacks>
__global__ void softmax_grad_held(
    const __grid_constant__ WideSoftmaxArgs args) {
  using G = Group<kLanes>;
  using Stored = typename S::Stored;
  __shared__ float scratch[kThreads / 32];
  const int packs = args.length / kPack<S>;
  for (std::int64_t row = G::first(); row < args.rows; row += G::step()) {
    const std::int64_t first = row * args.length;
    HeldRow<S, kLanes, kPacks> g;
    HeldRow<S, kLanes, kPacks> y;
    g.read(static_cast<const Stored*>(args.in) + first, packs);
    y.read(static_cast<const Stored*>(args.in2) + first, packs);
    float sum = 0;
    g.each(packs, [&](float& x, int p, int j) {
      sum += args.log ? x : x * y.x[p][j];
    });
    sum = G::sum(sum, scratch);
    g.each(packs, [&](float& x, int p, int j) {
      const float at = y.x[p][j];
      x = args.log ? x - expf(at) * sum : (x - sum) * at;
    });
    g.write(static_cast<Stored*>(args.out) + first, packs);
  }
}

template <class S>
__global__ void softmax_grad_long(
    const __grid_constant__ WideSoftmaxArgs args) {
  constexpr int kLanes = kThreads;
  using G = Group<kLanes>;
  using Stored = typename S::Stored;
  __shared__ float scratch[kThreads / 32];
  for (std::int64_t row = G::first(); row < args.rows; row += G::step()) {
    const std::int64_t first = row * args.length;
    const Stored* const g = static_cast<const Stored*>(args.in) + first;
    const Stored* const y = static_cast<const Stored*>(args.in2) + first;
    Stored* const out = static_cast<Stored*>(args.out) + first;
    const Span span = span_of<S>(g, args.length);
    float sum = 0;
    const auto add = [&](float a, float b) { sum += args.log ? a : a * b; };
    walk<S, kLanes>(
        span,
        [&](int k) { add(S::read(g[k]), S::read(y[k])); },
        [&](int k) {
          float a[kPack<S>];
          read_pack<S>(a, g + k);
          if (args.log) {  // the result is not read for its sum
#pragma unroll
            for (int j = 0; j < kPack<S>; ++j) {
              sum += a[j];
            }
            return;
          }
          float b[kPack<S>];
          read_pack<S>(b, y + k);
#pragma unroll
          for (int j = 0; j < kPack<S>; ++j) {
            sum += a[j] * b[j];
          }
        });
    sum = G::sum(sum, scratch);
    const auto result = [&](float a, float b) {
      return args.log ? a - expf(b) * sum : (a - sum) * b;
    };
    walk<S, kLanes>(
        span,
        [&](int k) { out[k] = S::write(result(S::read(g[k]), S::read(y[k]))); },
        [&](int k) {
          float a[kPack<S>];
          float b[kPack<S>];
          read_pack<S>(a, g + k);
          read_pack<S>(b, y + k);
#pragma unroll
          for (int j = 0; j < kPack<S>; ++j) {
            a[j] = result(a[j], b[j]);
          }
          write_pack<S>(out + k, a);
        });
  }
}

// ---- layer norm ----

template <class S>
__device__ inline void set_statistic(
    const WideNormArgs& args, void* to, std::int64_t row, float value) {
  if (to == nullptr) {
    return;
  }
  if (args.wide_statistics) {
    static_cast<float*>(to)[row] = value;
  } else {
    static_cast<typename S::Stored*>(to)[row] = S::write(value);
  }
}
template <class S>
__device__ inline float statistic(
    const WideNormArgs& args, const void* from, std::int64_t row) {
  return args.wide_statistics
             ? static_cast<const float*>(from)[row]
             : S::read(static_cast<const typename S::Stored*>(from)[row]);
}

template <class S, int kLanes, int kPacks>
__global__ void layer_norm_held(const __grid_constant__ WideNormArgs args) {
  using G = Group<kLanes>;
  using Stored = typename S::Stored;
  __shared__ float scratch[kThreads / 32];
  const int packs = args.length / kPack<S>;
  const auto n = static_cast<float>(args.length);
  const auto* const weight = static_cast<const Stored*>(args.weight);
  const auto* const bias = static_cast<const Stored*>(args.bias);
  for (std::int64_t row = G::first(); row < args.rows; row += G::step()) {
    const std::int64_t first = row * args.length;
    HeldRow<S, kLanes, kPacks> held;
    held.read(static_cast<const Stored*>(args.in) + first, packs);
    float sum = 0;
    held.each(packs, [&](float& x, int, int) { sum += x; });
    const float mean = G::sum(sum, scratch) / n;
    float squares = 0;
    held.each(packs, [&](float& x, int, int) {
      x -= mean;
      squares += x * x;
    });
    squares = G::sum(squares, scratch);
    const float rstd = 1.0F / sqrtf(squares / n + args.eps);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int at = held.pack_of(p);
      if (at >= packs) {
        continue;
      }
      float w[kPack<S>];
      float b[kPack<S>];
      if (weight != nullptr) {
        read_pack<S>(w, weight + at * kPack<S>);
      }
      if (bias != nullptr) {
        read_pack<S>(b, bias + at * kPack<S>);
      }
#pragma unroll
      for (int j = 0; j < kPack<S>; ++j) {
        float y = held.x[p][j] * rstd;
        y = weight != nullptr ? y * w[j] : y;
        held.x[p][j] = bias != nullptr ? y + b[j] : y;
      }
    }
    held.write(static_cast<Stored*>(args.out) + first, packs);
    if (G::lane() == 0) {
      set_statistic<S>(args, args.mean, row, mean);
      set_statistic<S>(args, args.rstd, row, rstd);
    }
  }
}

// As normalise_grad (normalise.cu): with g = grad * weight,
// rstd * (g - average(g) - x^ * average(g * x^)).
template <class S, int kLanes, int kPacks>
__global__ void layer_norm_grad_held(
    const __grid_constant__ WideNormArgs args) {
  using G = Group<kLanes>;
  using Stored = typename S::Stored;
  __shared__ float scratch[kThreads / 32];
  const int packs = args.length / kPack<S>;
  const auto n = static_cast<float>(args.length);
  const auto* const weight = static_cast<const Stored*>(args.weight);
  for (std::int64_t row = G::first(); row < args.rows; row += G::step()) {
    const std::int64_t first = row * args.length;
    const float mean = statistic<S>(args, args.mean, row);
    const float rstd = statistic<S>(args, args.rstd, row);
    HeldRow<S, kLanes, kPacks> x;
    HeldRow<S, kLanes, kPacks> g;
    x.read(static_cast<const Stored*>(args.in) + first, packs);
    g.read(static_cast<const Stored*>(args.grad_out) + first, packs);
    float sum = 0;
    float dot = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int at = g.pack_of(p);
      if (at >= packs) {
        continue;
      }
      float w[kPack<S>];
      if (weight != nullptr) {
        read_pack<S>(w, weight + at * kPack<S>);
      }
#pragma unroll
      for (int j = 0; j < kPack<S>; ++j) {
        float& each = g.x[p][j];
        each = weight != nullptr ? each * w[j] : each;
        x.x[p][j] = (x.x[p][j] - mean) * rstd;
        sum += each;
        dot += each * x.x[p][j];
      }
    }
    sum = G::sum(sum, scratch) / n;
    dot = G::sum(dot, scratch) / n;
    g.each(packs, [&](float& each, int p, int j) {
      each = rstd * (each - sum - x.x[p][j] * dot);
    });
    g.write(static_cast<Stored*>(args.out) + first, packs);
  }
}

// The gradients of weight and bias, first stage: a thread has a pack of
// columns, a block's warps every eighth row of a piece. Rows are read in whole
// lines of the memory.
constexpr int kRowLanes = kThreads / 32;

template <class S>
__global__ void column_sums(const __grid_constant__ WideNormArgs args) {
  using Stored = typename S::Stored;
  __shared__ float dots[kRowLanes][32][kPack<S> + 1];
  __shared__ float sums[kRowLanes][32][kPack<S> + 1];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int y = static_cast<int>(threadIdx.x) / 32;
  const int packs = args.length / kPack<S>;
  const int across = (packs + 31) / 32;
  const std::int64_t piece = blockIdx.x / across;
  const int pack = static_cast<int>(blockIdx.x % across) * 32 + lane;
  const std::int64_t each = (args.rows + args.pieces - 1) / args.pieces;
  const std::int64_t end = min((piece + 1) * each, args.rows);
  float dot[kPack<S>] = {};
  float sum[kPack<S>] = {};
  if (pack < packs) {
    for (std::int64_t row = piece * each + y; row < end; row += kRowLanes) {
      const std::int64_t at = row * args.length + pack * kPack<S>;
      const float mean = statistic<S>(args, args.mean, row);
      const float rstd = statistic<S>(args, args.rstd, row);
      float g[kPack<S>];
      float x[kPack<S>];
      read_pack<S>(g, static_cast<const Stored*>(args.grad_out) + at);
      read_pack<S>(x, static_cast<const Stored*>(args.in) + at);
#pragma unroll
      for (int j = 0; j < kPack<S>; ++j) {
        dot[j] += g[j] * ((x[j] - mean) * rstd);
        sum[j] += g[j];
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kPack<S>; ++j) {
    dots[y][lane][j] = dot[j];
    sums[y][lane][j] = sum[j];
  }
  __syncthreads();
  if (pack >= packs) {
    return;
  }
  // A thread of each warp sums one element of a pack over the warps, in order.
  for (int j = y; j < kPack<S>; j += kRowLanes) {
    float whole_dot = 0;
    float whole_sum = 0;
    for (int k = 0; k < kRowLanes; ++k) {
      whole_dot += dots[k][lane][j];
      whole_sum += sums[k][lane][j];
    }
    float* const to = args.sums + piece * 2 * args.length;
    to[pack * kPack<S> + j] = whole_dot;
    to[args.length + pack * kPack<S> + j] = whole_sum;
  }
}

// ---- launches ----

// Packs that a lane holds; rows of up to 32 * 4 packs are a warp's, longer ones
// a block's.
constexpr int kMostHeld = 4;

#define NPU_HELD(kernel, S)                                                  \
  (packs <= 32    ? launch<&kernel<S, 32, 1>>(stream, warps, kThreads, args) \
   : packs <= 64  ? launch<&kernel<S, 32, 2>>(stream, warps, kThreads, args) \
   : packs <= 128 ? launch<&kernel<S, 32, 4>>(stream, warps, kThreads, args) \
   : packs <= 256                                                            \
       ? launch<&kernel<S, kThreads, 1>>(stream, blocks, kThreads, args)     \
   : packs <= 512                                                            \
       ? launch<&kernel<S, kThreads, 2>>(stream, blocks, kThreads, args)     \
       : launch<&kernel<S, kThreads, kMostHeld>>(                            \
             stream, blocks, kThreads, args))

template <class S>
npu_status softmax_as(Stream& stream, const WideSoftmaxArgs& args) {
  const int packs = args.length / kPack<S>;
  const std::uint64_t warps = blocks_for(stream, args.rows * 32);
  const std::uint64_t blocks = blocks_for(stream, args.rows * kThreads);
  if (!args.aligned || packs > kThreads * kMostHeld) {
    return args.in2 != nullptr
               ? launch<&softmax_grad_long<S>>(stream, blocks, kThreads, args)
               : launch<&softmax_long<S>>(stream, blocks, kThreads, args);
  }
  return args.in2 != nullptr ? NPU_HELD(softmax_grad_held, S)
                             : NPU_HELD(softmax_held, S);
}

template <class S>
npu_status layer_norm_as(Stream& stream, const WideNormArgs& args) {
  const int packs = args.length / kPack<S>;
  const std::uint64_t warps = blocks_for(stream, args.rows * 32);
  const std::uint64_t blocks = blocks_for(stream, args.rows * kThreads);
  return args.grad_out != nullptr ? NPU_HELD(layer_norm_grad_held, S)
                                  : NPU_HELD(layer_norm_held, S);
}

template <class S>
npu_status column_sums_as(Stream& stream, const WideNormArgs& args) {
  const int packs = args.length / kPack<S>;
  const auto blocks =
      static_cast<std::uint64_t>((packs + 31) / 32 * args.pieces);
  return launch<&column_sums<S>>(stream, blocks, kThreads, args);
}

#define NPU_BY_DTYPE(function)                          \
  (dtype == NPU_F32   ? function<WideF32>(stream, args) \
   : dtype == NPU_F16 ? function<WideF16>(stream, args) \
                      : function<WideBF16>(stream, args))

bool begins_at_sixteen(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

}  // namespace

bool is_wide_dtype(npu_dtype dtype) noexcept {
  return dtype == NPU_F32 || dtype == NPU_F16 || dtype == NPU_BF16;
}

bool wide_norm_fits(const WideNormArgs& args, npu_dtype dtype) noexcept {
  const auto pack = static_cast<std::int64_t>(16 / npu_dtype_bytes(dtype));
  return args.length % pack == 0 &&
         args.length / pack <= std::int64_t{kThreads} * kMostHeld &&
         begins_at_sixteen(args.out) && begins_at_sixteen(args.in) &&
         begins_at_sixteen(args.grad_out) && begins_at_sixteen(args.weight) &&
         begins_at_sixteen(args.bias);
}

bool wide_softmax_fits(WideSoftmaxArgs& args, npu_dtype dtype) noexcept {
  const auto offset = [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16;
  };
  const auto pack = static_cast<int>(16 / npu_dtype_bytes(dtype));
  args.aligned = args.length % pack == 0 && offset(args.in) == 0 ? 1 : 0;
  return offset(args.in) == offset(args.out) &&
         (args.in2 == nullptr || offset(args.in) == offset(args.in2));
}

npu_status wide_softmax(
    Stream& stream, const WideSoftmaxArgs& args, npu_dtype dtype) {
  return NPU_BY_DTYPE(softmax_as);
}
npu_status wide_layer_norm(
    Stream& stream, const WideNormArgs& args, npu_dtype dtype) {
  return NPU_BY_DTYPE(layer_norm_as);
}
npu_status wide_column_sums(
    Stream& stream, const WideNormArgs& args, npu_dtype dtype) {
  return NPU_BY_DTYPE(column_sums_as);
}

}  // namespace npu::cuda
