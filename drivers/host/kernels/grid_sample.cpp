// SPDX-License-Identifier: Apache-2.0
// grid_sample and its gradients: elements read at coordinates between
// the samples.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
//
// A grid point names its place with the innermost spatial dim first, from -1 to
// 1. Dims a call lacks have size 1 and place 0.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/dense.h"
#include "kernels/kernel.h"

namespace npu::host {
namespace {

// A coordinate and what it changes by when the grid's does.
template <class T>
struct Coordinate {
  T at;
  T slope;
};

// Which sample is the nearest depends on the last bit of a coordinate, so it is
// rounded as PyTorch does: in a volume after each step, in an image once at the
// end.
template <class T>
Coordinate<T> unnormalised(
    T x, std::int64_t size, const npu_grid_sample_attrs& attrs) {
  const T span = static_cast<T>(attrs.align_corners ? size - 1 : size);
  const T half = span / T(2);
  if (attrs.spatial == 3) {
    return {
        attrs.align_corners ? (x + T(1)) / T(2) * span
                            : ((x + T(1)) * span - T(1)) / T(2),
        half};
  }
  return {
      attrs.align_corners ? (x + T(1)) * half
                          : std::fma(x + T(1), half, T(-0.5)),
      half};
}

template <class T>
Coordinate<T> clipped(Coordinate<T> c, std::int64_t size) {
  const T last = static_cast<T>(size - 1);
  if (!(c.at > T(0))) {  // NaN too
    return {T(0), T(0)};
  }
  return c.at >= last ? Coordinate<T>{last, T(0)} : c;
}

// Mirrored at low / 2 and high / 2, as often as it takes.
template <class T>
Coordinate<T> reflected(
    Coordinate<T> c, std::int64_t twice_low, std::int64_t twice_high) {
  if (twice_low == twice_high) {
    return {T(0), T(0)};
  }
  const T low = static_cast<T>(twice_low) / T(2);
  const T span = static_cast<T>(twice_high - twice_low) / T(2);
  T x = c.at - low;
  const T sign = x < T(0) ? T(-1) : T(1);
  x *= sign;
  const T extra = std::fmod(x, span);
  const T flips = std::floor(x / span);
  return std::fmod(flips, T(2)) == T(0)
             ? Coordinate<T>{extra + low, c.slope * sign}
             : Coordinate<T>{span - extra + low, -c.slope * sign};
}

template <class T>
Coordinate<T> padded(
    Coordinate<T> c, std::int64_t size, const npu_grid_sample_attrs& attrs) {
  switch (attrs.padding) {
    case NPU_GRID_SAMPLE_PADDING_BORDER:
      return clipped(c, size);
    case NPU_GRID_SAMPLE_PADDING_REFLECTION:
      return clipped(
          attrs.align_corners ? reflected(c, 0, 2 * (size - 1))
                              : reflected(c, -1, 2 * size - 1),
          size);
    default:
      return c;
  }
}

// Whole numbers beyond any size, and what is no number, are outside.
template <class T>
std::int64_t whole(T x) {
  constexpr T kMost = static_cast<T>(1 << 30);
  return x >= -kMost && x <= kMost ? static_cast<std::int64_t>(x) : -100;
}

constexpr int kMostTaps = 4;

// The elements that count along one dim, their weights, and how these change
// with the grid's coordinate.
template <class T>
struct Taps {
  int n = 1;
  std::int64_t at[kMostTaps] = {0};
  T weight[kMostTaps] = {T(1)};
  T slope[kMostTaps] = {T(0)};
};

template <class T>
void cubic_taps(Taps<T>& taps, T t, T slope) {
  constexpr T a = T(-0.75);
  taps.n = 4;
  for (int k = 0; k < 4; ++k) {
    const T signed_x = t - static_cast<T>(k - 1);
    const T x = std::abs(signed_x);
    const T sign = signed_x < T(0) ? T(-1) : T(1);
    if (x <= T(1)) {
      taps.weight[k] = ((a + T(2)) * x - (a + T(3))) * x * x + T(1);
      taps.slope[k] =
          (T(3) * (a + T(2)) * x - T(2) * (a + T(3))) * x * sign * slope;
    } else {
      taps.weight[k] = ((a * x - T(5) * a) * x + T(8) * a) * x - T(4) * a;
      taps.slope[k] =
          ((T(3) * a * x - T(10) * a) * x + T(8) * a) * sign * slope;
    }
  }
}

template <class T>
Taps<T> make_taps(
    T x,
    std::int64_t size,
    std::uint32_t code,
    const npu_grid_sample_attrs& attrs) {
  Taps<T> taps;
  Coordinate<T> c = unnormalised(x, size, attrs);
  if (code == NPU_GRID_SAMPLE_BICUBIC) {
    // Padding is applied to each of the four, not to the place between them.
    const T low = std::floor(c.at);
    cubic_taps(taps, c.at - low, c.slope);
    for (int k = 0; k < 4; ++k) {
      const Coordinate<T> one{low + static_cast<T>(k - 1), T(1)};
      taps.at[k] = whole(padded(one, size, attrs).at);
    }
    return taps;
  }
  c = padded(c, size, attrs);
  if (code == NPU_GRID_SAMPLE_NEAREST) {
    taps.at[0] = whole(std::nearbyint(c.at));
    return taps;
  }
  const T low = std::floor(c.at);
  taps.n = 2;
  taps.at[0] = whole(low);
  taps.at[1] = taps.at[0] + 1;
  taps.weight[0] = low + T(1) - c.at;
  taps.weight[1] = c.at - low;
  taps.slope[0] = -c.slope;
  taps.slope[1] = c.slope;
  return taps;
}

// ---- walking ----

template <class T>
class Sampler {
 public:
  Sampler(
      const npu_grid_sample_attrs& attrs,
      std::uint32_t code,
      const npu_tensor& in,
      const npu_tensor& grid)
      : attrs_(attrs),
        code_(code),
        batches(in.sizes[0]),
        channels(in.sizes[1]) {
    const auto spatial = static_cast<std::size_t>(attrs.spatial);
    for (std::size_t k = 0; k < spatial; ++k) {
      sizes_[3 - spatial + k] = in.sizes[2 + k];
    }
    n_in = sizes_[0] * sizes_[1] * sizes_[2];
    n_out = grid.numel / (batches * attrs.spatial);
  }

  // body(element of a plane, weight, slopes by grid coordinate) for the taps of
  // a grid point that lie inside.
  template <class Body>
  void at_point(const T* point, Body body) const {
    Taps<T> taps[3];
    const auto spatial = static_cast<std::size_t>(attrs_.spatial);
    for (std::size_t k = 0; k < spatial; ++k) {
      taps[2 - k] = make_taps(point[k], sizes_[2 - k], code_, attrs_);
    }
    for (int a = 0; a < taps[0].n; ++a) {
      for (int b = 0; b < taps[1].n; ++b) {
        for (int c = 0; c < taps[2].n; ++c) {
          const std::array<std::int64_t, 3> at{
              taps[0].at[a], taps[1].at[b], taps[2].at[c]};
          if (!is_inside(at)) {
            continue;
          }
          const T w[3] = {
              taps[0].weight[a], taps[1].weight[b], taps[2].weight[c]};
          const std::array<T, 3> slopes{
              w[0] * w[1] * taps[2].slope[c],
              w[0] * w[2] * taps[1].slope[b],
              w[1] * w[2] * taps[0].slope[a]};
          body(
              (at[0] * sizes_[1] + at[1]) * sizes_[2] + at[2],
              w[0] * w[1] * w[2],
              slopes);
        }
      }
    }
  }

 private:
  bool is_inside(const std::array<std::int64_t, 3>& at) const {
    for (std::size_t d = 0; d < 3; ++d) {
      if (at[d] < 0 || at[d] >= sizes_[d]) {
        return false;
      }
    }
    return true;
  }

  npu_grid_sample_attrs attrs_;
  std::uint32_t code_;
  std::int64_t sizes_[3] = {1, 1, 1};

 public:
  std::int64_t batches;
  std::int64_t channels;
  std::int64_t n_in;   // elements of a plane
  std::int64_t n_out;  // points of a batch
};

npu_status grid_sample(const npu_call& call) {
  const npu_grid_sample_args args = npu_grid_sample_unpack(&call);
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Sampler<T> sampler(args.attrs, call.code, *args.in, *args.grid);
    const Loaded<T> in(args.in);
    const Loaded<T> grid(args.grid);
    const Stored<T> out(args.out, Stored<T>::kZero);
    if (const npu_status status = loaded(in, grid)) {
      return status;
    }
    const auto body = [&](std::int64_t p, std::int64_t end) {
      for (; p < end; ++p) {
        const std::int64_t first = p / sampler.n_out * sampler.channels;
        const std::int64_t place = p % sampler.n_out;
        sampler.at_point(
            grid.data() + p * args.attrs.spatial,
            [&](std::int64_t at, T weight, const std::array<T, 3>&) {
              for (std::int64_t c = first; c < first + sampler.channels; ++c) {
                out[c * sampler.n_out + place] +=
                    in[c * sampler.n_in + at] * weight;
              }
            });
      }
    };
    parallel(
        sampler.batches * sampler.n_out,
        kGrain / (sampler.channels * 16) + 1,
        body);
    return out.store();
  });
}

npu_status grid_sample_grad(const npu_call& call) {
  const npu_grid_sample_grad_args args = npu_grid_sample_grad_unpack(&call);
  const auto attrs = std::bit_cast<npu_grid_sample_attrs>(args.attrs);
  const std::int64_t spatial = attrs.spatial;
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Sampler<T> sampler(attrs, call.code, *args.in, *args.grid);
    const Loaded<T> from(args.grad_out);
    const Loaded<T> in(args.in);
    const Loaded<T> grid(args.grid);
    const Stored<T> grad_in(args.grad_in, Stored<T>::kZero);
    const Stored<T> grad_grid(args.grad_grid, Stored<T>::kZero);
    if (const npu_status status = loaded(from, in, grid)) {
      return status;
    }
    const auto point = [&](std::int64_t p) {
      const std::int64_t first = p / sampler.n_out * sampler.channels;
      const std::int64_t place = p % sampler.n_out;
      std::array<double, 3> moved{};
      const auto add =
          [&](std::int64_t at, T weight, const std::array<T, 3>& slopes) {
            double along = 0;
            for (std::int64_t c = first; c < first + sampler.channels; ++c) {
              const T grad = from[c * sampler.n_out + place];
              if (grad_in) {
                grad_in[c * sampler.n_in + at] += grad * weight;
              }
              along += static_cast<double>(grad) *
                       static_cast<double>(in[c * sampler.n_in + at]);
            }
            for (std::size_t k = 0; k < 3; ++k) {
              moved[k] += along * static_cast<double>(slopes[k]);
            }
          };
      sampler.at_point(grid.data() + p * spatial, add);
      for (std::int64_t k = 0; grad_grid && k < spatial; ++k) {
        grad_grid[p * spatial + k] =
            static_cast<T>(moved[static_cast<std::size_t>(k)]);
      }
    };
    parallel(sampler.batches, 1, [&](std::int64_t b, std::int64_t end) {
      for (std::int64_t p = b * sampler.n_out; p < end * sampler.n_out; ++p) {
        point(p);
      }
    });
    npu_status status = grad_in ? grad_in.store() : NPU_OK;
    return status || !grad_grid ? status : grad_grid.store();
  });
}

// ---- rows ----

npu_status grid_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_SAME, {kFloatDtypes, kFloatDtypes, kFloatDtypes});
  return code < NPU_GRID_SAMPLE_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status grid_grad_caps(std::uint32_t code, npu_op_caps& out) {
  // Where padding makes neighbours equal, the slopes of a cubic cancel and
  // rounding is all that is left: sums are wider than the result, and for
  // float64 there is nothing wider, so that its rounding is left to the CPU.
  const std::uint64_t dtypes = code == NPU_GRID_SAMPLE_GRAD_BICUBIC
                                   ? kFloatDtypes & ~NPU_DTYPE_BIT(NPU_F64)
                                   : kFloatDtypes;
  plain_caps(out, NPU_DTYPES_SAME, {dtypes, dtypes, dtypes, dtypes, dtypes});
  return code < NPU_GRID_SAMPLE_GRAD_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_GRID_SAMPLE, grid_caps, nullptr, grid_sample},
    {NPU_KIND_GRID_SAMPLE_GRAD, grid_grad_caps, nullptr, grid_sample_grad},
};

}  // namespace

const std::span<const KernelRow> kGridSampleKernels = kRows;

}  // namespace npu::host
