// SPDX-License-Identifier: Apache-2.0
// rms_norm, add_rms_norm, weight_norm, and backward.
#include "compose/decompositions.h"

namespace npu::compose {
namespace {

// The last `axes` dimensions, and how many elements they hold.
struct Row {
  Row(const Tensor& x, std::int64_t axes) {
    for (int d = x.ndim() - static_cast<int>(axes); d < x.ndim(); ++d) {
      dims |= dim_bit(d);
      length *= static_cast<double>(x.size(d));
    }
  }
  std::uint64_t dims = 0;
  double length = 1;
};

struct RmsResults {
  Tensor out;
  Tensor rstd;  // may be absent
};

void normalise_rows(
    Builder& build,
    const RmsResults& to,
    const Tensor& x,
    const Tensor& weight,
    const Row& row,
    double eps) {
  const Tensor squares = build.reduce(NPU_REDUCE_SUM_OF_SQUARES, x, row.dims);
  const Tensor rstd =
      build.unary(NPU_UNARY_RSQRT, build.affine(squares, 1 / row.length, eps));
  Tensor y = build.mul(x, rstd);
  y = weight ? build.mul(y, weight) : y;
  build.copy(to.out, y);
  if (to.rstd) {
    build.copy(to.rstd, rstd.reshape(to.rstd.sizes()));
  }
}

struct RmsGradOperands {
  Tensor grad_in;      // may be absent
  Tensor grad_weight;  // may be absent
  Tensor grad;
  Tensor grad_sum;  // added to grad_in; may be absent
  Tensor x;
  Tensor rstd;
  Tensor weight;  // may be absent
};

// x^ = x * rstd, g = grad * weight:
// grad_in = rstd * (g - x^ * average(g * x^)), grad_weight = sum(grad * x^).
void normalise_rows_grad(
    Builder& build, const RmsGradOperands& of, const Row& row) {
  const Tensor normal = build.mul(of.x, of.rstd);
  if (of.grad_in) {
    const Tensor g = of.weight ? build.mul(of.grad, of.weight) : of.grad;
    const Tensor dot =
        build.reduce(NPU_REDUCE_SUM, build.mul(g, normal), row.dims);
    const Tensor along =
        build.mul(normal, build.affine(dot, 1 / row.length, 0));
    const Tensor slope = build.mul(build.sub(g, along), of.rstd);
    build.copy(of.grad_in, of.grad_sum ? build.add(slope, of.grad_sum) : slope);
  }
  if (of.grad_weight) {
    build.sum_into(
        of.grad_weight, build.mul(of.grad, normal), all_dims(of.x) & ~row.dims);
  }
}

// Of as many dimensions as x: ones where it lacks them.
Tensor statistic_of(Builder& build, const Tensor& given, const Tensor& x) {
  Sizes sizes = given.sizes();
  sizes.resize(static_cast<std::size_t>(x.ndim()), 1);
  return build.contiguous(build.cast(given, x.dtype())).reshape(sizes);
}

}  // namespace

void rms_norm(Builder& build) {
  const auto attrs = build.attrs<npu_rms_norm_attrs>();
  const Tensor x = build.wide(build.in(0));
  const Tensor weight = build.cast(build.in(1), x.dtype());
  normalise_rows(
      build,
      {build.out(0), build.out(1)},
      x,
      weight,
      Row(x, attrs.axes),
      attrs.eps);
}

// The sum is rounded to its dtype before it is normalised.
void add_rms_norm(Builder& build) {
  const auto attrs = build.attrs<npu_add_rms_norm_attrs>();
  build.copy(
      build.out(1),
      build.add(build.wide(build.in(0)), build.wide(build.in(1))));
  const Tensor x = build.wide(build.out(1));
  const Tensor weight = build.cast(build.in(2), x.dtype());
  normalise_rows(
      build,
      {build.out(0), build.out(2)},
      x,
      weight,
      Row(x, weight.ndim()),
      attrs.eps);
}

void rms_norm_grad(Builder& build) {
  const auto attrs = build.attrs<npu_rms_norm_grad_attrs>();
  const Tensor x = build.wide(build.in(1));
  normalise_rows_grad(
      build,
      {build.out(0),
       build.out(1),
       build.wide(build.in(0)),
       Tensor(),
       x,
       statistic_of(build, build.in(2), x),
       build.cast(build.in(3), x.dtype())},
      Row(x, attrs.axes));
}

void add_rms_norm_grad(Builder& build) {
  const Tensor x = build.wide(build.in(2));
  const Tensor weight = build.cast(build.in(4), x.dtype());
  normalise_rows_grad(
      build,
      {build.out(0),
       build.out(1),
       build.wide(build.in(0)),
       build.wide(build.in(1)),
       x,
       statistic_of(build, build.in(3), x),
       weight},
      Row(x, weight.ndim()));
}

void weight_norm(Builder& build) {
  const auto dim = static_cast<int>(build.attrs<npu_weight_norm_attrs>().dim);
  const Tensor v = build.wide(build.in(0));
  const Tensor g = build.cast(build.in(1), v.dtype());
  const Tensor norm =
      build.reduce(NPU_REDUCE_NORM, v, all_dims(v) & ~dim_bit(dim));
  build.copy(build.out(0), build.mul(v, build.div(g, norm)));
  if (build.out(1)) {
    build.copy(build.out(1), norm);
  }
}

// dot = sum(grad * v): grad_g = dot / norm,
// grad_v = g / norm * (grad - v * dot / norm^2).
void weight_norm_grad(Builder& build) {
  const auto dim =
      static_cast<int>(build.attrs<npu_weight_norm_grad_attrs>().dim);
  const Tensor grad = build.wide(build.in(0));
  const Tensor v = build.wide(build.in(1));
  const Tensor g = build.cast(build.in(2), v.dtype());
  const Tensor norm = build.cast(build.in(3), v.dtype());
  const std::uint64_t dims = all_dims(v) & ~dim_bit(dim);
  const Tensor dot = build.reduce(NPU_REDUCE_SUM, build.mul(grad, v), dims);
  const Tensor along = build.div(dot, norm);
  const Tensor apart = build.mul(v, build.div(along, norm));
  build.copy(
      build.out(0), build.mul(build.sub(grad, apart), build.div(g, norm)));
  build.copy(build.out(1), along);
}

}  // namespace npu::compose
