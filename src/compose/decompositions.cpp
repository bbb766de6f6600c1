// SPDX-License-Identifier: Apache-2.0
// Moves, weight norm and losses, made of other kinds.
#include "compose/decompositions.h"

#include <limits>

namespace npu::compose {

// Index n - 1 .. 0 along each dimension, one after the other.
void flip(Builder& build) {
  const Tensor out = build.out(0);
  // A tensor without dimensions is flipped along its dimension 0 too.
  const std::uint64_t dims = build.attrs<npu_flip_attrs>().dims & all_dims(out);
  Tensor from = build.in(0);
  if (dims == 0) {
    build.copy(out, from);
  }
  for (int d = 0; d < out.ndim(); ++d) {
    if ((dims & dim_bit(d)) == 0) {
      continue;
    }
    const bool last = (dims >> d) == 1;
    const Tensor to = last ? out : build.make(out.dtype(), out.sizes());
    const Tensor index = build.range(out.size(d), out.size(d) - 1, -1);
    build.index_select(to, from, index, d);
    from = to;
  }
}

// Two copies per axis.
void roll(Builder& build) {
  const auto attrs = build.attrs<npu_roll_attrs>();
  const Tensor out = build.out(0);
  Tensor from = build.in(0);
  if (attrs.n == 0) {
    build.copy(out, from);
  }
  for (std::int64_t i = 0; i < attrs.n; ++i) {
    const auto d = static_cast<int>(attrs.axes[i]);
    const std::int64_t size = out.size(d);
    const std::int64_t shift = (attrs.shifts[i] % size + size) % size;
    const bool last = i + 1 == attrs.n;
    const Tensor to = last ? out : build.make(out.dtype(), out.sizes());
    build.copy(
        to.slice(d, shift, size - shift), from.slice(d, 0, size - shift));
    if (shift != 0) {
      build.copy(to.slice(d, 0, shift), from.slice(d, size - shift, shift));
    }
    from = to;
  }
}

// The place where each element would go in the sorted test elements: it is one
// of them when it equals what is there.
void isin(Builder& build) {
  const auto attrs = build.attrs<npu_isin_attrs>();
  const Tensor out = build.out(0);
  const Tensor elements = build.contiguous(build.in(0));
  const Tensor test = build.contiguous(build.in(1));
  const std::int64_t n = elements.numel();
  const std::int64_t tests = test.numel();
  if (tests == 0) {
    build.fill(out, attrs.invert != 0 ? 1 : 0);
    return;
  }
  const Tensor sorted = build.make(test.dtype(), {tests});
  build.sort(sorted, test.reshape({tests}));
  const Tensor flat = elements.reshape({n});
  const Tensor place = build.searchsorted(sorted, flat);
  const Tensor inside = build.make(NPU_I64, {n});
  const npu_scalar last = whole_number(tests - 1);
  build.unary_with(NPU_UNARY_WITH_CLAMP, inside, place, npu_scalar{}, last);
  const Tensor found = build.gather(sorted, inside, 0);
  const Tensor equal = build.compare(
      attrs.invert != 0 ? NPU_COMPARE_NE : NPU_COMPARE_EQ, found, flat);
  build.copy(out, equal.reshape(out.sizes()));
}

// ---- weight norm ----

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

// ---- elementwise losses ----

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

// ---- margin losses ----

namespace {

// 1 at the index along dim, 0 elsewhere, in the sizes of x.
Tensor one_hot(Builder& build, const Tensor& x, const Tensor& index, int dim) {
  const Tensor out = build.make(x.dtype(), x.sizes());
  build.fill(out, 0);
  build.scatter(NPU_SCATTER_SET, out, index, build.constant(x.dtype(), 1), dim);
  return out;
}

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
  const std::int64_t samples = x.ndim() == 2 ? x.size(0) : 1;
  return build.contiguous(x).reshape({samples, classes});
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
