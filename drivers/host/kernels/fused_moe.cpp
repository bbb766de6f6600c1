// SPDX-License-Identifier: Apache-2.0
// Kinds moe_gating and moe_route.
//
// A pair is a token's choice of an expert: pair p is choice p % k of token
// p / k. Its place is where sorting by expert, stable, puts it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/fused.h"

namespace npu::host {
namespace {

using Pairs = std::vector<std::int64_t>;

// ---- gating ----

// One token's scores: softmax or sigmoid of its logits.
void score(const float* logits, std::int64_t n, bool sigmoid, float* scores) {
  if (sigmoid) {
    std::transform(logits, logits + n, scores, [](float x) {
      return 1.0f / (1.0f + std::exp(-x));
    });
    return;
  }
  const float most = *std::max_element(logits, logits + n);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    scores[i] = std::exp(logits[i] - most);
    sum += scores[i];
  }
  std::transform(scores, scores + n, scores, [&](float x) {
    return static_cast<float>(x / sum);
  });
}

// Numbers of the `k` largest, the lower number first among equals.
void largest_of(
    const float* values, std::int64_t n, std::int64_t k, std::int64_t* out) {
  std::vector<bool> taken(static_cast<std::size_t>(n));
  for (std::int64_t j = 0; j < k; ++j) {
    std::int64_t best = -1;
    for (std::int64_t i = 0; i < n; ++i) {
      if (!taken[static_cast<std::size_t>(i)] &&
          (best < 0 || values[i] > values[best])) {
        best = i;
      }
    }
    taken[static_cast<std::size_t>(best)] = true;
    out[j] = best;
  }
}

// Groups that are not among the best lose their experts. A group counts by its
// best expert.
void keep_groups(
    float* values, std::int64_t n, std::int64_t groups, std::int64_t kept) {
  if (groups <= 1 || kept >= groups) {
    return;
  }
  const std::int64_t size = n / groups;
  std::vector<float> best(static_cast<std::size_t>(groups));
  for (std::int64_t g = 0; g < groups; ++g) {
    best[static_cast<std::size_t>(g)] =
        *std::max_element(values + g * size, values + (g + 1) * size);
  }
  Pairs order(static_cast<std::size_t>(groups));
  largest_of(best.data(), groups, groups, order.data());
  for (auto g = order.begin() + kept; g != order.end(); ++g) {
    std::fill(
        values + *g * size,
        values + (*g + 1) * size,
        -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

npu_status moe_gating_run(const npu_call& call) {
  const npu_moe_gating_args args = npu_moe_gating_unpack(&call);
  const Loaded<float> logits(args.logits);
  const Loaded<float> bias(args.bias);
  const Loaded<std::int64_t> finished(args.finished);
  const Stored<float> weights(args.weights);
  const Stored<std::int64_t> experts(args.experts);
  const Stored<std::int64_t> rows(args.rows);
  const Stored<float> scores(args.scores);
  const std::int64_t n = args.logits->sizes[args.logits->ndim - 1];
  const std::int64_t tokens = args.logits->numel / n;
  const std::int64_t k = args.attrs.k;
  const bool sigmoid = args.attrs.score == NPU_MOE_GATING_SCORE_SIGMOID;
  const auto token = [&](std::int64_t t) {
    std::vector<float> own(static_cast<std::size_t>(n));
    score(logits.data() + t * n, n, sigmoid, own.data());
    std::vector<float> choice = own;
    for (std::int64_t i = 0; bias && i < n; ++i) {
      choice[static_cast<std::size_t>(i)] += bias[i];
    }
    keep_groups(choice.data(), n, args.attrs.groups, args.attrs.top_groups);
    Pairs chosen(static_cast<std::size_t>(k));
    largest_of(choice.data(), n, k, chosen.data());
    double sum = 0;
    for (const std::int64_t e : chosen) {
      sum += own[static_cast<std::size_t>(e)];
    }
    const double factor =
        args.attrs.scale / (args.attrs.renormalise ? sum : 1.0);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int64_t e = chosen[static_cast<std::size_t>(j)];
      weights.set(t * k + j, own[static_cast<std::size_t>(e)] * factor);
      experts[t * k + j] = finished.at(t, 0) != 0 ? n : e;
      if (rows) {
        rows[t * k + j] = j * tokens + t;
      }
    }
    if (scores) {
      std::copy(own.begin(), own.end(), scores.data() + t * n);
    }
  };
  const npu_status status = for_each_item(tokens, n * (k + 8), token);
  return finish(status, logits, bias, finished, weights, experts, rows, scores);
}

npu_status moe_gating_caps(std::uint32_t code, npu_op_caps& out) {
  narrow_caps(out);
  out.dtypes[1] = out.dtypes[2] = NPU_DTYPE_BIT(NPU_I32);
  out.dtypes[6] = NPU_DTYPE_BIT(NPU_BOOL);
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

// ---- routing ----

namespace {

// The pair at each place. Counting where numbers of experts are few.
Pairs sorted_pairs(const Loaded<std::int64_t>& experts, std::int64_t n) {
  Pairs order(static_cast<std::size_t>(n));
  const auto [low, high] =
      std::minmax_element(experts.data(), experts.data() + n);
  const std::int64_t first = *low;
  if (*high - first > 4 * n + 1024) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(
        order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
          return experts[a] < experts[b];
        });
    return order;
  }
  Pairs starts(static_cast<std::size_t>(*high - first + 2));
  for (std::int64_t p = 0; p < n; ++p) {
    ++starts[static_cast<std::size_t>(experts[p] - first + 1)];
  }
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  for (std::int64_t p = 0; p < n; ++p) {
    auto& at = starts[static_cast<std::size_t>(experts[p] - first)];
    order[static_cast<std::size_t>(at++)] = p;
  }
  return order;
}

// The place of each pair; -1 for pairs that no row of `limit` holds.
Pairs places_of(
    const Loaded<std::int64_t>& rows, std::int64_t pairs, std::int64_t limit) {
  Pairs places(static_cast<std::size_t>(pairs), -1);
  for (std::int64_t i = 0; i < limit; ++i) {
    const std::int64_t p = rows[i];
    if (p >= 0 && p < pairs) {
      places[static_cast<std::size_t>(p)] = i;
    }
  }
  return places;
}

npu_status permute(const npu_moe_route_args& args) {
  const Loaded<std::int64_t> experts(args.experts);
  npu_status status = experts.status();
  if (status != NPU_OK) {
    return status;
  }
  const std::int64_t pairs = args.experts->numel;
  const Pairs order = sorted_pairs(experts, pairs);
  const DenseBytes in(*args.in);
  const DenseBytes out(*args.out);
  const std::int64_t width = args.in->sizes[1];
  const std::int64_t bytes = width * bytes_of(*args.in);
  status = for_each_item(args.out->sizes[0], width, [&](std::int64_t i) {
    const std::int64_t token =
        order[static_cast<std::size_t>(i)] / args.attrs.k;
    std::memcpy(
        out.data() + i * bytes,
        in.data() + token * bytes,
        static_cast<std::size_t>(bytes));
  });
  const Stored<std::int64_t> rows(args.rows);
  if (rows) {
    std::copy(order.begin(), order.end(), rows.data());
  }
  const Stored<std::int64_t> counts(args.counts, Stored<std::int64_t>::kZero);
  for (std::int64_t p = 0; counts && p < pairs; ++p) {
    if (experts[p] >= 0 && experts[p] < args.counts->numel) {
      ++counts[experts[p]];
    }
  }
  status = status ? status : in.status();
  status = status ? status : out.store();
  return finish(status, rows, counts);
}

// out[token] = sum over its choices of weight * in[place].
npu_status gather_rows(const npu_moe_route_args& args) {
  const Loaded<float> in(args.in);
  const Loaded<float> weights(args.weights);
  const Loaded<std::int64_t> rows(args.rows_in);
  const Stored<float> out(args.out);
  const FusedTable& table = fused_table();
  const std::int64_t tokens = args.out->sizes[0];
  const std::int64_t width = args.out->sizes[1];
  const std::int64_t k = args.attrs.k;
  npu_status status = loaded(in, weights, rows);
  if (status != NPU_OK) {
    return status;
  }
  const std::int64_t held = std::min(args.in->sizes[0], args.rows_in->numel);
  const Pairs places = places_of(rows, tokens * k, held);
  status = for_each_item(tokens, width * k, [&](std::int64_t t) {
    float* const to = out.data() + t * width;
    bool begun = false;
    for (std::int64_t p = t * k; p < (t + 1) * k; ++p) {
      const std::int64_t place = places[static_cast<std::size_t>(p)];
      if (place < 0) {
        continue;
      }
      const float* const from = in.data() + place * width;
      const float weight = weights.at(p, 1);
      if (begun) {
        table.add_scaled(to, from, weight, width);
      } else {
        table.scale(to, from, nullptr, weight, width);
      }
      begun = true;
    }
    if (!begun) {
      std::fill(to, to + width, 0.0f);
    }
  });
  return finish(status, out);
}

// `in` is the gradient of the tokens; out that of the rows.
npu_status spread_rows(const npu_moe_route_args& args) {
  const Loaded<float> grad(args.in);
  const Loaded<float> weights(args.weights);
  const Loaded<float> tokens(args.tokens);
  const Loaded<std::int64_t> rows(args.rows_in);
  const Stored<float> out(args.out);
  const Stored<float> grad_weights(args.grad_weights, Stored<float>::kZero);
  const FusedTable& table = fused_table();
  const std::int64_t width = args.out->sizes[1];
  const std::int64_t k = args.attrs.k;
  npu_status status = loaded(grad, weights, tokens, rows);
  if (status != NPU_OK) {
    return status;
  }
  const std::int64_t pairs = args.in->sizes[0] * k;
  status = for_each_item(args.out->sizes[0], width * 2, [&](std::int64_t i) {
    const std::int64_t p = i < args.rows_in->numel ? rows[i] : -1;
    float* const to = out.data() + i * width;
    if (p < 0 || p >= pairs) {
      std::fill(to, to + width, 0.0f);
      return;
    }
    const float* const from = grad.data() + p / k * width;
    table.scale(to, from, nullptr, weights.at(p, 1), width);
    if (grad_weights) {
      grad_weights.set(
          p, table.dot(from, nullptr, tokens.data() + i * width, width));
    }
  });
  return finish(status, out, grad_weights);
}

}  // namespace

npu_status moe_route_run(const npu_call& call) {
  const npu_moe_route_args args = npu_moe_route_unpack(&call);
  switch (call.code) {
    case NPU_MOE_ROUTE_PERMUTE:
      return permute(args);
    case NPU_MOE_ROUTE_UNPERMUTE_GRAD:
      return spread_rows(args);
    default:
      return gather_rows(args);
  }
}

npu_status moe_route_caps(std::uint32_t code, npu_op_caps& out) {
  narrow_caps(out);
  if (code == NPU_MOE_ROUTE_PERMUTE) {
    out.dtypes[0] = out.dtypes[4] = kAnyDtype;
  }
  out.dtypes[1] = NPU_DTYPE_BIT(NPU_I32);
  out.dtypes[2] = kIndexDtypes;
  out.dtypes[5] = out.dtypes[6] = NPU_DTYPE_BIT(NPU_I32);
  return code < NPU_MOE_ROUTE_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

}  // namespace npu::host
