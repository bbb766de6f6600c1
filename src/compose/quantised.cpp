// SPDX-License-Identifier: Apache-2.0
// quantise and dequantise.
#include "compose/decompositions.h"

namespace npu::compose {
namespace {

// The elements arranged so that a scale broadcasts over those that share it.
struct Shares {
  Sizes elements;
  Sizes scales;
  std::uint64_t dims = 0;  // of elements, within one share
};

Shares shares_of(
    const Tensor& x,
    std::uint32_t code,
    std::int64_t axis,
    std::int64_t group) {
  Shares out;
  out.elements = x.sizes();
  if (code == NPU_QUANTISE_GROUP || code == NPU_QUANTISE_DYNAMIC_GROUP) {
    out.elements = {x.numel() / group, group};
  }
  const auto dims = out.elements.size();
  out.scales.assign(dims, 1);
  switch (code) {
    case NPU_QUANTISE_CHANNEL:
      out.scales[static_cast<std::size_t>(axis)] =
          x.size(static_cast<int>(axis));
      break;
    case NPU_QUANTISE_GROUP:
    case NPU_QUANTISE_DYNAMIC_GROUP:
    case NPU_QUANTISE_DYNAMIC_TOKEN:
      out.scales = out.elements;
      out.scales.back() = 1;
      break;
    default:
      break;
  }
  for (std::size_t d = 0; d < dims; ++d) {
    out.dims |= out.scales[d] == 1 ? dim_bit(static_cast<int>(d)) : 0;
  }
  return out;
}

// Sizes of one element become as many ones as needed.
Tensor arranged(Builder& build, const Tensor& x, const Sizes& sizes) {
  if (!x) {
    return x;
  }
  const Tensor whole = build.contiguous(build.cast(x, NPU_F32));
  return whole.numel() == 1 ? whole.reshape({1}) : whole.reshape(sizes);
}

struct Steps {
  Tensor scale;
  Tensor zero;  // may be absent
};

// Zeros become ones: a share without any spread is divided by 1.
Tensor divisor(Builder& build, const Tensor& scale) {
  const Tensor none =
      build.compare(NPU_COMPARE_EQ, scale, build.constant(NPU_F32, 0));
  return build.where(none, build.constant(NPU_F32, 1), scale);
}

// Scale and zero of each share, from its values.
Steps measured(
    Builder& build,
    const Tensor& x,
    const Shares& shares,
    const npu_quantise_attrs& attrs) {
  const auto high = static_cast<double>(attrs.high);
  const auto extreme = [&](std::uint32_t code, const Tensor& of) {
    return shares.dims != 0 ? build.reduce(code, of, shares.dims) : of;
  };
  if (attrs.symmetric != 0) {
    const Tensor most = extreme(NPU_REDUCE_MAX, build.unary(NPU_UNARY_ABS, x));
    return {build.div(most, build.constant(NPU_F32, high)), {}};
  }
  const Tensor most = extreme(NPU_REDUCE_MAX, x);
  const Tensor spread = build.sub(most, extreme(NPU_REDUCE_MIN, x));
  const Tensor scale = build.div(
      spread, build.constant(NPU_F32, high - static_cast<double>(attrs.low)));
  const Tensor steps = build.div(most, divisor(build, scale));
  return {scale, build.affine(steps, -1, high)};
}

}  // namespace

void quantise(Builder& build) {
  const auto attrs = build.attrs<npu_quantise_attrs>();
  const std::uint32_t code = build.call().code;
  Tensor x = build.cast(build.in(0), NPU_F32);
  if (const Tensor smooth = build.in(3)) {
    x = build.mul(x, build.cast(smooth, NPU_F32));
  }
  const Shares shares = shares_of(x, code, attrs.axis, attrs.group_size);
  x = build.contiguous(x).reshape(shares.elements);
  Steps steps;
  if (code >= NPU_QUANTISE_DYNAMIC_TENSOR) {
    steps = measured(build, x, shares, attrs);
    if (build.out(1)) {
      build.copy(build.out(1), steps.scale.reshape(build.out(1).sizes()));
    }
    if (build.out(2) && steps.zero) {
      build.copy(build.out(2), steps.zero.reshape(build.out(2).sizes()));
    }
    steps.scale = divisor(build, steps.scale);
  } else {
    steps.scale = arranged(build, build.in(1), shares.scales);
    steps.zero = arranged(build, build.in(2), shares.scales);
  }
  Tensor value = steps.scale ? build.div(x, steps.scale) : x;
  value = steps.zero ? build.add(value, steps.zero) : value;
  const Tensor whole = build.unary(NPU_UNARY_ROUND, value);
  const Tensor inside = build.make(NPU_F32, whole.sizes());
  build.unary_with(
      NPU_UNARY_WITH_CLAMP,
      inside,
      whole,
      number(static_cast<double>(attrs.low)),
      number(static_cast<double>(attrs.high)));
  build.copy(build.out(0), inside.reshape(build.out(0).sizes()));
}

void dequantise(Builder& build) {
  const auto attrs = build.attrs<npu_dequantise_attrs>();
  const std::uint32_t code = build.call().code;
  Tensor x = build.contiguous(build.cast(build.in(0), NPU_F32));
  const bool product = code == NPU_DEQUANTISE_PRODUCT;
  if (const Tensor bias = build.in(4)) {
    x = build.add(x, build.cast(bias, NPU_F32));
  }
  Sizes scales{x.size(x.ndim() - 1)};
  if (!product) {
    const Shares shares = shares_of(x, code, attrs.axis, attrs.group_size);
    x = x.reshape(shares.elements);
    scales = shares.scales;
  }
  if (const Tensor zero = arranged(build, build.in(2), scales)) {
    x = build.sub(x, zero);
  }
  x = build.mul(x, arranged(build, build.in(1), scales));
  if (build.in(3)) {
    Sizes rows = x.sizes();
    rows.back() = 1;
    x = build.mul(x, arranged(build, build.in(3), rows));
  }
  build.copy(build.out(0), x.reshape(build.out(0).sizes()));
}

}  // namespace npu::compose
