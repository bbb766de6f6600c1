// SPDX-License-Identifier: Apache-2.0
// Plain references of the fused kinds, which no driver computes in float64.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "asked.h"
#include "plain.h"

namespace npu::kit {
namespace {

using Numbers = std::vector<double>;

Numbers zeros(std::int64_t n) {
  return Numbers(static_cast<std::size_t>(n));
}

double& at(Numbers& numbers, std::int64_t i) {
  return numbers.at(static_cast<std::size_t>(i));
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// ---- gates ----

// fn(place of the first half, of the second, of the result) for each element.
template <class Fn>
void each_half(const Shape& whole, std::int64_t dim, Fn fn) {
  std::int64_t inner = 1;
  for (auto d = static_cast<std::size_t>(dim) + 1; d < whole.size(); ++d) {
    inner *= whole[d];
  }
  const std::int64_t half = whole[static_cast<std::size_t>(dim)] / 2 * inner;
  for (std::int64_t i = 0; i < product(whole) / 2; ++i) {
    const std::int64_t first = i / half * 2 * half + i % half;
    fn(first, first + half, i);
  }
}

Outcome swiglu(const Case& value) {
  const Asked asked(value);
  Numbers out = zeros(asked["out"].numel());
  each_half(
      asked["in"].sizes,
      asked.attrs<npu_swiglu_attrs>().dim,
      [&](std::int64_t a, std::int64_t b, std::int64_t i) {
        const double x = asked.at("in", a);
        at(out, i) = x * sigmoid(x) * asked.at("in", b);
      });
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  return outcome;
}

Outcome swiglu_grad(const Case& value) {
  const Asked asked(value);
  Numbers out = zeros(asked["grad_in"].numel());
  each_half(
      asked["in"].sizes,
      asked.attrs<npu_swiglu_grad_attrs>().dim,
      [&](std::int64_t a, std::int64_t b, std::int64_t i) {
        const double x = asked.at("in", a);
        const double s = sigmoid(x);
        const double grad = asked.at("grad_out", i);
        at(out, a) = grad * asked.at("in", b) * s * (1 + x * (1 - s));
        at(out, b) = grad * x * s;
      });
  Outcome outcome;
  add_result(outcome, asked["grad_in"], out);
  return outcome;
}

double gelu_of(std::uint32_t code, double x) {
  const double tangent =
      std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  const bool exact = code == NPU_GEGLU_ERF;
  return x / 2 * (1 + (exact ? std::erf(x / std::sqrt(2)) : tangent));
}

double gelu_slope(std::uint32_t code, double x) {
  if (code == NPU_GEGLU_GRAD_ERF) {
    return (1 + std::erf(x / std::sqrt(2))) / 2 +
           x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  }
  const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  const double outer = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  const double cosine = std::cosh(inner);
  return (1 + std::tanh(inner)) / 2 + x / 2 * outer / (cosine * cosine);
}

Outcome geglu(const Case& value) {
  const Asked asked(value);
  const auto attrs = asked.attrs<npu_geglu_attrs>();
  Numbers out = zeros(asked["out"].numel());
  Numbers gelu = zeros(asked["out"].numel());
  each_half(
      asked["in"].sizes,
      attrs.dim,
      [&](std::int64_t a, std::int64_t b, std::int64_t i) {
        const bool first = attrs.active == NPU_GEGLU_ACTIVE_FIRST;
        at(gelu, i) = gelu_of(asked.code(), asked.at("in", first ? a : b));
        at(out, i) = at(gelu, i) * asked.at("in", first ? b : a);
      });
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  add_result(outcome, asked["gelu"], gelu);
  return outcome;
}

Outcome geglu_grad(const Case& value) {
  const Asked asked(value);
  const auto attrs = asked.attrs<npu_geglu_grad_attrs>();
  Numbers out = zeros(asked["grad_in"].numel());
  each_half(
      asked["in"].sizes,
      attrs.dim,
      [&](std::int64_t a, std::int64_t b, std::int64_t i) {
        const bool first = attrs.active == NPU_GEGLU_GRAD_ACTIVE_FIRST;
        const std::int64_t gate = first ? a : b;
        const std::int64_t other = first ? b : a;
        const double grad = asked.at("grad_out", i);
        at(out, gate) = grad * asked.at("in", other) *
                        gelu_slope(asked.code(), asked.at("in", gate));
        at(out, other) = grad * asked.at("gelu", i);
      });
  Outcome outcome;
  add_result(outcome, asked["grad_in"], out);
  return outcome;
}

// ---- rotary ----

// Place of the angle that turns element i of a tensor of these sizes.
std::int64_t angle_of(const Shape& in, const Shape& angle, std::int64_t i) {
  std::int64_t found = 0;
  std::int64_t stride = 1;
  for (std::size_t d = 1; d <= angle.size(); ++d) {
    const std::int64_t own = angle[angle.size() - d];
    found += (own == 1 ? 0 : i % in[in.size() - d]) * stride;
    i /= in[in.size() - d];
    stride *= own;
  }
  return found;
}

// The element that the sine multiplies for element i, and its sign.
struct Partner {
  std::int64_t place;
  double sign;
};

Partner partner_of(std::uint32_t code, const Shape& in, std::int64_t i) {
  const std::int64_t n = in.back();
  const std::int64_t segment = code == NPU_ROTARY_INTERLEAVE ? 2
                               : code == NPU_ROTARY_QUARTER  ? n / 2
                                                             : n;
  const bool first = i % n % segment < segment / 2;
  return first ? Partner{i + segment / 2, -1} : Partner{i - segment / 2, 1};
}

Outcome rotary(const Case& value) {
  const Asked asked(value);
  const Shape& in = asked["in"].sizes;
  Numbers out = zeros(product(in));
  for (std::int64_t i = 0; i < product(in); ++i) {
    const std::int64_t a = angle_of(in, asked["cos"].sizes, i);
    const Partner other = partner_of(asked.code(), in, i);
    at(out, i) = asked.at("in", i) * asked.at("cos", a) +
                 other.sign * asked.at("in", other.place) * asked.at("sin", a);
  }
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  return outcome;
}

Outcome rotary_grad(const Case& value) {
  const Asked asked(value);
  const Shape& in = asked["in"].sizes;
  Numbers grad_in = zeros(product(in));
  Numbers grad_cos = zeros(asked["cos"].numel());
  Numbers grad_sin = zeros(asked["sin"].numel());
  for (std::int64_t i = 0; i < product(in); ++i) {
    const std::int64_t a = angle_of(in, asked["cos"].sizes, i);
    const Partner other = partner_of(asked.code(), in, i);
    const double grad = asked.at("grad_out", i);
    at(grad_in, i) += grad * asked.at("cos", a);
    at(grad_in, other.place) += grad * other.sign * asked.at("sin", a);
    at(grad_cos, a) += grad * asked.at("in", i);
    at(grad_sin, a) += grad * other.sign * asked.at("in", other.place);
  }
  Outcome outcome;
  add_result(outcome, asked["grad_in"], grad_in);
  add_if(outcome, asked["grad_cos"], grad_cos);
  add_if(outcome, asked["grad_sin"], grad_sin);
  return outcome;
}

// ---- norms of sums ----

Outcome add_rms_norm(const Case& value) {
  const Asked asked(value);
  const std::int64_t n = asked["weight"].numel();
  const std::int64_t rows = asked["in"].numel() / n;
  Numbers out = zeros(rows * n);
  Numbers sum = zeros(rows * n);
  Numbers rstd = zeros(rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::int64_t i = r * n; i < (r + 1) * n; ++i) {
      at(sum, i) = asked.at("in", i) + asked.at("residual", i);
      squares += at(sum, i) * at(sum, i);
    }
    const double mean = squares / static_cast<double>(n);
    at(rstd, r) =
        1 / std::sqrt(mean + asked.attrs<npu_add_rms_norm_attrs>().eps);
    for (std::int64_t i = 0; i < n; ++i) {
      at(out, r * n + i) =
          at(sum, r * n + i) * at(rstd, r) * asked.at("weight", i);
    }
  }
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  add_result(outcome, asked["sum"], sum);
  add_if(outcome, asked["rstd"], rstd);
  return outcome;
}

Outcome add_rms_norm_grad(const Case& value) {
  const Asked asked(value);
  const std::int64_t n = asked["weight"].numel();
  const std::int64_t rows = asked["sum"].numel() / n;
  Numbers grad_in = zeros(rows * n);
  Numbers grad_weight = zeros(n);
  for (std::int64_t r = 0; r < rows; ++r) {
    const double rstd = asked.at("rstd", r);
    double along = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t place = r * n + i;
      along += asked.at("grad_out", place) * asked.at("weight", i) *
               asked.at("sum", place);
      at(grad_weight, i) +=
          asked.at("grad_out", place) * asked.at("sum", place) * rstd;
    }
    along /= static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t place = r * n + i;
      at(grad_in, place) =
          rstd * (asked.at("grad_out", place) * asked.at("weight", i) -
                  asked.at("sum", place) * rstd * rstd * along) +
          asked.at("grad_sum", place, 0);
    }
  }
  Outcome outcome;
  add_result(outcome, asked["grad_in"], grad_in);
  add_if(outcome, asked["grad_weight"], grad_weight);
  return outcome;
}

// ---- experts ----

// Places of the k largest, the earlier one first among equals.
std::vector<std::int64_t> largest(const Numbers& numbers, std::int64_t k) {
  std::vector<std::int64_t> order(numbers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return numbers[static_cast<std::size_t>(a)] >
           numbers[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

Numbers scores_of(const Asked& asked, std::int64_t token, std::int64_t n) {
  Numbers scores = zeros(n);
  double sum = 0;
  for (std::int64_t e = 0; e < n; ++e) {
    const double logit = asked.at("logits", token * n + e);
    const bool gate = asked.attrs<npu_moe_gating_attrs>().score ==
                      NPU_MOE_GATING_SCORE_SIGMOID;
    at(scores, e) = gate ? sigmoid(logit) : std::exp(logit);
    sum += gate ? 0 : at(scores, e);
  }
  for (double& score : scores) {
    score /= sum != 0 ? sum : 1;
  }
  return scores;
}

Outcome moe_gating(const Case& value) {
  const Asked asked(value);
  const auto attrs = asked.attrs<npu_moe_gating_attrs>();
  const std::int64_t tokens = asked["logits"].sizes[0];
  const std::int64_t n = asked["logits"].sizes[1];
  const std::int64_t each = n / attrs.groups;
  Numbers weights, experts, rows, all;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Numbers own = scores_of(asked, t, n);
    Numbers choice = own;
    Numbers best(static_cast<std::size_t>(attrs.groups), -INFINITY);
    for (std::int64_t e = 0; e < n; ++e) {
      at(choice, e) += asked.at("bias", e, 0);
      at(best, e / each) = std::max(at(best, e / each), at(choice, e));
    }
    const auto kept = largest(best, attrs.top_groups);
    for (std::int64_t e = 0; e < n; ++e) {
      if (std::find(kept.begin(), kept.end(), e / each) == kept.end()) {
        at(choice, e) = -INFINITY;
      }
    }
    const auto chosen = largest(choice, attrs.k);
    double sum = 0;
    for (const std::int64_t e : chosen) {
      sum += own[static_cast<std::size_t>(e)];
    }
    for (std::size_t j = 0; j < chosen.size(); ++j) {
      const double score = own[static_cast<std::size_t>(chosen[j])];
      const bool done = asked.at("finished", t, 0) != 0;
      weights.push_back(
          score * attrs.scale / (attrs.renormalise != 0 ? sum : 1));
      experts.push_back(static_cast<double>(done ? n : chosen[j]));
      rows.push_back(
          static_cast<double>(j) * static_cast<double>(tokens) +
          static_cast<double>(t));
    }
    all.insert(all.end(), own.begin(), own.end());
  }
  Outcome outcome;
  add_result(outcome, asked["weights"], weights);
  add_result(outcome, asked["experts"], experts);
  add_if(outcome, asked["rows"], rows);
  add_if(outcome, asked["scores"], all);
  return outcome;
}

Outcome permute(const Asked& asked, std::int64_t k) {
  const std::int64_t pairs = asked["experts"].numel();
  const std::int64_t width = asked["in"].sizes[1];
  std::vector<std::int64_t> order(static_cast<std::size_t>(pairs));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return asked.whole("experts", a) < asked.whole("experts", b);
  });
  Outcome outcome;
  std::vector<Value> out;
  for (const std::int64_t pair : order) {
    const auto& values = asked["in"].values;
    const auto from = values.begin() + pair / k * width;
    out.insert(out.end(), from, from + width);
  }
  outcome.values.push_back(std::move(out));
  outcome.dtypes.push_back(asked["out"].dtype);
  add_if(outcome, asked["rows"], Numbers(order.begin(), order.end()));
  if (asked.has("counts")) {
    Numbers counts = zeros(asked["counts"].numel());
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      at(counts, asked.whole("experts", pair)) += 1;
    }
    add_result(outcome, asked["counts"], counts);
  }
  return outcome;
}

Outcome moe_route(const Case& value) {
  const Asked asked(value);
  const std::int64_t k = asked.attrs<npu_moe_route_attrs>().k;
  if (asked.code() == NPU_MOE_ROUTE_PERMUTE) {
    return permute(asked, k);
  }
  const bool spreads = asked.code() == NPU_MOE_ROUTE_UNPERMUTE_GRAD;
  const std::int64_t width = asked["in"].sizes[1];
  Numbers out = zeros(asked["out"].numel());
  Numbers grad_weights = zeros(spreads ? asked["rows_in"].numel() : 0);
  for (std::int64_t i = 0; i < asked["rows_in"].numel(); ++i) {
    const std::int64_t pair = asked.whole("rows_in", i);
    const double weight = asked.at("weights", pair, 1);
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t row = i * width + j;
      const std::int64_t token = pair / k * width + j;
      if (spreads) {
        at(out, row) = weight * asked.at("in", token);
        at(grad_weights, pair) +=
            asked.at("in", token) * asked.at("tokens", row, 0);
      } else {
        at(out, token) += weight * asked.at("in", row);
      }
    }
  }
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  add_if(outcome, asked["grad_weights"], grad_weights);
  return outcome;
}

// ---- products in groups ----

Outcome gemm_grouped(const Case& value) {
  const Asked asked(value);
  const std::int64_t rows = asked["a"].sizes[0];
  const std::int64_t depth = asked["a"].sizes[1];
  const std::int64_t n = asked["b"].sizes.back();
  const bool by_rows = asked["b"].sizes.size() == 3;
  Numbers out = zeros(asked["out"].numel());
  std::int64_t first = 0;
  for (std::int64_t g = 0; g < asked["ends"].numel(); ++g) {
    const std::int64_t last = asked.whole("ends", g);
    for (std::int64_t i = by_rows ? first : 0; i < (by_rows ? last : rows);
         ++i) {
      for (std::int64_t k = by_rows ? 0 : first; k < (by_rows ? depth : last);
           ++k) {
        for (std::int64_t j = 0; j < n; ++j) {
          const std::int64_t matrix = by_rows ? g * depth * n : 0;
          const std::int64_t place = by_rows ? i * n : (g * rows + i) * n;
          at(out, place + j) +=
              asked.at("a", i * depth + k) * asked.at("b", matrix + k * n + j);
        }
      }
    }
    first = last;
  }
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  return outcome;
}

// ---- quantisation ----

// The scale of each element, by the sizes of the tensor and of its scales.
std::int64_t scale_of(
    const std::string& code,
    const Shape& in,
    std::int64_t axis,
    std::int64_t group,
    std::int64_t i) {
  if (code == "channel") {
    for (std::size_t d = in.size(); d-- > static_cast<std::size_t>(axis) + 1;) {
      i /= in[d];
    }
    return i % in[static_cast<std::size_t>(axis)];
  }
  return code.ends_with("group")   ? i / group
         : code == "dynamic_token" ? i / in.back()
                                   : 0;
}

Outcome quantise(const Case& value) {
  const Asked asked(value);
  const auto attrs = asked.attrs<npu_quantise_attrs>();
  const std::string code = value.kind->codes[asked.code()];
  const Shape& in = asked["in"].sizes;
  const auto place = [&](std::int64_t i) {
    return scale_of(code, in, attrs.axis, attrs.group_size, i);
  };
  const auto smoothed = [&](std::int64_t i) {
    return asked.at("in", i) * asked.at("smooth", i % in.back(), 1);
  };
  const auto low = static_cast<double>(attrs.low);
  const auto high = static_cast<double>(attrs.high);
  const bool dynamic = asked.has("scale_out");
  const std::int64_t n = asked[dynamic ? "scale_out" : "scale"].numel();
  Numbers scales, zeros_of;
  for (std::int64_t s = 0; s < n; ++s) {
    double least = INFINITY, most = -INFINITY, largest = 0;
    for (std::int64_t i = 0; dynamic && i < product(in); ++i) {
      if (place(i) == s) {
        least = std::min(least, smoothed(i));
        most = std::max(most, smoothed(i));
        largest = std::max(largest, std::abs(smoothed(i)));
      }
    }
    const double wide = (most - least) / (high - low);
    scales.push_back(
        !dynamic               ? asked.at("scale", s)
        : attrs.symmetric != 0 ? largest / high
                               : wide);
    zeros_of.push_back(
        !dynamic               ? asked.at("zero", s, 0)
        : attrs.symmetric != 0 ? 0
                               : high - most / (wide == 0 ? 1 : wide));
  }
  Numbers out;
  for (std::int64_t i = 0; i < product(in); ++i) {
    const double scale = at(scales, place(i));
    const double exact =
        smoothed(i) / (scale == 0 ? 1 : scale) + at(zeros_of, place(i));
    out.push_back(std::clamp(std::nearbyint(exact), low, high));
  }
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  add_if(outcome, asked["scale_out"], scales);
  add_if(outcome, asked["zero_out"], zeros_of);
  return outcome;
}

Outcome dequantise(const Case& value) {
  const Asked asked(value);
  const auto attrs = asked.attrs<npu_dequantise_attrs>();
  const std::string code = value.kind->codes[asked.code()];
  const Shape& in = asked["in"].sizes;
  const std::int64_t columns = asked["scale"].numel();
  Numbers out;
  for (std::int64_t i = 0; i < product(in); ++i) {
    const std::int64_t row = i / in.back();
    const std::int64_t column = i % in.back();
    const std::int64_t s =
        code == "product" ? column % columns
                          : scale_of(code, in, attrs.axis, attrs.group_size, i);
    const double whole = asked.at("in", i) - asked.at("zero", s, 0) +
                         asked.at("bias", column, 0);
    out.push_back(
        whole * asked.at("scale", s) * asked.at("token_scale", row, 1));
  }
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  return outcome;
}

// ---- decoding ----

Outcome paged_attention(const Case& value) {
  const Asked asked(value);
  const auto attrs = asked.attrs<npu_paged_attention_attrs>();
  const Shape& q = asked["q"].sizes;
  const Shape& cache = asked["key_cache"].sizes;
  const std::int64_t width = q[2];
  const std::int64_t share = q[1] / cache[2];
  const std::int64_t most = asked["block_table"].sizes[1];
  Numbers out, lse;
  for (std::int64_t row = 0; row < q[0] * q[1]; ++row) {
    const std::int64_t sequence = row / q[1];
    const std::int64_t length = asked.whole("lengths", sequence);
    const std::int64_t first =
        attrs.window > 0 ? std::max<std::int64_t>(0, length - attrs.window) : 0;
    Numbers sums = zeros(width);
    double total = 0;
    for (std::int64_t p = first; p < length; ++p) {
      const std::int64_t block =
          asked.whole("block_table", sequence * most + p / cache[1]);
      const std::int64_t place =
          ((block * cache[1] + p % cache[1]) * cache[2] + row % q[1] / share) *
          width;
      double score = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        score += asked.at("q", row * width + i) *
                 asked.at("key_cache", place + i) * attrs.scale;
      }
      if (attrs.softcap > 0) {
        score = attrs.softcap * std::tanh(score / attrs.softcap);
      }
      total += std::exp(score);
      for (std::int64_t i = 0; i < width; ++i) {
        at(sums, i) += std::exp(score) * asked.at("value_cache", place + i);
      }
    }
    for (const double sum : sums) {
      out.push_back(total > 0 ? sum / total : 0);
    }
    lse.push_back(std::log(total));
  }
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  add_if(outcome, asked["lse"], lse);
  return outcome;
}

constexpr Plain kRows[] = {
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

const std::span<const Plain> kPlainFused = kRows;

}  // namespace npu::kit
