// SPDX-License-Identifier: Apache-2.0
// Rules of the kinds that move elements: move, make, index, embed.
#include <algorithm>

#include "rules.h"

namespace npu::kit {
namespace {

// ---- move, make ----

void copy(Draw& d) {
  const Shape sizes = d.shape(0, 4);
  d.set("out", sizes).set("in", sizes);
}

void fill(Draw& d) {
  d.set("out", d.shape(0, 4)).attr("value", d.main() == NPU_BOOL ? 1 : 2.5);
}

void cat(Draw& d) {
  const Shape sizes = d.shape(1, 4);
  const std::size_t dim = d.dim(sizes);
  std::vector<Shape> pieces;
  std::int64_t total = 0;
  for (std::int64_t i = d.between(1, 4); i > 0; --i) {
    pieces.push_back(with(sizes, dim, d.size()));
    total += pieces.back()[dim];
  }
  d.attr("dim", number(static_cast<std::int64_t>(dim)));
  d.set("out", with(sizes, dim, total)).list("in", pieces);
}

void pad_sizes(Draw& d, const char* in_name, const char* out_name) {
  Shape in = d.shape(1, 4);
  const auto n = static_cast<std::size_t>(
      d.between(1, std::min<std::int64_t>(3, std::ssize(in))));
  Shape out = in;
  Shape before(n);
  Shape after(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t dim = in.size() - n + i;
    const std::int64_t most = d.code_is("reflect") ? in[dim] - 1 : in[dim];
    before[i] = d.between(0, std::min<std::int64_t>(most, 3));
    after[i] = d.between(0, std::min<std::int64_t>(most, 3));
    if (d.code_is("constant") && in[dim] > 2 && d.coin()) {
      before[i] = -1;
    }
    out[dim] += before[i] + after[i];
  }
  d.attr("n", number(std::ssize(before)));
  d.array("before", before).array("after", after);
  d.set(out_name, out).set(in_name, in);
}

void pad(Draw& d) {
  pad_sizes(d, "in", "out");
}

void pad_grad(Draw& d) {
  pad_sizes(d, "grad_in", "grad_out");
  d.linear(27);
}

void flip(Draw& d) {
  const Shape sizes = d.shape(1, 4);
  d.attr("dims", number(d.between(0, (std::int64_t{1} << sizes.size()) - 1)));
  d.set("out", sizes).set("in", sizes);
}

void roll(Draw& d) {
  const Shape sizes = d.shape(1, 4);
  Shape axes;
  Shape shifts;
  for (std::int64_t i = 0; i < std::ssize(sizes); ++i) {
    if (i == 0 || d.coin()) {
      axes.push_back(i);
      shifts.push_back(d.between(-7, 7));
    }
  }
  d.attr("n", number(std::ssize(axes)));
  d.array("axes", axes).array("shifts", shifts);
  d.set("out", sizes).set("in", sizes);
}

void triangle(Draw& d) {
  const Shape sizes = d.shape(2, 4);
  d.attr("diagonal", number(d.between(-4, 4)));
  d.set("out", sizes).set("in", sizes);
}

void repeat_interleave(Draw& d) {
  d.set("repeats", {d.size()}).range("repeats", 0, 4).set("total", {});
  const npu_dtype dtype = d.natural("repeats");
  d.sized([dtype](Case& c, std::int64_t total) {
    Operand& out = c.operand("out");
    out.dtype = dtype;
    out.sizes = {total};
    out.strides = {1};
  });
}

void range(Draw& d) {
  const std::int64_t count = d.between(1, 12);
  if (d.main() == NPU_BOOL) {
    d.impossible();
  }
  d.set("out", {count}).attr("count", number(count)).attr("start", 1);
  d.attr("step", 2).attr("base", 2);
  d.attr("end", d.code_is("logspace") ? 5 : 9);
}

void eye(Draw& d) {
  d.set("out", d.shape(2, 2));
}

void indices(Draw& d) {
  const std::int64_t rows = d.size();
  const std::int64_t cols = d.size();
  const std::int64_t offset = d.between(-2, 2);
  std::int64_t n = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      n += d.code_is("tril") ? c - r <= offset : c - r >= offset;
    }
  }
  if (n == 0) {
    d.impossible();
  }
  d.attr("rows", number(rows)).attr("cols", number(cols));
  d.attr("offset", number(offset)).set("out", {2, n});
}

// ---- index ----

// Sizes of an index into `sizes`: no larger, except along dim.
Shape index_sizes(Draw& d, const Shape& sizes, std::size_t dim) {
  Shape out = sizes;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = d.between(1, i == dim ? sizes[i] : sizes[i]);
  }
  return out;
}

void gather(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::size_t dim = d.dim(sizes);
  const Shape index = index_sizes(d, sizes, dim);
  d.attr("dim", number(static_cast<std::int64_t>(dim))).set("in", sizes);
  d.set("out", index)
      .set("index", index)
      .range("index", 0, number(sizes[dim] - 1));
}

void scatter(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::size_t dim = sizes.size() - 1;
  const Shape index = index_sizes(d, sizes, dim);
  const bool one = d.between(0, 3) == 0 && d.allowed("src") != 0;
  d.attr("dim", number(static_cast<std::int64_t>(dim))).set("out", sizes);
  d.set("index", index).set("src", index);
  if (d.code_is("set")) {
    d.attr("include_self", 1);
    d.contiguous("index").distinct("index", sizes[dim]);
  } else {
    d.range("index", 0, number(sizes[dim] - 1));
  }
  if (one && d.code_is("set")) {
    d.host_scalar("src");
  }
  d.terms(sizes[dim] + 1);
}

// Which dimensions are indexed: [first, last).
struct Indexed {
  Shape sizes;
  std::size_t first;
  std::size_t last;
  Shape index;
};

Indexed draw_indexed(Draw& d, bool one_dim) {
  Indexed out;
  out.sizes = d.shape(1, 3);
  out.first = d.dim(out.sizes);
  out.last = one_dim ? out.first + 1
                     : static_cast<std::size_t>(d.between(
                           static_cast<std::int64_t>(out.first) + 1,
                           std::ssize(out.sizes)));
  out.index =
      one_dim ? Shape{d.between(1, out.sizes[out.first])} : d.shape(1, 2);
  return out;
}

Shape taken(const Indexed& x) {
  const auto at = [&](std::size_t i) {
    return x.sizes.begin() + static_cast<std::ptrdiff_t>(i);
  };
  return Shape(x.sizes.begin(), at(x.first)) + x.index +
         Shape(at(x.last), x.sizes.end());
}

void index_lists(Draw& d, const Indexed& x) {
  std::int64_t least = x.sizes[x.first];
  std::vector<Shape> rows(x.sizes.size());
  for (std::size_t i = x.first; i < x.last; ++i) {
    least = std::min(least, x.sizes[i]);
    rows[i] = x.index;
  }
  d.attr("dim", number(static_cast<std::int64_t>(x.first)));
  d.list("indices", rows).range("indices", 0, number(least - 1));
  d.keep("indices", x.first, x.last);
}

void index(Draw& d) {
  const Indexed x = draw_indexed(d, false);
  d.set("in", x.sizes).set("out", taken(x));
  index_lists(d, x);
}

void index_put(Draw& d) {
  const bool set = d.code_is("set");
  const Indexed x = draw_indexed(d, set);
  d.set("out", x.sizes).set("values", taken(x));
  index_lists(d, x);
  if (set) {
    d.contiguous("indices").distinct("indices", x.sizes[x.first]);
  }
  d.terms(product(x.index) + 1);
}

void index_select(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::size_t dim = d.dim(sizes);
  const std::int64_t n = d.size();
  d.attr("dim", number(static_cast<std::int64_t>(dim))).set("in", sizes);
  d.set("out", with(sizes, dim, n)).set("index", {n});
  d.range("index", 0, number(sizes[dim] - 1));
}

void index_update(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::size_t dim = d.dim(sizes);
  const std::int64_t n = d.between(1, sizes[dim]);
  d.attr("dim", number(static_cast<std::int64_t>(dim))).set("out", sizes);
  d.set("index", {n}).set("source", with(sizes, dim, n)).terms(n + 1);
  if (d.code_is("fill")) {
    d.host_scalar("source").range("index", 0, number(sizes[dim] - 1));
  } else if (d.code_is("copy")) {
    d.contiguous("index").distinct("index", sizes[dim]);
  } else {
    d.range("index", 0, number(sizes[dim] - 1));
  }
}

void take(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const Shape index = d.shape(0, 2);
  const std::int64_t n = product(sizes);
  d.set("in", sizes).set("out", index).set("index", index);
  d.range("index", number(-n), number(n - 1));
}

void put(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::int64_t n = product(sizes);
  const Shape index = {d.between(1, n)};
  d.set("out", sizes).set("index", index).set("source", index).terms(n);
  if (d.code_is("set")) {
    d.contiguous("index").distinct("index", n);
  } else {
    d.range("index", number(-n), number(n - 1));
  }
}

void masked_select(Draw& d) {
  const Shape sizes = d.shape(0, 3);
  d.set("in", sizes).set("mask", sizes).set("total", {});
  const npu_dtype main = d.main();
  d.sized([main](Case& c, std::int64_t total) {
    Operand& out = c.operand("out");
    out.dtype = main;
    out.sizes = {total};
    out.strides = {1};
  });
}

void masked_scatter(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  d.set("out", sizes).set("mask", sizes);
  d.set("source", {product(sizes) + d.between(0, 3)});
}

void nonzero(Draw& d) {
  const Shape sizes = d.shape(0, 3);
  d.set("in", sizes).set("total", {});
  d.range("in", 0, 1);
  const std::int64_t dims = std::ssize(sizes);
  if (dims == 0) {
    d.impossible();
  }
  d.sized([dims](Case& c, std::int64_t total) {
    Operand& out = c.operand("out");
    out.dtype = NPU_I64;
    out.sizes = {total, dims};
    out.strides = {dims, 1};
  });
}

// ---- embed ----

void embedding_grad(Draw& d) {
  const std::int64_t n = d.between(1, 10);
  const std::int64_t rows = d.size();
  const std::int64_t width = d.size();
  d.set("grad_weight", {rows, width}).set("grad_out", {n, width});
  d.set("indices", {n}).range("indices", 0, number(rows - 1));
  d.attr("padding_index", number(d.between(-1, rows - 1))).linear(n);
}

std::vector<double> offsets(Draw& d, std::int64_t bags, std::int64_t n) {
  std::vector<double> out(static_cast<std::size_t>(bags));
  for (std::size_t i = 1; i < out.size(); ++i) {
    out[i] = number(d.between(0, n));
  }
  std::sort(out.begin(), out.end());
  out[0] = 0;
  return out;
}

void embedding_bag(Draw& d) {
  const std::int64_t n = d.between(1, 10);
  const std::int64_t rows = d.size();
  const std::int64_t width = d.size();
  const std::int64_t bags = d.between(1, 4);
  d.set("out", {bags, width}).set("weight", {rows, width});
  d.set("indices", {n}).range("indices", 0, number(rows - 1));
  d.set("offsets", {bags}).contiguous("offsets");
  d.dtype("offsets", d.natural("indices"))
      .values("offsets", offsets(d, bags, n));
  if (d.code_is("sum")) {
    d.maybe("sample_weights", {n});
  }
  d.attr("padding_index", -1).attr("include_last_offset", 0).terms(n);
}

void embedding_bag_grad(Draw& d) {
  const std::int64_t n = d.between(1, 10);
  const std::int64_t rows = d.size();
  const std::int64_t width = d.size();
  const std::int64_t bags = d.between(1, 4);
  d.set("grad_out", {bags, width}).set("indices", {n});
  d.range("indices", 0, number(rows - 1)).attr("padding_index", -1);
  // Bags are runs of indices; each knows its size.
  std::vector<double> bag_of;
  std::vector<double> sizes(static_cast<std::size_t>(bags));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t bag = i * bags / n;
    bag_of.push_back(number(bag));
    sizes[static_cast<std::size_t>(bag)] += 1;
  }
  const npu_dtype index = d.natural("indices");
  d.dtype("offset2bag", index).set("offset2bag", {n}).contiguous("offset2bag");
  d.values("offset2bag", bag_of);
  d.dtype("bag_size", index).set("bag_size", {bags}).contiguous("bag_size");
  d.values("bag_size", sizes);
  if (d.code_is("sample_weights")) {
    d.set("grad", {n}).set("weight", {rows, width}).linear(width);
    return;
  }
  d.set("grad", {rows, width}).linear(n);
  if (d.code_is("max")) {
    d.dtype("max_indices", index).set("max_indices", {bags, width});
    d.range("max_indices", 0, number(rows - 1)).attr("scale_by_frequency", 0);
  } else if (d.code_is("sum")) {
    d.maybe("sample_weights", {n});
  }
}

void embedding_renorm(Draw& d) {
  const std::int64_t rows = d.size();
  const std::int64_t width = d.size();
  const std::int64_t n = d.size();
  d.set("weight", {rows, width}).set("indices", {n});
  d.range("indices", 0, number(rows - 1)).terms(width);
  d.attr("max_norm", 1).attr("norm_type", number(d.between(1, 2)));
}

constexpr Rule kRules[] = {
    {"copy", copy},
    {"fill", fill},
    {"cat", cat},
    {"pad", pad},
    {"pad_grad", pad_grad},
    {"flip", flip},
    {"roll", roll},
    {"triangle", triangle},
    {"repeat_interleave", repeat_interleave},
    {"range", range},
    {"eye", eye},
    {"indices", indices},
    {"gather", gather},
    {"scatter", scatter},
    {"index", index},
    {"index_put", index_put},
    {"index_select", index_select},
    {"index_update", index_update},
    {"take", take},
    {"put", put},
    {"masked_select", masked_select},
    {"masked_scatter", masked_scatter},
    {"nonzero", nonzero},
    {"embedding_grad", embedding_grad},
    {"embedding_bag", embedding_bag},
    {"embedding_bag_grad", embedding_bag_grad},
    {"embedding_renorm", embedding_renorm},
};

}  // namespace

const std::span<const Rule> kIndexRules = kRules;

}  // namespace npu::kit
