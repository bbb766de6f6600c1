// SPDX-License-Identifier: Apache-2.0
// upsample and its gradient: every output element is a weighted sum of a few
// input elements per dim (its taps).
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/dense.h"
#include "kernels/kernel.h"

namespace npu::host {
namespace {

constexpr double kPi = 3.14159265358979323846;

// ---- weights ----

// Piecewise cubics through the samples: `a` is -0.75, or -0.5 with antialias.
// As products: the weights of far samples are small, and nothing cancels.
template <class T>
T cubic(T x, T a) {
  x = std::abs(x);
  if (x < T(1)) {
    return (T(1) - x) * (T(1) + x - (a + T(2)) * x * x);
  }
  return x < T(2) ? a * (x - T(1)) * (x - T(2)) * (x - T(2)) : T(0);
}

template <class T>
T sinc(T x) {
  return x == T(0)
             ? T(1)
             : std::sin(x * static_cast<T>(kPi)) / (x * static_cast<T>(kPi));
}

enum class Filter { kNearest, kNearestExact, kLinear, kCubic, kLanczos };

Filter filter_of(std::uint32_t code) {
  switch (code) {
    case NPU_UPSAMPLE_NEAREST:
      return Filter::kNearest;
    case NPU_UPSAMPLE_NEAREST_EXACT:
      return Filter::kNearestExact;
    case NPU_UPSAMPLE_BICUBIC:
      return Filter::kCubic;
    case NPU_UPSAMPLE_LANCZOS:
      return Filter::kLanczos;
    default:
      return Filter::kLinear;
  }
}

template <class T>
T smooth_weight(Filter filter, T x) {
  switch (filter) {
    case Filter::kCubic:
      return cubic(x, T(-0.5));
    case Filter::kLanczos:
      return std::abs(x) < T(3) ? sinc(x) * sinc(x / T(3)) : T(0);
    default:
      return std::max(T(1) - std::abs(x), T(0));
  }
}

// Half the width of a filter, in samples.
int radius_of(Filter filter) {
  return filter == Filter::kCubic ? 2 : filter == Filter::kLanczos ? 3 : 1;
}

// ---- taps ----

// For each output coordinate of one dim: where it reads, and how much counts.
template <class T>
struct Taps {
  struct Tap {
    std::int64_t at;
    T weight;
  };
  std::vector<Tap> taps;
  std::vector<std::size_t> starts{0};

  void add(std::int64_t at, T weight) {
    taps.push_back({at, weight});
  }
  void next() {
    starts.push_back(taps.size());
  }
  std::size_t begin(std::int64_t i) const {
    return starts[static_cast<std::size_t>(i)];
  }
  std::size_t end(std::int64_t i) const {
    return starts[static_cast<std::size_t>(i) + 1];
  }
};

struct Dim {
  std::int64_t in = 1;
  std::int64_t out = 1;
  double scale = 0;  // given by the caller, output over input; 0 = none
  bool align_corners = false;

  // Input samples per output sample.
  template <class T>
  T ratio() const {
    if (align_corners) {
      return out > 1 ? static_cast<T>(in - 1) / static_cast<T>(out - 1) : T(0);
    }
    return scale > 0 ? static_cast<T>(1.0 / scale)
                     : static_cast<T>(in) / static_cast<T>(out);
  }
  // Where output sample i lies among the input samples. One rounding: places
  // decide how much of each sample counts.
  template <class T>
  T source(std::int64_t i) const {
    const T x = static_cast<T>(i);
    return align_corners ? ratio<T>() * x
                         : std::fma(ratio<T>(), x + T(0.5), T(-0.5));
  }
};

template <class T>
void add_nearest(Taps<T>& taps, const Dim& dim, std::int64_t i, T shift) {
  const T x = (static_cast<T>(i) + shift) * dim.ratio<T>();
  taps.add(
      std::min(static_cast<std::int64_t>(std::floor(x)), dim.in - 1), T(1));
}

template <class T>
void add_linear(Taps<T>& taps, const Dim& dim, std::int64_t i) {
  if (dim.in == dim.out) {
    taps.add(i, T(1));
    return;
  }
  const T x = std::max(dim.source<T>(i), T(0));
  const std::int64_t low = std::min(static_cast<std::int64_t>(x), dim.in - 1);
  const std::int64_t high = std::min(low + 1, dim.in - 1);
  const T weight = std::clamp(x - static_cast<T>(low), T(0), T(1));
  taps.add(low, T(1) - weight);
  taps.add(high, weight);
}

template <class T>
void add_cubic(Taps<T>& taps, const Dim& dim, std::int64_t i) {
  const T x = dim.source<T>(i);
  const T low = std::floor(x);
  for (int k = -1; k <= 2; ++k) {
    const std::int64_t at = static_cast<std::int64_t>(low) + k;
    taps.add(
        std::clamp<std::int64_t>(at, 0, dim.in - 1),
        cubic(x - low - static_cast<T>(k), T(-0.75)));
  }
}

// The filter widens when the image shrinks, so that all samples count.
template <class T>
void add_smooth(Taps<T>& taps, const Dim& dim, std::int64_t i, Filter filter) {
  const T ratio = dim.ratio<T>();
  const T wide = std::max(ratio, T(1));
  const T support = static_cast<T>(radius_of(filter)) * wide;
  const T center = ratio * (static_cast<T>(i) + T(0.5));
  const std::int64_t first = std::max<std::int64_t>(
      static_cast<std::int64_t>(center - support + T(0.5)), 0);
  const std::int64_t last =
      std::min(static_cast<std::int64_t>(center + support + T(0.5)), dim.in);
  T sum(0);
  for (std::int64_t k = first; k < last; ++k) {
    const T weight =
        smooth_weight(filter, (static_cast<T>(k) - center + T(0.5)) / wide);
    taps.add(k, weight);
    sum += weight;
  }
  for (std::size_t t = taps.starts.back(); t < taps.taps.size(); ++t) {
    taps.taps[t].weight /= sum != T(0) ? sum : T(1);
  }
}

// Places are doubles, but for the nearest sample, which one that is follows
// from a place of type T.
template <class T>
Taps<T> make_nearest(const Dim& dim, Filter filter) {
  Taps<T> taps;
  for (std::int64_t i = 0; i < dim.out; ++i) {
    add_nearest(taps, dim, i, filter == Filter::kNearest ? T(0) : T(0.5));
    taps.next();
  }
  return taps;
}

template <class T>
Taps<T> make_taps(const Dim& dim, Filter filter, bool antialias) {
  if (filter == Filter::kNearest || filter == Filter::kNearestExact) {
    return make_nearest<T>(dim, filter);
  }
  Taps<double> taps;
  for (std::int64_t i = 0; i < dim.out; ++i) {
    if (antialias || filter == Filter::kLanczos) {
      add_smooth(taps, dim, i, filter);
    } else if (filter == Filter::kCubic) {
      add_cubic(taps, dim, i);
    } else {
      add_linear(taps, dim, i);
    }
    taps.next();
  }
  Taps<T> rounded;
  rounded.starts = taps.starts;
  for (const auto& tap : taps.taps) {
    rounded.add(tap.at, static_cast<T>(tap.weight));
  }
  return rounded;
}

// ---- both directions ----

// Small image and large one, in the words of the forward.
template <class T>
class Resize {
 public:
  Resize(
      const npu_upsample_attrs& attrs,
      std::uint32_t code,
      const npu_tensor& in,
      const npu_tensor& out) {
    const auto spatial = static_cast<std::size_t>(attrs.spatial);
    for (std::size_t k = 0; k < 3; ++k) {
      Dim dim;
      if (k < spatial) {
        dim.in = in.sizes[in.ndim - spatial + k];
        dim.out = out.sizes[out.ndim - spatial + k];
        dim.scale = attrs.scales[k];
        dim.align_corners = attrs.align_corners != 0;
      }
      dims_[k] = dim;
      taps_[k] = make_taps<T>(
          dim,
          k < spatial ? filter_of(code) : Filter::kNearest,
          attrs.antialias != 0);
    }
    n_in_ = dims_[0].in * dims_[1].in * dims_[2].in;
    n_out_ = dims_[0].out * dims_[1].out * dims_[2].out;
    planes_ = in.numel / n_in_;
  }

  // body(output element, input element, weight); a plane belongs to one thread.
  template <class Body>
  npu_status walk(Body body) const {
    return parallel(
        planes_,
        kGrain / (n_out_ + n_in_) + 1,
        [&](std::int64_t p, std::int64_t end) {
          for (; p < end; ++p) {
            walk_plane(p, body);
          }
        });
  }

 private:
  template <class Body>
  void walk_plane(std::int64_t p, Body& body) const {
    std::int64_t out = p * n_out_;
    for (std::int64_t i = 0; i < dims_[0].out; ++i) {
      for (std::int64_t j = 0; j < dims_[1].out; ++j) {
        for (std::int64_t k = 0; k < dims_[2].out; ++k) {
          walk_taps(p, out++, {i, j, k}, body);
        }
      }
    }
  }
  template <class Body>
  void walk_taps(
      std::int64_t p,
      std::int64_t out,
      const std::array<std::int64_t, 3>& at,
      Body& body) const {
    for (auto a = taps_[0].begin(at[0]); a < taps_[0].end(at[0]); ++a) {
      for (auto b = taps_[1].begin(at[1]); b < taps_[1].end(at[1]); ++b) {
        const std::int64_t row =
            (p * dims_[0].in + taps_[0].taps[a].at) * dims_[1].in +
            taps_[1].taps[b].at;
        const T weight = taps_[0].taps[a].weight * taps_[1].taps[b].weight;
        for (auto c = taps_[2].begin(at[2]); c < taps_[2].end(at[2]); ++c) {
          const auto& tap = taps_[2].taps[c];
          body(out, row * dims_[2].in + tap.at, weight * tap.weight);
        }
      }
    }
  }

  Dim dims_[3];
  Taps<T> taps_[3];
  std::int64_t n_in_, n_out_, planes_;
};

npu_status upsample(const npu_call& call) {
  const npu_upsample_args args = npu_upsample_unpack(&call);
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Resize<T> resize(args.attrs, call.code, *args.in, *args.out);
    const Loaded<T> in(args.in);
    const Stored<T> out(args.out, Stored<T>::kZero);
    if (in.status()) {
      return in.status();
    }
    resize.walk([&](std::int64_t o, std::int64_t i, T weight) {
      out[o] += in[i] * weight;
    });
    return out.store();
  });
}

npu_status upsample_grad(const npu_call& call) {
  const npu_upsample_grad_args args = npu_upsample_grad_unpack(&call);
  return with_float(args.grad_in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Resize<T> resize(
        std::bit_cast<npu_upsample_attrs>(args.attrs),
        call.code,
        *args.grad_in,
        *args.grad_out);
    const Loaded<T> from(args.grad_out);
    const Stored<T> to(args.grad_in, Stored<T>::kZero);
    if (from.status()) {
      return from.status();
    }
    resize.walk([&](std::int64_t o, std::int64_t i, T weight) {
      to[i] += from[o] * weight;
    });
    return to.store();
  });
}

// ---- rows ----

// Bytes are only moved: how others are rounded in between is not fixed.
npu_status upsample_caps(std::uint32_t code, npu_op_caps& out) {
  const bool moves =
      code == NPU_UPSAMPLE_NEAREST || code == NPU_UPSAMPLE_NEAREST_EXACT;
  const std::uint64_t dtypes =
      kFloatDtypes | (moves ? NPU_DTYPE_BIT(NPU_U8) : 0u);
  plain_caps(out, NPU_DTYPES_SAME, {dtypes, dtypes});
  return code < NPU_UPSAMPLE_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status upsample_grad_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_SAME, {kFloatDtypes, kFloatDtypes});
  return code < NPU_UPSAMPLE_GRAD_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_UPSAMPLE, upsample_caps, nullptr, upsample},
    {NPU_KIND_UPSAMPLE_GRAD, upsample_grad_caps, nullptr, upsample_grad},
};

}  // namespace

const std::span<const KernelRow> kResizeKernels = kRows;

}  // namespace npu::host
