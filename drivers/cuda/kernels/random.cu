// SPDX-License-Identifier: Apache-2.0
// Kinds random and dropout, word for word as docs/random-numbers.md says: a
// thread makes a block of four words and the elements that they are for.
#include <cmath>

#include "kernels/element.cuh"
#include "shared/random_draw.h"
#include "shared/random_draw64.h"
#include "shared/random_reject.h"

namespace npu::cuda {
namespace {

struct RandomArgs {
  npu_rng rng;
  std::int64_t n;
  char* out;
  const char* p;  // null: a (or b) stands for every element
  const char* q;
  npu_dtype dtype;
  npu_dtype p_dtype;
  npu_dtype q_dtype;
  double a;
  double b;
  std::uint64_t low;
  std::uint64_t range;
};

__device__ inline PhiloxStream stream_of_call(const npu_rng& rng) {
  const std::uint64_t offset =
      rng.offset + (rng.offset_ptr != nullptr ? *rng.offset_ptr : 0);
  return {rng.seed_ptr != nullptr ? *rng.seed_ptr : rng.seed, offset / 4};
}

// body(first word's number / 4, words) for every block of words.
template <class Body>
__device__ inline void for_blocks(
    const npu_rng& rng, std::int64_t blocks, Body body) {
  const PhiloxStream stream = stream_of_call(rng);
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       at < blocks;
       at += step) {
    const PhiloxBlock block =
        philox(stream.seed, stream.block + static_cast<std::uint64_t>(at), 0);
    body(at, block.w);
  }
}

template <class T>
__device__ inline void put_element(
    const RandomArgs& args, std::int64_t i, T value) {
  store<T>(args.out + i * element_bytes(args.dtype), args.dtype, value);
}

// ---- distributions in float32 ----

// Four numbers from four words.
template <std::uint32_t kCode>
__device__ inline void draw_f32(
    const RandomArgs& args, const std::uint32_t* w, float (&x)[4]) {
  const auto a = static_cast<float>(args.a);
  const auto b = static_cast<float>(args.b);
  if constexpr (kCode == NPU_RANDOM_NORMAL || kCode == NPU_RANDOM_LOG_NORMAL) {
    for (int k = 0; k < 4; k += 2) {
      const NormalPair pair = normal_f32(w[k], w[k + 1]);
      x[k] = pair.first * b + a;
      x[k + 1] = pair.second * b + a;
    }
    if constexpr (kCode == NPU_RANDOM_LOG_NORMAL) {
      for (float& each : x) {
        each = exp_f32(each);
      }
    }
  } else {
    for (int k = 0; k < 4; ++k) {
      if constexpr (kCode == NPU_RANDOM_UNIFORM) {
        x[k] = uniform_f32(w[k], a, b);
      } else if constexpr (kCode == NPU_RANDOM_EXPONENTIAL) {
        x[k] = exponential_f32(w[k], a, b);
      } else if constexpr (kCode == NPU_RANDOM_GEOMETRIC) {
        x[k] = geometric_f32(w[k], a);
      } else {
        x[k] = cauchy_f32(w[k], a, b);
      }
    }
  }
}

template <std::uint32_t kCode>
__global__ void random_f32(const __grid_constant__ RandomArgs args) {
  for_blocks(
      args.rng, (args.n + 3) / 4, [&](std::int64_t at, const std::uint32_t* w) {
        float x[4];
        draw_f32<kCode>(args, w, x);
        for (int k = 0; k < 4 && 4 * at + k < args.n; ++k) {
          put_element(args, 4 * at + k, x[k]);
        }
      });
}

// Halves have fewer bits of a word each. a and b are rounded to the dtype.
template <class T, int kBits>
__global__ void random_uniform_half(const __grid_constant__ RandomArgs args) {
  for_blocks(
      args.rng, (args.n + 3) / 4, [&](std::int64_t at, const std::uint32_t* w) {
        auto* const out = reinterpret_cast<std::uint16_t*>(args.out);
        for (int k = 0; k < 4 && 4 * at + k < args.n; ++k) {
          out[4 * at + k] = uniform_half<T, kBits>(
              w[k], static_cast<float>(args.a), static_cast<float>(args.b));
        }
      });
}

// ---- distributions in float64 ----

// Integers clamp.
__device__ inline void put_clamped(
    const RandomArgs& args, std::int64_t i, double value) {
  const auto clamped = [&]<class T>(T most) {
    put_element<std::int64_t>(
        args,
        i,
        static_cast<std::int64_t>(
            value < static_cast<double>(most) ? static_cast<T>(value) : most));
  };
  switch (args.dtype) {
    case NPU_U8:
      return clamped(std::uint8_t{0xff});
    case NPU_I8:
      return clamped(std::int8_t{0x7f});
    case NPU_I16:
      return clamped(std::int16_t{0x7fff});
    case NPU_U16:
      return clamped(std::uint16_t{0xffff});
    case NPU_I32:
      return clamped(std::int32_t{0x7fffffff});
    case NPU_U32:
      return clamped(std::uint32_t{0xffffffff});
    case NPU_I64:
      return clamped(std::int64_t{INT64_MAX});
    case NPU_U64:
      return clamped(std::uint64_t{UINT64_MAX});
    default:
      return put_element(args, i, value);
  }
}

// Two numbers from four words.
template <std::uint32_t kCode>
__global__ void random_f64(const __grid_constant__ RandomArgs args) {
  for_blocks(
      args.rng, (args.n + 1) / 2, [&](std::int64_t at, const std::uint32_t* w) {
        double x[2];
        if constexpr (kCode == NPU_RANDOM_UNIFORM) {
          uniform_f64(w, 2, args.a, args.b, x);
        } else if constexpr (kCode == NPU_RANDOM_NORMAL) {
          normal_f64(w, 2, args.a, args.b, x);
        } else if constexpr (kCode == NPU_RANDOM_LOG_NORMAL) {
          log_normal_f64(w, 2, args.a, args.b, x);
        } else if constexpr (kCode == NPU_RANDOM_EXPONENTIAL) {
          exponential_f64(w, 2, args.a, args.b, x);
        } else if constexpr (kCode == NPU_RANDOM_GEOMETRIC) {
          geometric_f64(w, 2, args.a, 0, x);
        } else {
          cauchy_f64(w, 2, args.a, args.b, x);
        }
        for (int k = 0; k < 2 && 2 * at + k < args.n; ++k) {
          put_clamped(args, 2 * at + k, x[k]);
        }
      });
}

// ---- bernoulli, int ----

__global__ void random_bernoulli(const __grid_constant__ RandomArgs args) {
  for_blocks(
      args.rng, (args.n + 3) / 4, [&](std::int64_t at, const std::uint32_t* w) {
        for (int k = 0; k < 4 && 4 * at + k < args.n; ++k) {
          const std::int64_t i = 4 * at + k;
          const double p =
              args.p != nullptr
                  ? load<double>(
                        args.p + i * element_bytes(args.p_dtype), args.p_dtype)
                  : args.a;
          put_element<std::int64_t>(args, i, w[k] < threshold(p) ? 1 : 0);
        }
      });
}

__global__ void random_int(const __grid_constant__ RandomArgs args) {
  for_blocks(
      args.rng, (args.n + 3) / 4, [&](std::int64_t at, const std::uint32_t* w) {
        for (int k = 0; k < 4 && 4 * at + k < args.n; ++k) {
          put_element(
              args,
              4 * at + k,
              static_cast<std::int64_t>(
                  args.low + ((w[k] * args.range) >> 32)));
        }
      });
}

__global__ void random_wide_int(const __grid_constant__ RandomArgs args) {
  for_blocks(
      args.rng, (args.n + 1) / 2, [&](std::int64_t at, const std::uint32_t* w) {
        for (int k = 0; k < 2 && 2 * at + k < args.n; ++k) {
          const std::uint64_t word =
              w[2 * k] | (std::uint64_t{w[2 * k + 1]} << 32);
          put_element(
              args,
              2 * at + k,
              static_cast<std::int64_t>(
                  args.low +
                  (args.range == 0 ? word : __umul64hi(word, args.range))));
        }
      });
}

// ---- poisson, gamma, binomial ----

template <std::uint32_t kCode>
__global__ void random_reject(const __grid_constant__ RandomArgs args) {
  const PhiloxStream stream = stream_of_call(args.rng);
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < args.n;
       i += step) {
    const double p =
        args.p != nullptr
            ? load<double>(
                  args.p + i * element_bytes(args.p_dtype), args.p_dtype)
            : args.a;
    double x = 0;
    if constexpr (kCode == NPU_RANDOM_POISSON) {
      x = draw_poisson(stream, i, p);
    } else if constexpr (kCode == NPU_RANDOM_GAMMA) {
      const double least = args.dtype == NPU_F16   ? 0x1p-14
                           : args.dtype == NPU_F64 ? 0x1p-1022
                                                   : 0x1p-126;
      x = draw_gamma(stream, i, p);
      x = x < least ? least : x;
    } else {
      const double q =
          args.q != nullptr
              ? load<double>(
                    args.q + i * element_bytes(args.q_dtype), args.q_dtype)
              : args.b;
      x = draw_binomial(stream, i, p, q);
    }
    put_element(args, i, x);
  }
}

// ---- dropout ----

struct DropoutArgs {
  npu_rng rng;
  std::int64_t n;
  const char* in;
  char* out;
  std::uint8_t* mask;
  npu_dtype dtype;
  std::uint64_t limit;
  double scale;
};

template <class C>
__global__ void dropout_kernel(const __grid_constant__ DropoutArgs args) {
  const auto factor = static_cast<C>(args.scale);
  const auto bytes = static_cast<std::int64_t>(element_bytes(args.dtype));
  for_blocks(
      args.rng, (args.n + 3) / 4, [&](std::int64_t at, const std::uint32_t* w) {
        for (int k = 0; k < 4 && 4 * at + k < args.n; ++k) {
          const std::int64_t i = 4 * at + k;
          const bool kept = w[k] >= args.limit;
          const C x = load<C>(args.in + i * bytes, args.dtype);
          store<C>(
              args.out + i * bytes, args.dtype, x * (kept ? factor : C(0)));
          if (args.mask != nullptr) {
            args.mask[i] = kept ? 1 : 0;
          }
        }
      });
}

// ---- calls ----

constexpr std::uint64_t kIntegers = kAnyIntBits;

std::uint64_t out_dtypes(std::uint32_t code) {
  switch (code) {
    case NPU_RANDOM_BERNOULLI:
    case NPU_RANDOM_INT:
      return kFloatBits | kIntegers | kBoolBit;
    case NPU_RANDOM_GEOMETRIC:
      return kFloatBits | kIntegers;
    default:
      return code < NPU_RANDOM_CODES ? kFloatBits : 0;
  }
}

// Operands p and q a code reads.
int parameters(std::uint32_t code) {
  switch (code) {
    case NPU_RANDOM_BERNOULLI:
    case NPU_RANDOM_POISSON:
    case NPU_RANDOM_GAMMA:
      return 1;
    case NPU_RANDOM_BINOMIAL:
      return 2;
    default:
      return 0;
  }
}

npu_status check_rng(const npu_call& call) {
  return call.rng.offset % 4 == 0
             ? NPU_OK
             : fail(
                   NPU_E_INVALID,
                   "npu: cuda driver: %s: random offset %llu is not a multiple "
                   "of 4.",
                   npu_kind_name(call.slot),
                   static_cast<unsigned long long>(call.rng.offset));
}

npu_status check_operand(
    const npu_call& call, const npu_tensor* t, const npu_tensor& out, int i) {
  if (!t) {
    return NPU_OK;
  }
  const bool same = call.code == NPU_RANDOM_BERNOULLI || t->dtype == out.dtype;
  return i < parameters(call.code) && same && t->numel == out.numel
             ? NPU_OK
             : fail(
                   NPU_E_INVALID,
                   "npu: cuda driver: random.%s: operand %c does not fit the "
                   "output.",
                   npu_code_name(call.slot, call.code),
                   i == 0 ? 'p' : 'q');
}

double smallest(npu_dtype dtype) {
  return dtype == NPU_F16    ? 0x1p-24
         : dtype == NPU_BF16 ? 0x1p-133
         : dtype == NPU_F32  ? 0x1p-149
                             : 0x1p-1074;
}

template <std::uint32_t kCode>
npu_status draw_real(Stream& stream, const RandomArgs& args) {
  const bool narrow =
      ((kHalfBits | NPU_DTYPE_BIT(NPU_F32)) & NPU_DTYPE_BIT(args.dtype)) != 0;
  return narrow
             ? launch<&random_f32<kCode>>(
                   stream, blocks_for(stream, (args.n + 3) / 4), kThreads, args)
             : launch<&random_f64<kCode>>(
                   stream,
                   blocks_for(stream, (args.n + 1) / 2),
                   kThreads,
                   args);
}

npu_status random(Stream& stream, const npu_call& call) {
  const npu_random_args given = npu_random_unpack(&call);
  if (!given.out) {
    return refuse(call, "the output is absent");
  }
  npu_status status = check_operand(call, given.p, *given.out, 0);
  status = status ? status : check_operand(call, given.q, *given.out, 1);
  status = status ? status : check_rng(call);
  if (status) {
    return status;
  }
  RandomArgs args{};
  args.rng = call.rng;
  args.n = given.out->numel;
  args.out = static_cast<char*>(given.out->data);
  args.dtype = given.out->dtype;
  if (given.p) {
    args.p = static_cast<const char*>(given.p->data);
    args.p_dtype = given.p->dtype;
  }
  if (given.q) {
    args.q = static_cast<const char*>(given.q->data);
    args.q_dtype = given.q->dtype;
  }
  args.a = given.attrs.a;
  args.b = given.attrs.b;
  args.low = static_cast<std::uint64_t>(given.attrs.low);
  args.range = given.attrs.range;
  const std::uint64_t fours = blocks_for(stream, (args.n + 3) / 4);
  const std::uint64_t each = blocks_for(stream, args.n);
  switch (call.code) {
    case NPU_RANDOM_UNIFORM:
      if (args.dtype == NPU_F16) {
        args.a = static_cast<float>(F16(static_cast<float>(args.a)));
        args.b = static_cast<float>(F16(static_cast<float>(args.b)));
        return launch<&random_uniform_half<F16, 11>>(
            stream, fours, kThreads, args);
      }
      if (args.dtype == NPU_BF16) {
        args.a = static_cast<float>(BF16(static_cast<float>(args.a)));
        args.b = static_cast<float>(BF16(static_cast<float>(args.b)));
        return launch<&random_uniform_half<BF16, 8>>(
            stream, fours, kThreads, args);
      }
      return draw_real<NPU_RANDOM_UNIFORM>(stream, args);
    case NPU_RANDOM_NORMAL:
      return draw_real<NPU_RANDOM_NORMAL>(stream, args);
    case NPU_RANDOM_LOG_NORMAL:
      return draw_real<NPU_RANDOM_LOG_NORMAL>(stream, args);
    case NPU_RANDOM_CAUCHY:
      return draw_real<NPU_RANDOM_CAUCHY>(stream, args);
    case NPU_RANDOM_EXPONENTIAL:
      args.b = std::isinf(args.a) ? 0 : smallest(args.dtype);
      return draw_real<NPU_RANDOM_EXPONENTIAL>(stream, args);
    case NPU_RANDOM_GEOMETRIC:
      args.a = std::log1p(-args.a);
      return draw_real<NPU_RANDOM_GEOMETRIC>(stream, args);
    case NPU_RANDOM_BERNOULLI:
      return launch<&random_bernoulli>(stream, fours, kThreads, args);
    case NPU_RANDOM_INT:
      return args.range == 0 || args.range > (std::uint64_t{1} << 32)
                 ? launch<&random_wide_int>(
                       stream,
                       blocks_for(stream, (args.n + 1) / 2),
                       kThreads,
                       args)
                 : launch<&random_int>(stream, fours, kThreads, args);
    case NPU_RANDOM_POISSON:
      return launch<&random_reject<NPU_RANDOM_POISSON>>(
          stream, each, kThreads, args);
    case NPU_RANDOM_GAMMA:
      return launch<&random_reject<NPU_RANDOM_GAMMA>>(
          stream, each, kThreads, args);
    default:
      return launch<&random_reject<NPU_RANDOM_BINOMIAL>>(
          stream, each, kThreads, args);
  }
}

npu_status random_caps(std::uint32_t code, npu_op_caps& out) {
  if (code >= NPU_RANDOM_CODES) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_FREE);
  out.dtypes[0] = out_dtypes(code);
  for (int i = 0; i < parameters(code); ++i) {
    out.dtypes[1 + i] = kFloatBits;
  }
  return NPU_OK;
}

npu_status dropout(Stream& stream, const npu_call& call) {
  const npu_dropout_args given = npu_dropout_unpack(&call);
  if (!given.in || !given.out || given.in->dtype != given.out->dtype) {
    return refuse(call, "its operands have two dtypes");
  }
  if (given.out->numel != given.in->numel ||
      (given.mask && given.mask->numel != given.in->numel)) {
    return fail(
        NPU_E_INVALID,
        "npu: cuda driver: dropout: output or mask does not fit an input of "
        "%lld elements.",
        static_cast<long long>(given.in->numel));
  }
  if (npu_status status = check_rng(call)) {
    return status;
  }
  DropoutArgs args{};
  args.rng = call.rng;
  args.n = given.in->numel;
  args.in = static_cast<const char*>(given.in->data);
  args.out = static_cast<char*>(given.out->data);
  args.mask =
      given.mask ? static_cast<std::uint8_t*>(given.mask->data) : nullptr;
  args.dtype = given.in->dtype;
  args.limit = threshold(given.attrs.p);
  // Where nothing is kept the scale may be infinite.
  args.scale = args.limit > 0xffffffffu ? 0 : given.attrs.scale;
  const std::uint64_t blocks = blocks_for(stream, (args.n + 3) / 4);
  return args.dtype == NPU_F64
             ? launch<&dropout_kernel<double>>(stream, blocks, kThreads, args)
             : launch<&dropout_kernel<float>>(stream, blocks, kThreads, args);
}

npu_status dropout_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_FREE);
  out.flags |= NPU_CAP_ALIAS;
  out.alias_mask = 1;
  out.dtypes[0] = kFloatBits;
  out.dtypes[1] = kBoolBit | NPU_DTYPE_BIT(NPU_U8);
  out.dtypes[2] = kFloatBits;
  return NPU_OK;
}

constexpr KernelRow kTable[] = {
    {NPU_KIND_RANDOM, random_caps, nullptr, random},
    {NPU_KIND_DROPOUT, dropout_caps, nullptr, dropout},
};

}  // namespace

const Rows kRandomKernels = kTable;

}  // namespace npu::cuda
