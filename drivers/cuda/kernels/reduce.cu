// SPDX-License-Identifier: Apache-2.0
// Kind reduce. A group of threads reduces the row behind one element of the
// output; long rows are cut into pieces, whose states meet in a second launch.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/element.cuh"
#include "kernels/layout.h"
#include "shared/arithmetic.h"

namespace npu::cuda {
namespace {

// ---- what is accumulated ----

// An operation has In, what elements are read as, a State, and functions:
// none(), add(state, x, p), merge(a, b), and finish(state, args, out, out2).

struct ReduceArgs {
  Layout<3> outer;  // out, out2, in
  Layout<1> inner;  // in
  char* out;
  char* out2;
  const char* in;
  npu_dtype out_dtype;
  npu_dtype out2_dtype;
  npu_dtype in_dtype;
  std::uint8_t across;  // neighbours in memory belong to neighbouring outputs
  std::uint8_t root;
  std::int32_t lanes;   // threads for one output
  std::int64_t pieces;  // of a row
  char* states;         // pieces > 1: [outputs][pieces]
  double p;
  double correction;
};

__device__ inline double row_length(const ReduceArgs& args) {
  return static_cast<double>(args.inner.numel);
}

template <class T>
__device__ inline void put_out(const ReduceArgs& args, char* out, T value) {
  store<T>(out, args.out_dtype, value);
}

template <class T>
__device__ inline T plus(T x, T y) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return add(x, y);
  } else {
    return x + y;
  }
}

template <class T, bool kMean>
struct Sum {
  using In = T;
  using State = T;
  __device__ static State none() {
    return T(0);
  }
  __device__ static State add_one(State s, In x, const ReduceArgs&) {
    return plus(s, x);
  }
  __device__ static State merge(State a, State b) {
    return plus(a, b);
  }
  __device__ static void finish(
      State s, const ReduceArgs& args, char* out, char*) {
    if constexpr (kMean && kIsComplexType<T>) {
      put_out(args, out, s / static_cast<decltype(s.re)>(row_length(args)));
    } else if constexpr (kMean) {
      put_out(args, out, s / static_cast<T>(row_length(args)));
    } else {
      put_out(args, out, s);
    }
  }
};

// Without the elements that are not a number.
template <bool kMean>
struct NanSum {
  using In = double;
  struct State {
    double sum;
    double count;
  };
  __device__ static State none() {
    return {0, 0};
  }
  __device__ static State add_one(State s, In x, const ReduceArgs&) {
    return x == x ? State{s.sum + x, s.count + 1} : s;
  }
  __device__ static State merge(State a, State b) {
    return {a.sum + b.sum, a.count + b.count};
  }
  __device__ static void finish(
      State s, const ReduceArgs& args, char* out, char*) {
    put_out(args, out, kMean ? s.sum / s.count : s.sum);
  }
};

template <class T>
struct Product {
  using In = T;
  using State = T;
  __device__ static State none() {
    return T(1);
  }
  __device__ static State add_one(State s, In x, const ReduceArgs&) {
    return multiply(s, x);
  }
  __device__ static State merge(State a, State b) {
    return multiply(a, b);
  }
  __device__ static void finish(
      State s, const ReduceArgs& args, char* out, char*) {
    put_out(args, out, s);
  }
};

// Not a number wins. `kMin`, `kMax`: which of them is the first output.
template <class T, bool kMin, bool kMax>
struct Extremes {
  using In = T;
  struct State {
    T least;
    T most;
    bool empty;
  };
  __device__ static State none() {
    return {T(0), T(0), true};
  }
  __device__ static State add_one(State s, In x, const ReduceArgs&) {
    return merge(s, {x, x, false});
  }
  __device__ static State merge(State a, State b) {
    if (a.empty || b.empty) {
      return a.empty ? b : a;
    }
    return {lesser(a.least, b.least), greater(a.most, b.most), false};
  }
  __device__ static void finish(
      State s, const ReduceArgs& args, char* out, char* out2) {
    put_out(args, out, kMin ? s.least : s.most);
    if (kMin && kMax && out2 != nullptr) {
      store<T>(out2, args.out2_dtype, s.most);
    }
  }
};

// How many elements are not zero.
enum class Count { kAny, kAll, kNumber };
template <class T, Count kWhat>
struct NonZero {
  using In = T;
  using State = std::int64_t;
  __device__ static State none() {
    return 0;
  }
  __device__ static State add_one(State s, In x, const ReduceArgs&) {
    return s + (x != T(0) ? 1 : 0);
  }
  __device__ static State merge(State a, State b) {
    return a + b;
  }
  __device__ static void finish(
      State s, const ReduceArgs& args, char* out, char*) {
    const State value = kWhat == Count::kAny   ? State{s != 0}
                        : kWhat == Count::kAll ? State{s == args.inner.numel}
                                               : s;
    put_out(args, out, value);
  }
};

// Norm of order p. kSquares: without the root, p = 2.
enum class Norm { kZero, kOne, kTwo, kSquares, kMost, kLeast, kAny };
template <Norm kNorm>
struct Size {
  using In = double;
  static constexpr bool kExtreme =
      kNorm == Norm::kMost || kNorm == Norm::kLeast;
  using Of = Extremes<double, kNorm == Norm::kLeast, kNorm == Norm::kMost>;
  using State = std::conditional_t<kExtreme, typename Of::State, double>;
  __device__ static State none() {
    if constexpr (kExtreme) {
      return Of::none();
    } else {
      return 0;
    }
  }
  __device__ static State add_one(State s, In x, const ReduceArgs& args) {
    const double size = fabs(x);
    if constexpr (kExtreme) {
      return Of::add_one(s, size, args);
    } else {
      return s + (kNorm == Norm::kZero  ? (x != 0 ? 1.0 : 0.0)
                  : kNorm == Norm::kOne ? size
                  : kNorm == Norm::kAny ? pow(size, args.p)
                                        : x * x);
    }
  }
  __device__ static State merge(State a, State b) {
    if constexpr (kExtreme) {
      return Of::merge(a, b);
    } else {
      return a + b;
    }
  }
  __device__ static void finish(
      State s, const ReduceArgs& args, char* out, char* out2) {
    if constexpr (kExtreme) {
      Of::finish(s, args, out, out2);
    } else {
      put_out(
          args,
          out,
          kNorm == Norm::kTwo   ? sqrt(s)
          : kNorm == Norm::kAny ? pow(s, 1 / args.p)
                                : s);
    }
  }
};

// Welford's way, and Chan's for two of them.
struct Moments {
  using In = double;
  struct State {
    double n;
    double mean;
    double squares;
  };
  __device__ static State none() {
    return {0, 0, 0};
  }
  __device__ static State add_one(State s, In x, const ReduceArgs&) {
    const double n = s.n + 1;
    const double delta = x - s.mean;
    const double mean = s.mean + delta / n;
    return {n, mean, s.squares + delta * (x - mean)};
  }
  __device__ static State merge(State a, State b) {
    if (a.n == 0 || b.n == 0) {
      return a.n == 0 ? b : a;
    }
    const double n = a.n + b.n;
    const double delta = b.mean - a.mean;
    return {
        n,
        a.mean + delta * (b.n / n),
        a.squares + b.squares + delta * delta * (a.n * b.n / n)};
  }
  __device__ static void finish(
      State s, const ReduceArgs& args, char* out, char* out2) {
    const double divisor = fmax(0.0, s.n - args.correction);
    const double variance = s.squares / divisor;
    put_out(args, out, args.root ? sqrt(variance) : variance);
    if (out2 != nullptr) {
      store<double>(out2, args.out2_dtype, s.mean);
    }
  }
};

struct LogSumExp {
  using In = double;
  struct State {
    double most;
    double sum;  // of exp(x - most)
  };
  static constexpr double kNone = -std::numeric_limits<double>::infinity();
  __device__ static State none() {
    return {kNone, 0};
  }
  __device__ static State add_one(State s, In x, const ReduceArgs&) {
    return merge(s, {x, 1});
  }
  __device__ static State merge(State a, State b) {
    if (a.sum == 0 || b.sum == 0) {
      return a.sum == 0 ? b : a;
    }
    const double most = greater(a.most, b.most);
    // Infinities minus themselves are no numbers: they count as they are.
    const double shift = isinf(most) ? 0 : most;
    const auto part = [&](State s) {
      return s.sum *
             exp((isinf(s.most) && s.most == most ? 0 : s.most - shift));
    };
    if (isinf(most)) {
      return {most, a.sum + b.sum};
    }
    return {most, part(a) + part(b)};
  }
  __device__ static void finish(
      State s, const ReduceArgs& args, char* out, char*) {
    put_out(args, out, isinf(s.most) ? s.most : log(s.sum) + s.most);
  }
};

// ---- kernels ----

struct Place {
  std::int64_t output;
  int lane;
  bool inside;
};

// Which output a thread works for, and as which of its lanes.
__device__ inline Place place_of(
    const ReduceArgs& args, std::int64_t group, int thread) {
  const int outputs = static_cast<int>(blockDim.x) / args.lanes;
  const int lane = args.across ? thread / outputs : thread % args.lanes;
  const int mine = args.across ? thread % outputs : thread / args.lanes;
  const std::int64_t output = group * outputs + mine;
  return {output, lane, output < args.outer.numel};
}

template <class Op>
__global__ void reduce_kernel(const __grid_constant__ ReduceArgs args) {
  using State = typename Op::State;
  __shared__ alignas(16) char bytes[kThreads * sizeof(State)];
  auto* const states = reinterpret_cast<State*>(bytes);
  const int outputs = static_cast<int>(blockDim.x) / args.lanes;
  const std::int64_t groups = (args.outer.numel + outputs - 1) / outputs;
  const std::int64_t work = groups * args.pieces;
  for (std::int64_t w = blockIdx.x; w < work; w += gridDim.x) {
    const std::int64_t piece = w % args.pieces;
    const Place place =
        place_of(args, w / args.pieces, static_cast<int>(threadIdx.x));
    const std::int64_t n = args.inner.numel;
    const std::int64_t begin =
        n / args.pieces * piece + min(piece, n % args.pieces);
    const std::int64_t end =
        begin + n / args.pieces + (piece < n % args.pieces ? 1 : 0);
    std::int64_t at[3] = {0, 0, 0};
    State state = Op::none();
    if (place.inside) {
      args.outer.offsets(place.output, at);
      for (std::int64_t j = begin + place.lane; j < end; j += args.lanes) {
        std::int64_t inner[1];
        args.inner.offsets(j, inner);
        state = Op::add_one(
            state,
            load<typename Op::In>(args.in + at[2] + inner[0], args.in_dtype),
            args);
      }
    }
    // Lanes meet in pairs, always in the same order.
    const int across = args.across ? outputs : 1;
    for (int half = args.lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      states[threadIdx.x] = state;
      __syncthreads();
      if (place.lane < half) {
        state = Op::merge(state, states[threadIdx.x + half * across]);
      }
    }
    __syncthreads();
    if (place.inside && place.lane == 0) {
      if (args.pieces > 1) {
        reinterpret_cast<State*>(
            args.states)[place.output * args.pieces + piece] = state;
      } else {
        Op::finish(
            state,
            args,
            args.out + at[0],
            args.out2 != nullptr ? args.out2 + at[1] : nullptr);
      }
    }
  }
}

template <class Op>
__global__ void reduce_pieces(const __grid_constant__ ReduceArgs args) {
  using State = typename Op::State;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < args.outer.numel;
       i += step) {
    const auto* const mine =
        reinterpret_cast<const State*>(args.states) + i * args.pieces;
    State state = mine[0];
    for (std::int64_t k = 1; k < args.pieces; ++k) {
      state = Op::merge(state, mine[k]);
    }
    std::int64_t at[3];
    args.outer.offsets(i, at);
    Op::finish(
        state,
        args,
        args.out + at[0],
        args.out2 != nullptr ? args.out2 + at[1] : nullptr);
  }
}

template <class Op>
npu_status reduce_with(Stream& stream, const ReduceArgs& args) {
  static_assert(sizeof(typename Op::State) <= 32);
  const std::int64_t outputs = kThreads / args.lanes;
  const std::int64_t groups = (args.outer.numel + outputs - 1) / outputs;
  npu_status status = launch<&reduce_kernel<Op>>(
      stream, static_cast<std::uint64_t>(groups * args.pieces), kThreads, args);
  if (status || args.pieces == 1) {
    return status;
  }
  return launch<&reduce_pieces<Op>>(
      stream, blocks_for(stream, args.outer.numel), kThreads, args);
}

// ---- shapes ----

// A tensor of chosen dimensions of another.
struct View {
  std::int64_t sizes[NPU_MAX_DIMS];
  std::int64_t strides[NPU_MAX_DIMS];
  npu_tensor tensor;

  void begin(const npu_tensor* like) {
    tensor = like ? *like : npu_tensor{};
    tensor.ndim = 0;
    tensor.numel = 1;
    tensor.sizes = sizes;
    tensor.strides = strides;
  }
  void add(std::int64_t size, std::int64_t stride) {
    sizes[tensor.ndim] = size;
    strides[tensor.ndim] = stride;
    tensor.numel *= size;
    ++tensor.ndim;
  }
};

// False: more dimensions than kernels take.
bool set_shape(ReduceArgs& args, const npu_reduce_args& given) {
  const npu_tensor& in = *given.in;
  const npu_tensor& out = *given.out;
  const bool keeps = out.ndim == in.ndim;
  View views[3];
  View inner;
  views[0].begin(&out);
  views[1].begin(given.out2);
  views[2].begin(&in);
  inner.begin(&in);
  std::uint32_t to = 0;  // dimension of the output
  std::int64_t inner_stride = INT64_MAX;
  std::int64_t outer_stride = INT64_MAX;
  for (std::uint32_t d = 0; d < in.ndim; ++d) {
    const std::int64_t size = in.sizes[d];
    const std::int64_t stride = in.strides[d];
    if ((given.attrs.dims >> d & 1) != 0) {
      inner.add(size, stride);
      inner_stride = size > 1 ? std::min(inner_stride, stride) : inner_stride;
      to += keeps ? 1 : 0;
      continue;
    }
    views[0].add(size, out.strides[to]);
    views[1].add(size, given.out2 ? given.out2->strides[to] : 0);
    views[2].add(size, stride);
    outer_stride = size > 1 ? std::min(outer_stride, stride) : outer_stride;
    ++to;
  }
  const npu_tensor* const outer[] = {
      &views[0].tensor,
      given.out2 ? &views[1].tensor : nullptr,
      &views[2].tensor};
  const npu_tensor* const row[] = {&inner.tensor};
  args.across = outer_stride < inner_stride;
  return make_layout(args.outer, outer) && make_layout(args.inner, row);
}

// How many threads an output gets, and how many pieces a row.
void share_out(ReduceArgs& args, npu_device device) {
  const std::int64_t n = args.inner.numel;
  const std::int64_t outputs = args.outer.numel;
  const std::int64_t most = args.across ? 8 : kThreads;
  args.lanes = 1;
  while (args.lanes < most && args.lanes * 4 < n) {
    args.lanes *= 2;
  }
  if (args.across && outputs < kThreads / args.lanes) {
    while (args.lanes < 256 && args.lanes * outputs < kThreads &&
           args.lanes * 4 < n) {
      args.lanes *= 2;
    }
  }
  const std::int64_t groups = (outputs * args.lanes + kThreads - 1) / kThreads;
  const std::int64_t wanted =
      device_at(device).properties.multiProcessorCount * 8;
  const std::int64_t by_length = n / (std::int64_t{args.lanes} * 16);
  args.pieces = std::clamp<std::int64_t>(
      std::min(wanted / std::max<std::int64_t>(groups, 1), by_length), 1, 256);
}

std::uint64_t bytes_of_states(const ReduceArgs& args) {
  return args.pieces > 1
             ? static_cast<std::uint64_t>(args.outer.numel * args.pieces * 32)
             : 0;
}

npu_status plan(npu_device device, const npu_call& call, npu_verdict& verdict) {
  const npu_reduce_args given = npu_reduce_unpack(&call);
  ReduceArgs args{};
  if (!given.out || !given.in || !set_shape(args, given)) {
    verdict.answer = NPU_VERDICT_NO;
    verdict.reason = NPU_REASON_NDIM;
    return NPU_OK;
  }
  share_out(args, device);
  const std::uint64_t bytes = bytes_of_states(args);
  // With less a row is reduced in one piece.
  verdict.workspace_bytes =
      bytes <= npu_call_workspace_limit(&call) ? bytes : 0;
  return NPU_OK;
}

// ---- calls ----

enum Group { kOrdered, kField, kAnyNumber };

Group group_of(std::uint32_t code) {
  switch (code) {
    case NPU_REDUCE_MIN:
    case NPU_REDUCE_MAX:
    case NPU_REDUCE_AMINMAX:
      return kOrdered;
    case NPU_REDUCE_SUM:
    case NPU_REDUCE_NANSUM:
    case NPU_REDUCE_PROD:
    case NPU_REDUCE_ANY:
    case NPU_REDUCE_ALL:
    case NPU_REDUCE_COUNT_NONZERO:
      return kAnyNumber;
    default:
      return kField;
  }
}

bool takes_complex(std::uint32_t code) {
  return code == NPU_REDUCE_SUM || code == NPU_REDUCE_MEAN ||
         code == NPU_REDUCE_ANY || code == NPU_REDUCE_ALL ||
         code == NPU_REDUCE_COUNT_NONZERO;
}

// Sums are taken in the output's dtype: of bool in int64, of float16 with
// dtype=float32 in float32.
bool computes_in_output(std::uint32_t code) {
  return code == NPU_REDUCE_SUM || code == NPU_REDUCE_PROD ||
         code == NPU_REDUCE_NANSUM || code == NPU_REDUCE_MEAN ||
         code == NPU_REDUCE_NANMEAN || code == NPU_REDUCE_LOGSUMEXP;
}

template <Count kWhat>
npu_status count(Stream& stream, const ReduceArgs& args, int type) {
  return type == kInComplex64 || type == kInComplex128
             ? reduce_with<NonZero<Complex128, kWhat>>(stream, args)
         : type == kInInt64 || type == kInBool
             ? reduce_with<NonZero<std::int64_t, kWhat>>(stream, args)
             : reduce_with<NonZero<double, kWhat>>(stream, args);
}

template <bool kMean>
npu_status sum(Stream& stream, const ReduceArgs& args, int type) {
  switch (type) {
    case kInFloat:
      return reduce_with<Sum<float, kMean>>(stream, args);
    case kInDouble:
      return reduce_with<Sum<double, kMean>>(stream, args);
    case kInComplex64:
      return reduce_with<Sum<Complex64, kMean>>(stream, args);
    case kInComplex128:
      return reduce_with<Sum<Complex128, kMean>>(stream, args);
    default:
      return reduce_with<Sum<std::int64_t, false>>(stream, args);
  }
}

template <bool kMin, bool kMax>
npu_status extremes(Stream& stream, const ReduceArgs& args, bool whole) {
  return whole ? reduce_with<Extremes<std::int64_t, kMin, kMax>>(stream, args)
               : reduce_with<Extremes<double, kMin, kMax>>(stream, args);
}

npu_status norm(Stream& stream, const ReduceArgs& args) {
  if (std::isinf(args.p)) {
    return args.p > 0 ? reduce_with<Size<Norm::kMost>>(stream, args)
                      : reduce_with<Size<Norm::kLeast>>(stream, args);
  }
  return args.p == 0   ? reduce_with<Size<Norm::kZero>>(stream, args)
         : args.p == 1 ? reduce_with<Size<Norm::kOne>>(stream, args)
         : args.p == 2 ? reduce_with<Size<Norm::kTwo>>(stream, args)
                       : reduce_with<Size<Norm::kAny>>(stream, args);
}

npu_status run(Stream& stream, const npu_call& call) {
  const npu_reduce_args given = npu_reduce_unpack(&call);
  if (!given.out || !given.in) {
    return refuse(call, "an operand is absent");
  }
  ReduceArgs args{};
  if (!set_shape(args, given)) {
    return refuse(call, "more than 16 dimensions");
  }
  share_out(args, stream.device);
  if (bytes_of_states(args) > call.workspace_bytes || !call.workspace) {
    args.pieces = 1;
  }
  args.states = static_cast<char*>(call.workspace);
  args.out = static_cast<char*>(given.out->data);
  args.out_dtype = given.out->dtype;
  if (given.out2) {
    args.out2 = static_cast<char*>(given.out2->data);
    args.out2_dtype = given.out2->dtype;
  }
  args.in = static_cast<const char*>(given.in->data);
  args.in_dtype = given.in->dtype;
  args.p = given.attrs.p;
  args.correction = given.attrs.correction;
  args.root = call.code == NPU_REDUCE_STD || call.code == NPU_REDUCE_STD_MEAN;
  const npu_dtype dtype = call.compute_dtype != NPU_ABSENT ? call.compute_dtype
                          : computes_in_output(call.code)  ? given.out->dtype
                                                           : given.in->dtype;
  const int type = compute_type(dtype);
  const bool whole = type == kInInt64 || type == kInBool;
  const bool complex = type == kInComplex64 || type == kInComplex128;
  if (type < 0 || (complex && !takes_complex(call.code)) ||
      (whole && group_of(call.code) == kField)) {
    return refuse(call, npu_dtype_name(dtype));
  }
  switch (call.code) {
    case NPU_REDUCE_SUM:
      return sum<false>(stream, args, type);
    case NPU_REDUCE_MEAN:
      return sum<true>(stream, args, type);
    case NPU_REDUCE_NANSUM:
      return whole ? sum<false>(stream, args, type)
                   : reduce_with<NanSum<false>>(stream, args);
    case NPU_REDUCE_NANMEAN:
      return reduce_with<NanSum<true>>(stream, args);
    case NPU_REDUCE_PROD:
      return whole ? reduce_with<Product<std::int64_t>>(stream, args)
                   : reduce_with<Product<double>>(stream, args);
    case NPU_REDUCE_MIN:
      return extremes<true, false>(stream, args, whole);
    case NPU_REDUCE_MAX:
      return extremes<false, true>(stream, args, whole);
    case NPU_REDUCE_AMINMAX:
      return extremes<true, true>(stream, args, whole);
    case NPU_REDUCE_ANY:
      return count<Count::kAny>(stream, args, type);
    case NPU_REDUCE_ALL:
      return count<Count::kAll>(stream, args, type);
    case NPU_REDUCE_COUNT_NONZERO:
      return count<Count::kNumber>(stream, args, type);
    case NPU_REDUCE_NORM:
      return norm(stream, args);
    case NPU_REDUCE_SUM_OF_SQUARES:
      return reduce_with<Size<Norm::kSquares>>(stream, args);
    case NPU_REDUCE_LOGSUMEXP:
      return reduce_with<LogSumExp>(stream, args);
    default:
      return reduce_with<Moments>(stream, args);
  }
}

npu_status caps(std::uint32_t code, npu_op_caps& out) {
  if (code >= NPU_REDUCE_CODES) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_CAST);
  out.flags |= NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT;
  out.plan_use = NPU_PLAN_BY_SHAPE;
  out.max_ndim = kMostDims;
  out.accumulate =
      NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64) | NPU_DTYPE_BIT(NPU_I64);
  std::uint64_t in = kNumberBits;
  in = group_of(code) == kOrdered ? in & ~NPU_DTYPE_BIT(NPU_U64) : in;
  in |= takes_complex(code) ? kComplexBits : 0;
  std::uint64_t made = kNumberBits;
  made |= takes_complex(code) ? kComplexBits : 0;
  if (group_of(code) == kField) {
    in &= ~(kBoolBit | kAnyIntBits);
    made &= ~(kBoolBit | kAnyIntBits);
  }
  out.dtypes[0] = made;
  out.dtypes[1] = made;
  out.dtypes[2] = in;
  return NPU_OK;
}

constexpr KernelRow kTable[] = {{NPU_KIND_REDUCE, caps, plan, run}};

}  // namespace

const Rows kReduceKernels = kTable;

}  // namespace npu::cuda
