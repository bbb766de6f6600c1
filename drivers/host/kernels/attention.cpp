// SPDX-License-Identifier: Apache-2.0
// Kind attention, and the family's table.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include "kernels/attention.h"

namespace npu::host {
namespace {

// One row: its output in `out` (value size), its lse returned.
template <class T>
double attend(
    const Attention<T>& a,
    std::size_t sequence,
    std::int64_t h,
    std::int64_t row,
    std::vector<double>& scores,
    T* out) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const Sequence& s = a.sequences[sequence];
  const Span span = a.seen(s, row);
  double most = a.sink ? static_cast<double>(a.sink[h]) : kNever;
  for (std::int64_t key = span.first; key < span.last; ++key) {
    const double score = a.masked(a.raw_score(s, h, row, key), s, h, row, key);
    scores[static_cast<std::size_t>(key)] = score;
    most = score > most || score != score ? score : most;
  }
  double sum = a.sink ? std::exp(a.sink[h] - most) : 0;
  for (std::int64_t key = span.first; key < span.last && most != kNever;
       ++key) {
    sum += std::exp(scores[static_cast<std::size_t>(key)] - most);
  }
  const double lse = most == kNever ? kNever : most + std::log(sum);
  std::vector<double> total(static_cast<std::size_t>(a.v_heads.size));
  for (std::int64_t key = span.first; key < span.last && lse != kNever; ++key) {
    const double p = std::exp(scores[static_cast<std::size_t>(key)] - lse) *
                     a.kept(sequence, h, row, key);
    const T* v = a.v.data() + a.v_heads.at(s.b, h / a.group, s.k_first + key);
    for (std::int64_t d = 0; d < a.v_heads.size && p != 0; ++d) {
      total[static_cast<std::size_t>(d)] += p * v[d];
    }
  }
  std::transform(total.begin(), total.end(), out, [](double x) {
    return static_cast<T>(x);
  });
  return lse;
}

npu_status attention_run(const npu_call& call) {
  const npu_attention_args args = npu_attention_unpack(&call);
  return with_float(args.q->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Attention<T> a(args, call);
    const Stored<T> out(args.out);
    const Stored<float> lse(args.lse);
    const Heads out_heads(*args.out, args.attrs.layout);
    const std::int64_t heads = a.q_heads.heads;
    const std::int64_t longest = a.longest_query();
    const auto n = static_cast<std::int64_t>(a.sequences.size());
    const std::int64_t work =
        a.k_heads.rows * (a.q_heads.size + a.v_heads.size);
    const auto line = [&](std::int64_t i) {
      const auto sequence = static_cast<std::size_t>(i / longest / heads);
      const std::int64_t h = i / longest % heads;
      const std::int64_t row = i % longest;
      const Sequence& s = a.sequences[sequence];
      if (row >= s.q_rows) {
        return;
      }
      std::vector<double> scores(static_cast<std::size_t>(s.k_rows));
      const std::int64_t place = s.q_first + row;
      const double log_sum = attend(
          a,
          sequence,
          h,
          row,
          scores,
          out.data() + out_heads.at(s.b, h, place));
      lse.set((s.b * heads + h) * a.q_heads.rows + place, log_sum);
    };
    const npu_status status = for_each_item(n * heads * longest, work, line);
    return finish(status ? status : a.status(), out, lse);
  });
}

npu_status attention_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 9);
  out.flags |= NPU_CAP_CAPTURE;
  out.dtypes[5] |= NPU_DTYPE_BIT(NPU_BOOL);
  out.dtypes[6] = out.dtypes[7] = NPU_DTYPE_BIT(NPU_I32);
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status attention_grad_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 15);
  out.flags |= NPU_CAP_CAPTURE;
  out.dtypes[11] |= NPU_DTYPE_BIT(NPU_BOOL);
  out.dtypes[12] = out.dtypes[13] = NPU_DTYPE_BIT(NPU_I32);
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_ATTENTION, attention_caps, nullptr, attention_run},
    {NPU_KIND_ATTENTION_GRAD, attention_grad_caps, nullptr, attention_grad_run},
};

}  // namespace

const std::span<const KernelRow> kAttentionKernels = kRows;

}  // namespace npu::host
