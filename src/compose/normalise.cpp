// SPDX-License-Identifier: Apache-2.0
// rms_norm, weight_norm, and backward.
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

// The sum over the dims of the mask, into an output that may lack them.
void sum_into(
    Builder& build, const Tensor& out, const Tensor& x, std::uint64_t dims) {
  const Tensor sum =
      dims != 0 ? build.reduce(NPU_REDUCE_SUM, x, dims) : build.contiguous(x);
  build.copy(out, sum.reshape(out.sizes()));
}

}  // namespace

void rms_norm(Builder& build) {
  const auto attrs = build.attrs<npu_rms_norm_attrs>();
  const Tensor x = build.wide(build.in(0));
  const Tensor weight = build.cast(build.in(1), x.dtype());
  const Row row(x, attrs.axes);
  const Tensor squares = build.reduce(NPU_REDUCE_SUM_OF_SQUARES, x, row.dims);
  const Tensor rstd = build.unary(
      NPU_UNARY_RSQRT, build.affine(squares, 1 / row.length, attrs.eps));
  Tensor y = build.mul(x, rstd);
  y = weight ? build.mul(y, weight) : y;
  build.copy(build.out(0), y);
  if (build.out(1)) {
    build.copy(build.out(1), rstd);
  }
}

// x^ = x * rstd, g = grad * weight:
// grad_in = rstd * (g - x^ * average(g * x^)), grad_weight = sum(grad * x^).
void rms_norm_grad(Builder& build) {
  const auto attrs = build.attrs<npu_rms_norm_grad_attrs>();
  const Tensor grad = build.wide(build.in(0));
  const Tensor x = build.wide(build.in(1));
  const Tensor rstd = build.cast(build.in(2), x.dtype());
  const Tensor weight = build.cast(build.in(3), x.dtype());
  const Row row(x, attrs.axes);
  const Tensor normal = build.mul(x, rstd);
  if (build.out(0)) {
    const Tensor g = weight ? build.mul(grad, weight) : grad;
    const Tensor dot =
        build.reduce(NPU_REDUCE_SUM, build.mul(g, normal), row.dims);
    const Tensor along =
        build.mul(normal, build.affine(dot, 1 / row.length, 0));
    build.copy(build.out(0), build.mul(build.sub(g, along), rstd));
  }
  if (build.out(1)) {
    sum_into(
        build, build.out(1), build.mul(grad, normal), all_dims(x) & ~row.dims);
  }
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
