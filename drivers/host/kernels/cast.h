// SPDX-License-Identifier: Apache-2.0
// Elements of any dtype to any other, complex ones included, along a line.
#pragma once

#include <cstdint>

#include "kernels/convert.h"
#include "kernels/dtype.h"

namespace npu::host {

class Cast {
 public:
  // `negate` and `conj`: how the elements are to be read. False when there is
  // no such conversion.
  bool set(
      npu_dtype to, npu_dtype from, bool negate = false, bool conj = false);

  // Nothing changes: elements may be used where they lie.
  bool is_copy() const noexcept {
    return plain_;
  }
  // Strides in bytes; `to` and `from` do not overlap.
  void line(
      char* to,
      std::int64_t to_stride,
      const char* from,
      std::int64_t from_stride,
      std::int64_t n) const;

 private:
  bool plain_ = false;
  bool from_parts_ = false;
  bool to_parts_ = false;
  std::uint32_t bytes_ = 0;
  std::int64_t from_part_ = 0;  // bytes of a part, or of the element
  std::int64_t to_part_ = 0;
  Conversion real_;
  Conversion imaginary_;
};

}  // namespace npu::host
