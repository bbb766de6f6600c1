// SPDX-License-Identifier: Apache-2.0
// attention, attention_grad and paged_attention, as products of matrices.
//
// Scores are (B, heads of k, group, Sq, Sk): the query heads that share a head
// of k and v stand beside each other. What is declined: packed batches, whose
// lengths only the device knows, and dropout, whose bits no other kind draws.
#include <cmath>

#include "compose/decompositions.h"

namespace npu::compose {
namespace {

struct Parts {
  Tensor q;       // (B, K, G, Sq, D)
  Tensor k;       // (B, K, G, Sk, D)
  Tensor v;       // (B, K, G, Sk, Dv)
  Tensor mask;    // absent, or five dimensions
  Tensor sink;    // absent, or (K, G, 1, 1)
  Tensor scores;  // softcap applied, no mask yet
  Tensor masked;
};

// Heads before rows.
Tensor heads_first(const Tensor& x, std::uint32_t layout) {
  return layout == NPU_ATTENTION_LAYOUT_BSHD ? x.transpose(1, 2) : x;
}

// (B, H, S, D) as (B, K, G, S, D).
Tensor grouped(const Tensor& x, std::int64_t kv_heads) {
  return x.split(1, kv_heads);
}

Tensor shared(const Tensor& x, std::int64_t group) {
  const Tensor five = x.unsqueeze(2);
  Sizes sizes = five.sizes();
  sizes[2] = group;
  return five.expand(sizes);
}

// The mask in five dimensions.
Tensor five_dims(const Tensor& mask, std::int64_t kv_heads) {
  Tensor four = mask;
  while (four.ndim() < 4) {
    four = four.unsqueeze(0);
  }
  return four.size(1) == 1 ? four.unsqueeze(2) : grouped(four, kv_heads);
}

// True where a query sees a key, (Sq, Sk); absent when all see all.
template <class Attrs>
Tensor visible(
    Builder& build, const Attrs& attrs, std::int64_t sq, std::int64_t sk) {
  const bool top_left = attrs.causal == NPU_ATTENTION_CAUSAL_TOP_LEFT;
  const std::int64_t first = top_left ? 0 : sk - sq;
  Tensor seen;
  const auto limit = [&](std::uint32_t code, std::int64_t offset) {
    const Tensor keys = build.range(sk, 0, 1).unsqueeze(0);
    const Tensor bounds = build.range(sq, first + offset, 1).unsqueeze(1);
    const Tensor fits = build.compare(code, keys, bounds);
    if (!seen) {
      seen = fits;
      return;
    }
    const Tensor both = build.make(NPU_BOOL, seen.sizes());
    build.binary(NPU_BINARY_LOGICAL_AND, both, seen, fits);
    seen = both;
  };
  if (attrs.causal != NPU_ATTENTION_CAUSAL_NONE) {
    limit(NPU_COMPARE_LE, 0);
  }
  if (attrs.window_left >= 0) {
    limit(NPU_COMPARE_GE, -attrs.window_left);
  }
  if (attrs.window_right >= 0) {
    limit(NPU_COMPARE_LE, attrs.window_right);
  }
  return seen;
}

// first_in: the place of q among the inputs; mask and sink follow k and v at
// their own places.
template <class Attrs>
Parts parts_of(
    Builder& build,
    const Attrs& attrs,
    std::uint32_t first_in,
    std::uint32_t mask_in,
    std::uint32_t sink_in) {
  if (attrs.dropout != 0 || attrs.layout == NPU_ATTENTION_LAYOUT_PACKED) {
    throw Declined{};
  }
  Parts parts;
  const auto operand = [&](std::uint32_t i) {
    return heads_first(build.wide(build.in(first_in + i)), attrs.layout);
  };
  const Tensor q = operand(0);
  const Tensor k = operand(1);
  const std::int64_t kv_heads = k.size(1);
  const std::int64_t group = q.size(1) / kv_heads;
  parts.q = grouped(q, kv_heads);
  parts.k = shared(k, group);
  parts.v = shared(operand(2), group);
  parts.scores = build.gemm(parts.q, parts.k.transpose(3, 4), attrs.scale);
  if (attrs.softcap > 0) {
    const Tensor bent = build.unary(
        NPU_UNARY_TANH, build.affine(parts.scores, 1 / attrs.softcap, 0));
    parts.scores = build.affine(bent, attrs.softcap, 0);
  }
  const npu_dtype dtype = parts.scores.dtype();
  const Tensor never = build.constant(dtype, kNever);
  parts.masked = parts.scores;
  if (const Tensor seen = visible(build, attrs, q.size(2), k.size(2))) {
    parts.masked = build.where(seen, parts.masked, never);
  }
  if (const Tensor mask = build.in(mask_in)) {
    parts.mask = five_dims(mask, kv_heads);
    parts.masked = mask.dtype() == NPU_BOOL
                       ? build.where(parts.mask, parts.masked, never)
                       : build.add(parts.masked, build.cast(parts.mask, dtype));
  }
  if (const Tensor sink = build.in(sink_in)) {
    parts.sink = build.contiguous(build.cast(sink, dtype))
                     .reshape({kv_heads, group, 1, 1});
  }
  return parts;
}

// exp(scores - lse); 0 where no key is seen.
Tensor probabilities(Builder& build, const Tensor& scores, const Tensor& lse) {
  const npu_dtype dtype = scores.dtype();
  const Tensor p = build.unary(NPU_UNARY_EXP, build.sub(scores, lse));
  const Tensor blind =
      build.compare(NPU_COMPARE_EQ, lse, build.constant(dtype, kNever));
  return build.where(blind, build.constant(dtype, 0), p);
}

// The sum over the group, into an operand of k's or v's shape.
void store_shared(
    Builder& build,
    const Tensor& out,
    const Tensor& sums,
    std::uint32_t layout) {
  const Tensor sum = build.reduce(NPU_REDUCE_SUM, sums, dim_bit(2));
  build.copy(heads_first(out, layout).unsqueeze(2), sum);
}

}  // namespace

void attention(Builder& build) {
  const auto attrs = build.attrs<npu_attention_attrs>();
  const Parts parts = parts_of(build, attrs, 0, 3, 6);
  Tensor lse = build.reduce(NPU_REDUCE_LOGSUMEXP, parts.masked, dim_bit(4));
  if (parts.sink) {
    lse = build.binary(NPU_BINARY_LOGADDEXP, lse, parts.sink);
  }
  const Tensor p = probabilities(build, parts.masked, lse);
  const std::int64_t kv_heads = parts.k.size(1);
  build.copy(
      grouped(heads_first(build.out(0), attrs.layout), kv_heads),
      build.gemm(p, parts.v));
  if (build.out(1)) {
    build.copy(grouped(build.out(1), kv_heads).unsqueeze(4), lse);
  }
}

void attention_grad(Builder& build) {
  const auto attrs = build.attrs<npu_attention_grad_attrs>();
  const Parts parts = parts_of(build, attrs, 1, 6, 9);
  const npu_dtype dtype = parts.scores.dtype();
  const std::int64_t kv_heads = parts.k.size(1);
  const auto operand = [&](std::uint32_t i) {
    return grouped(
        heads_first(build.wide(build.in(i)), attrs.layout), kv_heads);
  };
  const Tensor grad = operand(0);
  const Tensor output = operand(4);
  const Tensor lse =
      grouped(build.cast(build.in(5), dtype), kv_heads).unsqueeze(4);
  const Tensor p = probabilities(build, parts.masked, lse);
  const Tensor delta =
      build.reduce(NPU_REDUCE_SUM, build.mul(grad, output), dim_bit(4));
  Tensor slope =
      build.mul(p, build.sub(build.gemm(grad, parts.v.transpose(3, 4)), delta));
  if (build.out(3)) {
    std::uint64_t dims = 0;
    for (int d = 0; d < 5; ++d) {
      dims |= parts.mask.size(d) == 1 ? dim_bit(d) : 0;
    }
    const Tensor sum =
        dims != 0 ? build.reduce(NPU_REDUCE_SUM, slope, dims) : slope;
    build.copy(five_dims(build.out(3), kv_heads), sum);
  }
  if (build.out(4)) {
    const Tensor share = build.unary(
        NPU_UNARY_EXP, build.affine(build.sub(lse, parts.sink), -1, 0));
    const Tensor sum = build.reduce(
        NPU_REDUCE_SUM,
        build.mul(share, delta),
        dim_bit(0) | dim_bit(3) | dim_bit(4));
    build.copy(
        build.out(4), build.affine(sum, -1, 0).reshape(build.out(4).sizes()));
  }
  if (attrs.softcap > 0) {
    const Tensor bent = build.unary(
        NPU_UNARY_SQUARE, build.affine(parts.scores, 1 / attrs.softcap, 0));
    slope = build.mul(slope, build.affine(bent, -1, 1));
  }
  if (build.out(0)) {
    build.copy(
        grouped(heads_first(build.out(0), attrs.layout), kv_heads),
        build.gemm(slope, parts.k, attrs.scale));
  }
  if (build.out(1)) {
    store_shared(
        build,
        build.out(1),
        build.gemm(slope.transpose(3, 4), parts.q, attrs.scale),
        attrs.layout);
  }
  if (build.out(2)) {
    store_shared(
        build, build.out(2), build.gemm(p.transpose(3, 4), grad), attrs.layout);
  }
}

namespace {

// The rows of a cache that a table names, (B, heads, positions, size). Entries
// behind a sequence's end may be anything.
Tensor pages(Builder& build, const Tensor& cache, const Tensor& table) {
  const std::int64_t batch = table.size(0);
  const std::int64_t n = table.numel();
  const Tensor inside = build.make(table.dtype(), table.sizes());
  build.unary_with(
      NPU_UNARY_WITH_CLAMP,
      inside,
      table,
      whole_number(0),
      whole_number(cache.size(0) - 1));
  const Tensor rows = build.make(
      cache.dtype(), {n, cache.size(1), cache.size(2), cache.size(3)});
  build.index_select(rows, cache, inside.reshape({n}), 0);
  return build
      .wide(rows.reshape(
          {batch, n / batch * cache.size(1), cache.size(2), cache.size(3)}))
      .transpose(1, 2);
}

}  // namespace

// Packed queries, masks and scaled caches are declined.
void paged_attention(Builder& build) {
  const auto attrs = build.attrs<npu_paged_attention_attrs>();
  for (const std::uint32_t i : {5u, 6u, 7u, 8u}) {
    if (build.in(i)) {
      throw Declined{};
    }
  }
  const Tensor q = build.wide(build.in(0));  // (B, H, D)
  const Tensor table = build.contiguous(build.in(3));
  const Tensor k = pages(build, build.in(1), table);
  const std::int64_t kv_heads = k.size(1);
  Tensor scores =
      build.gemm(q.split(1, kv_heads), k.transpose(2, 3), attrs.scale);
  const npu_dtype dtype = scores.dtype();
  if (attrs.softcap > 0) {
    const Tensor bent =
        build.unary(NPU_UNARY_TANH, build.affine(scores, 1 / attrs.softcap, 0));
    scores = build.affine(bent, attrs.softcap, 0);
  }
  const Tensor ends = build.cast(build.in(4), NPU_I64).unsqueeze(1);
  const Tensor places = build.range(k.size(2), 0, 1).unsqueeze(0);
  Tensor seen = build.compare(NPU_COMPARE_LT, places, ends);
  if (attrs.window > 0) {
    const Tensor width =
        build.constant(NPU_I64, static_cast<double>(attrs.window));
    const Tensor late =
        build.compare(NPU_COMPARE_GE, places, build.sub(ends, width));
    const Tensor both = build.make(NPU_BOOL, seen.sizes());
    build.binary(NPU_BINARY_LOGICAL_AND, both, seen, late);
    seen = both;
  }
  const Tensor by_key = seen.unsqueeze(1).unsqueeze(1);  // (B, 1, 1, positions)
  const Tensor masked =
      build.where(by_key, scores, build.constant(dtype, kNever));
  const Tensor lse = build.reduce(NPU_REDUCE_LOGSUMEXP, masked, dim_bit(3));
  // What lies behind the end may be no number.
  const Tensor v = build.where(
      by_key.transpose(2, 3),
      pages(build, build.in(2), table),
      build.constant(dtype, 0));
  build.copy(
      build.out(0).split(1, kv_heads),
      build.gemm(probabilities(build, masked, lse), v));
  if (build.out(1)) {
    build.copy(build.out(1).split(1, kv_heads).unsqueeze(3), lse);
  }
}

}  // namespace npu::compose
