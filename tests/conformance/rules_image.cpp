// SPDX-License-Identifier: Apache-2.0
// Rules of the kinds that move windows over images: conv, pool, resize.
#include "rules.h"

namespace npu::kit {
namespace {

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

constexpr Rule kRules[] = {
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
};

}  // namespace

const std::span<const Rule> kImageRules = kRules;

}  // namespace npu::kit
