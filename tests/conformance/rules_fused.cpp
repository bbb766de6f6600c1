// SPDX-License-Identifier: Apache-2.0
// Rules of the fused kinds.
#include "rules.h"

namespace npu::kit {
namespace {

// ---- gates ----

// A shape with two halves along `dim`, and the one of a half.
struct Halved {
  Shape whole, half;
};

Halved draw_halved(Draw& d) {
  const Shape half = d.shape(1, 4);
  const std::size_t dim = d.dim(half);
  d.attr("dim", number(static_cast<std::int64_t>(dim)));
  return {with(half, dim, 2 * half[dim]), half};
}

void swiglu(Draw& d) {
  const Halved h = draw_halved(d);
  d.set("out", h.half).set("in", h.whole);
}

void swiglu_grad(Draw& d) {
  const Halved h = draw_halved(d);
  d.set("grad_in", h.whole).set("in", h.whole).set("grad_out", h.half);
  d.terms(3);
}

// ---- rotary ----

// Sizes of the input, and of the angles: fewer dimensions in front, 1 for some.
struct Turned {
  Shape in, angle;
};

Turned draw_turned(Draw& d) {
  const std::int64_t parts = d.code_is("quarter") ? 4 : 2;
  Turned t;
  t.in = d.shape(1, 3) + Shape{parts * d.between(1, 4)};
  const auto front = static_cast<std::ptrdiff_t>(d.between(0, 2));
  const auto most = std::ssize(t.in) - 1;
  t.angle.assign(t.in.begin() + std::min(front, most), t.in.end());
  for (std::size_t i = 0; i + 1 < t.angle.size(); ++i) {
    t.angle[i] = d.coin() ? 1 : t.angle[i];
  }
  d.range("cos", -1, 1).range("sin", -1, 1);
  d.set("in", t.in).set("cos", t.angle).set("sin", t.angle);
  return t;
}

void rotary(Draw& d) {
  d.set("out", draw_turned(d).in).terms(2);
}

void rotary_grad(Draw& d) {
  const Turned t = draw_turned(d);
  d.set("grad_in", t.in).set("grad_out", t.in);
  d.set("grad_cos", t.angle).set("grad_sin", t.angle);
  d.terms(product(t.in));
}

// ---- norms of sums ----

void add_rms_norm(Draw& d) {
  const Shape sizes = d.shape(0, 3) + Shape{d.between(2, 9)};
  Shape statistic = sizes;
  statistic.back() = 1;
  d.set("out", sizes).set("sum", sizes);
  // Whose sums are exact: they are rounded before they are normed.
  for (const char* const name : {"in", "residual"}) {
    std::vector<double> quarters;
    for (std::int64_t i = 0; i < product(sizes); ++i) {
      quarters.push_back(number(d.between(-12, 12)) / 4);
    }
    d.set(name, sizes).values(name, quarters).contiguous(name);
  }
  d.set("weight", {sizes.back()}).attr("eps", 1e-3).terms(sizes.back());
  stats(d, "rstd", statistic);
}

void add_rms_norm_grad(Draw& d) {
  const Shape sizes = d.shape(0, 3) + Shape{d.between(2, 9)};
  Shape statistic = sizes;
  statistic.back() = 1;
  d.set("grad_in", sizes).set("grad_weight", {sizes.back()});
  d.set("grad_out", sizes).maybe("grad_sum", sizes).set("sum", sizes);
  stats(d, "rstd", statistic).range("rstd", 0.5, 2);
  d.set("weight", {sizes.back()}).terms(product(sizes));
}

// ---- experts ----

void moe_gating(Draw& d) {
  const std::int64_t tokens = d.between(1, 7);
  const std::int64_t groups = d.between(1, 3);
  const std::int64_t each = d.between(1, 4);
  const std::int64_t kept = d.between(1, groups);
  const std::int64_t k = d.between(1, kept * each);
  d.attr("k", number(k)).attr("groups", number(groups));
  d.attr("top_groups", number(kept)).attr("scale", d.coin() ? 1 : 2.5);
  d.set("weights", {tokens, k}).set("experts", {tokens, k});
  d.maybe("rows", {tokens, k}).maybe("scores", {tokens, groups * each});
  d.set("logits", {tokens, groups * each}).maybe("bias", {groups * each});
  d.maybe("finished", {tokens}).terms(groups * each);
}

void moe_route(Draw& d) {
  const std::int64_t tokens = d.between(1, 6);
  const std::int64_t k = d.between(1, 3);
  const std::int64_t width = d.between(1, 9);
  const std::int64_t experts = d.between(1, 5);
  const std::int64_t pairs = tokens * k;
  const Shape by_token{tokens, width};
  const Shape by_pair{pairs, width};
  d.attr("k", number(k))
      .attr("experts_total", number(experts))
      .terms(width + k);
  if (d.code_is("permute")) {
    d.set("in", by_token).set("experts", {tokens, k});
    d.range("experts", 0, number(experts - 1));
    d.set("out", by_pair).maybe("rows", {pairs}).maybe("counts", {experts});
    return;
  }
  const bool spreads = d.code_is("unpermute_grad");
  const bool weighs = !d.code_is("permute_grad") && d.coin();
  d.set("in", spreads ? by_token : by_pair);
  d.set("out", spreads ? by_pair : by_token);
  d.set("rows_in", {pairs}).distinct("rows_in", pairs);
  d.contiguous("rows_in");
  if (weighs) {
    d.set("weights", {tokens, k});
  }
  if (weighs && spreads) {
    d.set("tokens", by_pair).set("grad_weights", {tokens, k});
  }
}

// ---- products in groups ----

void gemm_grouped(Draw& d) {
  const std::int64_t groups = d.between(1, 4);
  const std::int64_t rows = d.between(1, 9);
  const std::int64_t depth = d.between(1, 12);
  const std::int64_t n = d.size();
  const bool by_rows = d.coin();
  std::vector<double> ends;
  std::int64_t last = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    last = d.between(last, by_rows ? rows : depth);
    ends.push_back(number(last));
  }
  d.set("a", {rows, depth}).set("ends", {groups}).values("ends", ends);
  d.contiguous("ends");
  if (by_rows) {
    d.set("out", {rows, n}).set("b", {groups, depth, n});
  } else {
    d.set("out", {groups, rows, n}).set("b", {depth, n});
  }
  d.linear(depth);
}

constexpr Rule kRows[] = {
    {"swiglu", swiglu},
    {"swiglu_grad", swiglu_grad},
    {"rotary", rotary},
    {"rotary_grad", rotary_grad},
    {"add_rms_norm", add_rms_norm},
    {"add_rms_norm_grad", add_rms_norm_grad},
    {"moe_gating", moe_gating},
    {"moe_route", moe_route},
    {"gemm_grouped", gemm_grouped},
};

}  // namespace

const std::span<const Rule> kFusedRules = kRows;

}  // namespace npu::kit
