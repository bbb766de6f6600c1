// SPDX-License-Identifier: Apache-2.0
// PyTorch's own CPU kernels that are less precise than the standard asks for.
#include "judge/imprecise.h"

namespace optools {
namespace {

using c10::ScalarType;

struct Imprecise {
  const char* op;
  ScalarType dtype;  // of the result
  double e;          // measured, rounded up
  // Its terms, or their factors, are rounded to that.
  ScalarType sums_in = ScalarType::Undefined;
};

// Reviewed one by one: what the kernel does, and E as OpAutoCompare measured
// it with PyTorch 2.13 on an x86 CPU.
constexpr Imprecise kImprecise[] = {
    // Sum in the dtype of the result: weight gradients over rows, gradients of
    // rows that are read several times, products, the columns of a convolution.
    {"native_layer_norm_backward",
     ScalarType::BFloat16,
     27,
     ScalarType::BFloat16},
    {"native_layer_norm_backward", ScalarType::Half, 28.1, ScalarType::Half},
    // The same kernel with float32 weights, as autocast calls it: their float32
    // gradients have the digits of the input's dtype.
    {"native_layer_norm_backward",
     ScalarType::Float,
     4920,
     ScalarType::BFloat16},
    {"native_layer_norm_backward", ScalarType::Float, 503, ScalarType::Half},
    {"_adaptive_avg_pool2d_backward",
     ScalarType::BFloat16,
     48.2,
     ScalarType::BFloat16},
    {"_adaptive_avg_pool2d_backward", ScalarType::Half, 12.3, ScalarType::Half},
    {"embedding_dense_backward",
     ScalarType::BFloat16,
     7.7,
     ScalarType::BFloat16},
    {"embedding_dense_backward", ScalarType::Half, 6.7, ScalarType::Half},
    {"_index_put_impl", ScalarType::BFloat16, 7.7, ScalarType::BFloat16},
    {"_index_put_impl", ScalarType::Half, 8.6, ScalarType::Half},
    {"prod", ScalarType::BFloat16, 1.5, ScalarType::BFloat16},
    {"prod", ScalarType::Half, 1.7, ScalarType::Half},
    {"convolution", ScalarType::Half, 161, ScalarType::Half},
    {"convolution_backward", ScalarType::Half, 109, ScalarType::Half},
    // Round scale and shift to the dtype before they are applied.
    {"native_batch_norm", ScalarType::BFloat16, 126, ScalarType::BFloat16},
    {"native_batch_norm", ScalarType::Half, 15.2, ScalarType::Half},
    // Weights and places between pixels in the dtype of the image.
    {"upsample_linear1d", ScalarType::BFloat16, 47},
    {"upsample_linear1d", ScalarType::Half, 12},
    {"upsample_bilinear2d", ScalarType::BFloat16, 97},
    {"upsample_bilinear2d", ScalarType::Half, 23},
    {"upsample_trilinear3d", ScalarType::BFloat16, 274},
    {"upsample_trilinear3d", ScalarType::Half, 60},
    {"upsample_bicubic2d", ScalarType::BFloat16, 106},
    {"upsample_bicubic2d", ScalarType::Half, 91},
    {"grid_sampler_2d", ScalarType::BFloat16, 249},
    {"grid_sampler_2d", ScalarType::Half, 250},
    {"grid_sampler_2d_backward", ScalarType::BFloat16, 273},
    {"grid_sampler_2d_backward", ScalarType::Half, 2226},
    // Momentum and update rounded to the dtype in between.
    {"_fused_sgd", ScalarType::BFloat16, 136},
    {"_fused_sgd", ScalarType::Half, 1087},
    // Rounded more than once.
    {"mse_loss_backward", ScalarType::Half, 1.5},
    {"sigmoid_backward", ScalarType::Half, 1.3},
};

bool reads(const HostCall& call, ScalarType dtype) {
  bool found = false;
  for (const auto& value : call.inputs) {
    each_tensor(value, [&](const at::Tensor& t) {
      found = found || t.scalar_type() == dtype;
    });
  }
  return found;
}

const Imprecise* found_in_list(const HostCall& call, ScalarType dtype) {
  const std::string name = base_name(*call.op);
  for (const auto& each : kImprecise) {
    const bool mixed =
        each.sums_in != ScalarType::Undefined && each.sums_in != dtype;
    if (each.dtype == dtype && name == each.op &&
        (!mixed || reads(call, each.sums_in))) {
      return &each;
    }
  }
  return nullptr;
}

}  // namespace

double known_imprecision(const HostCall& call, ScalarType dtype) {
  const auto* known = found_in_list(call, dtype);
  return known != nullptr ? known->e : 0;
}

ScalarType narrow_sums(const HostCall& call, ScalarType dtype) {
  const auto* known = found_in_list(call, dtype);
  return known != nullptr ? known->sums_in : ScalarType::Undefined;
}

}  // namespace optools
