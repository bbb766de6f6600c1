// SPDX-License-Identifier: Apache-2.0
// Kinds conv, conv_grad_input and conv_grad_weight.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
//
// One relation serves all of them, transposed or not. A "wide" tensor (what a
// convolution reads) and a "narrow" one (what it writes) are tied by
//   wide position = narrow position * stride - padding + tap * dilation
// and by weights (narrow channels, wide channels / groups, taps). A transposed
// convolution is the same with the roles of input and output exchanged:
//
//                       conv     transposed
//   conv                gather   scatter      gather:  wide -> narrow
//   conv_grad_input     scatter  gather       scatter: narrow -> wide
//   conv_grad_weight    weigh    weigh        weigh:   both -> weights
#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/dense.h"
#include "kernels/epilogue.h"

namespace npu::host {
namespace {

// Sums are kept in double, or in the type itself where that is no float.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, float>, double, T>;

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

// Sizes of the relation; fewer than three spatial dims are led by ones.
struct Relation {
  std::int64_t batch;
  std::int64_t groups;
  std::int64_t wide_channels;    // of one group
  std::int64_t narrow_channels;  // of one group
  std::int64_t wide[3] = {1, 1, 1};
  std::int64_t narrow[3] = {1, 1, 1};
  std::int64_t taps[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1};
  std::int64_t padding[3] = {0, 0, 0};
  std::int64_t dilation[3] = {1, 1, 1};

  template <class Attrs>
  Relation(
      const Attrs& attrs,
      const npu_tensor& wide_tensor,
      const npu_tensor& narrow_tensor,
      const npu_tensor& weight)
      : batch(wide_tensor.sizes[0]),
        groups(attrs.groups),
        wide_channels(wide_tensor.sizes[1] / attrs.groups),
        narrow_channels(narrow_tensor.sizes[1] / attrs.groups) {
    for (std::int64_t d = 0; d < attrs.spatial; ++d) {
      const std::int64_t at = 3 - attrs.spatial + d;
      wide[at] = wide_tensor.sizes[2 + d];
      narrow[at] = narrow_tensor.sizes[2 + d];
      taps[at] = weight.sizes[2 + d];
      stride[at] = attrs.stride[d];
      padding[at] = attrs.padding[d];
      dilation[at] = attrs.dilation[d];
    }
  }

  std::int64_t wide_plane() const {
    return wide[0] * wide[1] * wide[2];
  }
  std::int64_t narrow_plane() const {
    return narrow[0] * narrow[1] * narrow[2];
  }
  std::int64_t tap_count() const {
    return taps[0] * taps[1] * taps[2];
  }
  // Where tap k of narrow position 0 lies.
  std::int64_t offset(int d, std::int64_t k) const {
    return k * dilation[d] - padding[d];
  }
  // The narrow position that reads wide position x with tap k, or -1.
  std::int64_t narrow_of(int d, std::int64_t x, std::int64_t k) const {
    const std::int64_t scaled = x - offset(d, k);
    const std::int64_t at = scaled / stride[d];
    return scaled >= 0 && at * stride[d] == scaled && at < narrow[d] ? at : -1;
  }
  // Narrow positions whose tap k lies inside the wide tensor.
  Range inside(int d, std::int64_t k) const {
    const std::int64_t first = -offset(d, k);
    const std::int64_t last = wide[d] - 1 - offset(d, k);
    return {
        first > 0 ? (first + stride[d] - 1) / stride[d] : 0,
        last < 0 ? 0 : std::min(narrow[d], last / stride[d] + 1)};
  }
};

// Rows a thread should have, for rows of `work` products each.
std::int64_t grain_of(std::int64_t work) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, work));
}

// One row of the narrow tensor: every wide channel, every tap.
template <class T>
void gather_row(
    const Relation& r,
    const T* wide,    // channels of one image and group
    const T* weight,  // of one narrow channel
    std::int64_t z,
    std::int64_t y,
    SumOf<T>* row) {
  for (std::int64_t c = 0; c < r.wide_channels; ++c) {
    for (std::int64_t k = 0; k < r.tap_count(); ++k) {
      const std::int64_t kx = k % r.taps[2];
      const std::int64_t wz =
          z * r.stride[0] + r.offset(0, k / r.taps[2] / r.taps[1]);
      const std::int64_t wy =
          y * r.stride[1] + r.offset(1, k / r.taps[2] % r.taps[1]);
      if (wz < 0 || wz >= r.wide[0] || wy < 0 || wy >= r.wide[1]) {
        continue;
      }
      const T* line = wide + c * r.wide_plane() +
                      (wz * r.wide[1] + wy) * r.wide[2] + r.offset(2, kx);
      const SumOf<T> w = weight[c * r.tap_count() + k];
      const Range xs = r.inside(2, kx);
      for (std::int64_t x = xs.begin; x < xs.end; ++x) {
        row[x] += w * static_cast<SumOf<T>>(line[x * r.stride[2]]);
      }
    }
  }
}

template <class T>
npu_status gather(
    const Relation& r,
    const T* wide,
    const T* weight,
    const T* bias,
    T* narrow) {
  const std::int64_t channels = r.groups * r.narrow_channels;
  const std::int64_t rows = r.batch * channels * r.narrow[0] * r.narrow[1];
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    std::vector<SumOf<T>> row(static_cast<std::size_t>(r.narrow[2]));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t y = i % r.narrow[1];
      const std::int64_t z = i / r.narrow[1] % r.narrow[0];
      const std::int64_t c = i / r.narrow[1] / r.narrow[0] % channels;
      const std::int64_t n = i / r.narrow[1] / r.narrow[0] / channels;
      const std::int64_t group = c / r.narrow_channels;
      std::fill(row.begin(), row.end(), bias ? SumOf<T>(bias[c]) : SumOf<T>(0));
      gather_row(
          r,
          wide + (n * r.groups + group) * r.wide_channels * r.wide_plane(),
          weight + c * r.wide_channels * r.tap_count(),
          z,
          y,
          row.data());
      std::transform(
          row.begin(), row.end(), narrow + i * r.narrow[2], [](SumOf<T> sum) {
            return static_cast<T>(sum);
          });
    }
  };
  const std::int64_t work = r.wide_channels * r.tap_count() * r.narrow[2];
  return parallel(rows, grain_of(work), body);
}

// One row of the wide tensor: every narrow channel of the group, every tap.
template <class T>
void scatter_row(
    const Relation& r,
    const T* narrow,  // channels of one image and group
    const T* weight,  // of the group, from the row's wide channel on
    std::int64_t z,
    std::int64_t y,
    SumOf<T>* row) {
  for (std::int64_t c = 0; c < r.narrow_channels; ++c) {
    for (std::int64_t k = 0; k < r.tap_count(); ++k) {
      const std::int64_t kx = k % r.taps[2];
      const std::int64_t nz = r.narrow_of(0, z, k / r.taps[2] / r.taps[1]);
      const std::int64_t ny = r.narrow_of(1, y, k / r.taps[2] % r.taps[1]);
      if (nz < 0 || ny < 0) {
        continue;
      }
      const T* line =
          narrow + c * r.narrow_plane() + (nz * r.narrow[1] + ny) * r.narrow[2];
      const SumOf<T> w = weight[c * r.wide_channels * r.tap_count() + k];
      const Range xs = r.inside(2, kx);
      SumOf<T>* to = row + r.offset(2, kx);
      for (std::int64_t x = xs.begin; x < xs.end; ++x) {
        to[x * r.stride[2]] += w * static_cast<SumOf<T>>(line[x]);
      }
    }
  }
}

template <class T>
npu_status scatter(
    const Relation& r,
    const T* narrow,
    const T* weight,
    const T* bias,
    T* wide) {
  const std::int64_t channels = r.groups * r.wide_channels;
  const std::int64_t rows = r.batch * channels * r.wide[0] * r.wide[1];
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    std::vector<SumOf<T>> row(static_cast<std::size_t>(r.wide[2]));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t y = i % r.wide[1];
      const std::int64_t z = i / r.wide[1] % r.wide[0];
      const std::int64_t c = i / r.wide[1] / r.wide[0] % channels;
      const std::int64_t n = i / r.wide[1] / r.wide[0] / channels;
      const std::int64_t group = c / r.wide_channels;
      const std::int64_t first = group * r.narrow_channels;
      std::fill(row.begin(), row.end(), bias ? SumOf<T>(bias[c]) : SumOf<T>(0));
      scatter_row(
          r,
          narrow +
              (n * r.groups + group) * r.narrow_channels * r.narrow_plane(),
          weight +
              (first * r.wide_channels + c % r.wide_channels) * r.tap_count(),
          z,
          y,
          row.data());
      std::transform(
          row.begin(), row.end(), wide + i * r.wide[2], [](SumOf<T> sum) {
            return static_cast<T>(sum);
          });
    }
  };
  const std::int64_t work = r.narrow_channels * r.tap_count() * r.wide[2];
  return parallel(rows, grain_of(work), body);
}

// The sum for one weight over one image's planes.
template <class T>
SumOf<T> weigh_plane(
    const Relation& r, const T* wide, const T* narrow, std::int64_t k) {
  const std::int64_t kx = k % r.taps[2];
  const std::int64_t ky = k / r.taps[2] % r.taps[1];
  const std::int64_t kz = k / r.taps[2] / r.taps[1];
  const Range zs = r.inside(0, kz);
  const Range ys = r.inside(1, ky);
  const Range xs = r.inside(2, kx);
  SumOf<T> sum(0);
  for (std::int64_t z = zs.begin; z < zs.end; ++z) {
    for (std::int64_t y = ys.begin; y < ys.end; ++y) {
      const std::int64_t wz = z * r.stride[0] + r.offset(0, kz);
      const std::int64_t wy = y * r.stride[1] + r.offset(1, ky);
      const T* from =
          wide + (wz * r.wide[1] + wy) * r.wide[2] + r.offset(2, kx);
      const T* with = narrow + (z * r.narrow[1] + y) * r.narrow[2];
      for (std::int64_t x = xs.begin; x < xs.end; ++x) {
        sum += static_cast<SumOf<T>>(with[x]) *
               static_cast<SumOf<T>>(from[x * r.stride[2]]);
      }
    }
  }
  return sum;
}

template <class T>
npu_status weigh(const Relation& r, const T* wide, const T* narrow, T* weight) {
  const std::int64_t per_channel = r.wide_channels * r.tap_count();
  const std::int64_t weights = r.groups * r.narrow_channels * per_channel;
  return for_each_item(
      weights, r.batch * r.narrow_plane(), [&](std::int64_t i) {
        const std::int64_t c = i / per_channel;  // narrow
        const std::int64_t group = c / r.narrow_channels;
        const std::int64_t from =
            group * r.wide_channels + i / r.tap_count() % r.wide_channels;
        SumOf<T> sum(0);
        for (std::int64_t n = 0; n < r.batch; ++n) {
          sum += weigh_plane(
              r,
              wide + (n * r.groups * r.wide_channels + from) * r.wide_plane(),
              narrow +
                  (n * r.groups * r.narrow_channels + c) * r.narrow_plane(),
              i % r.tap_count());
        }
        weight[i] = static_cast<T>(sum);
      });
}

// Sums over everything but the channel (dim 1).
template <class T>
npu_status sum_channels(const npu_tensor& tensor, const T* data, T* out) {
  const std::int64_t channels = tensor.sizes[1];
  const std::int64_t plane = tensor.numel / tensor.sizes[0] / channels;
  return for_each_item(channels, tensor.numel / channels, [&](std::int64_t c) {
    SumOf<T> sum(0);
    for (std::int64_t n = 0; n < tensor.sizes[0]; ++n) {
      const T* from = data + (n * channels + c) * plane;
      for (std::int64_t i = 0; i < plane; ++i) {
        sum += static_cast<SumOf<T>>(from[i]);
      }
    }
    out[c] = static_cast<T>(sum);
  });
}

npu_status conv(const npu_call& call) {
  const npu_conv_args args = npu_conv_unpack(&call);
  return with_number(args.out->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Loaded<T> weight(args.weight);
    const Loaded<T> bias(args.bias);
    const Stored<T> out(args.out);
    const bool transposed = args.attrs.transposed != 0;
    const Relation r(
        args.attrs,
        transposed ? *args.out : *args.in,
        transposed ? *args.in : *args.out,
        *args.weight);
    const auto run = transposed ? scatter<T> : gather<T>;
    const npu_status status =
        run(r, in.data(), weight.data(), bias.data(), out.data());
    for (std::int64_t i = 0; args.attrs.epilogue != 0 && i < args.out->numel;
         ++i) {
      out[i] = finished(args.attrs.epilogue, out[i]);
    }
    return finish(status, in, weight, bias, out);
  });
}

npu_status conv_grad_input(const npu_call& call) {
  const npu_conv_grad_input_args args = npu_conv_grad_input_unpack(&call);
  return with_number(args.grad_in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> weight(args.weight);
    const Stored<T> out(args.grad_in);
    const bool transposed = args.attrs.transposed != 0;
    const Relation r(
        args.attrs,
        transposed ? *args.grad_out : *args.grad_in,
        transposed ? *args.grad_in : *args.grad_out,
        *args.weight);
    const auto run = transposed ? gather<T> : scatter<T>;
    const npu_status status =
        run(r, grad.data(), weight.data(), nullptr, out.data());
    return finish(status, grad, weight, out);
  });
}

npu_status conv_grad_weight(const npu_call& call) {
  const npu_conv_grad_weight_args args = npu_conv_grad_weight_unpack(&call);
  return with_number(args.grad_weight->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> in(args.in);
    const Stored<T> out(args.grad_weight);
    const Stored<T> bias(args.grad_bias);
    const bool transposed = args.attrs.transposed != 0;
    const Relation r(
        args.attrs,
        transposed ? *args.grad_out : *args.in,
        transposed ? *args.in : *args.grad_out,
        *args.grad_weight);
    npu_status status = weigh(
        r,
        transposed ? grad.data() : in.data(),
        transposed ? in.data() : grad.data(),
        out.data());
    if (status == NPU_OK && bias) {
      status = sum_channels(*args.grad_out, grad.data(), bias.data());
    }
    return finish(status, grad, in, out, bias);
  });
}

constexpr std::uint64_t kConvDtypes =
    kFloatDtypes | kComplexDtypes | NPU_DTYPE_BIT(NPU_I64);

npu_status conv_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  plain_caps(
      out,
      NPU_DTYPES_SAME,
      {kConvDtypes, kConvDtypes, kConvDtypes, kConvDtypes});
  out.accumulate = NPU_DTYPE_BIT(NPU_F64);
  out.flags |= NPU_CAP_EPILOGUE;
  return NPU_OK;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_CONV, conv_caps, nullptr, conv},
    {NPU_KIND_CONV_GRAD_INPUT, conv_caps, nullptr, conv_grad_input},
    {NPU_KIND_CONV_GRAD_WEIGHT, conv_caps, nullptr, conv_grad_weight},
};

}  // namespace

const std::span<const KernelRow> kConvKernels = kRows;

}  // namespace npu::host
