// SPDX-License-Identifier: Apache-2.0
// Rules of the losses.
#include <algorithm>

#include "rules.h"

namespace npu::kit {
namespace {

enum Reduction { kNone, kMean, kSum };

struct Classes {
  Shape in, target;
  std::int64_t classes;
  Reduction reduction;
  Shape out() const {
    return reduction == kNone ? target : Shape{};
  }
};

Classes draw_classes(Draw& d) {
  Classes c;
  const std::int64_t n = d.between(1, 5);
  c.classes = d.between(2, 6);
  const Shape rest = d.shape(0, 2);
  c.in = Shape{n, c.classes} + rest;
  c.target = Shape{n} + rest;
  c.reduction = static_cast<Reduction>(d.between(0, 2));
  d.attr("reduction", c.reduction)
      .attr("ignore_index", number(d.between(-1, 0)));
  d.terms(product(c.in));
  return c;
}

void nll(Draw& d) {
  const Classes c = draw_classes(d);
  d.set("out", c.out()).set("total_weight", {}).set("in", c.in);
  d.dtype("target", NPU_I64).set("target", c.target);
  d.range("target", 0, number(c.classes - 1)).maybe("weight", {c.classes});
  d.range("weight", 0.5, 2);
}

void nll_grad(Draw& d) {
  const Classes c = draw_classes(d);
  d.set("grad_in", c.in).set("grad_out", c.out()).set("total_weight", {});
  d.dtype("target", NPU_I64).set("target", c.target);
  d.range("target", 0, number(c.classes - 1)).maybe("weight", {c.classes});
  d.range("weight", 0.5, 2).range("total_weight", 1, 5);
}

void cross_entropy_target(Draw& d, const Classes& c) {
  if (d.code_is("index")) {
    d.dtype("target", NPU_I64).set("target", c.target);
    d.range("target", 0, number(c.classes - 1));
  } else {
    d.set("target", c.in).range("target", 0, 1);
  }
  d.attr("label_smoothing", d.coin() ? 0.125 : 0);
  d.maybe("weight", {c.classes}).range("weight", 0.5, 2);
}

void cross_entropy(Draw& d) {
  const Classes c = draw_classes(d);
  d.set("out", c.out()).set("in", c.in);
  stats(d, "lse", c.target);
  cross_entropy_target(d, c);
}

void cross_entropy_grad(Draw& d) {
  const Classes c = draw_classes(d);
  d.set("grad_in", c.in).set("grad_out", c.out()).set("in", c.in);
  stats(d, "lse", c.target).range("lse", 1, 4);
  cross_entropy_target(d, c);
  stats(d, "total_weight", {}).range("total_weight", 1, 5);
}

void loss_inputs(Draw& d, const Shape& sizes) {
  const std::string code = d.code();
  d.set("in", sizes).set("target", sizes).attr("a", 0.75);
  d.terms(product(sizes));
  if (code == "bce") {
    d.range("in", 0.1, 0.9).range("target", 0, 1);
  } else if (code == "bce_logits" || code == "kl") {
    d.range("target", 0.05, 1);
  } else if (code == "kl_log_target") {
    d.range("target", -3, 0);
  }
  if (code.starts_with("bce")) {
    d.maybe("weight", sizes);
  }
}

void loss(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::int64_t reduction = d.between(0, 2);
  loss_inputs(d, sizes);
  d.attr("reduction", number(reduction));
  d.set("out", reduction == kNone ? sizes : Shape{});
}

void loss_grad(Draw& d) {
  const Shape sizes = d.shape(1, 3);
  const std::int64_t reduction = d.between(0, 2);
  loss_inputs(d, sizes);
  d.attr("reduction", number(reduction)).set("grad_in", sizes);
  d.set("grad_out", reduction == kNone ? sizes : Shape{});
}

// ---- margins ----

// Targets of multilabel_margin: some classes, then -1; and which they are.
void multilabel(Draw& d, const Shape& sizes, const char* saved) {
  std::vector<double> targets;
  std::vector<double> is_target;
  const std::int64_t n = sizes[0];
  const std::int64_t classes = sizes[1];
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t count = d.between(0, classes);
    for (std::int64_t c = 0; c < classes; ++c) {
      targets.push_back(c < count ? number(classes - 1 - c) : -1);
      is_target.push_back(c >= classes - count ? 1 : 0);
    }
  }
  d.set("target", sizes).contiguous("target").values("target", targets);
  d.set("is_target", sizes).contiguous("is_target");
  if (saved) {
    d.values(saved, is_target);
  }
}

void margin_inputs(Draw& d, const char* result, const char* saved) {
  const std::int64_t n = d.between(1, 4);
  const std::int64_t classes = d.between(2, 5);
  const std::int64_t reduction = d.between(0, 2);
  d.set("in", {n, classes}).attr("p", number(d.between(1, 2)));
  d.attr("margin", 1).attr("reduction", number(reduction));
  d.terms(classes * classes * n);
  if (d.code_is("multi_margin")) {
    d.set("target", {n}).range("target", 0, number(classes - 1));
    d.maybe("weight", {classes});
  } else {
    multilabel(d, {n, classes}, saved);
  }
  d.set(result, reduction == kNone ? Shape{n} : Shape{});
}

void margin(Draw& d) {
  margin_inputs(d, "out", nullptr);
}

void margin_grad(Draw& d) {
  margin_inputs(d, "grad_out", "is_target");
  d.set("grad_in", d.sizes("in"));
}

// ---- connectionist temporal classification ----

struct Sequence {
  std::int64_t steps, samples, classes, labels;
};

Sequence ctc_inputs(Draw& d) {
  const Sequence q{
      d.between(3, 6), d.between(1, 3), d.between(2, 4), d.between(1, 2)};
  d.set("log_probs", {q.steps, q.samples, q.classes});
  d.range("log_probs", -3, -0.1).attr("blank", 0).terms(q.steps * 8);
  d.set("targets", {q.samples, q.labels});
  d.range("targets", 1, number(q.classes - 1));
  d.set("input_lengths", {q.samples});
  d.range("input_lengths", number(q.steps), number(q.steps));
  d.set("target_lengths", {q.samples});
  d.range("target_lengths", 1, number(q.labels));
  // Logarithms of sums: absolute errors of numbers up to 3 per step.
  d.cancels(number(3 * q.steps));
  return q;
}

void ctc(Draw& d) {
  const Sequence q = ctc_inputs(d);
  d.set("out", {q.samples});
  d.set("log_alpha", {q.samples, q.steps, 2 * q.labels + 1});
}

void ctc_grad(Draw& d) {
  const Sequence q = ctc_inputs(d);
  d.set("grad_in", {q.steps, q.samples, q.classes});
  d.set("grad_out", {q.samples}).set("losses", {q.samples});
  d.set("log_alpha", {q.samples, q.steps, 2 * q.labels + 1});
  // Any numbers do: the kernel takes both as they are.
  d.range("losses", 1, 3).range("log_alpha", -6, -1);
}

constexpr Rule kRules[] = {
    {"nll", nll},
    {"nll_grad", nll_grad},
    {"cross_entropy", cross_entropy},
    {"cross_entropy_grad", cross_entropy_grad},
    {"loss", loss},
    {"loss_grad", loss_grad},
    {"margin", margin},
    {"margin_grad", margin_grad},
    {"ctc", ctc},
    {"ctc_grad", ctc_grad},
};

}  // namespace

const std::span<const Rule> kLossRules = kRules;

}  // namespace npu::kit
