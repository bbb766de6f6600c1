// SPDX-License-Identifier: Apache-2.0
// im2col and col2im: images as columns of what a kernel sees.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <bit>

#include "kernels/dense.h"
#include "kernels/planes.h"

namespace npu::host {
namespace {

// Columns of an image: column (channel, offset in the kernel), row (place of
// the kernel). body(column element, image element or -1).
struct Columns {
  npu_im2col_attrs attrs;
  Triple image;
  Triple places;  // of the kernel

  Columns(const npu_im2col_attrs& a, const Triple& sizes)
      : attrs(a), image(sizes) {
    for (std::size_t d = 0; d < 3; ++d) {
      places[d] = (image[d] + 2 * attrs.padding[d] -
                   attrs.dilation[d] * (attrs.kernel[d] - 1) - 1) /
                      attrs.stride[d] +
                  1;
    }
  }
  Triple kernel() const {
    return {attrs.kernel[0], attrs.kernel[1], attrs.kernel[2]};
  }
  // One thread has a whole channel.
  template <class Body>
  npu_status walk(std::int64_t channels, Body body) const {
    const std::int64_t n = volume(places);
    const std::int64_t size = volume(image);
    const std::int64_t offsets = volume(kernel());
    return for_planes(
        channels,
        kernel(),
        n,
        [&](std::int64_t c, std::int64_t offset, const Triple& in_kernel) {
          std::int64_t column = (c * offsets + offset) * n;
          for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t at = place(i, in_kernel);
            body(column++, at < 0 ? -1 : c * size + at);
          }
        });
  }

 private:
  std::int64_t place(std::int64_t i, const Triple& in_kernel) const {
    const Triple at{
        i / (places[1] * places[2]), i / places[2] % places[1], i % places[2]};
    std::int64_t result = 0;
    for (std::size_t d = 0; d < 3; ++d) {
      const std::int64_t x = at[d] * attrs.stride[d] - attrs.padding[d] +
                             in_kernel[d] * attrs.dilation[d];
      if (x < 0 || x >= image[d]) {
        return -1;
      }
      result = result * image[d] + x;
    }
    return result;
  }
};

npu_status im2col(const npu_call& call) {
  const npu_im2col_args args = npu_im2col_unpack(&call);
  const Columns columns(
      args.attrs, spatial_sizes(*args.in, args.attrs.spatial));
  return with_number(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Stored<T> out(args.out, Stored<T>::kAsIs);
    if (in.status()) {
      return in.status();
    }
    columns.walk(
        args.in->numel / volume(columns.image),
        [&](std::int64_t column, std::int64_t at) {
          out[column] = at < 0 ? T(0) : in[at];
        });
    return out.store();
  });
}

npu_status col2im(const npu_call& call) {
  const npu_col2im_args args = npu_col2im_unpack(&call);
  const auto attrs = std::bit_cast<npu_im2col_attrs>(args.attrs);
  const Columns columns(attrs, spatial_sizes(*args.out, attrs.spatial));
  return with_number(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Stored<T> out(args.out, Stored<T>::kZero);
    if (in.status()) {
      return in.status();
    }
    columns.walk(
        args.out->numel / volume(columns.image),
        [&](std::int64_t column, std::int64_t at) {
          if (at >= 0) {
            out[at] += in[column];
          }
        });
    return out.store();
  });
}

npu_status columns_caps(std::uint32_t code, npu_op_caps& out) {
  constexpr std::uint64_t kDtypes = kUsualDtypes & ~kIntDtypes;
  plain_caps(out, NPU_DTYPES_SAME, {kDtypes, kDtypes});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_IM2COL, columns_caps, nullptr, im2col},
    {NPU_KIND_COL2IM, columns_caps, nullptr, col2im},
};

}  // namespace

const std::span<const KernelRow> kColumnsKernels = kRows;

}  // namespace npu::host
