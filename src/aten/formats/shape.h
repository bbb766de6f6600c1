// SPDX-License-Identifier: Apache-2.0
// ACL's storage formats: their numbers, and how large a storage each needs.
#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

namespace npu::format {

inline constexpr std::int64_t kNchw = 0;
inline constexpr std::int64_t kNhwc = 1;
inline constexpr std::int64_t kNd = 2;
inline constexpr std::int64_t kNc1hwc0 = 3;
inline constexpr std::int64_t kFractalZ = 4;
inline constexpr std::int64_t kNdhwc = 27;
inline constexpr std::int64_t kFractalNz = 29;
inline constexpr std::int64_t kNcdhw = 30;
inline constexpr std::int64_t kNdc1hwc0 = 32;
inline constexpr std::int64_t kFractalZ3d = 33;

using Sizes = c10::SmallVector<std::int64_t, 8>;

// The default format of a tensor with this many dimensions.
std::int64_t default_of(std::int64_t dims) noexcept;

// Base formats hold the elements and nothing else; private ones are padded to
// blocks. Throws for a number that names neither.
bool is_base(std::int64_t format);
std::int64_t base_of(std::int64_t format);
// NZ blocks are matrices: vectors and numbers have none.
bool needs_matrix(std::int64_t format) noexcept;

// The storage of a tensor of these sizes. `item_bytes` is the size of an
// element: narrow types have wider blocks.
Sizes storage_sizes(
    c10::IntArrayRef sizes, std::int64_t item_bytes, std::int64_t format);
// Their product; throws when it is too large to count.
std::int64_t storage_elements(
    c10::IntArrayRef sizes, std::int64_t item_bytes, std::int64_t format);

}  // namespace npu::format
