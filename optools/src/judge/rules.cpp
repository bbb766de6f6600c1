// SPDX-License-Identifier: Apache-2.0
// How the results of an operator are judged.
#include "judge/rules.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <unordered_map>

#include "core/tool.h"

namespace optools {
namespace {

using Table = std::unordered_map<std::string, Rule>;

void add(Table& table, Rule rule, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    table.emplace(name, rule);
  }
}

Table make_table() {
  Table table;
  add(table,
      Rule::kExact,
      {"abs",
       "absolute",
       "neg",
       "negative",
       "positive",
       "relu",
       "relu6",
       "clone",
       "copy",
       "_to_copy",
       "to",
       "contiguous",
       "cat",
       "_cat",
       "stack",
       "_stack",
       "concat",
       "repeat",
       "repeat_interleave",
       "roll",
       "flip",
       "rot90",
       "tile",
       "index",
       "index_select",
       "index_copy",
       "index_fill",
       "gather",
       "scatter",
       "masked_select",
       "masked_fill",
       "masked_scatter",
       "take",
       "put",
       "where",
       "select_backward",
       "slice_backward",
       "select_scatter",
       "slice_scatter",
       "diagonal_scatter",
       "as_strided_scatter",
       "diagonal_backward",
       "constant_pad_nd",
       "pad",
       "reflection_pad1d",
       "reflection_pad2d",
       "reflection_pad3d",
       "replication_pad1d",
       "replication_pad2d",
       "replication_pad3d",
       "tril",
       "triu",
       "diag",
       "diag_embed",
       "fill",
       "full",
       "full_like",
       "zero",
       "zeros",
       "zeros_like",
       "ones",
       "ones_like",
       "new_zeros",
       "new_ones",
       "new_full",
       "eye",
       "scalar_tensor",
       "embedding",
       "eq",
       "ne",
       "lt",
       "le",
       "gt",
       "ge",
       "logical_and",
       "logical_or",
       "logical_xor",
       "logical_not",
       "bitwise_and",
       "bitwise_or",
       "bitwise_xor",
       "bitwise_not",
       "__lshift__",
       "__rshift__",
       "isnan",
       "isinf",
       "isfinite",
       "isposinf",
       "isneginf",
       "isin",
       "sign",
       "signbit",
       "sgn",
       "floor",
       "ceil",
       "trunc",
       "round",
       "heaviside",
       "clamp",
       "clamp_min",
       "clamp_max",
       "maximum",
       "minimum",
       "fmax",
       "fmin",
       "amax",
       "amin",
       "aminmax",
       "any",
       "all",
       "nonzero",
       "bincount",
       "unique_dim",
       "_unique2",
       "one_hot",
       "threshold",
       "threshold_backward",
       "hardtanh",
       "hardtanh_backward",
       "max_pool2d_with_indices_backward",
       "unfold_copy",
       "view_copy",
       "expand_copy",
       "permute_copy",
       "transpose_copy",
       "nan_to_num",
       "searchsorted",
       "bucketize",
       "split_copy",
       "unbind_copy",
       "equal",
       "_local_scalar_dense",
       "item",
       "copysign",
       "frac",
       "tril_indices",
       "triu_indices",
       "_copy_from",
       "lift_fresh_copy",
       "detach_copy",
       "channel_shuffle",
       "pixel_shuffle",
       "pixel_unshuffle",
       "narrow_copy",
       "_reshape_copy",
       "slice_copy",
       "select_copy",
       "block_diag"});
  add(table,
      Rule::kProducts,
      {"mm",
       "addmm",
       "bmm",
       "baddbmm",
       "mv",
       "addmv",
       "dot",
       "vdot",
       "addr",
       "addbmm",
       "linear",
       "matmul",
       "convolution",
       "_convolution",
       "convolution_backward",
       "convolution_overrideable",
       "convolution_backward_overrideable",
       "mkldnn_convolution",
       "mkldnn_linear",
       "_trilinear",
       "linear_backward",
       "_addmm_activation",
       "cudnn_convolution",
       "thnn_conv2d",
       "conv_depthwise3d",
       "_conv_depthwise2d",
       "slow_conv3d",
       "slow_conv_transpose2d",
       "ger",
       "sum",
       "mean",
       "nansum",
       "embedding_dense_backward",
       "avg_pool2d",
       "_adaptive_avg_pool2d",
       "inner",
       "chain_matmul",
       "tensordot",
       "add",
       "addcmul",
       "addcdiv",
       "lerp"});
  add(table,
      Rule::kByInput,
      {"gelu",
       "silu",
       "mish",
       "hardswish",
       "gelu_backward",
       "silu_backward",
       "mish_backward",
       "hardswish_backward",
       "elu",
       "elu_backward",
       "celu",
       "selu",
       "log_sigmoid_forward",
       "log_sigmoid_backward",
       "softplus",
       "softplus_backward"});
  add(table, Rule::kLayerNorm, {"native_layer_norm", "layer_norm"});
  add(table,
      Rule::kNormBackward,
      {"native_layer_norm_backward",
       "_fused_rms_norm_backward",
       "native_batch_norm_backward",
       "native_group_norm_backward",
       "batch_norm_backward",
       "cudnn_batch_norm_backward"});
  add(table, Rule::kRange, {"linspace", "arange", "range"});
  add(table, Rule::kLogSoftmax, {"_log_softmax"});
  add(table, Rule::kSoftmaxBackward, {"_softmax_backward_data"});
  add(table, Rule::kLogSoftmaxBackward, {"_log_softmax_backward_data"});
  add(table,
      Rule::kSelected,
      {"max",
       "min",
       "argmax",
       "argmin",
       "sort",
       "argsort",
       "topk",
       "kthvalue",
       "median",
       "nanmedian",
       "mode",
       "cummax",
       "cummin",
       "_cummax_helper",
       "_cummin_helper",
       "max_pool2d_with_indices",
       "max_pool3d_with_indices",
       "adaptive_max_pool2d",
       "adaptive_max_pool3d",
       "fractional_max_pool2d",
       "fractional_max_pool3d"});
  add(table,
      Rule::kAttention,
      {"_scaled_dot_product_fused_attention_overrideable",
       "_scaled_dot_product_fused_attention_overrideable_backward",
       "_scaled_dot_product_efficient_attention",
       "_scaled_dot_product_efficient_attention_backward",
       "_scaled_dot_product_flash_attention",
       "_scaled_dot_product_flash_attention_backward",
       "_scaled_dot_product_flash_attention_for_cpu",
       "_scaled_dot_product_flash_attention_for_cpu_backward",
       "_scaled_dot_product_cudnn_attention",
       "_scaled_dot_product_cudnn_attention_backward"});
  add(table, Rule::kRecurrent, {"mkldnn_rnn_layer"});
  add(table,
      Rule::kResampled,
      {"upsample_linear1d",
       "upsample_linear1d_backward",
       "upsample_bilinear2d",
       "upsample_bilinear2d_backward",
       "upsample_trilinear3d",
       "upsample_trilinear3d_backward",
       "upsample_bicubic2d",
       "upsample_bicubic2d_backward"});
  add(table,
      Rule::kGrid,
      {"grid_sampler_2d",
       "grid_sampler_2d_backward",
       "grid_sampler_3d",
       "grid_sampler_3d_backward",
       "cudnn_grid_sampler",
       "cudnn_grid_sampler_backward",
       "affine_grid_generator"});
  add(table,
      Rule::kWhole,
      {"_fft_r2c",
       "_fft_c2r",
       "_fft_c2c",
       "linalg_matrix_exp",
       "linalg_qr",
       "linalg_inv_ex",
       "linalg_lu_factor_ex",
       "linalg_lu_solve",
       "linalg_solve_triangular",
       "linalg_householder_product",
       "_linalg_eigh",
       "_linalg_svd",
       "_linalg_solve_ex"});
  return table;
}

bool has_prefix(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

// Operators whose kernel run on the CPU would be no reference.
const char* why_not(const Operator& op, const std::string& base) {
  if (op.uninitialised) {
    return "allocates only: the contents mean nothing yet";
  }
  const auto& name = op.name;
  if (op.collective) {
    return "a collective: other processes take part";
  }
  if (base == "mkldnn_rnn_layer_backward") {
    return "reads bytes its forward kernel left, which no other dtype's can";
  }
  if (has_prefix(name, "profiler::") || has_prefix(name, "debugprims::")) {
    return "computes nothing";
  }
  for (const char* each :
       {"set",
        "record_stream",
        "_pin_memory",
        "is_pinned",
        "_resize_output",
        "_nested_tensor_from_tensor_list",
        "_assert_async",
        "_assert_tensor_metadata",
        "_has_compatible_shallow_copy_type",
        "_record_function_enter",
        "_foobar",
        "is_set_to"}) {
    if (base == each) {
      return "computes nothing";
    }
  }
  return nullptr;
}

}  // namespace

std::string base_name(const Operator& op) {
  std::string name = op.id.name;
  const auto colon = name.rfind("::");
  if (colon != std::string::npos) {
    name = name.substr(colon + 2);
  }
  if (has_prefix(name, "_foreach_")) {
    name = name.substr(9);
  }
  if (name.size() > 2 && name.back() == '_' && name[name.size() - 2] != '_') {
    name.pop_back();
  }
  return name;
}

bool has_host_kernel(const Operator& op) {
  return op.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

const char* no_reference(const Operator& op, const OperatorRule& rule) {
  if (rule.rule == Rule::kAttention || has_host_kernel(op) ||
      has_definition(op)) {
    return nullptr;
  }
  const auto& returns = op.handle.schema().returns();
  const bool tensors =
      std::any_of(returns.begin(), returns.end(), [](const auto& each) {
        const auto kind = each.type()->kind();
        return kind == c10::TypeKind::TensorType ||
               kind == c10::TypeKind::ListType ||
               kind == c10::TypeKind::OptionalType;
      });
  return tensors || op.writes ? kNoHostKernel : kNoTensor;
}

OperatorRule rule_of(const Operator& op) {
  static const Table table = make_table();
  OperatorRule found;
  const std::string base = base_name(op);
  found.pointwise = op.handle.hasTag(at::Tag::pointwise) ||
                    (op.id.name.find("::_foreach_") != std::string::npos &&
                     base != "norm") ||  // which sums
                    op.id.name.find("::_fused_") != std::string::npos;
  if (const char* why = why_not(op, base)) {
    found.rule = Rule::kNotJudged;
    found.why_not = why;
  } else if (const auto it = table.find(base); it != table.end()) {
    found.rule = it->second;
  }
  // max(a, b) of two tensors, and the pointwise ones of the foreach family,
  // return no indices.
  if (found.rule == Rule::kSelected && found.pointwise) {
    found.rule = Rule::kExact;
  }
  return found;
}

int64_t terms_of(
    const OperatorRule& rule,
    c10::ArrayRef<c10::IValue> inputs,
    int64_t results) {
  if (rule.pointwise) {
    return 1;
  }
  int64_t longest = 1;
  int64_t first = 0;
  for (const auto& value : inputs) {
    each_tensor(value, [&](const at::Tensor& t) {
      first = first == 0 ? t.numel() : first;
      for (const auto size : t.sizes()) {
        longest = std::max(longest, size);
      }
    });
  }
  return std::max(longest, first / std::max<int64_t>(results, 1));
}

bool draws(const Operator& op, c10::ArrayRef<c10::IValue> inputs) {
  if (!op.random) {
    return false;
  }
  const auto& arguments = op.handle.schema().arguments();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& name = arguments[i].name();
    if ((name == "dropout_p" || name == "dropout") && inputs[i].isDouble() &&
        inputs[i].toDouble() == 0) {
      return false;
    }
    if ((name == "training" || name == "train") && inputs[i].isBool() &&
        !inputs[i].toBool()) {
      return false;
    }
  }
  return true;
}

}  // namespace optools
