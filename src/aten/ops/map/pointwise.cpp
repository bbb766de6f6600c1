// SPDX-License-Identifier: Apache-2.0
// Elementwise operators whose operands are not what the generator maps: halves
// of a tensor, a mask beside numbers, two outputs, a complex result.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/log_sigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include "aten/core/factories.h"
#include "aten/ops/map/map.h"
#include "aten/ops/op.h"
#include "attempts/map.h"
#include "npu/kinds.h"

namespace npu::ops {

// ---- two operands of one dtype ----

namespace {

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

}  // namespace

npu_reason two_of_one_dtype(
    NativeSite& site,
    Outputs& outputs,
    const at::Tensor& x,
    const at::Tensor& y) {
  const at::Tensor& out = outputs.at(0);
  if (const npu_reason why = first_failed(
          {{is_float(y) && same_dtype(x, y) &&
                (!out.defined() || same_dtype(out, x)),
            NPU_REASON_DTYPE},
           {on_device(x, y, out), kLeaveToCpu}})) {
    return why;
  }
  npu_binary_attrs attrs{};
  return run_map(
      site,
      outputs,
      map_iterator(MapRule::kBinary, out, {&x, &y}),
      {&x, &y},
      as_attrs(attrs));
}

// One pass: what was dropped is 0, whatever its gradient.
npu_reason dropout_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& mask,
    double scale) {
  npu_binary_attrs attrs{.a = number(c10::Scalar(scale))};
  return run_map(
      site,
      out,
      map_iterator(MapRule::kBinary, at::Tensor(), {&grad, &mask}),
      {&grad, &mask},
      as_attrs(attrs));
}

npu_reason prelu_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& weight) {
  npu_ternary_attrs attrs{};
  return run_map(
      site,
      out,
      two_results({}, {}, grad, self, weight),
      {&grad, &self, &weight},
      as_attrs(attrs));
}

// ---- log_sigmoid ----

// The buffer is CPU's, exp(-|x|): the kind's backward needs none, and an empty
// one says so.
npu_reason log_sigmoid(NativeSite& site, Outputs& out, const at::Tensor& self) {
  if (out.at(1).defined()) {
    return kLeaveToCpu;
  }
  set_output(out, 0, self.sizes(), self);
  set_output(out, 1, {0}, self);
  at::TensorIterator iter = map_iterator(MapRule::kUnary, out.at(0), {&self});
  return run_map(site, iter, {&self}, {});
}

namespace {

at::Tensor log_sigmoid_backward(
    const at::Tensor& grad, const at::Tensor& self, const at::Tensor& buffer) {
  static NativeSite site(
      "aten::log_sigmoid_backward",
      NPU_KIND_BINARY,
      NPU_BINARY_LOG_SIGMOID_GRAD);
  npu_reason why = site.wants(self, grad);
  if (why == NPU_REASON_NONE) {
    Outputs out(Outputs::Form::kFunctional);
    out.set_like(0, grad, grad.scalar_type());
    why = two_of_one_dtype(site, out, grad, self);
    if (why == NPU_REASON_NONE) {
      return out.take(0);
    }
  }
  const bool saved = buffer.numel() == self.numel();
  return site.cpu(
      why,
      &at::cpu::log_sigmoid_backward,
      grad,
      self,
      saved ? buffer : self.abs().neg_().exp_());
}

}  // namespace

// ---- a number to the powers in a tensor ----

// The CPU makes the number a tensor of the result's dtype, which rounds it.
npu_reason number_to_powers(
    NativeSite& site,
    const c10::Scalar& base,
    const at::Tensor& exponent,
    const at::Tensor& out) {
  if (const npu_reason why = first_failed(
          {{same_dtype(out, exponent), NPU_REASON_DTYPE},
           {out.numel() != 0, NPU_REASON_SIZE},
           {is_value_of(base, exponent), kLeaveToCpu}})) {
    return why;
  }
  npu_unary_with_attrs attrs{
      .a = number(at::scalar_tensor(base, exponent.scalar_type()).item())};
  at::TensorIterator iter = map_iterator(MapRule::kUnary, out, {&exponent});
  return run_map(site, iter, {&exponent}, as_attrs(attrs));
}

// ---- frexp ----

npu_reason frexp(NativeSite& site, Outputs& out, const at::Tensor& self) {
  const at::Tensor& mantissa = out.at(0);
  const at::Tensor& exponent = out.at(1);
  if (!is_float(self) ||
      (mantissa.defined() &&
       (!same_dtype(mantissa, self) || exponent.scalar_type() != at::kInt))) {
    return NPU_REASON_DTYPE;
  }
  if (!on_device(mantissa, exponent)) {
    return kLeaveToCpu;
  }
  if (!mantissa.defined()) {
    out.set_like(0, self, self.scalar_type());
    out.set_like(1, self, at::kInt);
  }
  at::TensorIterator iter = at::TensorIteratorConfig()
                                .check_all_same_dtype(false)
                                .add_output(out.at(0))
                                .add_output(out.at(1))
                                .add_const_input(self)
                                .build();
  return run_map(site, iter, {&self}, {});
}

// ---- glu ----

namespace {

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

}  // namespace

npu_reason glu(
    NativeSite& site, Outputs& out, const at::Tensor& self, std::int64_t dim) {
  if (!has_halves(self, dim)) {
    return kLeaveToCpu;
  }
  const Halves in = halves(self, dim);
  return two_of_one_dtype(site, out, in.first, in.second);
}

npu_reason glu_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    std::int64_t dim) {
  if (!has_halves(self, dim) ||
      !is_ready(out.at(0), self.sizes(), self.scalar_type(), {&self, &grad})) {
    return kLeaveToCpu;
  }
  const Halves in = halves(self, dim);
  if (grad.sizes() != in.first.sizes()) {
    return kLeaveToCpu;
  }
  set_output(out, 0, self.sizes(), self);
  const Halves grads = halves(out.at(0), dim);
  npu_ternary_attrs attrs{};
  at::TensorIterator iter =
      two_results(grads.first, grads.second, grad, in.first, in.second);
  return run_map(site, iter, {&grad, &in.first, &in.second}, as_attrs(attrs));
}

// ---- complex numbers of two real ones ----

npu_reason complex_of_two(
    NativeSite& site,
    Outputs& outputs,
    const at::Tensor& a,
    const at::Tensor& b) {
  const at::Tensor& out = outputs.at(0);
  const bool half = is_half(a);
  if (!is_float(a) || !same_dtype(b, a) || a.scalar_type() == c10::kBFloat16 ||
      (half && site.code() != NPU_BINARY_COMPLEX)) {
    return NPU_REASON_DTYPE;
  }
  const c10::ScalarType type = c10::toComplexType(a.scalar_type());
  if (out.defined() && out.scalar_type() != type) {
    return NPU_REASON_DTYPE;
  }
  if (!on_device(a, b, out)) {
    return kLeaveToCpu;
  }
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .add_output(out)
      .add_const_input(a)
      .add_const_input(b);
  if (!out.defined()) {
    config.declare_static_dtype(type);
  }
  npu_binary_attrs attrs{};
  return run_map(site, outputs, config.build(), {&a, &b}, as_attrs(attrs));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("log_sigmoid_backward", TORCH_FN(log_sigmoid_backward));
}

}  // namespace npu::ops
