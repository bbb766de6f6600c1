// SPDX-License-Identifier: Apache-2.0
// Elements read from other coordinates, dim by dim.
#include "kernels/remap.h"

#include <algorithm>
#include <cstring>

#include "kernels/dtype.h"
#include "kernels/kernel.h"

namespace npu::host {
namespace {

// One line: blocks side by side in the output, found through byte offsets.
struct Line {
  char* out;
  std::int64_t out_step;
  const char* in;
  const std::int64_t* offsets;
  std::int64_t n;
};

// Bytes is the block where it is small, or 0.
template <std::size_t Bytes>
void copy_blocks(const Line& line, std::size_t block, const char* value) {
  const std::size_t bytes = Bytes ? Bytes : block;
  for (std::int64_t i = 0; i < line.n; ++i) {
    const std::int64_t offset = line.offsets[i];
    std::memcpy(
        line.out + i * line.out_step,
        offset < 0 ? value : line.in + offset,
        bytes);
  }
}

void copy_line(const Line& line, std::size_t block, const char* value) {
  switch (block) {
    case 1:
      return copy_blocks<1>(line, block, value);
    case 2:
      return copy_blocks<2>(line, block, value);
    case 4:
      return copy_blocks<4>(line, block, value);
    case 8:
      return copy_blocks<8>(line, block, value);
    case 16:
      return copy_blocks<16>(line, block, value);
    default:
      return copy_blocks<0>(line, block, value);
  }
}

}  // namespace

// Inner dims that both sides hold contiguously move as one block.
void Remap::join_trailing_dims() {
  block_ = static_cast<std::int64_t>(element_bytes(out_.dtype));
  const std::int64_t bytes = block_;
  for (ndim_ = out_.ndim; ndim_ > 0; --ndim_) {
    const int d = ndim_ - 1;
    const bool same = tables_[static_cast<std::size_t>(d)].empty();
    if (!same || (out_.sizes[d] != 1 && (out_.strides[d] * bytes != block_ ||
                                         in_.strides[d] * bytes != block_))) {
      return;
    }
    block_ *= out_.sizes[d];
  }
}

// Coordinates become byte offsets in the input.
void Remap::make_offsets() {
  const auto bytes = static_cast<std::int64_t>(element_bytes(out_.dtype));
  for (int d = 0; d < ndim_; ++d) {
    auto& table = tables_[static_cast<std::size_t>(d)];
    if (table.empty()) {
      table.resize(static_cast<std::size_t>(out_.sizes[d]));
      for (std::size_t i = 0; i < table.size(); ++i) {
        table[i] = static_cast<std::int64_t>(i);
      }
    }
    for (std::int64_t& at : table) {
      at = at < 0 ? -1 : at * in_.strides[d] * bytes;
    }
  }
}

npu_status Remap::run() {
  join_trailing_dims();
  make_offsets();
  const auto bytes = static_cast<std::int64_t>(element_bytes(out_.dtype));
  const auto block = static_cast<std::size_t>(block_);
  if (ndim_ == 0) {
    std::memcpy(out_.data, in_.data, block);
    return NPU_OK;
  }
  std::vector<char> filler(block);
  for (std::size_t i = 0; value_ != nullptr && i < block; ++i) {
    filler[i] =
        static_cast<const char*>(value_)[i % static_cast<std::size_t>(bytes)];
  }
  const std::vector<std::int64_t> nowhere(
      static_cast<std::size_t>(out_.sizes[ndim_ - 1]), -1);
  const auto inner = static_cast<std::size_t>(ndim_ - 1);
  const std::int64_t length = out_.sizes[inner];
  std::int64_t lines = 1;
  for (std::size_t d = 0; d < inner; ++d) {
    lines *= out_.sizes[d];
  }
  const auto move = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t first = at % length;
      const std::int64_t n = std::min(length - first, end - at);
      std::int64_t rest = at / length;
      std::int64_t to = first * out_.strides[inner];
      std::int64_t from = 0;
      for (std::size_t d = inner; d-- > 0;) {
        const std::int64_t i = rest % out_.sizes[d];
        rest /= out_.sizes[d];
        to += i * out_.strides[d];
        const std::int64_t offset = tables_[d][static_cast<std::size_t>(i)];
        from = offset < 0 || from < 0 ? -1 : from + offset;
      }
      const Line line{
          static_cast<char*>(out_.data) + to * bytes,
          out_.strides[inner] * bytes,
          static_cast<const char*>(in_.data) + std::max<std::int64_t>(from, 0),
          (from < 0 ? nowhere : tables_[inner]).data() + first,
          n};
      copy_line(line, block, filler.data());
      at += n;
    }
  };
  const std::int64_t grain = std::max<std::int64_t>(
      1, kGrain * bytes / std::max<std::int64_t>(block_, 1));
  return parallel(lines * length, grain, move);
}

}  // namespace npu::host
