// SPDX-License-Identifier: Apache-2.0
// npu_fused_infer_attention_score of one new token per sequence against a paged
// cache, on kind paged_attention. All else is left to the composition.
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>

#include "aten/ops/fused/fused.h"
#include "attempts/attention.h"

namespace npu::fused {
namespace {

// One step of decoding, as the kind wants it.
struct DecodeStep {
  explicit DecodeStep(const Arguments& args) {
    const std::string& layout = args["input_layout"].toStringRef();
    heads = args["num_heads"].toInt();
    const std::int64_t asked = args["num_key_value_heads"].toInt();
    kv_heads = asked != 0 ? asked : heads;
    const at::Tensor query = args.tensor("query");
    const bool flat = layout == "BSH";
    fits = args.has("block_table") && args.has("actual_seq_lengths_kv") &&
           args["actual_seq_lengths_kv"].isIntList() &&
           args["sparse_mode"].toInt() >= 0 &&
           args["sparse_mode"].toInt() < 5 &&
           (flat || layout == "BSND" || layout == "BNSD") && heads > 0 &&
           kv_heads > 0 && heads % kv_heads == 0 && is_narrow(query) &&
           query.dim() == (flat ? 3 : 4);
    fits = fits && read_query(query, layout) && read_caches(args) &&
           read_lengths(args);
  }

  bool fits = false;
  std::int64_t heads;
  std::int64_t kv_heads;
  at::Tensor q;     // (B, N, D)
  at::Tensor keys;  // (blocks, block_size, N, D)
  at::Tensor values;
  at::Tensor table;
  std::vector<std::int64_t> lengths;

 private:
  bool read_query(const at::Tensor& query, const std::string& layout) {
    const int rows_at = layout == "BNSD" ? 2 : 1;
    if (query.size(rows_at) != 1) {
      return false;
    }
    if (layout == "BSH") {
      if (query.size(2) % heads != 0) {
        return false;
      }
      q = query.select(1, 0).unflatten(1, {heads, query.size(2) / heads});
    } else {
      q = query.select(rows_at, 0);
    }
    return q.size(1) == heads;
  }
  at::Tensor pages(const at::Tensor& cache) const {
    if (cache.dim() == 3 && cache.size(2) % kv_heads == 0) {
      return cache.unflatten(2, {kv_heads, cache.size(2) / kv_heads});
    }
    return cache.dim() == 4 ? cache.transpose(1, 2) : at::Tensor();
  }
  bool read_caches(const Arguments& args) {
    keys = pages(args.tensor("key"));
    values = pages(args.tensor("value"));
    table = args.tensor("block_table");
    return keys.defined() && values.defined() && same_dtype(keys, q) &&
           same_dtype(values, q) && keys.size(2) == kv_heads &&
           values.size(2) == kv_heads && keys.size(3) == q.size(2) &&
           keys.size(0) == values.size(0) && keys.size(1) == values.size(1) &&
           keys.numel() > 0 && table.dim() == 2 && is_index(table) &&
           table.size(0) == q.size(0) && on_device(q, keys, values, table);
  }
  bool read_lengths(const Arguments& args) {
    lengths = args.numbers("actual_seq_lengths_kv");
    const auto batch = static_cast<std::size_t>(q.size(0));
    if (lengths.size() == 1) {
      lengths.assign(batch, lengths[0]);
    }
    const std::int64_t room = table.size(1) * keys.size(1);
    return lengths.size() == batch &&
           std::all_of(lengths.begin(), lengths.end(), [room](std::int64_t n) {
             return n >= 0 && n <= room;
           });
  }
};

}  // namespace

npu_reason fused_infer(
    NativeSite& site, const Arguments& args, torch::jit::Stack& results) {
  const DecodeStep step(args);
  if (!step.fits) {
    return kLeaveToCpu;
  }
  npu_reason why = site.wants(step.q, step.keys, step.values);
  if (why != NPU_REASON_NONE) {
    return why;
  }
  npu_paged_attention_attrs attrs{};
  attrs.scale = args["scale"].toDouble();
  attrs.block_size = step.keys.size(1);
  attrs.max_length = step.table.size(1) * step.keys.size(1);
  const at::Tensor query = args.tensor("query");
  const c10::DeviceIndex device = query.device().index();
  const at::Tensor lengths =
      at::tensor(step.lengths, at::TensorOptions().dtype(at::kInt))
          .to(query.device());
  const at::Tensor table = step.table.to(at::kInt);
  const bool wants_lse = args["softmax_lse_flag"].toBool();
  const std::int64_t batch = step.q.size(0);
  const at::Tensor out = make_empty(
      {batch, step.heads, step.values.size(3)}, query.scalar_type(), device);
  const at::Tensor lse =
      wants_lse ? make_empty({batch, step.heads}, at::kFloat, device)
                : at::Tensor();
  why = run<build::paged_attention>(
      site,
      out,
      lse,
      step.q,
      step.keys,
      step.values,
      table,
      lengths,
      nullptr,
      nullptr,
      nullptr,
      nullptr,
      attrs);
  if (why != NPU_REASON_NONE) {
    return why;
  }
  std::vector<std::int64_t> sizes = query.sizes().vec();
  sizes.back() = query.dim() == 3 ? step.heads * out.size(2) : out.size(2);
  torch::jit::push(
      results,
      out.view(sizes),
      wants_lse ? lse.view({batch, step.heads, 1, 1})
                : make_empty({0}, at::kFloat, device));
  return NPU_REASON_NONE;
}

}  // namespace npu::fused
