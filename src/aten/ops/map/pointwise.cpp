// SPDX-License-Identifier: Apache-2.0
// Elementwise operators whose operands are not what the generator maps: halves
// of a tensor, a mask beside numbers, two outputs, a complex result.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
// The next ones lean on it.
#include <ATen/ops/_prelu_kernel_backward_cpu_dispatch.h>
#include <ATen/ops/_prelu_kernel_cpu_dispatch.h>
#include <ATen/ops/complex_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/complex_cpu_dispatch.h>
#include <ATen/ops/frexp_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/frexp_cpu_dispatch.h>
#include <ATen/ops/glu_backward_cpu_dispatch.h>
#include <ATen/ops/glu_cpu_dispatch.h>
#include <ATen/ops/log_sigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/log_sigmoid_forward_cpu_dispatch.h>
#include <ATen/ops/mish_backward_cpu_dispatch.h>
#include <ATen/ops/native_dropout_backward_cpu_dispatch.h>
#include <ATen/ops/polar_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/polar_cpu_dispatch.h>
#include <torch/library.h>

#include <tuple>

#include "aten/core/factories.h"
#include "aten/ops/operands.h"
#include "npu/kinds.h"

namespace npu {
namespace {

// ---- dropout ----

// One pass: what was dropped is 0, whatever its gradient.
at::Tensor dropout_backward(
    const at::Tensor& grad, const at::Tensor& mask, double scale) {
  static NativeSite site(
      "aten::native_dropout_backward",
      NPU_KIND_BINARY,
      NPU_BINARY_MASKED_SCALE);
  npu_reason why = site.wants(grad, mask);
  if (takes(
          (grad.is_floating_point() || grad.is_complex()) &&
              on_device(grad, mask) && mask.scalar_type() == c10::kBool,
          why)) {
    npu_binary_attrs attrs{};
    attrs.a = number(c10::Scalar(scale));
    at::TensorIterator iter =
        map_iterator(MapRule::kBinary, at::Tensor(), {&grad, &mask});
    why = run_map(site, iter, {&grad, &mask}, as_attrs(attrs));
    if (why == NPU_REASON_NONE) {
      return iter.output(0);
    }
  }
  return site.cpu(why, &at::cpu::native_dropout_backward, grad, mask, scale);
}

// Two tensors of one dtype, in the order of the binary kind. `out` is made when
// undefined.
npu_reason run_two(
    NativeSite& site,
    const at::Tensor& x,
    const at::Tensor& y,
    at::Tensor& out) {
  npu_reason why = site.wants(y, x);
  if (takes(
          is_float(y) && on_device(x, y) && x.scalar_type() == y.scalar_type(),
          why)) {
    npu_binary_attrs attrs{};
    at::TensorIterator iter = map_iterator(MapRule::kBinary, out, {&x, &y});
    why = run_map(site, iter, {&x, &y}, as_attrs(attrs));
    if (why == NPU_REASON_NONE) {
      out = iter.output(0);
    }
  }
  return why;
}

// ---- prelu ----

bool is_prelu(const at::Tensor& self, const at::Tensor& weight) {
  return is_float(self) && on_device(self, weight) &&
         weight.scalar_type() == self.scalar_type();
}

at::Tensor prelu(const at::Tensor& self, const at::Tensor& weight) {
  static NativeSite site(
      "aten::_prelu_kernel", NPU_KIND_BINARY, NPU_BINARY_PRELU);
  at::Tensor out;
  const npu_reason why = run_two(site, self, weight, out);
  return why == NPU_REASON_NONE
             ? out
             : site.cpu(why, &at::cpu::_prelu_kernel, self, weight);
}

using Two = std::tuple<at::Tensor, at::Tensor>;

at::TensorIterator two_results(
    const at::Tensor& out,
    const at::Tensor& out2,
    const at::Tensor& x,
    const at::Tensor& y,
    const at::Tensor& z) {
  return at::TensorIteratorConfig()
      .add_output(out)
      .add_output(out2)
      .add_const_input(x)
      .add_const_input(y)
      .add_const_input(z)
      .build();
}

Two prelu_backward(
    const at::Tensor& grad, const at::Tensor& self, const at::Tensor& weight) {
  static NativeSite site(
      "aten::_prelu_kernel_backward", NPU_KIND_TERNARY, NPU_TERNARY_PRELU_GRAD);
  npu_reason why = site.wants(self, grad, weight);
  if (takes(is_prelu(self, weight) && is_prelu(self, grad), why)) {
    npu_ternary_attrs attrs{};
    at::TensorIterator iter = two_results({}, {}, grad, self, weight);
    why = run_map(site, iter, {&grad, &self, &weight}, as_attrs(attrs));
    if (why == NPU_REASON_NONE) {
      return {iter.output(0), iter.output(1)};
    }
  }
  return site.cpu(why, &at::cpu::_prelu_kernel_backward, grad, self, weight);
}

// ---- log_sigmoid, mish ----

at::Tensor mish_backward(const at::Tensor& grad, const at::Tensor& self) {
  static NativeSite site(
      "aten::mish_backward", NPU_KIND_BINARY, NPU_BINARY_MISH_GRAD);
  at::Tensor out;
  const npu_reason why = run_two(site, grad, self, out);
  return why == NPU_REASON_NONE
             ? out
             : site.cpu(why, &at::cpu::mish_backward, grad, self);
}

// The buffer is CPU's, exp(-|x|): the kind's backward needs none, and an empty
// one says so.
Two log_sigmoid(const at::Tensor& self) {
  static NativeSite site(
      "aten::log_sigmoid_forward", NPU_KIND_UNARY, NPU_UNARY_LOG_SIGMOID);
  npu_reason why = site.wants(self);
  if (takes(is_float(self), why)) {
    const auto made = [&](at::IntArrayRef sizes) {
      return make_empty(sizes, self.scalar_type(), self.device().index());
    };
    at::TensorIterator iter =
        map_iterator(MapRule::kUnary, made(self.sizes()), {&self});
    why = run_map(site, iter, {&self}, {});
    if (why == NPU_REASON_NONE) {
      return {iter.output(0), made({0})};
    }
  }
  return site.cpu(why, &at::cpu::log_sigmoid_forward, self);
}

at::Tensor log_sigmoid_backward(
    const at::Tensor& grad, const at::Tensor& self, const at::Tensor& buffer) {
  static NativeSite site(
      "aten::log_sigmoid_backward",
      NPU_KIND_BINARY,
      NPU_BINARY_LOG_SIGMOID_GRAD);
  at::Tensor out;
  if (site.wants(self, grad) == NPU_REASON_NONE) {
    out = make_empty_like(grad, grad.scalar_type());
  }
  const npu_reason why = run_two(site, grad, self, out);
  if (why == NPU_REASON_NONE) {
    return out;
  }
  const bool saved = buffer.numel() == self.numel();
  return site.cpu(
      why,
      &at::cpu::log_sigmoid_backward,
      grad,
      self,
      saved ? buffer : self.abs().neg_().exp_());
}

// ---- frexp ----

npu_reason run_frexp(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& mantissa,
    const at::Tensor& exponent) {
  at::TensorIterator iter = at::TensorIteratorConfig()
                                .check_all_same_dtype(false)
                                .add_output(mantissa)
                                .add_output(exponent)
                                .add_const_input(self)
                                .build();
  return run_map(site, iter, {&self}, {});
}

Two frexp(const at::Tensor& self) {
  static NativeSite site("aten::frexp.Tensor", NPU_KIND_UNARY, NPU_UNARY_FREXP);
  npu_reason why = site.wants(self);
  if (takes(is_float(self), why)) {
    at::Tensor mantissa = make_empty_like(self, self.scalar_type());
    at::Tensor exponent = make_empty_like(self, at::kInt);
    why = run_frexp(site, self, mantissa, exponent);
    if (why == NPU_REASON_NONE) {
      return {std::move(mantissa), std::move(exponent)};
    }
  }
  return site.cpu(why, &at::compositeexplicitautograd::frexp, self);
}

std::tuple<at::Tensor&, at::Tensor&> frexp_out(
    const at::Tensor& self, at::Tensor& mantissa, at::Tensor& exponent) {
  static NativeSite site(
      "aten::frexp.Tensor_out", NPU_KIND_UNARY, NPU_UNARY_FREXP);
  npu_reason why = site.wants(self, mantissa, exponent);
  if (takes(
          is_float(self) && on_device(mantissa, exponent) &&
              mantissa.scalar_type() == self.scalar_type() &&
              exponent.scalar_type() == at::kInt,
          why)) {
    why = run_frexp(site, self, mantissa, exponent);
    if (why == NPU_REASON_NONE) {
      return {mantissa, exponent};
    }
  }
  return site.cpu(why, &at::cpu::frexp_outf, self, mantissa, exponent);
}

// ---- glu ----

struct Halves {
  at::Tensor first;
  at::Tensor second;
};

bool has_halves(const at::Tensor& self, std::int64_t dim) {
  return self.dim() > 0 && dim >= -self.dim() && dim < self.dim() &&
         self.size(dim) % 2 == 0;
}

Halves halves(const at::Tensor& self, std::int64_t dim) {
  const std::int64_t size = self.size(dim) / 2;
  return {self.narrow(dim, 0, size), self.narrow(dim, size, size)};
}

npu_reason run_glu(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    at::Tensor& out) {
  npu_reason why = site.wants(self, out);
  if (takes(is_float(self) && has_halves(self, dim), why)) {
    const Halves in = halves(self, dim);
    why = run_two(site, in.first, in.second, out);
  }
  return why;
}

at::Tensor glu(const at::Tensor& self, std::int64_t dim) {
  static NativeSite site("aten::glu", NPU_KIND_BINARY, NPU_BINARY_GLU);
  at::Tensor out;
  const npu_reason why = run_glu(site, self, dim, out);
  return why == NPU_REASON_NONE ? out : site.cpu(why, &at::cpu::glu, self, dim);
}

// A result of another dtype, or one to resize, is the CPU rung's.
at::Tensor& glu_out(const at::Tensor& self, std::int64_t dim, at::Tensor& out) {
  static NativeSite site("aten::glu.out", NPU_KIND_BINARY, NPU_BINARY_GLU);
  npu_reason why = NPU_REASON_DTYPE;
  if (out.scalar_type() == self.scalar_type() && on_device(out)) {
    at::Tensor into = out;
    why = run_glu(site, self, dim, into);
  }
  return why == NPU_REASON_NONE
             ? out
             : site.cpu(why, &at::cpu::glu_outf, self, dim, out);
}

npu_reason run_glu_backward(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& out) {
  const Halves in = halves(self, dim);
  const Halves grads = halves(out, dim);
  if (grad.sizes() != in.first.sizes()) {
    return NPU_REASON_SIZE;
  }
  npu_ternary_attrs attrs{};
  at::TensorIterator iter =
      two_results(grads.first, grads.second, grad, in.first, in.second);
  return run_map(site, iter, {&grad, &in.first, &in.second}, as_attrs(attrs));
}

bool is_glu_backward(
    const at::Tensor& grad, const at::Tensor& self, std::int64_t dim) {
  return is_float(self) && has_halves(self, dim) && on_device(grad, self) &&
         grad.scalar_type() == self.scalar_type();
}

at::Tensor glu_backward(
    const at::Tensor& grad, const at::Tensor& self, std::int64_t dim) {
  static NativeSite site(
      "aten::glu_backward", NPU_KIND_TERNARY, NPU_TERNARY_GLU_GRAD);
  npu_reason why = site.wants(self, grad);
  if (takes(is_glu_backward(grad, self, dim), why)) {
    at::Tensor out =
        make_empty(self.sizes(), self.scalar_type(), self.device().index());
    why = run_glu_backward(site, grad, self, dim, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, &at::cpu::glu_backward, grad, self, dim);
}

at::Tensor& glu_backward_out(
    const at::Tensor& grad,
    const at::Tensor& self,
    std::int64_t dim,
    at::Tensor& out) {
  static NativeSite site(
      "aten::glu_backward.grad_input", NPU_KIND_TERNARY, NPU_TERNARY_GLU_GRAD);
  npu_reason why = site.wants(self, grad, out);
  if (takes(
          is_glu_backward(grad, self, dim) &&
              out.scalar_type() == self.scalar_type() && on_device(out) &&
              out.sizes() == self.sizes() && !out.is_alias_of(self) &&
              !out.is_alias_of(grad) && out.is_non_overlapping_and_dense(),
          why)) {
    why = run_glu_backward(site, grad, self, dim, out);
  }
  return why == NPU_REASON_NONE
             ? out
             : site.cpu(why, &at::cpu::glu_backward_outf, grad, self, dim, out);
}

// ---- complex numbers of two real ones ----

// `out` is made when undefined; what does not fit is the CPU rung's.
npu_reason run_pair(
    NativeSite& site,
    const at::Tensor& a,
    const at::Tensor& b,
    at::Tensor& out) {
  npu_reason why = site.wants(a, b, out);
  const c10::ScalarType type = c10::toComplexType(a.scalar_type());
  if (takes(
          is_float(a) && a.scalar_type() != c10::kBFloat16 &&
              (!is_half(a) || site.code() == NPU_BINARY_COMPLEX) &&
              on_device(a, b, out) && b.scalar_type() == a.scalar_type() &&
              (!out.defined() || out.scalar_type() == type),
          why)) {
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false)
        .add_output(out)
        .add_const_input(a)
        .add_const_input(b);
    if (!out.defined()) {
      config.declare_static_dtype(type);
    }
    at::TensorIterator iter = config.build();
    npu_binary_attrs attrs{};
    why = run_map(site, iter, {&a, &b}, as_attrs(attrs));
    if (why == NPU_REASON_NONE) {
      out = iter.output(0);
    }
  }
  return why;
}

at::Tensor make_complex(const at::Tensor& real, const at::Tensor& imag) {
  static NativeSite site("aten::complex", NPU_KIND_BINARY, NPU_BINARY_COMPLEX);
  at::Tensor out;
  const npu_reason why = run_pair(site, real, imag, out);
  return why == NPU_REASON_NONE
             ? out
             : site.cpu(
                   why, &at::compositeexplicitautograd::complex, real, imag);
}

at::Tensor& make_complex_out(
    const at::Tensor& real, const at::Tensor& imag, at::Tensor& out) {
  static NativeSite site(
      "aten::complex.out", NPU_KIND_BINARY, NPU_BINARY_COMPLEX);
  at::Tensor into = out;
  const npu_reason why = run_pair(site, real, imag, into);
  return why == NPU_REASON_NONE
             ? out
             : site.cpu(why, &at::cpu::complex_outf, real, imag, out);
}

at::Tensor polar(const at::Tensor& abs, const at::Tensor& angle) {
  static NativeSite site("aten::polar", NPU_KIND_BINARY, NPU_BINARY_POLAR);
  at::Tensor out;
  const npu_reason why = run_pair(site, abs, angle, out);
  return why == NPU_REASON_NONE
             ? out
             : site.cpu(why, &at::compositeexplicitautograd::polar, abs, angle);
}

at::Tensor& polar_out(
    const at::Tensor& abs, const at::Tensor& angle, at::Tensor& out) {
  static NativeSite site("aten::polar.out", NPU_KIND_BINARY, NPU_BINARY_POLAR);
  at::Tensor into = out;
  const npu_reason why = run_pair(site, abs, angle, into);
  return why == NPU_REASON_NONE
             ? out
             : site.cpu(why, &at::cpu::polar_outf, abs, angle, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout_backward", TORCH_FN(dropout_backward));
  m.impl("_prelu_kernel", TORCH_FN(prelu));
  m.impl("_prelu_kernel_backward", TORCH_FN(prelu_backward));
  m.impl("mish_backward", TORCH_FN(mish_backward));
  m.impl("log_sigmoid_forward", TORCH_FN(log_sigmoid));
  m.impl("log_sigmoid_backward", TORCH_FN(log_sigmoid_backward));
  m.impl("frexp.Tensor", TORCH_FN(frexp));
  m.impl("frexp.Tensor_out", TORCH_FN(frexp_out));
  m.impl("glu", TORCH_FN(glu));
  m.impl("glu.out", TORCH_FN(glu_out));
  m.impl("glu_backward", TORCH_FN(glu_backward));
  m.impl("glu_backward.grad_input", TORCH_FN(glu_backward_out));
  m.impl("complex", TORCH_FN(make_complex));
  m.impl("complex.out", TORCH_FN(make_complex_out));
  m.impl("polar", TORCH_FN(polar));
  m.impl("polar.out", TORCH_FN(polar_out));
}

}  // namespace npu
