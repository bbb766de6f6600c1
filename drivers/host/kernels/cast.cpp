// SPDX-License-Identifier: Apache-2.0
// Elements of any dtype to any other, complex ones included.
#include "kernels/cast.h"

#include <cstring>

namespace npu::host {

bool Cast::set(npu_dtype to, npu_dtype from, bool negate, bool conj) {
  const npu_dtype to_part = part_dtype(to);
  const npu_dtype from_part = part_dtype(from);
  const npu_dtype theirs = to_part == NPU_ABSENT ? to : to_part;
  const npu_dtype mine = from_part == NPU_ABSENT ? from : from_part;
  from_parts_ = from_part != NPU_ABSENT;
  to_parts_ = to_part != NPU_ABSENT;
  conj = conj && from_parts_;
  plain_ = to == from && !negate && !conj;
  bytes_ = static_cast<std::uint32_t>(element_bytes(from));
  from_part_ = static_cast<std::int64_t>(element_bytes(mine));
  to_part_ = static_cast<std::int64_t>(element_bytes(theirs));
  return real_.set(theirs, mine, negate) &&
         imaginary_.set(theirs, mine, negate != conj);
}

void Cast::line(
    char* to,
    std::int64_t to_stride,
    const char* from,
    std::int64_t from_stride,
    std::int64_t n) const {
  if (plain_) {
    copy_line(bytes_, to, to_stride, from, from_stride, n);
    return;
  }
  real_.line(to, to_stride, from, from_stride, n);
  if (!to_parts_) {
    return;
  }
  if (from_parts_) {
    imaginary_.line(
        to + to_part_, to_stride, from + from_part_, from_stride, n);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {  // a real number
    std::memset(
        to + to_part_ + i * to_stride, 0, static_cast<std::size_t>(to_part_));
  }
}

}  // namespace npu::host
