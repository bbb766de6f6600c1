// SPDX-License-Identifier: Apache-2.0
// Rules of the fused kinds.
#include <cmath>

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

// 1 + erf and 1 + tanh cancel, times the input.
void geglu(Draw& d) {
  const Halved h = draw_halved(d);
  d.cancels(3);
  d.set("out", h.half).set("gelu", h.half).set("in", h.whole);
}

void geglu_grad(Draw& d) {
  const Halved h = draw_halved(d);
  d.set("grad_in", h.whole).set("in", h.whole);
  d.set("grad_out", h.half).set("gelu", h.half);
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

// ---- quantisation ----
//
// Inputs are such that every step is exact: factors are powers of 2 and
// quotients are multiples of 1/8, so that no driver rounds another way.

// A shape, those of its scales, and how many elements in a row have one scale.
struct Scaled {
  Shape in, scales;
  std::int64_t each;
};

Scaled draw_scaled(Draw& d) {
  Scaled s;
  s.in = d.shape(1, 3);
  const std::string code = d.code();
  if (code.ends_with("group")) {
    const std::int64_t groups = d.between(1, 3);
    s.each = d.size() + 1;
    s.in.back() = groups * s.each;
    s.scales = with(s.in, s.in.size() - 1, groups);
    d.attr("group_size", number(s.each));
  } else if (code == "channel") {
    const std::size_t axis = d.dim(s.in);
    d.attr("axis", number(static_cast<std::int64_t>(axis)));
    s.scales = {s.in[axis]};
    s.each = product(
        {s.in.begin() + static_cast<std::ptrdiff_t>(axis) + 1, s.in.end()});
  } else if (code == "dynamic_token") {
    s.scales = without(s.in, s.in.size() - 1);
    s.each = s.in.back();
  } else {
    s.scales = {1};
    s.each = product(s.in);
  }
  return s;
}

std::vector<double> draw_factors(Draw& d, std::int64_t n) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) {
    out.push_back(std::ldexp(1.0, static_cast<int>(d.between(-3, 2))));
  }
  return out;
}

constexpr std::uint64_t kFloats =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16) | NPU_DTYPE_BIT(NPU_F32);

// Whole numbers times the share's factor, with both ends of the range in each
// share: the computed scale is that factor. Now and then a share of zeros.
void draw_dynamic(Draw& d, const Scaled& s, double low, double high) {
  const bool symmetric = d.coin();
  const bool smooths = d.code_is("dynamic_token") && d.coin();
  const auto smooth = draw_factors(d, smooths ? s.each : 0);
  const auto factors = draw_factors(d, product(s.scales));
  std::vector<double> values;
  for (const double factor : factors) {
    const double zero = symmetric ? 0 : number(d.between(-9, 9));
    const bool empty = symmetric && d.between(0, 5) == 0;
    const std::int64_t last = s.each - 1;
    for (std::int64_t i = 0; i < s.each; ++i) {
      const double whole = i == 0      ? high
                           : i == last ? (symmetric ? -high : low)
                                       : number(d.between(-100, 100));
      const double value = empty ? 0 : (whole + zero) * factor;
      values.push_back(
          smooths ? value / smooth.at(static_cast<std::size_t>(i)) : value);
    }
  }
  d.attr("symmetric", symmetric ? 1 : 0);
  d.values("in", values).set("scale_out", s.scales);
  if (!symmetric) {
    d.set("zero_out", s.scales);
  }
  if (smooths) {
    d.set("smooth", {s.each}).values("smooth", smooth).contiguous("smooth");
  }
}

void quantise(Draw& d) {
  const Scaled s = draw_scaled(d);
  const bool dynamic = std::string(d.code()).starts_with("dynamic");
  const bool narrow = !dynamic && d.coin();
  const double low = narrow ? -8 : -128;
  const double high = narrow ? 7 : 127;
  d.attr("low", low).attr("high", high).set("in", s.in).contiguous("in");
  d.dtype("out", NPU_I8).set("out", s.in);
  if (dynamic) {
    if (s.each < 2) {
      d.impossible();
    }
    draw_dynamic(d, s, low, high);
    return;
  }
  std::vector<double> values;
  for (std::int64_t i = 0; i < product(s.in); ++i) {
    values.push_back(number(d.between(-99, 99)) / 8);
  }
  const auto factors = draw_factors(d, product(s.scales));
  d.values("in", values).set("scale", s.scales).values("scale", factors);
  d.contiguous("scale");
  if (d.coin()) {
    std::vector<double> zeros;
    for (std::int64_t i = 0; i < product(s.scales); ++i) {
      zeros.push_back(number(d.between(-5, 5)));
    }
    d.set("zero", s.scales).values("zero", zeros).contiguous("zero");
  }
}

void dequantise(Draw& d) {
  Scaled s;
  const bool products = d.code_is("product");
  if (products) {
    s.in = d.shape(2, 3);
    s.scales = {d.coin() ? s.in.back() : 1};
  } else {
    s = draw_scaled(d);
  }
  const npu_dtype dtype = d.one_of("out", kFloats);
  const auto give = [&](const char* name, const Shape& sizes) {
    d.dtype(name, dtype).set(name, sizes);
  };
  give("out", s.in);
  d.set("in", s.in);
  give("scale", s.scales);
  if (d.coin()) {
    give("zero", s.scales);
  }
  if (d.coin()) {
    give("bias", {s.in.back()});
  }
  if (products && d.coin()) {
    give("token_scale", {product(s.in) / s.in.back()});
  }
  d.terms(3);
}

// ---- decoding ----

void paged_attention(Draw& d) {
  const std::int64_t batch = d.between(1, 3);
  const std::int64_t kv_heads = d.between(1, 3);
  const std::int64_t heads = kv_heads * d.between(1, 3);
  const std::int64_t width = d.between(1, 9);
  const std::int64_t block = d.between(1, 5);
  const std::int64_t most = d.between(1, 4);  // blocks of a sequence
  const std::int64_t blocks = batch * most + 1;
  const Shape cache{blocks, block, kv_heads, width};
  d.set("out", {batch, heads, width}).set("q", {batch, heads, width});
  d.set("key_cache", cache).set("value_cache", cache);
  d.maybe("lse", {batch, heads});
  d.set("block_table", {batch, most});
  d.range("block_table", 0, number(blocks - 1));
  d.set("lengths", {batch}).range("lengths", 0, number(most * block));
  d.attr("block_size", number(block)).attr("max_length", number(most * block));
  d.attr("scale", 1 / std::sqrt(number(width)));
  d.attr("softcap", d.coin() ? 2 : 0).attr("window", number(d.between(0, 6)));
  d.terms(most * block * width);
}

constexpr Rule kRows[] = {
    {"swiglu", swiglu},
    {"swiglu_grad", swiglu_grad},
    {"geglu", geglu},
    {"geglu_grad", geglu_grad},
    {"rotary", rotary},
    {"rotary_grad", rotary_grad},
    {"add_rms_norm", add_rms_norm},
    {"add_rms_norm_grad", add_rms_norm_grad},
    {"moe_gating", moe_gating},
    {"moe_route", moe_route},
    {"gemm_grouped", gemm_grouped},
    {"quantise", quantise},
    {"dequantise", dequantise},
    {"paged_attention", paged_attention},
};

}  // namespace

const std::span<const Rule> kFusedRules = kRows;

}  // namespace npu::kit
