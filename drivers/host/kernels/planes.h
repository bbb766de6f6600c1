// SPDX-License-Identifier: Apache-2.0
// Images as planes: everything before the spatial dims is a batch of planes,
// and every plane has three dims; those a call lacks have size 1.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/kernel.h"

namespace npu::host {

using Triple = std::array<std::int64_t, 3>;

inline Triple spatial_sizes(const npu_tensor& tensor, std::int64_t spatial) {
  Triple sizes{1, 1, 1};
  for (std::int64_t k = 0; k < spatial; ++k) {
    sizes[static_cast<std::size_t>(k)] =
        tensor.sizes[tensor.ndim - spatial + k];
  }
  return sizes;
}

inline std::int64_t volume(const Triple& t) {
  return t[0] * t[1] * t[2];
}

// body(plane, place, coordinates) for every element of `planes` planes; a plane
// belongs to one thread.
template <class Body>
npu_status for_planes(
    std::int64_t planes, const Triple& sizes, std::int64_t cost, Body body) {
  const std::int64_t work = volume(sizes) * std::max<std::int64_t>(cost, 1);
  return parallel(
      planes, kGrain / (work + 1) + 1, [&](std::int64_t p, std::int64_t end) {
        for (; p < end; ++p) {
          std::int64_t place = 0;
          for (std::int64_t i = 0; i < sizes[0]; ++i) {
            for (std::int64_t j = 0; j < sizes[1]; ++j) {
              for (std::int64_t k = 0; k < sizes[2]; ++k) {
                body(p, place++, Triple{i, j, k});
              }
            }
          }
        }
      });
}

}  // namespace npu::host
