// SPDX-License-Identifier: Apache-2.0
// flip, roll, isin.
#include <limits>

#include "compose/decompositions.h"

namespace npu::compose {

// Index n - 1 .. 0 along each dimension, one after the other.
void flip(Builder& build) {
  const std::uint64_t dims = build.attrs<npu_flip_attrs>().dims;
  const Tensor out = build.out(0);
  Tensor from = build.in(0);
  if (dims == 0) {
    build.copy(out, from);
  }
  for (int d = 0; d < out.ndim(); ++d) {
    if ((dims & dim_bit(d)) == 0) {
      continue;
    }
    const bool last = (dims >> d) == 1;
    const Tensor to = last ? out : build.make(out.dtype(), out.sizes());
    const Tensor index = build.range(out.size(d), out.size(d) - 1, -1);
    build.index_select(to, from, index, d);
    from = to;
  }
}

// Two copies per axis.
void roll(Builder& build) {
  const auto attrs = build.attrs<npu_roll_attrs>();
  const Tensor out = build.out(0);
  Tensor from = build.in(0);
  if (attrs.n == 0) {
    build.copy(out, from);
  }
  for (std::int64_t i = 0; i < attrs.n; ++i) {
    const auto d = static_cast<int>(attrs.axes[i]);
    const std::int64_t size = out.size(d);
    const std::int64_t shift = (attrs.shifts[i] % size + size) % size;
    const bool last = i + 1 == attrs.n;
    const Tensor to = last ? out : build.make(out.dtype(), out.sizes());
    build.copy(
        to.slice(d, shift, size - shift), from.slice(d, 0, size - shift));
    if (shift != 0) {
      build.copy(to.slice(d, 0, shift), from.slice(d, size - shift, shift));
    }
    from = to;
  }
}

// The place where each element would go in the sorted test elements: it is one
// of them when it equals what is there.
void isin(Builder& build) {
  const auto attrs = build.attrs<npu_isin_attrs>();
  const Tensor out = build.out(0);
  const Tensor elements = build.contiguous(build.in(0));
  const Tensor test = build.contiguous(build.in(1));
  const std::int64_t n = elements.numel();
  const std::int64_t tests = test.numel();
  const Tensor sorted = build.make(test.dtype(), {tests});
  build.sort(sorted, test.reshape({tests}));
  const Tensor flat = elements.reshape({n});
  const Tensor place = build.searchsorted(sorted, flat);
  const Tensor inside = build.make(NPU_I64, {n});
  const npu_scalar last = whole_number(tests - 1);
  build.unary_with(NPU_UNARY_WITH_CLAMP, inside, place, npu_scalar{}, last);
  const Tensor found = build.gather(sorted, inside, 0);
  const Tensor equal = build.compare(
      attrs.invert != 0 ? NPU_COMPARE_NE : NPU_COMPARE_EQ, found, flat);
  build.copy(out, equal.reshape(out.sizes()));
}

}  // namespace npu::compose
