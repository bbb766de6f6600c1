// SPDX-License-Identifier: Apache-2.0
// Numbers of the host as operands.
#include "aten/ops/map/map_number.h"

#include <ATen/Dispatch_v2.h>
#include <c10/util/TypeCast.h>

#include <cmath>
#include <cstring>

#include "aten/ops/map/map.h"
#include "npu/kinds.h"

namespace npu {
namespace {

// A 0-dim CPU tensor's number as `T`, cast as PyTorch casts elements.
template <class T>
T number_as(const at::TensorBase& tensor) {
  T value{};
  AT_DISPATCH_V2(
      tensor.scalar_type(),
      "npu host scalar",
      AT_WRAP(
          [&] { value = c10::convert<T>(*tensor.const_data_ptr<scalar_t>()); }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
      c10::kComplexHalf,
      c10::kHalf,
      c10::kBFloat16,
      c10::kBool);
  return value;
}

template <class T>
void store(HostNumber& to, T value) {
  static_assert(sizeof(value) <= sizeof(to.bytes));
  std::memcpy(to.bytes, &value, sizeof(value));
}

template <class T>
void store_integer(HostNumber& to, const at::TensorBase& tensor) {
  store(to, static_cast<T>(number_as<std::int64_t>(tensor)));
}

// A half type holds the number as it is. Not a number: either does.
bool is_exact(const at::TensorBase& number, npu_dtype half) {
  const float value = number_as<float>(number);
  const float rounded = half == NPU_F16
                            ? static_cast<float>(c10::Half(value))
                            : static_cast<float>(c10::BFloat16(value));
  return rounded == value || value != value;
}

bool takes_all_digits(const NativeSite& site) {
  switch (site.code()) {
    case NPU_BINARY_MUL:
    case NPU_BINARY_DIV:
    case NPU_BINARY_DIV_TRUNC:
    case NPU_BINARY_DIV_FLOOR:
      return site.slot() == NPU_KIND_BINARY;
    default:
      return false;
  }
}

}  // namespace

bool store_number(
    HostNumber& to, const at::TensorBase& tensor, npu_dtype dtype) {
  switch (dtype) {
    case NPU_F32:
      store(to, number_as<float>(tensor));
      return true;
    case NPU_F64:
      store(to, number_as<double>(tensor));
      return true;
    case NPU_F16:
      store(to, c10::Half(number_as<float>(tensor)));
      return true;
    case NPU_BF16:
      store(to, c10::BFloat16(number_as<float>(tensor)));
      return true;
    case NPU_BOOL:
      store(to, number_as<bool>(tensor));
      return true;
    case NPU_U8:
    case NPU_I8:
      store_integer<std::int8_t>(to, tensor);
      return true;
    case NPU_I16:
    case NPU_U16:
      store_integer<std::int16_t>(to, tensor);
      return true;
    case NPU_I32:
    case NPU_U32:
      store_integer<std::int32_t>(to, tensor);
      return true;
    case NPU_I64:
    case NPU_U64:
      store_integer<std::int64_t>(to, tensor);
      return true;
    case NPU_C64:
      store(to, number_as<c10::complex<float>>(tensor));
      return true;
    case NPU_C128:
      store(to, number_as<c10::complex<double>>(tensor));
      return true;
    default:
      return false;
  }
}

npu_dtype number_dtype(
    const NativeSite& site,
    npu_dtype compute,
    std::uint32_t place,
    const at::TensorBase& number) {
  const bool half = compute == NPU_F16 || compute == NPU_BF16;
  if (!half || place != 1 || !takes_all_digits(site)) {
    return compute;
  }
  // Where all operands have one dtype it costs casts: only if need be.
  const bool casts = site.caps()->dtype_rule == NPU_DTYPES_CAST;
  return casts || !is_exact(number, compute) ? npu_dtype{NPU_F32} : compute;
}

bool needs_wider_compute(
    const NativeSite& site, npu_dtype compute, npu_dtype number) {
  const std::uint32_t rule = site.caps()->dtype_rule;
  return number != compute &&
         (rule == NPU_DTYPES_SAME || rule == NPU_DTYPES_ROWS);
}

bool is_value_of(const c10::Scalar& value, const at::Tensor& like) {
  const c10::ScalarType type = like.scalar_type();
  if (value.isComplex()) {
    return c10::isComplexType(type);
  }
  if (!c10::isIntegralType(type, /*includeBool=*/true)) {
    return true;
  }
  const bool is_signed = c10::isSignedType(type);
  const auto bits = static_cast<int>(8 * c10::elementSize(type));
  const double end =
      type == c10::kBool ? 2 : std::ldexp(1, is_signed ? bits - 1 : bits);
  const double number = value.toDouble();
  return number >= (is_signed ? -end : 0) && number < end;
}

npu_tensor host_operand(HostNumber& number, npu_dtype dtype) {
  npu_tensor out{};
  out.data = out.storage = number.bytes;
  out.storage_bytes = sizeof(number.bytes);
  out.numel = 1;
  out.dtype = dtype;
  out.flags = NPU_TENSOR_HOST_SCALAR | NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  return out;
}

}  // namespace npu
