// SPDX-License-Identifier: Apache-2.0
// Kind attention_grad.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
//
// With p as in the forward, w = p * kept, dp[k] = dot(grad, v[k]) * kept[k]:
//   grad_v[k] = sum w * grad          delta = dot(grad, output)
//   ds[k] = p * (dp - delta)          of the score, hence of an added mask
//   ds   *= 1 - (s / softcap)^2       where there is a softcap
//   grad_q = sum ds * scale * k,  grad_k = sum ds * scale * q
//   grad_sink = sum -exp(sink - lse) * delta
#include "kernels/attention.h"

namespace npu::host {
namespace {

struct Sums {
  std::vector<double> k;
  std::vector<double> v;
  std::vector<double> mask;
  std::vector<double> sink;
};

void add_scaled(double by, const auto* from, std::int64_t n, double* to) {
  for (std::int64_t d = 0; d < n; ++d) {
    to[d] += by * static_cast<double>(from[d]);
  }
}

double dot_of(const auto* a, const auto* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t d = 0; d < n; ++d) {
    sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
  }
  return sum;
}

// One row of one head: adds to sums, and its grad_q into `grad_q`.
template <class T>
void attend_back(
    const Attention<T>& a,
    std::size_t sequence,
    std::int64_t h,
    std::int64_t row,
    const T* grad,
    const T* output,
    double lse,
    Sums& sums,
    std::vector<double>& grad_q) {
  const Sequence& s = a.sequences[sequence];
  const Span span = a.seen(s, row);
  const std::int64_t size = a.q_heads.size;
  const std::int64_t value = a.v_heads.size;
  const double delta = dot_of(grad, output, value);
  std::fill(grad_q.begin(), grad_q.end(), 0.0);
  if (lse == -std::numeric_limits<double>::infinity()) {
    return;  // no key was visible
  }
  const T* q = a.q.data() + a.q_heads.at(s.b, h, s.q_first + row);
  for (std::int64_t key = span.first; key < span.last; ++key) {
    const double raw = a.raw_score(s, h, row, key);
    const double p = std::exp(a.masked(raw, s, h, row, key) - lse);
    if (p == 0) {
      continue;
    }
    const double kept = a.kept(sequence, h, row, key);
    const std::int64_t k_at = a.k_heads.at(s.b, h / a.group, s.k_first + key);
    const std::int64_t v_at = a.v_heads.at(s.b, h / a.group, s.k_first + key);
    add_scaled(p * kept, grad, value, sums.v.data() + v_at);
    double ds = p * (dot_of(grad, a.v.data() + v_at, value) * kept - delta);
    if (!sums.mask.empty()) {
      sums.mask[static_cast<std::size_t>(a.mask_at(s.b, h, row, key))] += ds;
    }
    if (a.softcap > 0) {
      ds *= 1 - raw / a.softcap * (raw / a.softcap);
    }
    add_scaled(ds * a.scale, a.k.data() + k_at, size, grad_q.data());
    add_scaled(ds * a.scale, q, size, sums.k.data() + k_at);
  }
  if (!sums.sink.empty()) {
    sums.sink[static_cast<std::size_t>(h)] -= std::exp(a.sink[h] - lse) * delta;
  }
}

// What every row reads, and where its grad_q goes.
template <class T>
struct QueryRows {
  const Attention<T>& a;
  const Heads& out_heads;
  const Loaded<T>& grad;
  const Loaded<T>& output;
  const Loaded<float>& lse;
  const Stored<T>& grad_q;

  // All rows of the query's heads that read the i-th head of k and v, counted
  // over all sequences.
  void attend_back_head(std::int64_t i, Sums& sums) const {
    const std::int64_t kv_heads = a.k_heads.heads;
    const auto sequence = static_cast<std::size_t>(i / kv_heads);
    const Sequence& s = a.sequences[sequence];
    std::vector<double> row_q(static_cast<std::size_t>(a.q_heads.size));
    const std::int64_t first = i % kv_heads * a.group;
    for (std::int64_t h = first; h < first + a.group; ++h) {
      for (std::int64_t row = 0; row < s.q_rows; ++row) {
        const std::int64_t place = s.q_first + row;
        const std::int64_t at = out_heads.at(s.b, h, place);
        attend_back(
            a,
            sequence,
            h,
            row,
            grad.data() + at,
            output.data() + at,
            lse[(s.b * a.q_heads.heads + h) * a.q_heads.rows + place],
            sums,
            row_q);
        const std::int64_t q_at = a.q_heads.at(s.b, h, place);
        for (std::int64_t d = 0; d < a.q_heads.size; ++d) {
          grad_q.set(q_at + d, row_q[static_cast<std::size_t>(d)]);
        }
      }
    }
  }
};

template <class T>
void put(const std::vector<double>& sums, const Stored<T>& out) {
  for (std::size_t i = 0; out && i < sums.size(); ++i) {
    out.set(static_cast<std::int64_t>(i), sums[i]);
  }
}

}  // namespace

npu_status attention_grad_run(const npu_call& call) {
  const npu_attention_grad_args args = npu_attention_grad_unpack(&call);
  return with_float(args.q->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Attention<T> a(args, call);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> output(args.output);
    const Loaded<float> lse(args.lse);
    const Stored<T> grad_q(args.grad_q);
    const Stored<T> grad_k(args.grad_k);
    const Stored<T> grad_v(args.grad_v);
    const Stored<T> grad_mask(args.grad_mask);
    const Stored<T> grad_sink(args.grad_sink);
    const auto zeros = [](const npu_tensor* like, bool wanted) {
      return std::vector<double>(
          wanted ? static_cast<std::size_t>(like->numel) : 0);
    };
    Sums sums{
        zeros(args.k, true),
        zeros(args.v, true),
        zeros(args.mask, bool(grad_mask)),
        zeros(args.sink, bool(grad_sink))};
    const Heads out_heads(*args.grad_out, args.attrs.layout);
    const QueryRows<T> rows{a, out_heads, grad, output, lse, grad_q};
    // A head of k and v of one sequence belongs to one thread; sums over
    // several of them have one thread in all.
    const std::int64_t n =
        static_cast<std::int64_t>(a.sequences.size()) * a.k_heads.heads;
    const bool shared = grad_mask || grad_sink;
    const npu_status status =
        parallel(n, shared ? n : 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            rows.attend_back_head(i, sums);
          }
        });
    put(sums.k, grad_k);
    put(sums.v, grad_v);
    put(sums.mask, grad_mask);
    put(sums.sink, grad_sink);
    return finish(
        status ? status : a.status(),
        grad,
        output,
        lse,
        grad_q,
        grad_k,
        grad_v,
        grad_mask,
        grad_sink);
  });
}

}  // namespace npu::host
