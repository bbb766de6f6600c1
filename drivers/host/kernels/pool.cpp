// SPDX-License-Identifier: Apache-2.0
// pool, fractional_pool, unpool and the gradients.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/index.h"
#include "kernels/planes.h"

namespace npu::host {
namespace {

// ---- windows ----

// The part of a plane that one output element looks at.
struct Window {
  Triple begin;
  Triple end;
  Triple step{1, 1, 1};
  std::int64_t whole = 1;  // elements, padding included

  // body(place) in order.
  template <class Body>
  void walk(const Triple& sizes, Body body) const {
    for (std::int64_t i = begin[0]; i < end[0]; i += step[0]) {
      for (std::int64_t j = begin[1]; j < end[1]; j += step[1]) {
        for (std::int64_t k = begin[2]; k < end[2]; k += step[2]) {
          body((i * sizes[1] + j) * sizes[2] + k);
        }
      }
    }
  }
  std::int64_t count() const {
    std::int64_t n = 1;
    for (std::size_t d = 0; d < 3; ++d) {
      n *= std::max<std::int64_t>(end[d] - begin[d], 0);
    }
    return n;
  }
};

bool is_adaptive(std::uint32_t code) {
  return code == NPU_POOL_ADAPTIVE_AVG || code == NPU_POOL_ADAPTIVE_MAX;
}
bool is_max(std::uint32_t code) {
  return code == NPU_POOL_MAX || code == NPU_POOL_ADAPTIVE_MAX;
}

struct Pooling {
  std::uint32_t code;
  npu_pool_attrs attrs;
  Triple in;
  Triple out;

  Window window(const Triple& at) const {
    Window w;
    for (std::size_t d = 0; d < 3; ++d) {
      if (is_adaptive(code)) {
        w.begin[d] = at[d] * in[d] / out[d];
        w.end[d] = ((at[d] + 1) * in[d] + out[d] - 1) / out[d];
        continue;
      }
      const std::int64_t pad = attrs.padding[d];
      const std::int64_t reach = (attrs.kernel[d] - 1) * attrs.dilation[d] + 1;
      const std::int64_t begin = at[d] * attrs.stride[d] - pad;
      const std::int64_t end = std::min(begin + reach, in[d] + pad);
      w.step[d] = attrs.dilation[d];
      w.whole *= end - begin;
      // The first element inside that the steps meet.
      const std::int64_t missed =
          begin < 0 ? (-begin + w.step[d] - 1) / w.step[d] : 0;
      w.begin[d] = begin + missed * w.step[d];
      w.end[d] = std::min(end, in[d]);
    }
    return w;
  }
  std::int64_t divisor(const Window& w) const {
    return is_adaptive(code)         ? w.count()
           : attrs.divisor != 0      ? attrs.divisor
           : attrs.count_include_pad ? w.whole
                                     : w.count();
  }
};

// ---- pool ----

template <class T>
T average(const T* plane, const Window& w, const Pooling& pooling) {
  T sum(0);
  w.walk(pooling.in, [&](std::int64_t i) { sum += plane[i]; });
  return w.count() == 0 ? T(0) : sum / static_cast<T>(pooling.divisor(w));
}

// Where the greatest element is; the last NaN wins, else the first greatest.
template <class T>
std::int64_t greatest(const T* plane, const Window& w, const Triple& sizes) {
  std::int64_t best =
      (w.begin[0] * sizes[1] + w.begin[1]) * sizes[2] + w.begin[2];
  T most = plane[best];
  w.walk(sizes, [&](std::int64_t i) {
    if (plane[i] > most || plane[i] != plane[i]) {
      most = plane[i];
      best = i;
    }
  });
  return best;
}

npu_status pool(const npu_call& call) {
  const npu_pool_args args = npu_pool_unpack(&call);
  const Pooling pooling{
      call.code,
      args.attrs,
      spatial_sizes(*args.in, args.attrs.spatial),
      spatial_sizes(*args.out, args.attrs.spatial)};
  const std::int64_t n_in = volume(pooling.in);
  const std::int64_t n_out = volume(pooling.out);
  return with_real(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Stored<T> out(args.out, Stored<T>::kAsIs);
    const Stored<std::int64_t> indices(
        args.indices, Stored<std::int64_t>::kAsIs);
    if (in.status()) {
      return in.status();
    }
    for_planes(
        args.out->numel / n_out,
        pooling.out,
        pooling.window({}).count(),
        [&](std::int64_t p, std::int64_t i, const Triple& at) {
          const T* const plane = in.data() + p * n_in;
          const Window w = pooling.window(at);
          if (!is_max(call.code)) {
            out[p * n_out + i] = average(plane, w, pooling);
            return;
          }
          const std::int64_t best = greatest(plane, w, pooling.in);
          out[p * n_out + i] = plane[best];
          if (indices) {
            indices[p * n_out + i] = best;
          }
        });
    const npu_status status = out.store();
    return status || !indices ? status : indices.store();
  });
}

// grad_in[index] += grad_out, plane by plane.
npu_status grad_by_indices(
    const npu_tensor& grad_in,
    const npu_tensor& grad_out,
    const npu_tensor& indices,
    std::int64_t spatial) {
  const Triple sizes = spatial_sizes(grad_out, spatial);
  const std::int64_t n_in = volume(spatial_sizes(grad_in, spatial));
  const std::int64_t n_out = volume(sizes);
  const Indices index(indices, n_in, Negative::kRefused, 0);
  if (index.status()) {
    return index.status();
  }
  return with_real(grad_in.dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> from(&grad_out);
    const Stored<T> to(&grad_in, Stored<T>::kZero);
    if (from.status()) {
      return from.status();
    }
    for_planes(
        grad_out.numel / n_out,
        sizes,
        1,
        [&](std::int64_t p, std::int64_t i, const Triple&) {
          const std::int64_t at = p * n_out + i;
          to[p * n_in + index[at]] += from[at];
        });
    return to.store();
  });
}

npu_status pool_grad(const npu_call& call) {
  const npu_pool_grad_args args = npu_pool_grad_unpack(&call);
  if (is_max(call.code)) {
    return grad_by_indices(
        *args.grad_in, *args.grad_out, *args.indices, args.attrs.spatial);
  }
  const Pooling pooling{
      call.code,
      std::bit_cast<npu_pool_attrs>(args.attrs),
      spatial_sizes(*args.grad_in, args.attrs.spatial),
      spatial_sizes(*args.grad_out, args.attrs.spatial)};
  const std::int64_t n_in = volume(pooling.in);
  const std::int64_t n_out = volume(pooling.out);
  return with_real(args.grad_in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> from(args.grad_out);
    const Stored<T> to(args.grad_in, Stored<T>::kZero);
    if (from.status()) {
      return from.status();
    }
    for_planes(
        args.grad_out->numel / n_out,
        pooling.out,
        pooling.window({}).count(),
        [&](std::int64_t p, std::int64_t i, const Triple& at) {
          const Window w = pooling.window(at);
          if (w.count() == 0) {
            return;
          }
          const T share =
              from[p * n_out + i] / static_cast<T>(pooling.divisor(w));
          w.walk(
              pooling.in, [&](std::int64_t k) { to[p * n_in + k] += share; });
        });
    return to.store();
  });
}

// ---- fractional_pool ----

// Windows of `kernel` elements spread over the input; a sample in [0, 1) moves
// them. The last one ends with the input.
template <class T>
std::int64_t fractional_begin(
    T sample,
    std::int64_t at,
    std::int64_t in,
    std::int64_t out,
    std::int64_t kernel) {
  if (at == out - 1) {
    return in - kernel;
  }
  const T alpha = static_cast<T>(in - kernel) / static_cast<T>(out - 1);
  return static_cast<std::int64_t>((static_cast<T>(at) + sample) * alpha) -
         static_cast<std::int64_t>(sample * alpha);
}

npu_status fractional_pool(const npu_call& call) {
  const npu_fractional_pool_args args = npu_fractional_pool_unpack(&call);
  const std::int64_t spatial = args.attrs.spatial;
  const Triple in_sizes = spatial_sizes(*args.in, spatial);
  const Triple out_sizes = spatial_sizes(*args.out, spatial);
  const std::int64_t n_in = volume(in_sizes);
  const std::int64_t n_out = volume(out_sizes);
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Loaded<T> samples(args.samples);
    const Stored<T> out(args.out, Stored<T>::kAsIs);
    const Stored<std::int64_t> indices(
        args.indices, Stored<std::int64_t>::kAsIs);
    if (const npu_status status = loaded(in, samples)) {
      return status;
    }
    for_planes(
        args.out->numel / n_out,
        out_sizes,
        args.attrs.kernel[0] * args.attrs.kernel[1],
        [&](std::int64_t p, std::int64_t i, const Triple& at) {
          Window w{{0, 0, 0}, {1, 1, 1}};
          for (std::size_t d = 0; d < static_cast<std::size_t>(spatial); ++d) {
            const T sample = samples[p * spatial + static_cast<int>(d)];
            w.begin[d] = std::clamp<std::int64_t>(
                fractional_begin(
                    sample,
                    at[d],
                    in_sizes[d],
                    out_sizes[d],
                    args.attrs.kernel[d]),
                0,
                in_sizes[d] - args.attrs.kernel[d]);
            w.end[d] = w.begin[d] + args.attrs.kernel[d];
          }
          const std::int64_t best = greatest(in.data() + p * n_in, w, in_sizes);
          out[p * n_out + i] = in[p * n_in + best];
          indices[p * n_out + i] = best;
        });
    const npu_status status = out.store();
    return status ? status : indices.store();
  });
}

npu_status fractional_pool_grad(const npu_call& call) {
  const auto args = npu_fractional_pool_grad_unpack(&call);
  return grad_by_indices(
      *args.grad_in, *args.grad_out, *args.indices, args.attrs.spatial);
}

// ---- unpool ----

npu_status unpool(const npu_call& call) {
  const npu_unpool_args args = npu_unpool_unpack(&call);
  const Triple sizes = spatial_sizes(*args.in, args.attrs.spatial);
  const std::int64_t n_in = volume(sizes);
  const std::int64_t n_out =
      volume(spatial_sizes(*args.out, args.attrs.spatial));
  const Indices index(*args.indices, n_out, Negative::kRefused, 0);
  if (index.status()) {
    return index.status();
  }
  return with_real(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Stored<T> out(args.out, Stored<T>::kZero);
    if (in.status()) {
      return in.status();
    }
    for_planes(
        args.in->numel / n_in,
        sizes,
        1,
        [&](std::int64_t p, std::int64_t i, const Triple&) {
          out[p * n_out + index[p * n_in + i]] = in[p * n_in + i];
        });
    return out.store();
  });
}

// ---- rows ----

std::uint64_t pool_dtypes(std::uint32_t code) {
  return code == NPU_POOL_MAX   ? kFloatDtypes | kIntDtypes
         : code == NPU_POOL_AVG ? kFloatDtypes | NPU_DTYPE_BIT(NPU_I64)
                                : kFloatDtypes;
}

npu_status pool_caps(std::uint32_t code, npu_op_caps& out) {
  const std::uint64_t dtypes = pool_dtypes(code);
  plain_caps(out, NPU_DTYPES_SAME, {dtypes, kIndexDtypes, dtypes});
  return code < NPU_POOL_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status pool_grad_caps(std::uint32_t code, npu_op_caps& out) {
  const std::uint64_t dtypes = pool_dtypes(code);
  plain_caps(out, NPU_DTYPES_SAME, {dtypes, dtypes, dtypes, kIndexDtypes});
  return code < NPU_POOL_GRAD_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status fractional_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(
      out,
      NPU_DTYPES_SAME,
      {kFloatDtypes, kIndexDtypes, kFloatDtypes, kFloatDtypes});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status by_indices_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_SAME, {kFloatDtypes, kFloatDtypes, kIndexDtypes});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_POOL, pool_caps, nullptr, pool},
    {NPU_KIND_POOL_GRAD, pool_grad_caps, nullptr, pool_grad},
    {NPU_KIND_FRACTIONAL_POOL, fractional_caps, nullptr, fractional_pool},
    {NPU_KIND_FRACTIONAL_POOL_GRAD,
     by_indices_caps,
     nullptr,
     fractional_pool_grad},
    {NPU_KIND_UNPOOL, by_indices_caps, nullptr, unpool},
};

}  // namespace

const std::span<const KernelRow> kPoolKernels = kRows;

}  // namespace npu::host
