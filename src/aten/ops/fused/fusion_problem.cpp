// SPDX-License-Identifier: Apache-2.0
#include "aten/ops/fused/fusion_problem.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include "aten/ops/fused/fused.h"

namespace npu::fused {
namespace {

constexpr std::int64_t kFar = 2147483647;  // pre and next that cut nothing off

bool is_mask(const at::Tensor& x) {
  return x.scalar_type() == at::kBool || x.scalar_type() == at::kByte;
}

// (1 or of, 1 or heads, rows, keys)
bool broadcasts(
    const at::Tensor& x,
    std::int64_t batch,
    std::int64_t heads,
    std::int64_t rows,
    std::int64_t keys) {
  const auto one_or = [](std::int64_t size, std::int64_t whole) {
    return size == 1 || size == whole;
  };
  return x.dim() == 4 && one_or(x.size(0), batch) && one_or(x.size(1), heads) &&
         x.size(2) == rows && x.size(3) == keys;
}

// Steps of cumulative lengths; trailing zeros are sequences without rows.
// False where they fall.
bool steps(
    const std::vector<std::int64_t>& ends, std::vector<std::int64_t>& out) {
  std::int64_t before = 0;
  for (const std::int64_t end : ends) {
    const bool none = end == 0 && before > 0;
    if (!none && end < before) {
      return false;
    }
    out.push_back(none ? 0 : end - before);
    before = none ? before : end;
  }
  return true;
}

std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> out(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), out.begin(), 0L);
  return out;
}

}  // namespace

Layout layout_of(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), ::toupper);
  return name == "BSH"    ? Layout::kBsh
         : name == "SBH"  ? Layout::kSbh
         : name == "BSND" ? Layout::kBsnd
         : name == "BNSD" ? Layout::kBnsd
         : name == "TND"  ? Layout::kTnd
                          : Layout::kOther;
}

FusionProblem::FusionProblem(const Arguments& args)
    : layout(layout_of(args["input_layout"].toStringRef())),
      heads(args["head_num"].toInt()),
      mode_(args["sparse_mode"].toInt()),
      pre_(args["pre_tockens"].toInt()),
      next_(args["next_tockens"].toInt()),
      prefix_(args.numbers("prefix")) {
  scores.scale = args[args.takes("scale") ? "scale" : "scale_value"].toDouble();
  const std::string& statistics = args["softmax_layout"].toStringRef();
  true_statistics = statistics == "TND";
  fits = layout != Layout::kOther && heads > 0 &&
         args["keep_prob"].toDouble() == 1 && !args.has("dropout_mask") &&
         (statistics.empty() || true_statistics) && read_sizes(args) &&
         read_mask(args) && read_bias(args);
}

bool FusionProblem::read_sizes(const Arguments& args) {
  const at::Tensor q = args.tensor("query");
  const at::Tensor k = args.tensor("key");
  const at::Tensor v = args.tensor("value");
  const bool four = layout == Layout::kBsnd || layout == Layout::kBnsd;
  if (!is_narrow(q) || !same_dtype(q, k) || !same_dtype(q, v) ||
      !on_device(q, k, v) || k.numel() == 0 || v.numel() == 0 ||
      q.dim() != (four ? 4 : 3) || k.dim() != q.dim() || v.dim() != q.dim()) {
    return false;
  }
  if (packed()) {
    kv_heads = k.size(1);
    return q.size(1) == heads && v.size(1) == kv_heads &&
           heads % kv_heads == 0 && q.size(2) == k.size(2) &&
           k.size(0) == v.size(0) && read_lengths(args);
  }
  const int rows_at = layout == Layout::kBnsd  ? 2
                      : layout == Layout::kSbh ? 0
                                               : 1;
  const int batch_at = layout == Layout::kSbh ? 1 : 0;
  batch = q.size(batch_at);
  q_rows = {q.size(rows_at)};
  k_rows = {k.size(rows_at)};
  if (k.size(batch_at) != batch || v.size(batch_at) != batch ||
      v.size(rows_at) != k_rows[0]) {
    return false;
  }
  if (four) {
    const int at = layout == Layout::kBsnd ? 2 : 1;
    kv_heads = k.size(at);
    return q.size(at) == heads && v.size(at) == kv_heads &&
           heads % kv_heads == 0 && q.size(3) == k.size(3);
  }
  const std::int64_t size = q.size(2) / heads;
  kv_heads = size > 0 ? k.size(2) / size : 0;
  return q.size(2) % heads == 0 && kv_heads > 0 &&
         k.size(2) == kv_heads * size && v.size(2) % kv_heads == 0 &&
         heads % kv_heads == 0;
}

bool FusionProblem::read_lengths(const Arguments& args) {
  const std::vector<std::int64_t> q_ends = args.numbers("actual_seq_qlen");
  const std::vector<std::int64_t> k_ends = args.numbers("actual_seq_kvlen");
  if (q_ends.empty() || q_ends.size() != k_ends.size() ||
      !steps(q_ends, q_rows) || !steps(k_ends, k_rows)) {
    return false;
  }
  batch = static_cast<std::int64_t>(q_rows.size());
  q_starts_ = starts_of(q_rows);
  k_starts_ = starts_of(k_rows);
  return q_starts_.back() + q_rows.back() <= args.tensor("query").size(0) &&
         k_starts_.back() + k_rows.back() <= args.tensor("key").size(0);
}

// Without a mask every mode is full attention. Modes 2 to 4 and 6 to 8 are
// intervals, whatever the mask's values.
bool FusionProblem::read_mask(const Arguments& args) {
  const bool known = packed() ? mode_ >= 0 && mode_ <= 8 && mode_ != 5
                              : mode_ >= 0 && mode_ <= 6;
  banded_ = args.has("atten_mask");
  if (!known || !banded_) {
    return known;
  }
  mask = args.tensor("atten_mask");
  if (mode_ != 0 && mode_ != 1 && mode_ != 5) {
    const bool whole = mask.dim() >= 2 && mask.size(-1) == 2048 &&
                       mask.size(-2) == (mode_ == 6 ? 3072 : 2048);
    mask = at::Tensor();
    return whole &&
           (mode_ != 6 || static_cast<std::int64_t>(prefix_.size()) == batch);
  }
  if (!is_mask(mask) || !on_device(mask)) {
    return false;
  }
  if (packed()) {
    return mask.dim() == 2 &&
           *std::max_element(q_rows.begin(), q_rows.end()) <= mask.size(0) &&
           *std::max_element(k_rows.begin(), k_rows.end()) <= mask.size(1);
  }
  if (mask.dim() == 2) {
    mask = mask.unsqueeze(0).unsqueeze(0);
  }
  return broadcasts(mask, batch, heads, q_rows[0], k_rows[0]);
}

bool FusionProblem::read_bias(const Arguments& args) {
  sink = args.maybe("sink");
  bias = args.maybe("pse");
  if (sink.defined() && (sink.scalar_type() != at::kFloat || sink.dim() != 1 ||
                         sink.size(0) != heads || !on_device(sink))) {
    return false;
  }
  if (!bias.defined()) {
    return true;
  }
  return !packed() && is_narrow(bias) && on_device(bias) && bias.dim() == 4 &&
         broadcasts(
             bias, batch, heads, bias.size(2) == 1 ? 1 : q_rows[0], k_rows[0]);
}

std::int64_t FusionProblem::numels() const {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < batch; ++i) {
    sum += heads * rows(i) * keys(i);
  }
  return sum;
}

Visible FusionProblem::visible(std::int64_t i) const {
  Visible out;
  std::int64_t mode = mode_;
  if (mode == 7) {
    mode = i == batch - 1 ? 4 : 3;
  } else if (mode == 8) {
    mode = i == 0 ? 4 : 2;
  }
  if (!banded_ || mode == 1 || mode == 5) {
    return out;
  }
  const std::int64_t shift = mode == 0 || mode == 2 ? 0 : keys(i) - rows(i);
  const bool band = mode == 0 || mode == 4;
  if (!band) {
    out.after = shift;
  } else if (next_ < kFar) {
    out.after = next_ + shift;
  }
  if (band && pre_ < kFar) {
    out.before = pre_ - shift;
  }
  if (mode == 6) {
    out.prefix = prefix_[static_cast<std::size_t>(i)];
  }
  return out;
}

at::Tensor FusionProblem::part(
    const at::Tensor& x,
    std::int64_t i,
    std::int64_t head_count,
    const std::vector<std::int64_t>& starts) const {
  switch (layout) {
    case Layout::kBnsd:
      return x.select(0, i);
    case Layout::kBsnd:
      return x.select(0, i).transpose(0, 1);
    case Layout::kTnd: {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t n = &starts == &q_starts_ ? q_rows[at] : k_rows[at];
      return x.narrow(0, starts[at], n).transpose(0, 1);
    }
    default:
      return x.select(layout == Layout::kBsh ? 0 : 1, i)
          .unflatten(1, {head_count, x.size(2) / head_count})
          .transpose(0, 1);
  }
}

at::Tensor FusionProblem::query_part(
    const at::Tensor& x, std::int64_t i) const {
  return part(x, i, heads, q_starts_);
}

at::Tensor FusionProblem::key_part(const at::Tensor& x, std::int64_t i) const {
  return part(x, i, kv_heads, k_starts_);
}

at::Tensor FusionProblem::statistic_part(
    const at::Tensor& x, std::int64_t i) const {
  if (!packed()) {
    return x.select(0, i);
  }
  const auto at = static_cast<std::size_t>(i);
  const at::Tensor own = x.narrow(0, q_starts_[at], q_rows[at]);
  return true_statistics ? own.transpose(0, 1)
                         : own.view({heads, q_rows[at], 8});
}

at::Tensor FusionProblem::mask_part(
    const at::Tensor& given, std::int64_t i) const {
  if (!given.defined()) {
    return given;
  }
  return packed()
             ? given.narrow(0, 0, rows(i)).narrow(1, 0, keys(i)).unsqueeze(0)
             : given.select(0, given.size(0) == 1 ? 0 : i);
}

at::Tensor FusionProblem::bias_part(
    const at::Tensor& given, std::int64_t i) const {
  return given.defined() ? given.select(0, given.size(0) == 1 ? 0 : i) : given;
}

std::vector<std::int64_t> FusionProblem::statistic_sizes(
    const at::Tensor& query) const {
  return packed() ? std::vector<std::int64_t>{query.size(0), heads, 8}
                  : std::vector<std::int64_t>{batch, heads, q_rows[0], 8};
}

}  // namespace npu::fused
