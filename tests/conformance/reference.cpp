// SPDX-License-Identifier: Apache-2.0
// Plain element conversions and Philox.
#include "reference.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace npu::kit {
namespace {

// A float of few bits, as a list of facts.
struct Small {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool infinity;  // the top exponent holds infinity and NaN
  bool fnuz;      // NaN is the code of -0
};

const Small* small_format(npu_dtype dtype) {
  static constexpr Small kF16{5, 10, 15, true, false};
  static constexpr Small kBf16{8, 7, 127, true, false};
  static constexpr Small kE4m3{4, 3, 7, false, false};
  static constexpr Small kE5m2{5, 2, 15, true, false};
  static constexpr Small kE4m3fnuz{4, 3, 8, false, true};
  static constexpr Small kE5m2fnuz{5, 2, 16, false, true};
  switch (dtype) {
    case NPU_F16:
    case NPU_C32:
      return &kF16;
    case NPU_BF16:
      return &kBf16;
    case NPU_F8_E4M3FN:
      return &kE4m3;
    case NPU_F8_E5M2:
      return &kE5m2;
    case NPU_F8_E4M3FNUZ:
      return &kE4m3fnuz;
    case NPU_F8_E5M2FNUZ:
      return &kE5m2fnuz;
    default:
      return nullptr;
  }
}

double decode(const Small& f, std::uint32_t code) {
  const std::uint32_t sign_bit = 1u << (f.exponent_bits + f.mantissa_bits);
  const double sign = (code & sign_bit) != 0 ? -1 : 1;
  const std::uint32_t magnitude = code & (sign_bit - 1);
  const auto exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const std::uint32_t mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  const int top = (1 << f.exponent_bits) - 1;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (f.infinity && exponent == top) {
    return mantissa != 0 ? kNan
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (f.fnuz && code == sign_bit) {
    return kNan;
  }
  if (!f.infinity && !f.fnuz && magnitude == sign_bit - 1) {
    return kNan;
  }
  const double whole = exponent == 0 ? 0 : 1;
  return sign * std::ldexp(
                    whole + mantissa / std::ldexp(1.0, f.mantissa_bits),
                    (exponent == 0 ? 1 : exponent) - f.bias);
}

// Nearest, ties to even. Tests keep values in range: what happens beyond
// differs between versions of PyTorch for the 8-bit formats.
std::uint32_t encode(const Small& f, float value) {
  const std::uint32_t sign_bit = 1u << (f.exponent_bits + f.mantissa_bits);
  const std::uint32_t sign = std::signbit(value) ? sign_bit : 0;
  const std::uint32_t top = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  if (std::isnan(value)) {
    return f.fnuz       ? sign_bit
           : f.infinity ? top | (1u << (f.mantissa_bits - 1))
                        : sign_bit - 1;
  }
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(value)) {
    return sign | top;
  }
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int quantum = std::max(exponent - 1, 1 - f.bias) - f.mantissa_bits;
  const double steps = std::nearbyint(std::ldexp(magnitude, -quantum));
  const auto rounded = static_cast<std::uint32_t>(steps);
  // Steps count from the quantum's own exponent; a carry into the next one
  // falls out of the addition.
  const auto field =
      static_cast<std::uint32_t>(quantum + f.mantissa_bits - (1 - f.bias));
  const std::uint32_t code =
      steps == 0 ? 0 : (field << f.mantissa_bits) + rounded;
  if (f.fnuz && code == 0) {
    return 0;
  }
  return sign | (f.infinity ? std::min(code, top) : code);
}

template <class T>
T read(const void* from) {
  T out;
  std::memcpy(&out, from, sizeof(out));
  return out;
}

template <class T>
Value integer(const void* from, bool is_unsigned = false) {
  const T value = read<T>(from);
  const double number = static_cast<double>(value);
  return {true, is_unsigned, static_cast<std::int64_t>(value), number};
}

template <class T>
void write(T value, void* to) {
  std::memcpy(to, &value, sizeof(value));
}

std::int64_t as_integer(const Value& value) {
  return value.is_integer ? value.integer
                          : static_cast<std::int64_t>(value.number.real());
}

float as_float(const Value& value) {
  if (!value.is_integer) {
    return static_cast<float>(value.number.real());
  }
  return value.is_unsigned
             ? static_cast<float>(static_cast<std::uint64_t>(value.integer))
             : static_cast<float>(value.integer);
}

double as_double(const Value& value) {
  return value.number.real();
}

}  // namespace

bool is_complex(npu_dtype dtype) {
  return dtype >= NPU_C32 && dtype <= NPU_C128;
}

bool is_floating(npu_dtype dtype) {
  return (dtype >= NPU_F16 && dtype <= NPU_F64) ||
         (dtype >= NPU_F8_E4M3FN && dtype <= NPU_F8_E8M0FNU);
}

Value load(npu_dtype dtype, const void* from) {
  if (dtype == NPU_C32) {
    const Small& f = *small_format(dtype);
    const auto parts = read<std::array<std::uint16_t, 2>>(from);
    return {.number = {decode(f, parts[0]), decode(f, parts[1])}};
  }
  if (const Small* f = small_format(dtype)) {
    const std::uint32_t code = npu_dtype_bytes(dtype) == 1
                                   ? read<std::uint8_t>(from)
                                   : read<std::uint16_t>(from);
    return {.number = decode(*f, code)};
  }
  switch (dtype) {
    case NPU_BOOL:
    case NPU_U8:
      return integer<std::uint8_t>(from);
    case NPU_I8:
      return integer<std::int8_t>(from);
    case NPU_I16:
      return integer<std::int16_t>(from);
    case NPU_I32:
      return integer<std::int32_t>(from);
    case NPU_I64:
      return integer<std::int64_t>(from);
    case NPU_U16:
      return integer<std::uint16_t>(from);
    case NPU_U32:
      return integer<std::uint32_t>(from);
    case NPU_U64:
      return integer<std::uint64_t>(from, true);
    case NPU_F32:
      return {.number = read<float>(from)};
    case NPU_F64:
      return {.number = read<double>(from)};
    case NPU_C64: {
      const auto parts = read<std::array<float, 2>>(from);
      return {.number = {parts[0], parts[1]}};
    }
    case NPU_C128: {
      const auto parts = read<std::array<double, 2>>(from);
      return {.number = {parts[0], parts[1]}};
    }
    case NPU_F8_E8M0FNU:
      return {.number = std::ldexp(1.0, read<std::uint8_t>(from) - 127)};
    default:
      return {};
  }
}

void store(npu_dtype dtype, const Value& value, void* to) {
  if (dtype == NPU_C32) {
    const Small& f = *small_format(dtype);
    const float imaginary = static_cast<float>(value.number.imag());
    write(
        std::array<std::uint16_t, 2>{
            static_cast<std::uint16_t>(encode(f, as_float(value))),
            static_cast<std::uint16_t>(encode(f, imaginary))},
        to);
    return;
  }
  if (const Small* f = small_format(dtype)) {
    const std::uint32_t code = encode(*f, as_float(value));
    if (npu_dtype_bytes(dtype) == 1) {
      write(static_cast<std::uint8_t>(code), to);
    } else {
      write(static_cast<std::uint16_t>(code), to);
    }
    return;
  }
  switch (dtype) {
    case NPU_BOOL:
      return write(
          static_cast<std::uint8_t>(
              value.is_integer
                  ? value.integer != 0
                  : value.number.real() != 0 || value.number.imag() != 0),
          to);
    case NPU_U8:
      return write(static_cast<std::uint8_t>(as_integer(value)), to);
    case NPU_I8:
      return write(static_cast<std::int8_t>(as_integer(value)), to);
    case NPU_I16:
      return write(static_cast<std::int16_t>(as_integer(value)), to);
    case NPU_I32:
      return write(static_cast<std::int32_t>(as_integer(value)), to);
    case NPU_I64:
    case NPU_U64:
      return write(as_integer(value), to);
    case NPU_U16:
      return write(static_cast<std::uint16_t>(as_integer(value)), to);
    case NPU_U32:
      return write(static_cast<std::uint32_t>(as_integer(value)), to);
    case NPU_F32:
      return write(as_float(value), to);
    case NPU_F64:
      return write(as_double(value), to);
    case NPU_C64:
      return write(
          std::array<float, 2>{
              as_float(value), static_cast<float>(value.number.imag())},
          to);
    case NPU_C128:
      return write(
          std::array<double, 2>{as_double(value), value.number.imag()}, to);
    case NPU_F8_E8M0FNU: {
      int exponent = 0;
      std::frexp(as_float(value), &exponent);
      return write(static_cast<std::uint8_t>(exponent - 1 + 127), to);
    }
    default:
      return;
  }
}

Value rounded(npu_dtype dtype, const Value& value) {
  alignas(16) std::uint8_t bytes[16] = {};
  store(dtype, value, bytes);
  return load(dtype, bytes);
}

double number_of(const Value& v) {
  return v.is_integer ? static_cast<double>(v.integer) : v.number.real();
}

Value number_value(double number) {
  Value made;
  made.number = number;
  return made;
}

std::int64_t element_offset(const View& view, std::int64_t linear) {
  std::int64_t at = view.offset;
  std::int64_t step = 1;
  for (std::size_t d = view.sizes.size(); d-- > 0;) {
    const std::int64_t index = linear % view.sizes[d];
    linear /= view.sizes[d];
    at += index * (view.strides.empty() ? step : view.strides[d]);
    step *= view.sizes[d];
  }
  return at;
}

std::array<std::uint32_t, 4> philox(
    std::uint64_t seed, std::uint64_t low, std::uint64_t high) {
  std::uint32_t c[4] = {
      static_cast<std::uint32_t>(low),
      static_cast<std::uint32_t>(low >> 32),
      static_cast<std::uint32_t>(high),
      static_cast<std::uint32_t>(high >> 32)};
  std::uint32_t key[2] = {
      static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c[2];
    const auto high_a = static_cast<std::uint32_t>(a >> 32);
    const auto high_b = static_cast<std::uint32_t>(b >> 32);
    c[0] = high_b ^ c[1] ^ key[0];
    c[1] = static_cast<std::uint32_t>(b);
    c[2] = high_a ^ c[3] ^ key[1];
    c[3] = static_cast<std::uint32_t>(a);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return {c[0], c[1], c[2], c[3]};
}

const std::array<std::uint32_t, 4>& Words::block(std::uint64_t number) const {
  if (number != last_number_) {
    last_number_ = number;
    last_ = philox(seed_, block_ + number, 0);
  }
  return last_;
}

std::uint32_t Words::operator()(std::uint64_t j) const {
  return block(j / 4)[j % 4];
}

std::uint64_t Words::wide(std::uint64_t i) const {
  const auto& words = block(i / 2);
  const std::size_t at = 2 * (i % 2);
  return words[at] | (std::uint64_t{words[at + 1]} << 32);
}

double ulps(npu_dtype dtype, double actual, double expected) {
  if (actual == expected || (std::isnan(actual) && std::isnan(expected))) {
    return 0;
  }
  const int digits = dtype == NPU_F64   ? 53
                     : dtype == NPU_F32 ? 24
                     : dtype == NPU_F16 ? 11
                                        : 8;
  const int least = dtype == NPU_F64   ? -1074
                    : dtype == NPU_F32 ? -149
                    : dtype == NPU_F16 ? -24
                                       : -133;
  int exponent = 0;
  std::frexp(expected, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - digits, least));
  return std::fabs(actual - expected) / unit;
}

}  // namespace npu::kit
