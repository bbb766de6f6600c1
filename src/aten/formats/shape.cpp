// SPDX-License-Identifier: Apache-2.0
// ACL's storage formats: their numbers, and how large a storage each needs.
#include "aten/formats/shape.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "runtime/error.h"

namespace npu::format {
namespace {

constexpr std::int64_t kBlock = 16;

struct Known {
  std::int64_t format;
  std::int64_t base;
  std::int64_t width;  // of an NZ block; 0: from the size of an element
};
constexpr Known kKnown[] = {
    {kNchw, kNchw, 0},
    {kNhwc, kNhwc, 0},
    {kNd, kNd, 0},
    {kNcdhw, kNcdhw, 0},
    {kNc1hwc0, kNchw, 0},
    {kFractalZ, kNchw, 0},
    {kFractalNz, kNd, 0},
    {kNdhwc, kNcdhw, 0},
    {kNdc1hwc0, kNcdhw, 0},
    {kFractalZ3d, kNcdhw, 0},
    {50, kNd, 16},
    {51, kNd, 32},
    {52, kNd, 2},
    {53, kNd, 4},
    {54, kNd, 8},
};

const Known* find(std::int64_t format) noexcept {
  const auto* const found =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) {
        return k.format == format;
      });
  return found == std::end(kKnown) ? nullptr : found;
}

const Known& known(std::int64_t format) {
  const Known* const found = find(format);
  TORCH_CHECK_VALUE(
      found != nullptr,
      "npu: format ",
      format,
      " is not one a tensor can have. Use a member of torch_npu.Format: NCHW, "
      "NHWC, ND, NCDHW, NC1HWC0, FRACTAL_Z, FRACTAL_NZ, NDHWC, NDC1HWC0, "
      "FRACTAL_Z_3D.",
      ops_error(Code::kValue));
  return *found;
}

std::int64_t blocks(std::int64_t count, std::int64_t width) {
  return count / width + (count % width != 0 ? 1 : 0);
}

struct Volume {
  std::int64_t n = 1, c = 1, d = 1, h = 1, w = 1;
};

// Fewer than four dimensions are C, CH, CHW; a fifth is depth.
Volume as_volume(c10::IntArrayRef sizes) {
  Volume v;
  const auto last = [&](std::size_t first) {
    std::int64_t product = 1;
    for (std::size_t i = first; i < sizes.size(); ++i) {
      product *= sizes[i];
    }
    return product;
  };
  switch (sizes.size()) {
    case 0:
      return v;
    case 1:
      return {1, sizes[0], 1, 1, 1};
    case 2:
      return {1, sizes[0], 1, sizes[1], 1};
    case 3:
      return {1, sizes[0], 1, sizes[1], sizes[2]};
    case 4:
      return {sizes[0], sizes[1], 1, sizes[2], sizes[3]};
    default:
      return {sizes[0], sizes[1], sizes[2], sizes[3], last(4)};
  }
}

Sizes matrix_blocks(
    c10::IntArrayRef sizes, std::int64_t width, std::int64_t item_bytes) {
  if (width == 0) {
    width = 32 / std::min<std::int64_t>(item_bytes, 2);
  }
  Sizes out(sizes.begin(), sizes.end() - 2);
  out.push_back(blocks(sizes[sizes.size() - 1], width));
  out.push_back(blocks(sizes[sizes.size() - 2], kBlock));
  out.push_back(kBlock);
  out.push_back(width);
  return out;
}

}  // namespace

std::int64_t default_of(std::int64_t dims) noexcept {
  return dims == 4 ? kNchw : dims == 5 ? kNcdhw : kNd;
}

bool is_base(std::int64_t format) {
  return known(format).base == format;
}

std::int64_t base_of(std::int64_t format) {
  return known(format).base;
}

bool needs_matrix(std::int64_t format) noexcept {
  const Known* const found = find(format);
  return found != nullptr && found->base == kNd && format != kNd;
}

Sizes storage_sizes(
    c10::IntArrayRef sizes, std::int64_t item_bytes, std::int64_t format) {
  const Known& k = known(format);
  if (needs_matrix(format) && sizes.size() >= 2) {
    return matrix_blocks(sizes, k.width, item_bytes);
  }
  const Volume v = as_volume(sizes);
  const std::int64_t c1 = blocks(v.c, kBlock);
  const std::int64_t n1 = blocks(v.n, kBlock);
  switch (format) {
    case kNc1hwc0:
      return {v.n, c1, v.d * v.h, v.w, kBlock};
    case kFractalZ:
      return {c1 * v.d * v.h * v.w, n1, kBlock, kBlock};
    case kNdc1hwc0:
      return {v.n, v.d, c1, v.h, v.w, kBlock};
    case kFractalZ3d:
      return {v.d * c1 * v.h * v.w, n1, kBlock, kBlock};
    default:
      return Sizes(sizes.begin(), sizes.end());
  }
}

std::int64_t storage_elements(
    c10::IntArrayRef sizes, std::int64_t item_bytes, std::int64_t format) {
  std::int64_t count = 1;
  for (const std::int64_t size : storage_sizes(sizes, item_bytes, format)) {
    TORCH_CHECK(
        !__builtin_mul_overflow(count, size, &count),
        "npu: a tensor of sizes ",
        sizes,
        " is too large for format ",
        format,
        ".",
        ops_error(Code::kParam));
  }
  return count;
}

}  // namespace npu::format
