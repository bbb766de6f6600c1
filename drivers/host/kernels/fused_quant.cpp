// SPDX-License-Identifier: Apache-2.0
// Kinds quantise and dequantise, rows of int8 and int32.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/fused.h"

namespace npu::host {
namespace {

// Elements that share a scale lie together: all of them, a row, a group of a
// row; of code channel, every `plane` elements have the next one's.
struct Shares {
  std::int64_t count;
  std::int64_t length;
};

Shares shares_of(
    const npu_tensor& in,
    std::uint32_t code,
    std::int64_t axis,
    std::int64_t group) {
  switch (code) {
    case NPU_QUANTISE_DYNAMIC_TOKEN: {
      const std::int64_t length = in.sizes[in.ndim - 1];
      return {in.numel / length, length};
    }
    case NPU_QUANTISE_GROUP:
    case NPU_QUANTISE_DYNAMIC_GROUP:
      return {in.numel / group, group};
    case NPU_QUANTISE_CHANNEL: {
      std::int64_t plane = 1;
      for (std::int64_t d = axis + 1; d < in.ndim; ++d) {
        plane *= in.sizes[d];
      }
      return {in.numel / plane, plane};
    }
    default:
      return {1, in.numel};
  }
}

bool is_dynamic(std::uint32_t code) {
  return code >= NPU_QUANTISE_DYNAMIC_TENSOR;
}

struct Step {
  float scale;
  float zero;
};

// Of the values in * smooth: scale = (max - min) / (high - low), zero such that
// the greatest becomes high.
Step asymmetric_step(
    const float* x,
    const float* smooth,
    std::int64_t n,
    float low,
    float high) {
  float least = std::numeric_limits<float>::infinity();
  float most = -least;
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = smooth != nullptr ? x[i] * smooth[i] : x[i];
    least = value < least ? value : least;
    most = value > most ? value : most;
  }
  const float scale = (most - least) / (high - low);
  return {scale, high - most / (scale == 0 ? 1 : scale)};
}

}  // namespace

// Dynamic and symmetric: scale = largest |in * smooth| / high. A share whose
// scale is 0 has it as result, and is divided by 1.
npu_status quantise_run(const npu_call& call) {
  const npu_quantise_args args = npu_quantise_unpack(&call);
  const Loaded<float> in(args.in);
  const Loaded<float> scale(args.scale);
  const Loaded<float> zero(args.zero);
  const Loaded<float> smooth(args.smooth);
  const Stored<float> scale_out(args.scale_out);
  const Stored<float> zero_out(args.zero_out);
  npu_status status = loaded(in, scale, zero, smooth);
  const DenseBytes out(*args.out);
  auto* const to = reinterpret_cast<std::int8_t*>(out.data());
  const Shares shares =
      shares_of(*args.in, call.code, args.attrs.axis, args.attrs.group_size);
  const FusedTable& table = fused_table();
  const auto low = static_cast<float>(args.attrs.low);
  const auto high = static_cast<float>(args.attrs.high);
  const std::int64_t scales = args.scale != nullptr ? args.scale->numel : 1;
  const auto share = [&](std::int64_t i) {
    const float* const x = in.data() + i * shares.length;
    Step step{scale.at(i % scales, 1), zero.at(i % scales, 0)};
    if (is_dynamic(call.code)) {
      step =
          args.attrs.symmetric != 0
              ? Step{table.largest(x, smooth.data(), shares.length) / high, 0}
              : asymmetric_step(x, smooth.data(), shares.length, low, high);
      scale_out.set(i, step.scale);
      zero_out.set(i, step.zero);
      step.scale = step.scale == 0 ? 1 : step.scale;
    }
    table.round(
        to + i * shares.length,
        x,
        smooth.data(),
        step.scale,
        step.zero,
        low,
        high,
        shares.length);
  };
  status =
      status ? status : for_each_item(shares.count, shares.length * 4, share);
  status = status ? status : out.store();
  return finish(status, scale_out, zero_out);
}

npu_status quantise_caps(std::uint32_t code, npu_op_caps& out) {
  narrow_caps(out);
  out.dtypes[0] = NPU_DTYPE_BIT(NPU_I8);
  return code < NPU_QUANTISE_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

// ((in - zero) + bias) * scale, of code product times the token's scale too.
npu_status dequantise_run(const npu_call& call) {
  const npu_dequantise_args args = npu_dequantise_unpack(&call);
  const Loaded<float> in(args.in);
  const Loaded<float> scale(args.scale);
  const Loaded<float> zero(args.zero);
  const Loaded<float> token(args.token_scale);
  const Loaded<float> bias(args.bias);
  const Stored<float> out(args.out);
  const std::int64_t width = args.in->sizes[args.in->ndim - 1];
  const bool product = call.code == NPU_DEQUANTISE_PRODUCT;
  const Shares shares =
      product
          ? Shares{args.in->numel / width, width}
          : shares_of(
                *args.in, call.code, args.attrs.axis, args.attrs.group_size);
  const std::int64_t scales = args.scale->numel;
  const auto share = [&](std::int64_t i) {
    const float row = token.at(i, 1);
    for (std::int64_t k = 0; k < shares.length; ++k) {
      const std::int64_t at = product ? (scales == 1 ? 0 : k) : i % scales;
      const std::int64_t element = i * shares.length + k;
      const float value = in[element] - zero.at(zero ? at : 0, 0) +
                          bias.at(bias ? element % width : 0, 0);
      out[element] = value * scale[at] * row;
    }
  };
  const npu_status status =
      for_each_item(shares.count, shares.length * 2, share);
  return finish(status, in, scale, zero, token, bias, out);
}

npu_status dequantise_caps(std::uint32_t code, npu_op_caps& out) {
  narrow_caps(out);
  out.dtypes[1] = NPU_DTYPE_BIT(NPU_I8) | NPU_DTYPE_BIT(NPU_I32);
  out.dtypes[5] |= NPU_DTYPE_BIT(NPU_I32);
  return code < NPU_DEQUANTISE_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

}  // namespace npu::host
