// SPDX-License-Identifier: Apache-2.0
// Kinds layer_norm, rms_norm and their backward, softmax and softmax_grad.
#include <algorithm>
#include <limits>

#include "kernels/rows.cuh"
#include "kernels/wide_rows.h"
#include "shared/arithmetic.h"

namespace npu::cuda {
namespace {

// A contiguous operand; data is null where it is absent.
struct Flat {
  char* data;
  npu_dtype dtype;
  std::uint8_t bytes;

  template <class T>
  __device__ T at(std::int64_t i) const {
    return load<T>(data + i * bytes, dtype);
  }
  template <class T>
  __device__ void set(std::int64_t i, T value) const {
    store<T>(data + i * bytes, dtype, value);
  }
};

Flat flat(const npu_tensor* t) {
  return t ? Flat{static_cast<char*>(t->data), t->dtype, static_cast<std::uint8_t>(npu_dtype_bytes(t->dtype))}
           : Flat{};
}

// Halves are computed in float32, float64 in itself.
bool is_wide(const npu_call& call) {
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    if (call.tensors[i].dtype == NPU_F64) {
      return true;
    }
  }
  return false;
}

void float_caps(npu_op_caps& out, int operands) {
  usual_caps(out, NPU_DTYPES_CAST);
  out.accumulate = NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);
  std::fill_n(out.dtypes, operands, kFloatBits);
}

// ---- layer_norm, rms_norm ----

struct NormArgs {
  std::int64_t rows;
  std::int64_t length;
  Flat out;
  Flat mean;  // of the output, or of the gradient's inputs
  Flat rstd;
  Flat in;
  Flat weight;
  Flat bias;
  Flat grad_out;
  Flat grad_weight;
  Flat grad_bias;
  char* sums;  // [pieces][2][length], of the type that is computed in
  std::int64_t pieces;
  double eps;
};

// kCentred: the mean is taken out (layer_norm).
template <class T, bool kCentred, int kLanes>
__device__ inline void normalise(const NormArgs& args) {
  using G = Group<kLanes>;
  __shared__ T scratch[kThreads / 32];
  const auto n = static_cast<T>(args.length);
  for (std::int64_t row = G::first(); row < args.rows; row += G::step()) {
    const std::int64_t first = row * args.length;
    T mean = T(0);
    if constexpr (kCentred) {
      T sum = T(0);
      for (std::int64_t k = G::lane(); k < args.length; k += kLanes) {
        sum += args.in.at<T>(first + k);
      }
      mean = G::sum(sum, scratch) / n;
    }
    T squares = T(0);
    for (std::int64_t k = G::lane(); k < args.length; k += kLanes) {
      const T x = args.in.at<T>(first + k) - mean;
      squares += x * x;
    }
    squares = G::sum(squares, scratch);
    const T rstd = T(1) / sqrt(squares / n + static_cast<T>(args.eps));
    for (std::int64_t k = G::lane(); k < args.length; k += kLanes) {
      T y = (args.in.at<T>(first + k) - mean) * rstd;
      if (args.weight.data != nullptr) {
        y *= args.weight.at<T>(k);
      }
      if (args.bias.data != nullptr) {
        y += args.bias.at<T>(k);
      }
      args.out.set(first + k, y);
    }
    if (G::lane() == 0) {
      if (args.mean.data != nullptr) {
        args.mean.set(row, mean);
      }
      if (args.rstd.data != nullptr) {
        args.rstd.set(row, rstd);
      }
    }
  }
}

// With g = grad * weight and averages over the row:
//   grad_in = rstd * (g - average(g) - x^ * average(g * x^)),
// without average(g) where there is no mean.
template <class T, bool kCentred, int kLanes>
__device__ inline void normalise_grad(const NormArgs& args) {
  using G = Group<kLanes>;
  __shared__ T scratch[kThreads / 32];
  const auto n = static_cast<T>(args.length);
  for (std::int64_t row = G::first(); row < args.rows; row += G::step()) {
    const std::int64_t first = row * args.length;
    const T mean = kCentred ? args.mean.at<T>(row) : T(0);
    const T rstd = args.rstd.at<T>(row);
    const auto gradient = [&](std::int64_t k) {
      const T g = args.grad_out.at<T>(first + k);
      return args.weight.data != nullptr ? g * args.weight.at<T>(k) : g;
    };
    const auto normal = [&](std::int64_t k) {
      return (args.in.at<T>(first + k) - mean) * rstd;
    };
    T sum = T(0);
    T dot = T(0);
    for (std::int64_t k = G::lane(); k < args.length; k += kLanes) {
      const T g = gradient(k);
      sum += g;
      dot += g * normal(k);
    }
    sum = kCentred ? G::sum(sum, scratch) / n : T(0);
    dot = G::sum(dot, scratch) / n;
    for (std::int64_t k = G::lane(); k < args.length; k += kLanes) {
      args.out.set(first + k, rstd * (gradient(k) - sum - normal(k) * dot));
    }
  }
}

#define NPU_NORM(name, T, centred)                                     \
  template <int kLanes>                                                \
  __global__ void name(const __grid_constant__ NormArgs args) {        \
    normalise<T, centred, kLanes>(args);                               \
  }                                                                    \
  template <int kLanes>                                                \
  __global__ void name##_grad(const __grid_constant__ NormArgs args) { \
    normalise_grad<T, centred, kLanes>(args);                          \
  }
NPU_NORM(layer_norm_f32, float, true)
NPU_NORM(layer_norm_f64, double, true)
NPU_NORM(rms_norm_f32, float, false)
NPU_NORM(rms_norm_f64, double, false)
#undef NPU_NORM

// Sums over a piece of the rows: 32 columns of a block, 8 rows at a time.
constexpr int kColumns = 32;
constexpr int kRowLanes = kThreads / kColumns;

template <class T>
__global__ void weight_sums(const __grid_constant__ NormArgs args) {
  __shared__ T dots[kRowLanes][kColumns];
  __shared__ T sums[kRowLanes][kColumns];
  const std::int64_t across = (args.length + kColumns - 1) / kColumns;
  const std::int64_t piece = blockIdx.x / across;
  const int x = static_cast<int>(threadIdx.x) % kColumns;
  const int y = static_cast<int>(threadIdx.x) / kColumns;
  const std::int64_t column = blockIdx.x % across * kColumns + x;
  const std::int64_t each = (args.rows + args.pieces - 1) / args.pieces;
  const std::int64_t end = min((piece + 1) * each, args.rows);
  T dot = T(0);
  T sum = T(0);
  if (column < args.length) {
    for (std::int64_t row = piece * each + y; row < end; row += kRowLanes) {
      const T g = args.grad_out.at<T>(row * args.length + column);
      const T mean = args.mean.data != nullptr ? args.mean.at<T>(row) : T(0);
      dot += g * ((args.in.at<T>(row * args.length + column) - mean) *
                  args.rstd.at<T>(row));
      sum += g;
    }
  }
  dots[y][x] = dot;
  sums[y][x] = sum;
  __syncthreads();
  if (y == 0 && column < args.length) {
    for (int k = 1; k < kRowLanes; ++k) {
      dot += dots[k][x];
      sum += sums[k][x];
    }
    T* const to = reinterpret_cast<T*>(args.sums) + piece * 2 * args.length;
    to[column] = dot;
    to[args.length + column] = sum;
  }
}

template <class T>
__global__ void weight_grads(const __grid_constant__ NormArgs args) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t column =
           std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       column < args.length;
       column += step) {
    const T* const from = reinterpret_cast<const T*>(args.sums);
    T dot = T(0);
    T sum = T(0);
    for (std::int64_t p = 0; p < args.pieces; ++p) {
      dot += from[p * 2 * args.length + column];
      sum += from[(p * 2 + 1) * args.length + column];
    }
    if (args.grad_weight.data != nullptr) {
      args.grad_weight.set(column, dot);
    }
    if (args.grad_bias.data != nullptr) {
      args.grad_bias.set(column, sum);
    }
  }
}

void set_rows(NormArgs& args, const npu_tensor& in, std::int64_t axes) {
  args.length = 1;
  for (std::int64_t d = in.ndim - axes; d < in.ndim; ++d) {
    args.length *= in.sizes[d];
  }
  args.rows = in.numel / args.length;
}

template <class Args>
NormArgs forward_of(const Args& given) {
  NormArgs args{};
  set_rows(args, *given.in, given.attrs.axes);
  args.out = flat(given.out);
  args.rstd = flat(given.rstd);
  args.in = flat(given.in);
  args.weight = flat(given.weight);
  args.eps = given.attrs.eps;
  return args;
}

// ---- rows of one dtype, 16 bytes at a time (wide_rows.cu) ----

constexpr std::int64_t kMostWide = INT32_MAX;

// Its own dtype, or absent.
bool is_of(const Flat& operand, npu_dtype dtype) {
  return operand.data == nullptr || operand.dtype == dtype;
}

// Statistics are float32, or of the rows' dtype.
bool set_wide(WideNormArgs& wide, const NormArgs& args, npu_dtype dtype) {
  const npu_dtype statistics = args.rstd.data != nullptr   ? args.rstd.dtype
                               : args.mean.data != nullptr ? args.mean.dtype
                                                           : npu_dtype{NPU_F32};
  if (!tries("rows") || !is_wide_dtype(dtype) || args.length > kMostWide ||
      !is_of(args.out, dtype) || !is_of(args.weight, dtype) ||
      !is_of(args.bias, dtype) || !is_of(args.grad_out, dtype) ||
      !is_of(args.mean, statistics) ||
      (statistics != NPU_F32 && statistics != dtype)) {
    return false;
  }
  wide = {};
  wide.rows = args.rows;
  wide.length = static_cast<int>(args.length);
  wide.wide_statistics = statistics == NPU_F32 ? 1 : 0;
  wide.eps = static_cast<float>(args.eps);
  wide.out = args.out.data;
  wide.mean = args.mean.data;
  wide.rstd = args.rstd.data;
  wide.in = args.in.data;
  wide.weight = args.weight.data;
  wide.bias = args.bias.data;
  wide.grad_out = args.grad_out.data;
  wide.sums = reinterpret_cast<float*>(args.sums);
  wide.pieces = args.pieces;
  return wide_norm_fits(wide, dtype);
}

npu_status layer_norm(Stream& stream, const npu_call& call) {
  const npu_layer_norm_args given = npu_layer_norm_unpack(&call);
  NormArgs args = forward_of(given);
  args.mean = flat(given.mean);
  args.bias = flat(given.bias);
  if (WideNormArgs wide; set_wide(wide, args, args.in.dtype)) {
    return wide_layer_norm(stream, wide, args.in.dtype);
  }
  return is_wide(call)
             ? NPU_LAUNCH_ROWS(
                   stream, args.rows, args.length, layer_norm_f64, args)
             : NPU_LAUNCH_ROWS(
                   stream, args.rows, args.length, layer_norm_f32, args);
}

npu_status rms_norm(Stream& stream, const npu_call& call) {
  const npu_rms_norm_args given = npu_rms_norm_unpack(&call);
  const NormArgs args = forward_of(given);
  return is_wide(call)
             ? NPU_LAUNCH_ROWS(
                   stream, args.rows, args.length, rms_norm_f64, args)
             : NPU_LAUNCH_ROWS(
                   stream, args.rows, args.length, rms_norm_f32, args);
}

// Pieces of the rows that the sums for weights are taken in.
std::int64_t pieces_of(const NormArgs& args) {
  return std::clamp<std::int64_t>(args.rows / 64, 1, 128);
}

std::uint64_t bytes_of_sums(const NormArgs& args, std::int64_t pieces) {
  return static_cast<std::uint64_t>(pieces * 2 * args.length) * sizeof(double);
}

template <class Args>
NormArgs backward_of(const Args& given) {
  NormArgs args{};
  set_rows(args, *given.in, given.attrs.axes);
  args.out = flat(given.grad_in);
  args.rstd = flat(given.rstd);
  args.in = flat(given.in);
  args.weight = flat(given.weight);
  args.grad_out = flat(given.grad_out);
  args.grad_weight = flat(given.grad_weight);
  return args;
}

npu_status run_grad(
    Stream& stream, const npu_call& call, NormArgs args, bool centred) {
  const bool wide = is_wide(call);
  npu_status status = NPU_OK;
  WideNormArgs rows;
  const bool in_packs = centred && set_wide(rows, args, args.in.dtype);
  if (args.out.data != nullptr) {
    status =
        in_packs ? wide_layer_norm(stream, rows, args.in.dtype)
        : centred && wide
            ? NPU_LAUNCH_ROWS(
                  stream, args.rows, args.length, layer_norm_f64_grad, args)
        : centred
            ? NPU_LAUNCH_ROWS(
                  stream, args.rows, args.length, layer_norm_f32_grad, args)
        : wide ? NPU_LAUNCH_ROWS(
                     stream, args.rows, args.length, rms_norm_f64_grad, args)
               : NPU_LAUNCH_ROWS(
                     stream, args.rows, args.length, rms_norm_f32_grad, args);
  }
  if (status || (!args.grad_weight.data && !args.grad_bias.data)) {
    return status;
  }
  args.sums = static_cast<char*>(call.workspace);
  args.pieces = pieces_of(args);
  if (bytes_of_sums(args, args.pieces) > call.workspace_bytes) {
    args.pieces = 1;
  }
  if (bytes_of_sums(args, args.pieces) > call.workspace_bytes) {
    return refuse(call, "its workspace is too small");
  }
  const auto blocks = static_cast<std::uint64_t>(
      (args.length + kColumns - 1) / kColumns * args.pieces);
  const std::uint64_t few = blocks_for(stream, args.length);
  rows.sums = reinterpret_cast<float*>(args.sums);
  rows.pieces = args.pieces;
  status = in_packs ? wide_column_sums(stream, rows, args.in.dtype)
           : wide ? launch<&weight_sums<double>>(stream, blocks, kThreads, args)
                  : launch<&weight_sums<float>>(stream, blocks, kThreads, args);
  if (status) {
    return status;
  }
  return wide ? launch<&weight_grads<double>>(stream, few, kThreads, args)
              : launch<&weight_grads<float>>(stream, few, kThreads, args);
}

npu_status layer_norm_grad(Stream& stream, const npu_call& call) {
  const npu_layer_norm_grad_args given = npu_layer_norm_grad_unpack(&call);
  NormArgs args = backward_of(given);
  args.mean = flat(given.mean);
  args.grad_bias = flat(given.grad_bias);
  return run_grad(stream, call, args, true);
}

npu_status rms_norm_grad(Stream& stream, const npu_call& call) {
  const npu_rms_norm_grad_args given = npu_rms_norm_grad_unpack(&call);
  return run_grad(stream, call, backward_of(given), false);
}

npu_status plan_sums(
    const npu_call& call, const NormArgs& args, npu_verdict& verdict) {
  if (!args.grad_weight.dtype && !args.grad_bias.dtype) {
    return NPU_OK;
  }
  const std::uint64_t limit = npu_call_workspace_limit(&call);
  const std::uint64_t best = bytes_of_sums(args, pieces_of(args));
  const std::uint64_t least = bytes_of_sums(args, 1);
  verdict.workspace_bytes = best <= limit ? best : least;
  if (verdict.workspace_bytes > limit) {
    verdict.workspace_bytes = 0;
    verdict.answer = NPU_VERDICT_NO;
    verdict.reason = NPU_REASON_WORKSPACE;
  }
  return NPU_OK;
}

npu_status layer_norm_grad_plan(
    npu_device, const npu_call& call, npu_verdict& verdict) {
  const npu_layer_norm_grad_args given = npu_layer_norm_grad_unpack(&call);
  NormArgs args = backward_of(given);
  args.grad_bias = flat(given.grad_bias);
  return plan_sums(call, args, verdict);
}

npu_status rms_norm_grad_plan(
    npu_device, const npu_call& call, npu_verdict& verdict) {
  const npu_rms_norm_grad_args given = npu_rms_norm_grad_unpack(&call);
  return plan_sums(call, backward_of(given), verdict);
}

template <int kOperands, bool kPlans>
npu_status norm_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  float_caps(out, kOperands);
  out.flags |= NPU_CAP_WIDE_STATISTICS;
  out.plan_use = kPlans ? NPU_PLAN_BY_SHAPE : NPU_PLAN_NONE;
  return NPU_OK;
}

// ---- softmax ----

struct SoftmaxArgs {
  std::int64_t rows;
  std::int64_t length;
  std::int64_t inner;  // elements of a row are so far apart
  Flat out;
  Flat in;    // of softmax_grad: the gradient
  Flat in2;   // of softmax_grad: the result of softmax
  Flat mask;  // true elements count as minus infinity
  std::uint8_t log;
};

template <class T>
__device__ inline T lowest() {
  return -std::numeric_limits<T>::infinity();
}

// Where row i begins.
__device__ inline std::int64_t start_of(
    const SoftmaxArgs& args, std::int64_t i) {
  return i / args.inner * args.length * args.inner + i % args.inner;
}

template <class T, int kLanes>
__device__ inline void softmax_rows(const SoftmaxArgs& args) {
  using G = Group<kLanes>;
  __shared__ T scratch[kThreads / 32];
  for (std::int64_t row = G::first(); row < args.rows; row += G::step()) {
    const std::int64_t first = start_of(args, row);
    const auto value = [&](std::int64_t k) {
      const std::int64_t at = first + k * args.inner;
      return args.mask.data != nullptr && args.mask.at<std::int64_t>(at) != 0
                 ? lowest<T>()
                 : args.in.at<T>(at);
    };
    T most = lowest<T>();
    for (std::int64_t k = G::lane(); k < args.length; k += kLanes) {
      most = greater(most, value(k));
    }
    most = G::all(most, scratch, [](T a, T b) { return greater(a, b); });
    T sum = T(0);
    for (std::int64_t k = G::lane(); k < args.length; k += kLanes) {
      sum += exp(value(k) - most);
    }
    sum = G::sum(sum, scratch);
    const T log_sum = log(sum);
    for (std::int64_t k = G::lane(); k < args.length; k += kLanes) {
      const T x = value(k) - most;
      args.out.set(
          first + k * args.inner, args.log ? x - log_sum : exp(x) / sum);
    }
  }
}

// plain: (g - sum(g * y)) * y, log: g - exp(y) * sum(g); masked ones get 0.
template <class T, int kLanes>
__device__ inline void softmax_grad_rows(const SoftmaxArgs& args) {
  using G = Group<kLanes>;
  __shared__ T scratch[kThreads / 32];
  for (std::int64_t row = G::first(); row < args.rows; row += G::step()) {
    const std::int64_t first = start_of(args, row);
    const auto hidden = [&](std::int64_t at) {
      return args.mask.data != nullptr && args.mask.at<std::int64_t>(at) != 0;
    };
    T sum = T(0);
    for (std::int64_t k = G::lane(); k < args.length; k += kLanes) {
      const std::int64_t at = first + k * args.inner;
      if (!hidden(at)) {
        const T g = args.in.at<T>(at);
        sum += args.log ? g : g * args.in2.at<T>(at);
      }
    }
    sum = G::sum(sum, scratch);
    for (std::int64_t k = G::lane(); k < args.length; k += kLanes) {
      const std::int64_t at = first + k * args.inner;
      const T g = args.in.at<T>(at);
      const T y = args.in2.at<T>(at);
      args.out.set(
          at,
          hidden(at) ? T(0)
          : args.log ? g - exp(y) * sum
                     : (g - sum) * y);
    }
  }
}

#define NPU_SOFTMAX(suffix, T)                                                 \
  template <int kLanes>                                                        \
  __global__ void softmax_##suffix(const __grid_constant__ SoftmaxArgs args) { \
    softmax_rows<T, kLanes>(args);                                             \
  }                                                                            \
  template <int kLanes>                                                        \
  __global__ void softmax_grad_##suffix(                                       \
      const __grid_constant__ SoftmaxArgs args) {                              \
    softmax_grad_rows<T, kLanes>(args);                                        \
  }
NPU_SOFTMAX(f32, float)
NPU_SOFTMAX(f64, double)
#undef NPU_SOFTMAX

void set_rows(SoftmaxArgs& args, const npu_tensor& t, std::int64_t dim) {
  args.length = t.ndim > 0 ? t.sizes[dim] : 1;
  args.inner = 1;
  for (std::int64_t d = dim + 1; d < t.ndim; ++d) {
    args.inner *= t.sizes[d];
  }
  args.rows = t.numel / args.length;
}

bool set_wide(WideSoftmaxArgs& wide, const SoftmaxArgs& args) {
  const npu_dtype dtype = args.in.dtype;
  if (!tries("rows") || !is_wide_dtype(dtype) || args.inner != 1 ||
      args.mask.data != nullptr || args.length > kMostWide ||
      args.out.dtype != dtype ||
      (args.in2.data != nullptr && args.in2.dtype != dtype)) {
    return false;
  }
  wide = {
      args.rows,
      static_cast<int>(args.length),
      args.log,
      0,
      args.out.data,
      args.in.data,
      args.in2.data};
  return wide_softmax_fits(wide, dtype);
}

npu_status softmax(Stream& stream, const npu_call& call) {
  const npu_softmax_args given = npu_softmax_unpack(&call);
  SoftmaxArgs args{};
  set_rows(args, *given.in, given.attrs.dim);
  args.out = flat(given.out);
  args.in = flat(given.in);
  args.mask = flat(given.mask);
  args.log = call.code == NPU_SOFTMAX_LOG;
  if (WideSoftmaxArgs wide; set_wide(wide, args)) {
    return wide_softmax(stream, wide, args.in.dtype);
  }
  return is_wide(call) ? NPU_LAUNCH_ROWS(
                             stream, args.rows, args.length, softmax_f64, args)
                       : NPU_LAUNCH_ROWS(
                             stream, args.rows, args.length, softmax_f32, args);
}

npu_status softmax_grad(Stream& stream, const npu_call& call) {
  const npu_softmax_grad_args given = npu_softmax_grad_unpack(&call);
  SoftmaxArgs args{};
  set_rows(args, *given.grad_in, given.attrs.dim);
  args.out = flat(given.grad_in);
  args.in = flat(given.grad_out);
  args.in2 = flat(given.output);
  args.mask = flat(given.mask);
  args.log = call.code == NPU_SOFTMAX_GRAD_LOG;
  if (WideSoftmaxArgs wide; set_wide(wide, args)) {
    return wide_softmax(stream, wide, args.in.dtype);
  }
  return is_wide(call)
             ? NPU_LAUNCH_ROWS(
                   stream, args.rows, args.length, softmax_grad_f64, args)
             : NPU_LAUNCH_ROWS(
                   stream, args.rows, args.length, softmax_grad_f32, args);
}

template <int kMask>
npu_status softmax_caps(std::uint32_t code, npu_op_caps& out) {
  if (code > NPU_SOFTMAX_MASKED) {
    return NPU_E_UNSUPPORTED;
  }
  float_caps(out, kMask);
  out.flags |= NPU_CAP_ALIAS;
  out.alias_mask = (UINT64_C(1) << (kMask - 1)) - 1;
  out.dtypes[kMask] = kBoolBit;
  return NPU_OK;
}

constexpr KernelRow kTable[] = {
    {NPU_KIND_SOFTMAX, softmax_caps<2>, nullptr, softmax},
    {NPU_KIND_SOFTMAX_GRAD, softmax_caps<3>, nullptr, softmax_grad},
    {NPU_KIND_LAYER_NORM, norm_caps<6, false>, nullptr, layer_norm},
    {NPU_KIND_LAYER_NORM_GRAD,
     norm_caps<8, true>,
     layer_norm_grad_plan,
     layer_norm_grad},
    {NPU_KIND_RMS_NORM, norm_caps<4, false>, nullptr, rms_norm},
    {NPU_KIND_RMS_NORM_GRAD,
     norm_caps<6, true>,
     rms_norm_grad_plan,
     rms_norm_grad},
};

}  // namespace

const Rows kNormaliseKernels = kTable;

}  // namespace npu::cuda
