// SPDX-License-Identifier: Apache-2.0
// Tensors as contiguous elements of a type to compute with.
//
// Kernels of the plain families are written once per compute type, not once per
// dtype: half types and float32 compute as float, integers and bool as int64,
// complex numbers as complex of double. What has another dtype, or is not
// contiguous, goes through ordinary host memory.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>

#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "npu/op.h"

namespace npu::host {

using Complex = std::complex<double>;

template <class T>
inline constexpr npu_dtype kDtypeOf = NPU_ABSENT;
template <>
inline constexpr npu_dtype kDtypeOf<bool> = NPU_BOOL;
template <>
inline constexpr npu_dtype kDtypeOf<std::int64_t> = NPU_I64;
template <>
inline constexpr npu_dtype kDtypeOf<float> = NPU_F32;
template <>
inline constexpr npu_dtype kDtypeOf<double> = NPU_F64;
template <>
inline constexpr npu_dtype kDtypeOf<Complex> = NPU_C128;

// Any dtype and strides to any other, conj and neg resolved (kernels/move.cpp).
npu_status copy_tensor(const npu_tensor& out, const npu_tensor& in);

// A contiguous operand over `data` with the sizes of `like`.
struct DenseView {
  DenseView(const npu_tensor& like, npu_dtype dtype, void* data) noexcept;
  npu_tensor tensor;
  std::int64_t strides[NPU_MAX_DIMS];
};

inline bool is_plain(const npu_tensor& tensor, npu_dtype dtype) noexcept {
  return tensor.dtype == dtype && (tensor.flags & NPU_TENSOR_CONTIGUOUS) &&
         !(tensor.flags & (NPU_TENSOR_CONJ | NPU_TENSOR_NEG));
}

// An operand to read: the tensor's own memory where possible.
template <class T>
class Loaded {
 public:
  // Null when the operand is absent. Throws std::bad_alloc; a dtype that cannot
  // be converted is told by status().
  explicit Loaded(const npu_tensor* tensor) {
    if (tensor == nullptr) {
      return;
    }
    data_ = static_cast<const T*>(tensor->data);
    if (!is_plain(*tensor, kDtypeOf<T>)) {
      own_.reset(new T[static_cast<std::size_t>(tensor->numel)]);
      data_ = own_.get();
      const DenseView view(*tensor, kDtypeOf<T>, own_.get());
      status_ = copy_tensor(view.tensor, *tensor);
    }
  }
  npu_status status() const noexcept {
    return status_;
  }
  const T* data() const noexcept {
    return data_;
  }
  const T& operator[](std::int64_t i) const noexcept {
    return data_[i];
  }
  explicit operator bool() const noexcept {
    return data_ != nullptr;
  }
  // Of an optional operand: element i, or what stands for all when absent.
  T at(std::int64_t i, T otherwise) const noexcept {
    return data_ != nullptr ? data_[i] : otherwise;
  }

 private:
  const T* data_ = nullptr;
  std::unique_ptr<T[]> own_;
  npu_status status_ = NPU_OK;
};

// An output: written in place where possible, else stored by store().
template <class T>
class Stored {
 public:
  enum Start { kAsIs, kZero, kLoad };  // what its elements are at first
  explicit Stored(const npu_tensor* tensor, Start start = kAsIs)
      : tensor_(tensor) {
    if (tensor == nullptr) {
      return;
    }
    const auto n = static_cast<std::size_t>(tensor->numel);
    data_ = static_cast<T*>(tensor->data);
    if (!is_plain(*tensor, kDtypeOf<T>)) {
      own_.reset(new T[n]);
      data_ = own_.get();
    }
    if (start == kZero) {
      std::fill(data_, data_ + n, T(0));
    } else if (start == kLoad && own_) {
      const DenseView view(*tensor, kDtypeOf<T>, data_);
      status_ = copy_tensor(view.tensor, *tensor);
    }
  }
  npu_status status() const noexcept {
    return status_;
  }
  T* data() const noexcept {
    return data_;
  }
  T& operator[](std::int64_t i) const noexcept {
    return data_[i];
  }
  explicit operator bool() const noexcept {
    return data_ != nullptr;
  }
  // An absent output takes no values.
  void set(std::int64_t i, double value) const noexcept {
    if (data_ != nullptr) {
      data_[i] = static_cast<T>(value);
    }
  }
  npu_status store() const {
    if (!own_) {
      return NPU_OK;
    }
    const DenseView view(*tensor_, kDtypeOf<T>, data_);
    return copy_tensor(*tensor_, view.tensor);
  }

 private:
  const npu_tensor* tensor_;
  T* data_ = nullptr;
  std::unique_ptr<T[]> own_;
  npu_status status_ = NPU_OK;
};

// A tensor as contiguous elements of its own dtype.
class DenseBytes {
 public:
  explicit DenseBytes(const npu_tensor& tensor)
      : tensor_(tensor), data_(static_cast<char*>(tensor.data)) {
    if (!is_plain(tensor, tensor.dtype)) {
      own_.reset(new char
                     [static_cast<std::size_t>(tensor.numel) *
                      element_bytes(tensor.dtype)]);
      data_ = own_.get();
      const DenseView view(tensor, tensor.dtype, data_);
      status_ = copy_tensor(view.tensor, tensor);
    }
  }
  npu_status status() const noexcept {
    return status_;
  }
  char* data() const noexcept {
    return data_;
  }
  // Writes what was changed back.
  npu_status store() const {
    if (!own_) {
      return NPU_OK;
    }
    const DenseView view(tensor_, tensor_.dtype, data_);
    return copy_tensor(tensor_, view.tensor);
  }

 private:
  const npu_tensor& tensor_;
  char* data_;
  std::unique_ptr<char[]> own_;
  npu_status status_ = NPU_OK;
};

// body(integral_constant) with the bytes of an element, so that moving one is a
// single instruction.
template <class Body>
npu_status with_bytes(npu_dtype dtype, Body&& body) {
  switch (element_bytes(dtype)) {
    case 1:
      return body(std::integral_constant<std::size_t, 1>{});
    case 2:
      return body(std::integral_constant<std::size_t, 2>{});
    case 4:
      return body(std::integral_constant<std::size_t, 4>{});
    case 8:
      return body(std::integral_constant<std::size_t, 8>{});
    default:
      return body(std::integral_constant<std::size_t, 16>{});
  }
}

// body(T{}) with the type `dtype` computes as.
template <class Body>
npu_status with_float(npu_dtype dtype, Body&& body) {
  return dtype == NPU_F64 ? body(double{}) : body(float{});
}
template <class Body>
npu_status with_real(npu_dtype dtype, Body&& body) {
  switch (dtype) {
    case NPU_BOOL:
    case NPU_U8:
    case NPU_I8:
    case NPU_I16:
    case NPU_I32:
    case NPU_I64:
    case NPU_U16:
    case NPU_U32:
    case NPU_U64:
      return body(std::int64_t{});
    default:
      return with_float(dtype, body);
  }
}
template <class Body>
npu_status with_number(npu_dtype dtype, Body&& body) {
  switch (dtype) {
    case NPU_C32:
    case NPU_C64:
    case NPU_C128:
      return body(Complex{});
    default:
      return with_real(dtype, body);
  }
}

// A scalar attribute as a number to compute with.
template <class T>
T number(const npu_scalar& scalar) {
  if constexpr (std::is_same_v<T, Complex>) {
    return {scalar.re, scalar.im};
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return scalar.kind == NPU_SCALAR_FLOAT ? static_cast<T>(scalar.re)
                                           : scalar.i;
  } else {
    return static_cast<T>(scalar.re);
  }
}

// Size and stride of a dim; 1 and 0 beyond the last one (0-dim tensors).
inline std::int64_t size_at(const npu_tensor& tensor, std::int64_t d) noexcept {
  return d < tensor.ndim ? tensor.sizes[d] : 1;
}
inline std::int64_t stride_at(
    const npu_tensor& tensor, std::int64_t d) noexcept {
  return d < tensor.ndim ? tensor.strides[d] : 0;
}
inline std::int64_t bytes_of(const npu_tensor& tensor) noexcept {
  return static_cast<std::int64_t>(element_bytes(tensor.dtype));
}

// Sets of dtypes for caps. A kernel takes what PyTorch's CPU takes, so that the
// error for the rest is the CPU's: hence no wide unsigned integers.
inline constexpr std::uint64_t kFloatDtypes =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16) | NPU_DTYPE_BIT(NPU_F32) |
    NPU_DTYPE_BIT(NPU_F64);
inline constexpr std::uint64_t kComplexDtypes =
    NPU_DTYPE_BIT(NPU_C32) | NPU_DTYPE_BIT(NPU_C64) | NPU_DTYPE_BIT(NPU_C128);
inline constexpr std::uint64_t kIntDtypes =
    NPU_DTYPE_BIT(NPU_U8) | NPU_DTYPE_BIT(NPU_I8) | NPU_DTYPE_BIT(NPU_I16) |
    NPU_DTYPE_BIT(NPU_I32) | NPU_DTYPE_BIT(NPU_I64);
inline constexpr std::uint64_t kNumberDtypes =
    kFloatDtypes | kComplexDtypes | kIntDtypes | NPU_DTYPE_BIT(NPU_BOOL);
inline constexpr std::uint64_t kIndexDtypes =
    NPU_DTYPE_BIT(NPU_I32) | NPU_DTYPE_BIT(NPU_I64);
// All but the complex of half precision, which few operators have.
inline constexpr std::uint64_t kUsualDtypes =
    kNumberDtypes & ~NPU_DTYPE_BIT(NPU_C32);
inline constexpr std::uint64_t kByteFloatDtypes =
    NPU_DTYPE_BIT(NPU_F8_E4M3FN) | NPU_DTYPE_BIT(NPU_F8_E5M2) |
    NPU_DTYPE_BIT(NPU_F8_E4M3FNUZ) | NPU_DTYPE_BIT(NPU_F8_E5M2FNUZ);
// What can be moved as it is.
inline constexpr std::uint64_t kAnyDtype =
    ((UINT64_C(1) << NPU_DTYPE_COUNT) - 1) & ~UINT64_C(1);

// Caps of a plain kernel: any layout, any size, the same result every time.
inline void plain_caps(
    npu_op_caps& out,
    std::uint32_t rule,
    std::initializer_list<std::uint64_t> dtypes,
    std::uint64_t alias_mask = 0) noexcept {
  out.flags = NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT | NPU_CAP_INDEX64 |
              NPU_CAP_DETERMINISTIC | (alias_mask ? NPU_CAP_ALIAS : 0u);
  out.dtype_rule = rule;
  out.plan_use = NPU_PLAN_NONE;
  out.alias_mask = alias_mask;
  std::copy(dtypes.begin(), dtypes.end(), out.dtypes);
}

// The same for kinds on floats alone, mixed freely and summed in double;
// `operands` is how many the kind has at most.
inline void float_caps(npu_op_caps& out, int operands) noexcept {
  plain_caps(out, NPU_DTYPES_FREE, {});
  out.accumulate = NPU_DTYPE_BIT(NPU_F64);
  std::fill(out.dtypes, out.dtypes + operands, kFloatDtypes);
}

// The first failure among operands that were loaded.
template <class... Operands>
npu_status loaded(const Operands&... operands) noexcept {
  npu_status status = NPU_OK;
  ((status = status ? status : operands.status()), ...);
  return status;
}

template <class T>
npu_status end_of(const Loaded<T>& operand) {
  return operand.status();
}
template <class T>
npu_status end_of(const Stored<T>& operand) {
  return operand.store();
}

// Ends a kernel that computed with `status`: stores what is to be stored,
// unless something failed before.
template <class... Operands>
npu_status finish(npu_status status, const Operands&... operands) {
  status = status ? status : loaded(operands...);
  ((status = status ? status : end_of(operands)), ...);
  return status;
}

// fn(i) for each of n items of `work` steps each, on many threads where it
// pays.
template <class Fn>
npu_status for_each_item(std::int64_t n, std::int64_t work, Fn&& fn) {
  const std::int64_t grain = kGrain / std::max<std::int64_t>(1, work);
  return parallel(
      n,
      std::max<std::int64_t>(1, grain),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          fn(i);
        }
      });
}

}  // namespace npu::host
