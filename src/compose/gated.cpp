// SPDX-License-Identifier: Apache-2.0
// swiglu, rotary, and backward.
#include "compose/decompositions.h"

namespace npu::compose {
namespace {

// ---- swiglu ----

struct Halves {
  Halves(const Tensor& x, std::int64_t dim)
      : first(x.slice(static_cast<int>(dim), 0, half(x, dim))),
        second(x.slice(static_cast<int>(dim), half(x, dim), half(x, dim))) {}
  static std::int64_t half(const Tensor& x, std::int64_t dim) {
    return x.size(static_cast<int>(dim)) / 2;
  }
  Tensor first;
  Tensor second;
};

// ---- rotary ----

// How many pieces the last dimension has; a rotation turns pairs of elements
// half a piece apart.
std::int64_t pieces(std::uint32_t code, std::int64_t size) {
  return code == NPU_ROTARY_INTERLEAVE ? size / 2
         : code == NPU_ROTARY_QUARTER  ? 2
                                       : 1;
}

// (-x2, x1) of each piece.
Tensor rotated(Builder& build, const Tensor& x, std::uint32_t code) {
  const int last = x.ndim() - 1;
  const Tensor out = build.make(x.dtype(), x.sizes());
  const std::int64_t n = pieces(code, x.size(last));
  const Halves from(x.split(last, n), last + 1);
  const Halves to(out.split(last, n), last + 1);
  build.unary(NPU_UNARY_NEG, to.first, from.second);
  build.copy(to.second, from.first);
  return out;
}

// With leading dimensions of size 1, as many as x has.
Tensor with_dims(Tensor angle, const Tensor& x) {
  while (angle.ndim() < x.ndim()) {
    angle = angle.unsqueeze(0);
  }
  return angle;
}

// The gradient of an angle: summed where it was broadcast.
void store_angle(Builder& build, const Tensor& out, const Tensor& products) {
  if (!out) {
    return;
  }
  const Tensor full = with_dims(out, products);
  std::uint64_t dims = 0;
  for (int d = 0; d < full.ndim(); ++d) {
    dims |= full.size(d) == 1 && products.size(d) != 1 ? dim_bit(d) : 0;
  }
  build.sum_into(out, products, dims);
}

}  // namespace

void swiglu(Builder& build) {
  const auto attrs = build.attrs<npu_swiglu_attrs>();
  const Halves x(build.wide(build.in(0)), attrs.dim);
  build.copy(
      build.out(0), build.mul(build.unary(NPU_UNARY_SILU, x.first), x.second));
}

void swiglu_grad(Builder& build) {
  const auto attrs = build.attrs<npu_swiglu_grad_attrs>();
  const Tensor grad = build.wide(build.in(0));
  const Halves x(build.wide(build.in(1)), attrs.dim);
  const Halves out(build.out(0), attrs.dim);
  build.copy(
      out.first,
      build.binary(NPU_BINARY_SILU_GRAD, build.mul(grad, x.second), x.first));
  build.copy(out.second, build.mul(grad, build.unary(NPU_UNARY_SILU, x.first)));
}

void rotary(Builder& build) {
  const Tensor x = build.wide(build.in(0));
  const Tensor cos = build.cast(build.in(1), x.dtype());
  const Tensor sin = build.cast(build.in(2), x.dtype());
  build.copy(
      build.out(0),
      build.add(
          build.mul(x, cos),
          build.mul(rotated(build, x, build.call().code), sin)));
}

// Turned twice is turned round: the transpose of a rotation is its negative.
void rotary_grad(Builder& build) {
  const std::uint32_t code = build.call().code;
  const Tensor grad = build.wide(build.in(0));
  const Tensor x = build.wide(build.in(1));
  const Tensor cos = build.cast(build.in(2), grad.dtype());
  const Tensor sin = build.cast(build.in(3), grad.dtype());
  build.copy(
      build.out(0),
      build.sub(
          build.mul(grad, cos), rotated(build, build.mul(grad, sin), code)));
  if (!x) {
    return;
  }
  store_angle(build, build.out(1), build.mul(grad, x));
  store_angle(build, build.out(2), build.mul(grad, rotated(build, x, code)));
}

}  // namespace npu::compose
