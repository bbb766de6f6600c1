// SPDX-License-Identifier: Apache-2.0
// Rules of the kinds that layers are made of: normalise, recurrent, attention,
// lists of parameters.
#include "rules.h"

namespace npu::kit {
namespace {

// ---- normalise ----

void softmax(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::size_t dim = d.dim(sizes);
  d.attr("dim", number(static_cast<std::int64_t>(dim))).set("out", sizes);
  d.set("in", sizes).terms(sizes[dim]);
  if (d.code_is("masked")) {
    d.set("mask", sizes);
  }
}

void softmax_grad(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::size_t dim = d.dim(sizes);
  d.attr("dim", number(static_cast<std::int64_t>(dim))).set("grad_in", sizes);
  d.set("grad_out", sizes).set("output", sizes).terms(sizes[dim]);
  d.range("output", d.code_is("log") ? -3 : 0, d.code_is("log") ? 0 : 1);
  if (d.code_is("masked")) {
    d.set("mask", sizes);
  }
}

struct Rows {
  Shape sizes, tail, stats;
};

Rows draw_rows(Draw& d) {
  Rows r{d.shape(2, 3), {}, {}};
  const auto axes = static_cast<std::size_t>(d.between(1, 2));
  const std::size_t front = r.sizes.size() - axes;
  r.stats = r.sizes;
  for (std::size_t i = front; i < r.sizes.size(); ++i) {
    r.sizes[i] += 1;  // a row of one has no deviation
    r.tail.push_back(r.sizes[i]);
    r.stats[i] = 1;
  }
  d.attr("axes", number(std::ssize(r.tail))).terms(product(r.tail));
  return r;
}

void layer_norm(Draw& d) {
  const Rows r = draw_rows(d);
  d.set("out", r.sizes).set("in", r.sizes).attr("eps", 1e-5);
  d.maybe("weight", r.tail).maybe("bias", r.tail);
  stats(d, "mean", r.stats);
  stats(d, "rstd", r.stats);
}

void layer_norm_grad(Draw& d) {
  const Rows r = draw_rows(d);
  d.set("grad_in", r.sizes).set("grad_out", r.sizes).set("in", r.sizes);
  stats(d, "mean", r.stats).range("mean", -1, 1);
  stats(d, "rstd", r.stats).range("rstd", 0.5, 2);
  d.set("weight", r.tail).set("grad_weight", r.tail).set("grad_bias", r.tail);
  d.terms(product(r.sizes));
}

void rms_norm(Draw& d) {
  const Rows r = draw_rows(d);
  d.set("out", r.sizes).set("in", r.sizes).attr("eps", 1e-5);
  d.maybe("weight", r.tail);
  stats(d, "rstd", r.stats);
}

void rms_norm_grad(Draw& d) {
  const Rows r = draw_rows(d);
  d.set("grad_in", r.sizes).set("grad_out", r.sizes).set("in", r.sizes);
  stats(d, "rstd", r.stats).range("rstd", 0.5, 2);
  d.set("weight", r.tail).set("grad_weight", r.tail);
  d.terms(product(r.sizes));
}

struct Groups {
  Shape sizes, channels, stats;
};

Groups draw_groups(Draw& d) {
  const std::int64_t groups = d.between(1, 3);
  const std::int64_t n = d.between(1, 3);
  const std::int64_t c = groups * d.between(1, 3);
  d.attr("groups", number(groups));
  Groups g{Shape{n, c} + Shape{d.between(2, 5)}, {c}, {n, groups}};
  d.terms(product(g.sizes));
  return g;
}

void group_norm(Draw& d) {
  const Groups g = draw_groups(d);
  d.set("out", g.sizes).set("in", g.sizes).attr("eps", 1e-5);
  d.maybe("weight", g.channels).maybe("bias", g.channels);
  stats(d, "mean", g.stats);
  stats(d, "rstd", g.stats);
}

void group_norm_grad(Draw& d) {
  const Groups g = draw_groups(d);
  d.set("grad_in", g.sizes).set("grad_out", g.sizes).set("in", g.sizes);
  stats(d, "mean", g.stats).range("mean", -1, 1);
  stats(d, "rstd", g.stats).range("rstd", 0.5, 2);
  d.set("weight", g.channels).set("grad_weight", g.channels);
  d.set("grad_bias", g.channels);
}

Shape batch_sizes(Draw& d) {
  const Shape sizes = Shape{d.between(2, 4), d.between(1, 4)} + d.shape(0, 2);
  d.terms(product(sizes));
  return sizes;
}

void batch_norm_stats(Draw& d) {
  const Shape sizes = batch_sizes(d);
  const Shape c = {sizes[1]};
  d.attr("eps", 1e-5).attr("momentum", 0.125);
  stats(d, "mean", c);
  stats(d, "rstd", c);
  if (d.code_is("gather")) {
    const std::int64_t batches = d.between(1, 3);
    stats(d, "means", {batches, sizes[1]});
    stats(d, "rstds", {batches, sizes[1]}).range("rstds", 0.5, 2);
    stats(d, "counts", {batches}).range("counts", 2, 9);
    return;
  }
  stats(d, "var", c);
  d.set("in", sizes);
  stats(d, "running_mean", c);
  stats(d, "running_var", c).range("running_var", 0.5, 2);
}

void batch_norm_apply(Draw& d) {
  const Shape sizes = batch_sizes(d);
  const Shape c = {sizes[1]};
  d.attr("eps", 1e-5).set("out", sizes).set("in", sizes);
  stats(d, "mean", c).range("mean", -1, 1);
  stats(d, "scale", c).range("scale", 0.5, 2);
  if (d.coin()) {
    d.set("weight", c).set("bias", c);
  }
}

void batch_norm_grad_reduce(Draw& d) {
  const Shape sizes = batch_sizes(d);
  const Shape c = {sizes[1]};
  d.set("grad_out", sizes).set("in", sizes);
  stats(d, "mean", c).range("mean", -1, 1);
  stats(d, "rstd", c).range("rstd", 0.5, 2);
  stats(d, "sum_grad", c);
  stats(d, "sum_grad_in", c);
  d.set("grad_weight", c).set("grad_bias", c);
}

void batch_norm_grad_apply(Draw& d) {
  const Shape sizes = batch_sizes(d);
  const Shape c = {sizes[1]};
  d.set("grad_in", sizes).set("grad_out", sizes).set("in", sizes);
  stats(d, "mean", c).range("mean", -1, 1);
  stats(d, "rstd", c).range("rstd", 0.5, 2);
  d.maybe("weight", c);
  if (d.code_is("train")) {
    stats(d, "sum_grad", c);
    stats(d, "sum_grad_in", c);
  }
}

void batch_norm(Draw& d) {
  const Shape sizes = batch_sizes(d);
  const Shape c = {sizes[1]};
  d.attr("eps", 1e-5).attr("momentum", 0.125);
  d.set("out", sizes).set("in", sizes).maybe("weight", c).maybe("bias", c);
  if (d.code_is("eval")) {
    stats(d, "mean_in", c).range("mean_in", -1, 1);
    stats(d, "var_in", c).range("var_in", 0.5, 2);
    return;
  }
  stats(d, "mean", c);
  stats(d, "rstd", c);
  stats(d, "running_mean", c);
  stats(d, "running_var", c).range("running_var", 0.5, 2);
}

void batch_norm_grad(Draw& d) {
  const Shape sizes = batch_sizes(d);
  const Shape c = {sizes[1]};
  d.set("grad_in", sizes).set("grad_out", sizes).set("in", sizes);
  stats(d, "mean", c).range("mean", -1, 1);
  stats(d, "rstd", c).range("rstd", 0.5, 2);
  d.maybe("weight", c).set("grad_weight", c).set("grad_bias", c);
}

void weight_norm_sizes(Draw& d, Shape& sizes, Shape& g) {
  sizes = d.shape(2, 3);
  // PyTorch keeps the norm over the first or the last dimension.
  const std::size_t dim = d.coin() ? 0 : sizes.size() - 1;
  g = with(Shape(sizes.size(), 1), dim, sizes[dim]);
  d.attr("dim", number(static_cast<std::int64_t>(dim)));
  d.terms(product(sizes));
}

void weight_norm(Draw& d) {
  Shape sizes, g;
  weight_norm_sizes(d, sizes, g);
  d.set("out", sizes).set("v", sizes).set("g", g);
  stats(d, "norms", g);
}

void weight_norm_grad(Draw& d) {
  Shape sizes, g;
  weight_norm_sizes(d, sizes, g);
  d.set("grad_v", sizes).set("grad_g", g).set("grad_out", sizes);
  d.set("v", sizes).set("g", g);
  stats(d, "norms", g).range("norms", 1, 4);
}

// ---- recurrent ----

void cell(Draw& d, std::int64_t gates, const char* state) {
  const std::int64_t n = d.between(1, 4);
  const std::int64_t hidden = d.between(1, 6);
  const Shape all = {n, gates * hidden};
  d.set("input_gates", all).set("hidden_gates", all).set("hy", {n, hidden});
  d.set(state, {n, hidden});
  if (d.coin()) {
    d.set("input_bias", {gates * hidden}).set("hidden_bias", {gates * hidden});
  }
}

void lstm_cell(Draw& d) {
  cell(d, 4, "cx");
  const Shape state = d.sizes("cx");
  d.set("cy", state).set("saved", {state[0], 4 * state[1]});
}

void gru_cell(Draw& d) {
  cell(d, 3, "hx");
  const Shape state = d.sizes("hx");
  d.set("saved", {state[0], 5 * state[1]});
}

void lstm_cell_grad(Draw& d) {
  const std::int64_t n = d.between(1, 4);
  const std::int64_t hidden = d.between(1, 6);
  const Shape state = {n, hidden};
  d.set("grad_gates", {n, 4 * hidden}).set("grad_cx", state);
  d.set("grad_hy", state).maybe("grad_cy", state).set("cx", state);
  d.set("cy", state).set("saved", {n, 4 * hidden}).range("saved", 0.1, 0.9);
  d.terms(n).cancels(3);  // 1 - tanh squared, times the gradient
}

void gru_cell_grad(Draw& d) {
  const std::int64_t n = d.between(1, 4);
  const std::int64_t hidden = d.between(1, 6);
  d.set("grad_input_gates", {n, 3 * hidden});
  d.set("grad_hidden_gates", {n, 3 * hidden}).set("grad_hx", {n, hidden});
  d.set("grad_hy", {n, hidden}).set("saved", {n, 5 * hidden});
  d.range("saved", 0.1, 0.9).terms(n);
}

// ---- attention ----

struct Heads {
  Shape q, k, v, out, lse, mask;
};

Heads draw_heads(Draw& d) {
  const std::int64_t b = d.between(1, 2);
  const std::int64_t shared = d.between(1, 2);
  const std::int64_t h = shared * d.between(1, 2);
  const std::int64_t rows = d.between(1, 5);
  const std::int64_t columns = d.between(1, 7);
  const std::int64_t width = d.between(1, 6);
  d.attr("scale", 0.5).attr("dropout", 0).attr("softcap", 0).attr("layout", 0);
  d.attr("window_left", -1).attr("window_right", -1);
  d.attr("max_q", number(rows)).attr("max_k", number(columns));
  if (columns < rows) {
    d.attr("causal", 0);  // a row without columns has no answer
  }
  d.terms(columns * width);
  return {
      {b, h, rows, width},
      {b, shared, columns, width},
      {b, shared, columns, width},
      {b, h, rows, width},
      {b, h, rows},
      {b, h, rows, columns}};
}

void attention(Draw& d) {
  const Heads h = draw_heads(d);
  d.set("out", h.out).set("lse", h.lse).set("q", h.q).set("k", h.k);
  d.set("v", h.v).maybe("mask", h.mask);
}

void attention_grad(Draw& d) {
  const Heads h = draw_heads(d);
  d.set("grad_q", h.q).set("grad_k", h.k).set("grad_v", h.v);
  d.set("grad_out", h.out).set("q", h.q).set("k", h.k).set("v", h.v);
  d.set("output", h.out).set("lse", h.lse).range("lse", 4, 8);
  d.range("q", -1, 1).range("k", -1, 1).attr("causal", 0);
}

// ---- lists of parameters ----

void optimizer(Draw& d) {
  std::vector<Shape> sizes;
  for (std::int64_t i = d.between(1, 3); i > 0; --i) {
    sizes.push_back(d.shape(1, 2));
  }
  const std::vector<Shape> steps(sizes.size());
  d.list("params", sizes).list("grads", sizes);
  d.attr("lr", 0.125).attr("beta1", 0.875).attr("beta2", 0.96875);
  d.attr("eps", 1e-3).attr("weight_decay", 0.0625).attr("lr_decay", 0.125);
  d.attr("momentum", 0.5).attr("dampening", 0.125).attr("nesterov", 0);
  d.attr("amsgrad", 0).attr("first_step", 0);
  if (!d.code_is("adagrad") && d.main() == NPU_F64) {
    d.attr("maximize", 1);
  }
  d.list("state1", sizes).range("state1", 0.1, 2);
  if (d.code_is("adam") || d.code_is("adamw")) {
    d.list("state2", sizes).range("state2", 0.1, 2);
  }
  if (!d.code_is("sgd")) {
    d.list("steps", steps).dtype("steps", NPU_F32).range("steps", 1, 1);
  }
  d.terms(8);
}

void amp_unscale(Draw& d) {
  d.set("found_inf", {}).range("found_inf", 0, 0);
  d.set("inv_scale", {}).list("grads", {d.shape(1, 2), d.shape(1, 2)});
}

void amp_update_scale(Draw& d) {
  d.set("scale", {}).range("scale", 2, 9).set("growth_tracker", {});
  d.range("growth_tracker", 0, 2).set("found_inf", {});
  d.dtype("found_inf", NPU_F32).range("found_inf", 0, 0);
  d.attr("growth_factor", 2).attr("backoff_factor", 0.5);
  d.attr("growth_interval", 2);
}

constexpr Rule kRules[] = {
    {"softmax", softmax},
    {"softmax_grad", softmax_grad},
    {"layer_norm", layer_norm},
    {"layer_norm_grad", layer_norm_grad},
    {"rms_norm", rms_norm},
    {"rms_norm_grad", rms_norm_grad},
    {"group_norm", group_norm},
    {"group_norm_grad", group_norm_grad},
    {"batch_norm_stats", batch_norm_stats},
    {"batch_norm_apply", batch_norm_apply},
    {"batch_norm_grad_reduce", batch_norm_grad_reduce},
    {"batch_norm_grad_apply", batch_norm_grad_apply},
    {"batch_norm", batch_norm},
    {"batch_norm_grad", batch_norm_grad},
    {"weight_norm", weight_norm},
    {"weight_norm_grad", weight_norm_grad},
    {"lstm_cell", lstm_cell},
    {"gru_cell", gru_cell},
    {"lstm_cell_grad", lstm_cell_grad},
    {"gru_cell_grad", gru_cell_grad},
    {"attention", attention},
    {"attention_grad", attention_grad},
    {"optimizer", optimizer},
    {"amp_unscale", amp_unscale},
    {"amp_update_scale", amp_update_scale},
};

}  // namespace

const std::span<const Rule> kLayerRules = kRules;

}  // namespace npu::kit
