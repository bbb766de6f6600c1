// SPDX-License-Identifier: Apache-2.0
// Kinds random and dropout: one call cut into chunks of words.
#include "kernels/random.h"

#include <cmath>
#include <limits>

#include "kernels/dtype.h"
#include "shared/random_draw64.h"
#include "shared/random_reject.h"

namespace npu::host {
namespace {

template <class T>
struct Type {
  using type = T;
};

// fn(Type<T>{}) with the C++ type of a float or integer dtype (bool: uint8_t).
template <class Fn>
void visit(npu_dtype dtype, Fn fn) {
  switch (dtype) {
    case NPU_BOOL:
    case NPU_U8:
      return fn(Type<std::uint8_t>{});
    case NPU_I8:
      return fn(Type<std::int8_t>{});
    case NPU_I16:
      return fn(Type<std::int16_t>{});
    case NPU_I32:
      return fn(Type<std::int32_t>{});
    case NPU_I64:
      return fn(Type<std::int64_t>{});
    case NPU_U16:
      return fn(Type<std::uint16_t>{});
    case NPU_U32:
      return fn(Type<std::uint32_t>{});
    case NPU_U64:
      return fn(Type<std::uint64_t>{});
    case NPU_F16:
      return fn(Type<F16>{});
    case NPU_BF16:
      return fn(Type<BF16>{});
    case NPU_F32:
      return fn(Type<float>{});
    default:
      return fn(Type<double>{});
  }
}

template <class T>
inline constexpr bool kIsHalf =
    std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

// One value in the output's dtype; integers clamp.
template <class T>
T store(double value) {
  if constexpr (std::is_integral_v<T>) {
    constexpr T kMost = std::numeric_limits<T>::max();
    return value < static_cast<double>(kMost) ? static_cast<T>(value) : kMost;
  } else if constexpr (kIsHalf<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

double load(npu_dtype dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case NPU_F16:
      return static_cast<const F16*>(data)[i];
    case NPU_BF16:
      return static_cast<const BF16*>(data)[i];
    case NPU_F32:
      return static_cast<const float*>(data)[i];
    default:
      return static_cast<const double*>(data)[i];
  }
}

// A parameter: one for all, or an operand's.
struct Parameter {
  const npu_tensor* tensor;
  double all;

  double operator[](std::int64_t i) const {
    return tensor == nullptr ? all : load(tensor->dtype, tensor->data, i);
  }
};

struct Draw {
  npu_random_args args;
  PhiloxStream stream;

  npu_dtype dtype() const {
    return args.out->dtype;
  }
  std::int64_t n() const {
    return args.out->numel;
  }
  template <class T>
  T* out() const {
    return static_cast<T*>(args.out->data);
  }
};

npu_status draw_float(
    const Draw& draw, RandomIsa::Draw fn, double first, double second) {
  const RandomIsa& isa = random_isa();
  const auto a = static_cast<float>(first);
  const auto b = static_cast<float>(second);
  return for_words(
      draw.stream,
      draw.n(),
      1,
      [&](std::int64_t begin, int count, const std::uint32_t* w) {
        if (draw.dtype() == NPU_F32) {
          fn(w, count, a, b, draw.out<float>() + begin);
          return;
        }
        float values[kChunkWords];
        fn(w, count, a, b, values);
        const auto narrow = draw.dtype() == NPU_F16 ? isa.to_f16 : isa.to_bf16;
        narrow(values, count, draw.out<std::uint16_t>() + begin);
      });
}

npu_status draw_double(const Draw& draw, Draw64 fn, double a, double b) {
  return for_words(
      draw.stream,
      draw.n(),
      2,
      [&](std::int64_t begin, int count, const std::uint32_t* w) {
        if (draw.dtype() == NPU_F64) {
          fn(w, count, a, b, draw.out<double>() + begin);
          return;
        }
        double values[kChunkWords / 2];
        fn(w, count, a, b, values);
        visit(draw.dtype(), [&](auto type) {
          using T = typename decltype(type)::type;
          T* out = draw.out<T>() + begin;
          for (int i = 0; i < count; ++i) {
            out[i] = store<T>(values[i]);
          }
        });
      });
}

// By the width the output computes in.
npu_status draw_real(
    const Draw& draw, RandomIsa::Draw narrow, Draw64 wide, double a, double b) {
  const bool is_narrow = draw.dtype() == NPU_F16 || draw.dtype() == NPU_BF16 ||
                         draw.dtype() == NPU_F32;
  return is_narrow ? draw_float(draw, narrow, a, b)
                   : draw_double(draw, wide, a, b);
}

npu_status draw_uniform(const Draw& draw) {
  const RandomIsa& isa = random_isa();
  const double from = draw.args.attrs.a;
  const double to = draw.args.attrs.b;
  const npu_dtype dtype = draw.dtype();
  if (dtype == NPU_F32 || dtype == NPU_F64) {
    return draw_real(draw, isa.uniform, uniform_f64, from, to);
  }
  const bool f16 = dtype == NPU_F16;
  const auto fn = f16 ? isa.uniform_f16 : isa.uniform_bf16;
  const auto round = [f16](double x) {
    const auto value = static_cast<float>(x);
    return f16 ? static_cast<float>(F16(value))
               : static_cast<float>(BF16(value));
  };
  return for_words(
      draw.stream,
      draw.n(),
      1,
      [&](std::int64_t begin, int count, const std::uint32_t* w) {
        std::uint16_t* out = draw.out<std::uint16_t>() + begin;
        fn(w, count, round(from), round(to), out);
      });
}

npu_status draw_exponential(const Draw& draw) {
  const double lambda = draw.args.attrs.a;
  double least = 0;
  if (!std::isinf(lambda)) {
    switch (draw.dtype()) {
      case NPU_F16:
        least = 0x1p-24;
        break;
      case NPU_BF16:
        least = 0x1p-133;
        break;
      case NPU_F32:
        least = 0x1p-149;
        break;
      default:
        least = 0x1p-1074;
    }
  }
  return draw_real(
      draw, random_isa().exponential, exponential_f64, lambda, least);
}

// 1 in each dtype, as bits.
std::uint64_t one_bits(npu_dtype dtype) {
  switch (dtype) {
    case NPU_F16:
      return 0x3c00;
    case NPU_BF16:
      return 0x3f80;
    case NPU_F32:
      return 0x3f800000;
    case NPU_F64:
      return 0x3ff0000000000000;
    default:
      return 1;
  }
}

int log2_bytes(npu_dtype dtype) {
  return __builtin_ctzll(element_bytes(dtype));
}

npu_status draw_bernoulli_each(const Draw& draw) {
  const Parameter p{draw.args.p, 0};
  return for_words(
      draw.stream,
      draw.n(),
      1,
      [&](std::int64_t begin, int count, const std::uint32_t* w) {
        visit(draw.dtype(), [&](auto type) {
          using T = typename decltype(type)::type;
          T* out = draw.out<T>() + begin;
          for (int i = 0; i < count; ++i) {
            out[i] = store<T>(w[i] < threshold(p[begin + i]) ? 1.0 : 0.0);
          }
        });
      });
}

npu_status draw_bernoulli(const Draw& draw) {
  if (draw.args.p != nullptr) {
    return draw_bernoulli_each(draw);
  }
  const std::uint64_t limit = threshold(draw.args.attrs.a);
  const std::uint64_t one = limit == 0 ? 0 : one_bits(draw.dtype());
  const auto last = static_cast<std::uint32_t>(limit == 0 ? 0 : limit - 1);
  const int size = log2_bytes(draw.dtype());
  const auto fn = random_isa().bernoulli[size];
  return for_words(
      draw.stream,
      draw.n(),
      1,
      [&](std::int64_t begin, int count, const std::uint32_t* w) {
        fn(w, count, last, one, draw.out<std::uint8_t>() + (begin << size));
      });
}

npu_status draw_int(const Draw& draw) {
  const auto low = static_cast<std::uint64_t>(draw.args.attrs.low);
  const std::uint64_t range = draw.args.attrs.range;
  const bool wide = range == 0 || range > (std::uint64_t{1} << 32);
  const auto value = [=](const std::uint32_t* w, int i) -> std::uint64_t {
    if (!wide) {
      return low + ((w[i] * range) >> 32);
    }
    const std::uint64_t word = w[2 * i] | (std::uint64_t{w[2 * i + 1]} << 32);
    const auto product = static_cast<unsigned __int128>(word) * range;
    return low +
           (range == 0 ? word : static_cast<std::uint64_t>(product >> 64));
  };
  return for_words(
      draw.stream,
      draw.n(),
      wide ? 2 : 1,
      [&](std::int64_t begin, int count, const std::uint32_t* w) {
        visit(draw.dtype(), [&](auto type) {
          using T = typename decltype(type)::type;
          T* out = draw.out<T>() + begin;
          for (int i = 0; i < count; ++i) {
            const std::uint64_t bits = value(w, i);
            if constexpr (std::is_integral_v<T>) {
              out[i] = static_cast<T>(bits);
            } else if constexpr (kIsHalf<T>) {
              const auto number = static_cast<std::int64_t>(bits);
              out[i] = T(static_cast<float>(number));
            } else {
              out[i] = static_cast<T>(static_cast<std::int64_t>(bits));
            }
          }
        });
      });
}

// The dtype's smallest normal number.
double smallest_normal(npu_dtype dtype) {
  switch (dtype) {
    case NPU_F16:
      return 0x1p-14;
    case NPU_BF16:
    case NPU_F32:
      return 0x1p-126;
    default:
      return 0x1p-1022;
  }
}

npu_status draw_reject(const Draw& draw, std::uint32_t code) {
  const Parameter p{draw.args.p, draw.args.attrs.a};
  const Parameter q{draw.args.q, draw.args.attrs.b};
  const double least = smallest_normal(draw.dtype());
  constexpr std::int64_t kGrainReject = 1024;
  return parallel(
      draw.n(), kGrainReject, [&](std::int64_t begin, std::int64_t end) {
        visit(draw.dtype(), [&](auto type) {
          using T = typename decltype(type)::type;
          T* out = draw.out<T>();
          for (std::int64_t i = begin; i < end; ++i) {
            double x = 0;
            if (code == NPU_RANDOM_POISSON) {
              x = draw_poisson(draw.stream, i, p[i]);
            } else if (code == NPU_RANDOM_GAMMA) {
              x = draw_gamma(draw.stream, i, p[i]);
              x = x < least ? least : x;
            } else {
              x = draw_binomial(draw.stream, i, p[i], q[i]);
            }
            out[i] = store<T>(x);
          }
        });
      });
}

std::uint64_t out_dtypes(std::uint32_t code) {
  switch (code) {
    case NPU_RANDOM_BERNOULLI:
    case NPU_RANDOM_INT:
      return kFloats | kInts | NPU_DTYPE_BIT(NPU_BOOL);
    case NPU_RANDOM_GEOMETRIC:
      return kFloats | kInts;
    default:
      return code < NPU_RANDOM_CODES ? kFloats : 0;
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

npu_status check_random(const npu_call& call, const npu_random_args& args) {
  if (!has_dtype(args.out, out_dtypes(call.code))) {
    return fail(
        NPU_E_UNSUPPORTED,
        "npu: host driver: random %s: no kernel for dtype %s",
        npu_code_name(call.slot, call.code),
        dtype_name(args.out == nullptr ? NPU_ABSENT : args.out->dtype));
  }
  const npu_tensor* operands[2] = {args.p, args.q};
  for (int i = 0; i < 2; ++i) {
    const npu_tensor* t = operands[i];
    if (t == nullptr) {
      continue;
    }
    const bool same =
        call.code == NPU_RANDOM_BERNOULLI || t->dtype == args.out->dtype;
    if (i >= parameters(call.code) || !has_dtype(t, kFloats) || !same ||
        t->numel != args.out->numel) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: random %s: operand %c (dtype %s, %lld elements) "
          "does not fit the "
          "output (dtype %s, %lld elements)",
          npu_code_name(call.slot, call.code),
          i == 0 ? 'p' : 'q',
          dtype_name(t->dtype),
          static_cast<long long>(t->numel),
          dtype_name(args.out->dtype),
          static_cast<long long>(args.out->numel));
    }
  }
  return check_rng(call);
}

}  // namespace

const RandomIsa& random_isa() noexcept {
  return NPU_TABLE_IN_USE(kRandom);
}

npu_status check_rng(const npu_call& call) {
  if (call.rng.offset % 4 != 0) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: %s: random offset %llu is not a multiple of 4",
        npu_kind_name(call.slot),
        static_cast<unsigned long long>(call.rng.offset));
  }
  return NPU_OK;
}

npu_status random_caps(std::uint32_t code, npu_op_caps& out) {
  if (code >= NPU_RANDOM_CODES) {
    return fail(
        NPU_E_UNSUPPORTED, "npu: host driver: random: no code %u", code);
  }
  common_caps(out);
  out.dtypes[0] = out_dtypes(code);
  for (int i = 0; i < parameters(code); ++i) {
    out.dtypes[1 + i] = kFloats;
  }
  return NPU_OK;
}

npu_status random_run(const npu_call& call) {
  const npu_random_args args = npu_random_unpack(&call);
  if (const npu_status status = check_random(call, args); status != NPU_OK) {
    return status;
  }
  const Draw draw{args, philox_stream(call.rng)};
  const RandomIsa& isa = random_isa();
  const double a = args.attrs.a;
  const double b = args.attrs.b;
  switch (call.code) {
    case NPU_RANDOM_UNIFORM:
      return draw_uniform(draw);
    case NPU_RANDOM_NORMAL:
      return draw_real(draw, isa.normal, normal_f64, a, b);
    case NPU_RANDOM_BERNOULLI:
      return draw_bernoulli(draw);
    case NPU_RANDOM_INT:
      return draw_int(draw);
    case NPU_RANDOM_EXPONENTIAL:
      return draw_exponential(draw);
    case NPU_RANDOM_GEOMETRIC:
      return draw_real(draw, isa.geometric, geometric_f64, std::log1p(-a), 0);
    case NPU_RANDOM_CAUCHY:
      return draw_real(draw, isa.cauchy, cauchy_f64, a, b);
    case NPU_RANDOM_LOG_NORMAL:
      return draw_real(draw, isa.log_normal, log_normal_f64, a, b);
    default:
      return draw_reject(draw, call.code);
  }
}

}  // namespace npu::host
