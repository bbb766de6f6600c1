// SPDX-License-Identifier: Apache-2.0
// moe_gating and moe_route.
//
// A pair is a token's choice of an expert: pair p is choice p % k of token
// p / k. Its place is where sorting by expert, stable, puts it.
#include <algorithm>

#include "compose/decompositions.h"

namespace npu::compose {
namespace {

Tensor scores_of(Builder& build, const Tensor& logits, std::uint32_t score) {
  if (score == NPU_MOE_GATING_SCORE_SIGMOID) {
    return build.unary(NPU_UNARY_SIGMOID, logits);
  }
  const Tensor sums = build.reduce(NPU_REDUCE_LOGSUMEXP, logits, dim_bit(1));
  return build.unary(NPU_UNARY_EXP, build.sub(logits, sums));
}

// Experts of groups that are not among the best count as minus infinity. A
// group counts by its best expert.
Tensor in_best_groups(
    Builder& build,
    const Tensor& choice,
    std::int64_t groups,
    std::int64_t kept) {
  if (groups <= 1 || kept >= groups) {
    return choice;
  }
  const std::int64_t tokens = choice.size(0);
  const Tensor grouped = build.contiguous(choice).split(1, groups);
  const Tensor best = build.reduce(NPU_REDUCE_MAX, grouped, dim_bit(2))
                          .reshape({tokens, groups});
  const Tensor chosen =
      build.contiguous(build.order(best, true).slice(1, 0, kept));
  const Tensor marks = build.make(choice.dtype(), {tokens, groups});
  build.fill(marks, 0);
  const Tensor one = build.constant(choice.dtype(), 1);
  build.scatter(NPU_SCATTER_SET, marks, chosen, one.expand(chosen.sizes()), 1);
  const Tensor seen = build.compare(
      NPU_COMPARE_NE, marks.unsqueeze(2), build.constant(choice.dtype(), 0));
  return build.where(seen, grouped, build.constant(choice.dtype(), kNever))
      .reshape(choice.sizes());
}

// The token of each pair.
Tensor tokens_of(Builder& build, const Tensor& pairs, std::int64_t k) {
  return k == 1 ? pairs
                : build.binary(
                      NPU_BINARY_DIV_FLOOR,
                      pairs,
                      build.constant(pairs.dtype(), static_cast<double>(k)));
}

Tensor rows_at(Builder& build, const Tensor& x, const Tensor& index) {
  Sizes sizes = x.sizes();
  sizes[0] = index.size(0);
  const Tensor out = build.make(x.dtype(), sizes);
  build.index_select(out, x, index, 0);
  return out;
}

// Weights of pairs, one per row.
Tensor weights_at(Builder& build, const Tensor& weights, const Tensor& pairs) {
  const Tensor flat = build.contiguous(build.wide(weights));
  return rows_at(build, flat.reshape({flat.numel()}), pairs).unsqueeze(1);
}

void permute(Builder& build, const npu_moe_route_attrs& attrs) {
  const Tensor out = build.out(0);
  const Tensor experts = build.contiguous(build.in(1));
  const Tensor flat = experts.reshape({experts.numel()});
  const Tensor order = build.order(flat, false);
  const Tensor tokens = tokens_of(build, order, attrs.k);
  build.index_select(out, build.in(0), tokens.slice(0, 0, out.size(0)), 0);
  if (build.out(1)) {
    build.copy(build.out(1), order);
  }
  if (const Tensor counts = build.out(2)) {
    build.fill(counts, 0);
    const Tensor one = build.constant(counts.dtype(), 1);
    build.scatter(NPU_SCATTER_ADD, counts, build.cast(flat, NPU_I64), one, 0);
  }
}

// out[token] = sum over its choices of weight * in[place].
void gather_rows(Builder& build, const npu_moe_route_attrs& attrs) {
  const Tensor out = build.out(0);
  const Tensor in = build.wide(build.in(0));
  const Tensor given = build.cast(build.in(2), NPU_I64);
  const std::int64_t held = std::min(in.size(0), given.size(0));
  const Tensor pairs = given.slice(0, 0, held);
  Tensor rows = in.slice(0, 0, held);
  if (build.in(3)) {
    rows = build.mul(
        rows, build.cast(weights_at(build, build.in(3), pairs), in.dtype()));
  }
  const Tensor sums = build.make(in.dtype(), out.sizes());
  build.fill(sums, 0);
  build.index_update(
      NPU_INDEX_UPDATE_ADD, sums, tokens_of(build, pairs, attrs.k), rows);
  build.copy(out, sums);
}

// `in` is the gradient of the tokens; out that of the rows.
void spread_rows(Builder& build, const npu_moe_route_attrs& attrs) {
  const Tensor out = build.out(0);
  const Tensor grad = build.wide(build.in(0));
  const Tensor given = build.cast(build.in(2), NPU_I64);
  const std::int64_t held = std::min(out.size(0), given.size(0));
  const Tensor pairs = given.slice(0, 0, held);
  const Tensor rows = rows_at(build, grad, tokens_of(build, pairs, attrs.k));
  if (held < out.size(0)) {
    build.fill(out.slice(0, held, out.size(0) - held), 0);
  }
  Tensor spread = rows;
  if (build.in(3)) {
    spread = build.mul(
        rows, build.cast(weights_at(build, build.in(3), pairs), rows.dtype()));
  }
  build.copy(out.slice(0, 0, held), spread);
  if (const Tensor weights = build.out(3)) {
    const Tensor tokens = build.wide(build.in(4)).slice(0, 0, held);
    const Tensor dots =
        build.reduce(NPU_REDUCE_SUM, build.mul(rows, tokens), dim_bit(1));
    const Tensor flat = build.make(rows.dtype(), {weights.numel()});
    build.fill(flat, 0);
    build.scatter(NPU_SCATTER_SET, flat, pairs, dots.reshape({held}), 0);
    build.copy(weights, flat.reshape(weights.sizes()));
  }
}

}  // namespace

void moe_gating(Builder& build) {
  const auto attrs = build.attrs<npu_moe_gating_attrs>();
  const Tensor given = build.contiguous(build.wide(build.in(0)));
  const std::int64_t n = given.size(given.ndim() - 1);
  const std::int64_t tokens = given.numel() / n;
  const Tensor own = scores_of(build, given.reshape({tokens, n}), attrs.score);
  Tensor choice = own;
  if (build.in(1)) {
    choice = build.add(choice, build.cast(build.in(1), own.dtype()));
  }
  choice = in_best_groups(build, choice, attrs.groups, attrs.top_groups);
  const Tensor chosen =
      build.contiguous(build.order(choice, true).slice(1, 0, attrs.k));
  Tensor weights = build.gather(own, chosen, 1);
  if (attrs.renormalise != 0) {
    weights =
        build.div(weights, build.reduce(NPU_REDUCE_SUM, weights, dim_bit(1)));
  }
  weights = build.affine(weights, attrs.scale, 0);
  build.copy(build.out(0), weights.reshape(build.out(0).sizes()));
  Tensor experts = chosen;
  if (build.in(2)) {
    const Tensor done = build.contiguous(build.in(2)).reshape({tokens, 1});
    experts = build.where(
        done, build.constant(NPU_I64, static_cast<double>(n)), chosen);
  }
  build.copy(build.out(1), experts.reshape(build.out(1).sizes()));
  if (build.out(2)) {
    const Tensor rows = build.contiguous(build.range(tokens * attrs.k, 0, 1)
                                             .reshape({attrs.k, tokens})
                                             .transpose(0, 1));
    build.copy(build.out(2), rows.reshape(build.out(2).sizes()));
  }
  if (build.out(3)) {
    build.copy(build.out(3), own.reshape(build.out(3).sizes()));
  }
}

void moe_route(Builder& build) {
  const auto attrs = build.attrs<npu_moe_route_attrs>();
  switch (build.call().code) {
    case NPU_MOE_ROUTE_PERMUTE:
      return permute(build, attrs);
    case NPU_MOE_ROUTE_UNPERMUTE_GRAD:
      return spread_rows(build, attrs);
    default:
      return gather_rows(build, attrs);
  }
}

}  // namespace npu::compose
