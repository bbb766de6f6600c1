// SPDX-License-Identifier: Apache-2.0
// cross_entropy and margin losses, and backward.
#include "compose/decompositions.h"

namespace npu::compose {
namespace {

// The target distribution q of cross entropy, smoothing and class weights in
// it; loss = sum(q * (lse - x)), grad = softmax * sum(q) - q.
struct Target {
  Tensor q;
  Tensor mass;  // (1): the divisor of a mean
};

// A vector per class, shaped to go with x.
Tensor per_class(
    Builder& build, const Tensor& vector, const Tensor& x, int dim) {
  Sizes sizes(x.sizes().size(), 1);
  sizes[static_cast<std::size_t>(dim)] = x.size(dim);
  return build.contiguous(build.cast(vector, x.dtype())).reshape(sizes);
}

// 1 at the index along dim, 0 elsewhere, in the sizes of x.
Tensor one_hot(Builder& build, const Tensor& x, const Tensor& index, int dim) {
  const Tensor out = build.make(x.dtype(), x.sizes());
  build.fill(out, 0);
  build.scatter(NPU_SCATTER_SET, out, index, build.constant(x.dtype(), 1), dim);
  return out;
}

Tensor sum_of_all(Builder& build, const Tensor& x) {
  return build.reduce(NPU_REDUCE_SUM, x.reshape({x.numel()}), 1);
}

Target target_of(
    Builder& build,
    const Tensor& x,
    const Tensor& target,
    const Tensor& weights,
    int dim,
    std::int64_t ignore_index,
    double smoothing) {
  const Tensor weight = weights ? per_class(build, weights, x, dim) : Tensor();
  const auto classes = static_cast<double>(x.size(dim));
  const auto smooth = [&](const Tensor& hard) {
    const Tensor soft =
        smoothing == 0 ? hard
                       : build.affine(hard, 1 - smoothing, smoothing / classes);
    return weight ? build.mul(soft, weight) : soft;
  };
  if (build.call().code == NPU_CROSS_ENTROPY_PROBABILITY) {
    const double samples = static_cast<double>(x.numel()) / classes;
    return {
        smooth(build.cast(target, x.dtype())),
        build.constant(x.dtype(), samples)};
  }
  const Tensor index = build.cast(target, NPU_I64).unsqueeze(dim);
  const Tensor zero = build.constant(NPU_I64, 0);
  const Tensor ignored = build.compare(
      NPU_COMPARE_EQ,
      index,
      build.constant(NPU_I64, static_cast<double>(ignore_index)));
  const Tensor hard = one_hot(build, x, build.where(ignored, zero, index), dim);
  const Tensor nothing = build.constant(x.dtype(), 0);
  const Tensor weighted = weight ? build.mul(hard, weight) : hard;
  return {
      build.where(ignored, nothing, smooth(hard)),
      sum_of_all(build, build.where(ignored, nothing, weighted))};
}

int class_dim(const Tensor& x) {
  return x.ndim() > 1 ? 1 : 0;
}

}  // namespace

void cross_entropy(Builder& build) {
  const auto attrs = build.attrs<npu_cross_entropy_attrs>();
  const Tensor x = build.wide(build.in(0));
  const int dim = class_dim(x);
  const Target target = target_of(
      build,
      x,
      build.in(1),
      build.in(2),
      dim,
      attrs.ignore_index,
      attrs.label_smoothing);
  const Tensor lse = build.reduce(NPU_REDUCE_LOGSUMEXP, x, dim_bit(dim));
  const Tensor zero = build.constant(x.dtype(), 0);
  const Tensor absent = build.compare(NPU_COMPARE_EQ, target.q, zero);
  const Tensor parts =
      build.where(absent, zero, build.mul(target.q, build.sub(lse, x)));
  const Tensor each = build.reduce(NPU_REDUCE_SUM, parts, dim_bit(dim));
  if (attrs.reduction == NPU_CROSS_ENTROPY_REDUCTION_NONE) {
    build.copy(build.out(0).unsqueeze(dim), each);
  } else {
    Tensor total = sum_of_all(build, each);
    total = attrs.reduction == NPU_CROSS_ENTROPY_REDUCTION_MEAN
                ? build.div(total, target.mass)
                : total;
    build.copy(build.out(0), total.reshape(build.out(0).sizes()));
  }
  if (build.out(1)) {
    build.copy(build.out(1).unsqueeze(dim), lse);
  }
  if (build.out(2)) {
    build.copy(build.out(2), target.mass.reshape(build.out(2).sizes()));
  }
}

void cross_entropy_grad(Builder& build) {
  const auto attrs = build.attrs<npu_cross_entropy_grad_attrs>();
  const Tensor x = build.wide(build.in(1));
  const int dim = class_dim(x);
  const Target target = target_of(
      build,
      x,
      build.in(2),
      build.in(3),
      dim,
      attrs.ignore_index,
      attrs.label_smoothing);
  const Tensor lse = build.cast(build.in(4), x.dtype()).unsqueeze(dim);
  const Tensor p = build.unary(NPU_UNARY_EXP, build.sub(x, lse));
  const Tensor whole = build.reduce(NPU_REDUCE_SUM, target.q, dim_bit(dim));
  const Tensor slope = build.sub(build.mul(p, whole), target.q);
  Tensor scale = build.cast(build.in(0), x.dtype());
  if (attrs.reduction == NPU_CROSS_ENTROPY_REDUCTION_NONE) {
    scale = scale.unsqueeze(dim);
  } else if (attrs.reduction == NPU_CROSS_ENTROPY_REDUCTION_MEAN) {
    scale = build.div(scale, target.mass);
  }
  // Samples that do not count have no gradient, though the mean of none be NaN.
  const Tensor zero = build.constant(x.dtype(), 0);
  const Tensor idle = build.compare(NPU_COMPARE_EQ, whole, zero);
  build.copy(build.out(0), build.where(idle, zero, build.mul(slope, scale)));
}

namespace {

// The pairs a margin loss compares, as (samples, k, classes): k = 1 for
// multi_margin, the targets for multilabel_margin.
struct Pairs {
  Tensor index;      // (samples, k)
  Tensor excess;     // margin - x[t] + x[d], with d last
  Tensor counts;     // what the pair counts, 0 for pairs that are none
  Tensor is_target;  // of multilabel_margin, in the sizes of x
};

Pairs pairs_of(
    Builder& build,
    const Tensor& x,  // (samples, classes)
    const Tensor& target,
    const Tensor& weights,
    double margin) {
  const std::int64_t samples = x.size(0);
  const std::int64_t classes = x.size(1);
  const auto share = 1 / static_cast<double>(classes);
  const bool multilabel = build.call().code == NPU_MARGIN_MULTILABEL_MARGIN;
  Tensor index =
      build.contiguous(target).reshape({samples, multilabel ? classes : 1});
  Tensor counts;
  Tensor is_target;
  if (multilabel) {
    // Labels up to the first negative one.
    const Tensor zero = build.constant(NPU_I64, 0);
    const Tensor given =
        build.cast(build.compare(NPU_COMPARE_GE, index, zero), x.dtype());
    const Tensor valid = build.cumprod(given, 1);
    index =
        build.where(build.compare(NPU_COMPARE_GE, index, zero), index, zero);
    is_target = build.make(x.dtype(), x.sizes());
    build.fill(is_target, 0);
    build.scatter(NPU_SCATTER_MAX, is_target, index, valid, 1);
    counts = build.mul(
        valid.unsqueeze(2),
        build.affine(is_target, -share, share).unsqueeze(1));
  } else {
    const Tensor others =
        build.affine(one_hot(build, x, index, 1), -share, share);
    counts = others.unsqueeze(1);
    if (weights) {
      const Tensor table = build.cast(weights, x.dtype())
                               .unsqueeze(0)
                               .expand({samples, classes});
      const Tensor own = build.gather(table, index, 1);
      counts = build.mul(counts, own.unsqueeze(2));
    }
  }
  const Tensor won = build.gather(x, index, 1);
  const Tensor excess =
      build.affine(build.sub(x.unsqueeze(1), won.unsqueeze(2)), 1, margin);
  return {index, excess, counts, is_target};
}

Tensor as_rows(Builder& build, const Tensor& x) {
  const std::int64_t classes = x.ndim() == 0 ? 1 : x.size(x.ndim() - 1);
  return build.contiguous(x).reshape({x.numel() / classes, classes});
}

}  // namespace

void margin(Builder& build) {
  const auto attrs = build.attrs<npu_margin_attrs>();
  const bool multilabel = build.call().code == NPU_MARGIN_MULTILABEL_MARGIN;
  const Tensor x = as_rows(build, build.wide(build.in(0)));
  const Pairs pairs = pairs_of(
      build, x, build.in(1), build.in(2), multilabel ? 1 : attrs.margin);
  Tensor z = build.unary(NPU_UNARY_RELU, pairs.excess);
  z = !multilabel && attrs.p == 2 ? build.unary(NPU_UNARY_SQUARE, z) : z;
  const Tensor each =
      build.reduce(NPU_REDUCE_SUM, build.mul(z, pairs.counts), 6);
  if (attrs.reduction == NPU_MARGIN_REDUCTION_NONE) {
    build.copy(build.out(0), each.reshape(build.out(0).sizes()));
  } else {
    const Tensor total = build.reduce(
        attrs.reduction == NPU_MARGIN_REDUCTION_MEAN ? NPU_REDUCE_MEAN
                                                     : NPU_REDUCE_SUM,
        each.reshape({each.numel()}),
        1);
    build.copy(build.out(0), total.reshape(build.out(0).sizes()));
  }
  if (build.out(1)) {
    build.copy(build.out(1), pairs.is_target.reshape(build.out(1).sizes()));
  }
}

void margin_grad(Builder& build) {
  const auto attrs = build.attrs<npu_margin_grad_attrs>();
  const bool multilabel = build.call().code == NPU_MARGIN_MULTILABEL_MARGIN;
  const Tensor x = as_rows(build, build.wide(build.in(1)));
  const Pairs pairs = pairs_of(
      build, x, build.in(2), build.in(3), multilabel ? 1 : attrs.margin);
  const Tensor zero = build.constant(x.dtype(), 0);
  Tensor slope = !multilabel && attrs.p == 2 ? build.affine(pairs.excess, 2, 0)
                                             : build.constant(x.dtype(), 1);
  slope = build.where(
      build.compare(NPU_COMPARE_GT, pairs.excess, zero), slope, zero);
  slope = build.mul(slope, pairs.counts);
  // d gains, t loses.
  const std::int64_t samples = x.size(0);
  const Tensor out = build.make(x.dtype(), x.sizes());
  build.copy(
      out, build.reduce(NPU_REDUCE_SUM, slope, dim_bit(1)).reshape(x.sizes()));
  const Tensor lost =
      build.affine(build.reduce(NPU_REDUCE_SUM, slope, dim_bit(2)), -1, 0);
  build.scatter(
      NPU_SCATTER_ADD,
      out,
      pairs.index,
      lost.reshape({samples, pairs.index.size(1)}),
      1);
  Tensor grad = build.contiguous(build.cast(build.in(0), x.dtype()));
  grad = grad.reshape({grad.numel(), 1});
  Tensor scaled = build.mul(out, grad);
  if (attrs.reduction == NPU_MARGIN_REDUCTION_MEAN) {
    scaled = build.affine(scaled, 1 / static_cast<double>(samples), 0);
  }
  build.copy(build.out(0), scaled.reshape(build.out(0).sizes()));
}

}  // namespace npu::compose
