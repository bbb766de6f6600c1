// SPDX-License-Identifier: Apache-2.0
// Rules of the kinds that layers are made of: gemm, conv, pool, resize,
// normalise, recurrent, attention, lists of parameters.
#include <algorithm>
#include <cmath>

#include "rules.h"

namespace npu::kit {
namespace {

// ---- gemm ----

void gemm(Draw& d) {
  const Shape batch = d.shape(0, 2);
  const std::int64_t m = d.size();
  const std::int64_t n = d.size();
  const std::int64_t k = d.between(1, 40);
  const Shape out = batch + Shape{m, n};
  d.set("out", out).set("a", batch + Shape{m, k}).set("b", batch + Shape{k, n});
  d.maybe("c", out).maybe("bias", {n});
  d.attr("epilogue", 0).attr("alpha", 2).attr("beta", 1).linear(k);
}

void dot(Draw& d) {
  const std::int64_t n = d.between(1, 60);
  d.set("out", {}).set("a", {n}).set("b", {n}).linear(n);
}

// ---- windows: conv, pool, im2col ----

struct Window {
  std::int64_t spatial;
  Shape in, kernel, stride, padding, dilation;

  std::int64_t out(std::size_t i) const {
    const std::int64_t reach = dilation[i] * (kernel[i] - 1) + 1;
    return (in[i] + 2 * padding[i] - reach) / stride[i] + 1;
  }
  Shape outs() const {
    Shape sizes;
    for (std::size_t i = 0; i < in.size(); ++i) {
      sizes.push_back(out(i));
    }
    return sizes;
  }
};

Window draw_window(Draw& d, std::int64_t spatial, bool half_padding) {
  Window w{spatial, {}, {}, {}, {}, {}};
  for (std::int64_t i = 0; i < spatial; ++i) {
    w.kernel.push_back(d.between(1, 3));
    w.stride.push_back(d.between(1, 2));
    w.dilation.push_back(half_padding ? 1 : d.between(1, 2));
    w.padding.push_back(d.between(0, half_padding ? w.kernel.back() / 2 : 2));
    w.in.push_back(w.dilation.back() * (w.kernel.back() - 1) + d.between(1, 5));
  }
  return w;
}

Shape filled(Shape sizes, std::int64_t rest) {
  sizes.resize(3, rest);
  return sizes;
}

void window_attrs(Draw& d, const Window& w) {
  d.attr("spatial", number(w.spatial)).array("kernel", filled(w.kernel, 1));
  d.array("stride", filled(w.stride, 1)).array("padding", filled(w.padding, 0));
  d.array("dilation", filled(w.dilation, 1));
}

struct Conv {
  Shape in, weight, out;
  std::int64_t channels_out;
  std::int64_t terms;
};

Conv draw_conv(Draw& d) {
  const Window w = draw_window(d, d.between(1, 3), false);
  const std::int64_t groups = d.between(1, 2);
  const std::int64_t n = d.between(1, 2);
  const std::int64_t in = groups * d.between(1, 3);
  const std::int64_t out = groups * d.between(1, 3);
  const bool transposed = d.coin();
  d.attr("spatial", number(w.spatial)).array("stride", filled(w.stride, 1));
  d.array("padding", filled(w.padding, 0));
  d.array("dilation", filled(w.dilation, 1));
  d.array("output_padding", {0, 0, 0}).attr("groups", number(groups));
  d.attr("transposed", transposed);
  Conv c;
  c.channels_out = transposed ? in : out;
  // A transposed convolution maps the outputs of the plain one to its inputs.
  const Shape small = Shape{n, out} + w.outs();
  Shape large = Shape{n, in} + w.in;
  for (std::size_t i = 0; i < w.in.size(); ++i) {
    if (transposed) {
      large[i + 2] = (small[i + 2] - 1) * w.stride[i] - 2 * w.padding[i] +
                     w.dilation[i] * (w.kernel[i] - 1) + 1;
      if (large[i + 2] < 1) {
        d.impossible();
        large[i + 2] = 1;
      }
    }
  }
  c.in = transposed ? small : large;
  c.out = transposed ? large : small;
  c.weight = Shape{out, in / groups} + w.kernel;
  c.terms = product(c.weight) + product(c.out);
  return c;
}

void conv(Draw& d) {
  const Conv c = draw_conv(d);
  d.set("out", c.out).set("in", c.in).set("weight", c.weight);
  d.maybe("bias", {c.channels_out}).linear(c.terms);
}

void conv_grad_input(Draw& d) {
  const Conv c = draw_conv(d);
  d.set("grad_in", c.in).set("grad_out", c.out).set("weight", c.weight);
  d.linear(c.terms);
}

void conv_grad_weight(Draw& d) {
  const Conv c = draw_conv(d);
  d.set("grad_weight", c.weight).set("grad_out", c.out).set("in", c.in);
  d.maybe("grad_bias", {c.channels_out}).linear(c.terms);
}

struct Pool {
  Shape in, out;
  bool with_indices;
};

Pool draw_pool(Draw& d) {
  const Window w = draw_window(d, d.between(1, 3), true);
  const Shape front = {d.between(1, 2), d.between(1, 3)};
  const std::string code = d.code();
  Shape out = w.outs();
  window_attrs(d, w);
  d.attr("divisor", 0).attr("ceil_mode", 0);
  if (code.starts_with("adaptive")) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = d.between(1, w.in[i]);
    }
  }
  d.terms(product(w.kernel) * 8);
  return {front + w.in, front + out, code.find("max") != std::string::npos};
}

void pool(Draw& d) {
  const Pool p = draw_pool(d);
  d.set("out", p.out).set("in", p.in);
  if (p.with_indices) {
    d.set("indices", p.out);
  }
}

void pool_grad(Draw& d) {
  const Pool p = draw_pool(d);
  d.set("grad_in", p.in).set("grad_out", p.out).set("in", p.in);
  if (p.with_indices) {
    const Shape plane(p.in.begin() + 2, p.in.end());
    d.set("indices", p.out).range("indices", 0, number(product(plane) - 1));
  }
}

void fractional(Draw& d, bool backward) {
  const std::int64_t spatial = d.between(2, 3);
  const Shape front = {d.between(1, 2), d.between(1, 2)};
  const auto n = static_cast<std::size_t>(spatial);
  const Shape in = front + Shape(n, 6);
  const Shape out = front + Shape(n, 3);
  d.attr("spatial", number(spatial)).array("kernel", filled(Shape(n, 2), 1));
  if (backward) {
    d.set("grad_in", in).set("grad_out", out).set("indices", out);
    d.range("indices", 0, number(spatial == 2 ? 35 : 215)).terms(27);
  } else {
    d.set("out", out).set("indices", out).set("in", in);
    d.set("samples", front + Shape{spatial}).range("samples", 0, 0.99);
  }
}

void fractional_pool(Draw& d) {
  fractional(d, false);
}

void fractional_pool_grad(Draw& d) {
  fractional(d, true);
}

void unpool(Draw& d) {
  const Shape front = {d.between(1, 2), d.between(1, 2)};
  const std::int64_t n = d.size();
  d.attr("spatial", 2).set("out", front + Shape{3, 4});
  d.set("in", front + Shape{1, n}).set("indices", front + Shape{1, n});
  d.contiguous("indices").distinct("indices", 12);
}

void columns(Draw& d, const char* image, const char* column) {
  const Window w = draw_window(d, 2, false);
  const std::int64_t n = d.between(1, 2);
  const std::int64_t c = d.between(1, 3);
  window_attrs(d, w);
  d.set(image, Shape{n, c} + w.in);
  d.set(column, {n, c * product(w.kernel), product(w.outs())});
  d.linear(9);
}

void im2col(Draw& d) {
  columns(d, "in", "out");
}

void col2im(Draw& d) {
  columns(d, "out", "in");
}

// ---- resize ----

// The weights of a cubic are sums of numbers up to 4 that cancel.
constexpr double kCubic = 4 * 3;

void resize(Draw& d, const char* small, const char* large) {
  const std::string code = d.code();
  const std::int64_t spatial = code == "linear"              ? 1
                               : code == "trilinear"         ? 3
                               : code.starts_with("nearest") ? d.between(1, 3)
                                                             : 2;
  Shape in = {d.between(1, 2), d.between(1, 2)};
  Shape out = in;
  for (std::int64_t i = 0; i < spatial; ++i) {
    in.push_back(d.between(1, 5));
    // Powers of two: where a nearest neighbour lies is then no question of
    // rounding.
    out.push_back(in.back() << d.between(0, 1));
  }
  d.attr("spatial", number(spatial)).reals("scales", {0, 0, 0});
  if (code.starts_with("nearest")) {
    d.attr("align_corners", 0);
  }
  const bool may = code == "bilinear" || code == "bicubic" || code == "lanczos";
  d.attr("antialias", may && (code == "lanczos" || d.coin()));
  if (code == "lanczos") {
    d.attr("align_corners", 0);
  }
  d.set(small, in).set(large, out).linear(64);
  if (code == "bicubic" || code == "lanczos") {
    d.cancels(kCubic);
  }
}

void upsample(Draw& d) {
  resize(d, "in", "out");
}

void upsample_grad(Draw& d) {
  resize(d, "grad_in", "grad_out");
}

struct Grid {
  Shape in, grid, out;
};

Grid draw_grid(Draw& d) {
  const std::int64_t spatial = d.code_is("bicubic") ? 2 : d.between(2, 3);
  Grid g{{d.between(1, 2), d.between(1, 2)}, {}, {}};
  g.grid = {g.in[0]};
  g.out = g.in;
  for (std::int64_t i = 0; i < spatial; ++i) {
    g.in.push_back(d.size());
    g.grid.push_back(d.between(1, 3));
    g.out.push_back(g.grid.back());
  }
  g.grid.push_back(spatial);
  d.attr("spatial", number(spatial)).range("grid", -1.2, 1.2).terms(16);
  // Weights are differences of coordinates, which are up to the size.
  d.cancels(d.code_is("bicubic") ? kCubic : 6);
  return g;
}

void grid_sample(Draw& d) {
  const Grid g = draw_grid(d);
  d.set("out", g.out).set("in", g.in).set("grid", g.grid);
}

void grid_sample_grad(Draw& d) {
  const Grid g = draw_grid(d);
  d.set("grad_in", g.in).set("grad_grid", g.grid).set("grad_out", g.out);
  d.set("in", g.in).set("grid", g.grid);
}

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
    {"gemm", gemm},
    {"dot", dot},
    {"conv", conv},
    {"conv_grad_input", conv_grad_input},
    {"conv_grad_weight", conv_grad_weight},
    {"pool", pool},
    {"pool_grad", pool_grad},
    {"fractional_pool", fractional_pool},
    {"fractional_pool_grad", fractional_pool_grad},
    {"unpool", unpool},
    {"im2col", im2col},
    {"col2im", col2im},
    {"upsample", upsample},
    {"upsample_grad", upsample_grad},
    {"grid_sample", grid_sample},
    {"grid_sample_grad", grid_sample_grad},
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
