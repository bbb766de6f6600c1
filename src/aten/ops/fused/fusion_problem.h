// SPDX-License-Identifier: Apache-2.0
// What a call of npu_fusion_attention asks for: layouts, heads, masks.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

#include "aten/ops/fused/fused.h"

namespace npu::fused {

// Arguments of an operator's call, by name.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
      : schema_(op.schema()),
        values_(torch::jit::last(stack, schema_.arguments().size())) {}
  const c10::IValue& operator[](const char* name) const {
    return values_[static_cast<std::size_t>(
        schema_.argumentIndexWithName(name).value())];
  }
  bool has(const char* name) const {
    return !(*this)[name].isNone();
  }
  bool takes(const char* name) const {
    return schema_.argumentIndexWithName(name).has_value();
  }
  at::Tensor tensor(const char* name) const {
    return (*this)[name].toTensor();
  }
  const c10::FunctionSchema& schema() const {
    return schema_;
  }

 private:
  const c10::FunctionSchema& schema_;
  at::ArrayRef<c10::IValue> values_;
};

enum class Layout { kBsh, kSbh, kBsnd, kBnsd, kOther };

inline Layout layout_of(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), ::toupper);
  return name == "BSH"    ? Layout::kBsh
         : name == "SBH"  ? Layout::kSbh
         : name == "BSND" ? Layout::kBsnd
         : name == "BNSD" ? Layout::kBnsd
                          : Layout::kOther;
}

// As (B, N, S, D), a view.
inline at::Tensor heads_first(
    const at::Tensor& x, Layout layout, std::int64_t heads) {
  switch (layout) {
    case Layout::kBnsd:
      return x;
    case Layout::kBsnd:
      return x.transpose(1, 2);
    case Layout::kBsh:
      return x.unflatten(2, {heads, x.size(2) / heads}).transpose(1, 2);
    default:
      return x.unflatten(2, {heads, x.size(2) / heads}).permute({1, 2, 0, 3});
  }
}

inline at::Tensor from_heads(const at::Tensor& x, Layout layout) {
  switch (layout) {
    case Layout::kBnsd:
      return x.contiguous();
    case Layout::kBsnd:
      return x.transpose(1, 2).contiguous();
    case Layout::kBsh:
      return x.transpose(1, 2).flatten(2).contiguous();
    default:
      return x.permute({2, 0, 1, 3}).flatten(2).contiguous();
  }
}

// What both directions read off their arguments.
struct Problem {
  explicit Problem(const Arguments& args)
      : layout(layout_of(args["input_layout"].toStringRef())),
        heads(args["head_num"].toInt()),
        scale(args[args.takes("scale") ? "scale" : "scale_value"].toDouble()) {
    for (const char* name : {"pse", "prefix", "sink", "dropout_mask"}) {
      plain = plain && (!args.takes(name) || !args.has(name));
    }
    const at::Tensor q = args.tensor("query");
    const at::Tensor k = args.tensor("key");
    const at::Tensor v = args.tensor("value");
    const bool flat = layout == Layout::kBsh || layout == Layout::kSbh;
    plain = plain && layout != Layout::kOther && heads > 0 &&
            args["keep_prob"].toDouble() == 1 &&
            args["softmax_layout"].toStringRef().empty() && is_narrow(q) &&
            same_dtype(q, k) && same_dtype(q, v) && k.numel() > 0 &&
            k.sizes() == v.sizes() && q.dim() == (flat ? 3 : 4) &&
            k.dim() == q.dim() && on_device(q, k, v);
    if (!plain) {
      return;
    }
    if (flat) {
      const std::int64_t size = q.size(2) / heads;
      plain = q.size(2) % heads == 0 && k.size(2) % size == 0;
      kv_heads = plain ? k.size(2) / size : 1;
    } else {
      const int at = layout == Layout::kBsnd ? 2 : 1;
      plain = q.size(at) == heads && q.size(3) == k.size(3);
      kv_heads = k.size(at);
    }
    plain = plain && kv_heads > 0 && heads % kv_heads == 0;
    if (plain) {
      look_at_mask(args, q, k);
    }
  }
  // Without a mask every mode is full attention. Modes 2 and 3 are causal,
  // whatever the mask's values.
  void look_at_mask(
      const Arguments& args, const at::Tensor& q, const at::Tensor& k) {
    if (!args.has("atten_mask")) {
      return;
    }
    const std::int64_t mode = args["sparse_mode"].toInt();
    const int at = layout == Layout::kBnsd ? 2 : layout == Layout::kSbh ? 0 : 1;
    causal = true;
    plain = mode == 2 || mode == 3;
    plain = plain && q.size(at) == k.size(at);
  }
  bool plain = true;
  Layout layout;
  std::int64_t heads;
  double scale;
  std::int64_t kv_heads = 1;
  bool causal = false;
};

}  // namespace npu::fused
