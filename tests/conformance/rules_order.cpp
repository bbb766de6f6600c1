// SPDX-License-Identifier: Apache-2.0
// Rules of reductions, scans and the order family.
#include <algorithm>
#include <cmath>
#include <limits>

#include "rules.h"

namespace npu::kit {
namespace {

// The output of a reduction over `mask`.
Shape reduced(const Shape& sizes, std::uint64_t mask, bool keep) {
  Shape out;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (((mask >> i) & 1) == 0) {
      out.push_back(sizes[i]);
    } else if (keep) {
      out.push_back(1);
    }
  }
  return out;
}

void reduce(Draw& d) {
  const Shape sizes = d.shape(1, 4);
  const auto all = (std::int64_t{1} << sizes.size()) - 1;
  const std::int64_t mask = d.between(1, all);
  const bool keep = d.coin();
  const Shape out = reduced(sizes, static_cast<std::uint64_t>(mask), keep);
  const std::string code = d.code();
  d.attr("dims", static_cast<double>(mask)).attr("keepdim", keep);
  d.attr("correction", static_cast<double>(d.between(0, 1)));
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double orders[] = {0, 1, 2, 3, kInf, -kInf};
  d.attr("p", orders[d.between(0, 5)]);
  d.set("in", sizes);
  const npu_dtype main = d.main();
  if (code == "any" || code == "all") {
    d.dtype("out", NPU_BOOL);
  } else if (code == "count_nonzero") {
    d.dtype("out", NPU_I64);
  } else if (
      is_complex(main) &&
      (code == "norm" || code == "sum_of_squares" || code.starts_with("var") ||
       code.starts_with("std"))) {
    d.dtype("out", main == NPU_C128 ? NPU_F64 : NPU_F32);
  } else if (
      is_integer(main) &&
      (code == "sum" || code == "prod" || code == "nansum")) {
    d.dtype("out", NPU_I64);
  } else if (
      is_integer(main) && code != "min" && code != "max" && code != "aminmax") {
    d.impossible();
  }
  d.set("out", out);
  if (code == "var_mean" || code == "std_mean" || code == "aminmax") {
    if (code != "aminmax" && is_complex(main)) {
      d.dtype("out2", main);
    }
    d.set("out2", out);
  }
  const std::int64_t terms =
      product(sizes) / std::max<std::int64_t>(1, product(out));
  d.terms(terms);
  if (code == "sum" || code == "mean" || code == "nansum" ||
      code == "nanmean" || code == "sum_of_squares") {
    d.linear(terms);
  }
}

void arg_reduce(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const bool whole =
      !d.code_is("mode") && !d.code_is("kthvalue") && d.between(0, 3) == 0;
  const std::size_t dim = d.dim(sizes);
  const bool keep = !whole && d.coin();
  const Shape out = whole  ? Shape{}
                    : keep ? with(sizes, dim, 1)
                           : without(sizes, dim);
  d.attr("dim", whole ? -1 : static_cast<double>(dim)).attr("keepdim", keep);
  d.attr("k", static_cast<double>(d.between(1, sizes[dim])));
  d.set("in", sizes).set("values", out).set("indices", out);
}

void scan(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::size_t dim = d.dim(sizes);
  d.attr("dim", static_cast<double>(dim)).attr("reverse", 0);
  d.set("in", sizes).set("out", sizes);
  if (d.code_is("cummax") || d.code_is("cummin")) {
    d.set("indices", sizes);
  } else if (d.code_is("cumsum")) {
    d.linear(sizes[dim]);
  } else {
    d.terms(sizes[dim]);
  }
}

void sort(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const bool stable = d.coin();
  d.attr("dim", static_cast<double>(d.dim(sizes))).attr("stable", stable);
  d.set("in", sizes).set("values", sizes);
  if (stable) {
    // Which of equal values comes first is settled only then.
    d.set("indices", sizes);
  }
}

void topk(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::size_t dim = d.dim(sizes);
  const std::int64_t k = d.between(1, sizes[dim]);
  const Shape out = with(sizes, dim, k);
  d.attr("dim", static_cast<double>(dim)).attr("sorted", 1);
  d.attr("k", static_cast<double>(k)).set("in", sizes).set("values", out);
  if (d.main() == NPU_F32 || d.main() == NPU_F64) {
    d.set("indices", out);  // no two values are equal
  }
}

void unique(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const bool flat = d.coin();
  const std::size_t dim = d.dim(sizes);
  const bool inverse = d.coin();
  const bool counts = d.coin();
  d.attr("dim", flat ? -1 : static_cast<double>(dim)).attr("sorted", 1);
  d.attr("with_inverse", inverse).attr("with_counts", counts);
  d.set("in", sizes).set("total", {});
  if (is_integer(d.main())) {
    d.range("in", 0, d.main() == NPU_BOOL ? 1 : 3);
  }
  const npu_dtype main = d.main();
  d.sized([=](Case& c, std::int64_t total) {
    const auto give = [&](const char* name, npu_dtype dtype, const Shape& s) {
      Operand& each = c.operand(name);
      each.dtype = dtype;
      each.sizes = s;
      each.strides = contiguous_strides(s);
    };
    give("values", main, flat ? Shape{total} : with(sizes, dim, total));
    if (inverse) {
      give("inverse", NPU_I64, flat ? sizes : Shape{sizes[dim]});
    }
    if (counts) {
      give("counts", NPU_I64, {total});
    }
  });
}

void searchsorted(Draw& d) {
  const std::int64_t n = d.between(1, 8);
  const Shape sizes = d.shape(0, 2);
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < n; ++i) {
    numbers.push_back(std::floor(d.real(0, 8)));
  }
  std::sort(numbers.begin(), numbers.end());
  d.set("out", sizes).set("sorted", {n}).set("values", sizes);
  d.contiguous("sorted").values("sorted", numbers).range("values", 0, 8);
}

void histogram(Draw& d) {
  const Shape sizes = d.shape(1, 2);
  const std::int64_t bins = d.between(1, 6);
  d.attr("bins", static_cast<double>(bins)).attr("low", -2).attr("high", 2);
  d.set("in", sizes).set("out", {bins}).maybe("weights", sizes);
  d.attr("density", 0).terms(product(sizes));
  if (d.code_is("edges")) {
    std::vector<double> edges;
    for (std::int64_t i = 0; i <= bins; ++i) {
      edges.push_back(static_cast<double>(i) - 2);
    }
    d.set("edges", {bins + 1}).contiguous("edges").values("edges", edges);
  }
}

void bincount(Draw& d) {
  const Shape sizes = {d.between(1, 20)};
  const std::int64_t least = d.between(0, 8);
  const bool weighted = d.coin();
  d.attr("minlength", static_cast<double>(least)).set("total", {});
  d.set("in", sizes).range("in", 0, 6);
  if (weighted) {
    d.dtype("weights", NPU_F64).set("weights", sizes);
  }
  d.terms(sizes[0]).sized([=](Case& c, std::int64_t total) {
    Operand& out = c.operand("out");
    out.dtype = weighted ? NPU_F64 : NPU_I64;
    out.sizes = {total};
    out.strides = {1};
  });
}

void isin(Draw& d) {
  const Shape sizes = d.shape(0, 3);
  d.set("out", sizes).set("elements", sizes).set("test", {d.size()});
  d.attr("assume_unique", 0);
  const double high = d.main() == NPU_BOOL ? 1 : 5;
  d.range("elements", 0, high).range("test", 0, high);
}

constexpr Rule kRules[] = {
    {"reduce", reduce},
    {"arg_reduce", arg_reduce},
    {"scan", scan},
    {"sort", sort},
    {"topk", topk},
    {"unique", unique},
    {"searchsorted", searchsorted},
    {"histogram", histogram},
    {"bincount", bincount},
    {"isin", isin},
};

}  // namespace

const std::span<const Rule> kOrderRules = kRules;

}  // namespace npu::kit
