// SPDX-License-Identifier: Apache-2.0
// loss and loss_grad: elementwise losses from maps and a reduction.
#include <limits>

#include "compose/decompositions.h"

namespace npu::compose {
namespace {

// min(max(x, low), high); a limit that is infinite is none.
Tensor clamp(Builder& build, const Tensor& x, double low, double high) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const Tensor out = build.make(x.dtype(), x.sizes());
  build.unary_with(
      NPU_UNARY_WITH_CLAMP,
      out,
      x,
      low == -kNone ? npu_scalar{} : number(low),
      high == kNone ? npu_scalar{} : number(high));
  return out;
}

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// |x - t| below a: quadratic, times `curve`; above: linear with slope `slope`.
Tensor bent(
    Builder& build,
    const Tensor& x,
    const Tensor& t,
    double a,
    double curve,
    double slope) {
  const Tensor z = build.unary(NPU_UNARY_ABS, build.sub(x, t));
  const Tensor below =
      build.affine(build.unary(NPU_UNARY_SQUARE, z), 0.5 * curve, 0);
  const Tensor above = build.affine(z, slope, -0.5 * a * slope);
  const Tensor inside =
      build.compare(NPU_COMPARE_LT, z, build.constant(z.dtype(), a));
  return build.where(inside, below, above);
}

// -log(1 + exp(-x)) with the sign turned.
Tensor softplus_of_minus(Builder& build, const Tensor& x) {
  return build.affine(build.unary(NPU_UNARY_LOG_SIGMOID, x), -1, 0);
}

// 1 + (pos - 1) * t
Tensor positive_weight(Builder& build, const Tensor& t, const Tensor& pos) {
  return build.affine(build.mul(build.affine(pos, 1, -1), t), 1, 1);
}

Tensor bce(Builder& build, const Tensor& x, const Tensor& t) {
  const Tensor yes =
      clamp(build, build.unary(NPU_UNARY_LOG, x), -100, kNoLimit);
  const Tensor no = clamp(
      build,
      build.unary(NPU_UNARY_LOG1P, build.affine(x, -1, 0)),
      -100,
      kNoLimit);
  return build.sub(build.mul(build.affine(t, 1, -1), no), build.mul(t, yes));
}

Tensor value(
    Builder& build,
    const Tensor& x,
    const Tensor& t,
    const Tensor& pos,
    double a) {
  switch (build.call().code) {
    case NPU_LOSS_MSE:
      return build.binary(NPU_BINARY_SQUARED_DIFFERENCE, x, t);
    case NPU_LOSS_L1:
      return build.unary(NPU_UNARY_ABS, build.sub(x, t));
    case NPU_LOSS_SMOOTH_L1:
      return bent(build, x, t, a, 1 / a, 1);
    case NPU_LOSS_HUBER:
      return bent(build, x, t, a, 1, a);
    case NPU_LOSS_BCE:
      return bce(build, x, t);
    case NPU_LOSS_BCE_LOGITS: {
      Tensor log_part = softplus_of_minus(build, x);
      log_part =
          pos ? build.mul(log_part, positive_weight(build, t, pos)) : log_part;
      return build.add(build.mul(build.affine(t, -1, 1), x), log_part);
    }
    case NPU_LOSS_KL:
      return build.sub(build.binary(NPU_BINARY_XLOGY, t, t), build.mul(t, x));
    case NPU_LOSS_KL_LOG_TARGET:
      return build.mul(build.unary(NPU_UNARY_EXP, t), build.sub(t, x));
    case NPU_LOSS_SOFT_MARGIN:
      return softplus_of_minus(build, build.mul(x, t));
    default:
      throw Declined{};
  }
}

Tensor slope(
    Builder& build,
    const Tensor& x,
    const Tensor& t,
    const Tensor& pos,
    double a) {
  switch (build.call().code) {
    case NPU_LOSS_MSE:
      return build.affine(build.sub(x, t), 2, 0);
    case NPU_LOSS_L1:
      return build.unary(NPU_UNARY_SIGN, build.sub(x, t));
    case NPU_LOSS_SMOOTH_L1:
      return clamp(build, build.affine(build.sub(x, t), 1 / a, 0), -1, 1);
    case NPU_LOSS_HUBER:
      return clamp(build, build.sub(x, t), -a, a);
    case NPU_LOSS_BCE: {
      const Tensor product = build.mul(build.affine(x, -1, 1), x);
      return build.div(build.sub(x, t), clamp(build, product, 1e-12, kNoLimit));
    }
    case NPU_LOSS_BCE_LOGITS: {
      const Tensor s = build.unary(NPU_UNARY_SIGMOID, x);
      if (!pos) {
        return build.sub(s, t);
      }
      return build.sub(
          build.mul(s, positive_weight(build, t, pos)), build.mul(pos, t));
    }
    case NPU_LOSS_KL:
      return build.affine(t, -1, 0);
    case NPU_LOSS_KL_LOG_TARGET:
      return build.affine(build.unary(NPU_UNARY_EXP, t), -1, 0);
    case NPU_LOSS_SOFT_MARGIN: {
      const Tensor s =
          build.unary(NPU_UNARY_SIGMOID, build.affine(build.mul(x, t), -1, 0));
      return build.affine(build.mul(t, s), -1, 0);
    }
    default:
      throw Declined{};
  }
}

}  // namespace

void loss(Builder& build) {
  const auto attrs = build.attrs<npu_loss_attrs>();
  const Tensor x = build.wide(build.in(0));
  const Tensor t = build.cast(build.in(1), x.dtype());
  const Tensor weight = build.cast(build.in(2), x.dtype());
  const Tensor pos = build.cast(build.in(3), x.dtype());
  Tensor each = value(build, x, t, pos, attrs.a);
  each = weight ? build.mul(each, weight) : each;
  if (attrs.reduction == NPU_LOSS_REDUCTION_NONE) {
    build.copy(build.out(0), each);
    return;
  }
  const Tensor flat = each.reshape({each.numel()});
  const Tensor total = build.reduce(
      attrs.reduction == NPU_LOSS_REDUCTION_MEAN ? NPU_REDUCE_MEAN
                                                 : NPU_REDUCE_SUM,
      flat,
      1);
  build.copy(build.out(0), total.reshape(build.out(0).sizes()));
}

void loss_grad(Builder& build) {
  const auto attrs = build.attrs<npu_loss_grad_attrs>();
  const Tensor x = build.wide(build.in(1));
  const Tensor grad = build.cast(build.in(0), x.dtype());
  const Tensor t = build.cast(build.in(2), x.dtype());
  const Tensor weight = build.cast(build.in(3), x.dtype());
  const Tensor pos = build.cast(build.in(4), x.dtype());
  Tensor out = build.mul(slope(build, x, t, pos, attrs.a), grad);
  if (attrs.reduction == NPU_LOSS_REDUCTION_MEAN) {
    out = build.affine(out, 1 / static_cast<double>(x.numel()), 0);
  }
  out = weight ? build.mul(out, weight) : out;
  build.copy(build.out(0), out);
}

}  // namespace npu::compose
