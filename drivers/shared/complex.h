// SPDX-License-Identifier: Apache-2.0
// Complex numbers of formulas: the standard library's, and in code for a GPU,
// where that is not to be had, the part of it that formulas use.
#pragma once

#if defined(__CUDACC__)

#include "shared/inline.h"

namespace npu {

template <class T>
struct Complex {
  T re;
  T im;

  Complex() = default;
  NPU_SHARED constexpr Complex(T real, T imag = T(0)) : re(real), im(imag) {}
  NPU_SHARED constexpr T real() const {
    return re;
  }
  NPU_SHARED constexpr T imag() const {
    return im;
  }
  NPU_SHARED friend Complex operator+(Complex x, Complex y) {
    return Complex(x.re + y.re, x.im + y.im);
  }
  NPU_SHARED friend Complex operator-(Complex x, Complex y) {
    return Complex(x.re - y.re, x.im - y.im);
  }
  NPU_SHARED friend Complex operator-(Complex x) {
    return Complex(-x.re, -x.im);
  }
  NPU_SHARED friend Complex operator/(Complex x, T y) {
    return Complex(x.re / y, x.im / y);
  }
  NPU_SHARED friend bool operator==(Complex x, Complex y) {
    return x.re == y.re && x.im == y.im;
  }
  NPU_SHARED friend bool operator!=(Complex x, Complex y) {
    return !(x == y);
  }
};

template <class T>
NPU_SHARED T abs(Complex<T> x) {
  return ::hypot(x.re, x.im);
}
template <class T>
NPU_SHARED T arg(Complex<T> x) {
  return ::atan2(x.im, x.re);
}
template <class T>
NPU_SHARED Complex<T> conj(Complex<T> x) {
  return Complex<T>(x.re, -x.im);
}

}  // namespace npu

#else

#include <complex>

namespace npu {

template <class T>
using Complex = std::complex<T>;

}  // namespace npu

#endif
