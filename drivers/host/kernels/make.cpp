// SPDX-License-Identifier: Apache-2.0
// range, eye, indices: tensors made from attributes alone.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <cmath>

#include "kernels/dense.h"
#include "kernels/kernel.h"

namespace npu::host {
namespace {

// ---- range ----

// value(i) for every element of a one-dimensional output.
template <class T, class Value>
npu_status write_each(const npu_tensor& out, Value value) {
  const Stored<T> to(&out, Stored<T>::kAsIs);
  parallel(out.numel, kGrain, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) {
      to[i] = value(i);
    }
  });
  return to.store();
}

npu_status arange(const npu_range_args& args) {
  if (kIntDtypes & NPU_DTYPE_BIT(args.out->dtype)) {
    // Wraps as the machine's integers do.
    const auto start =
        static_cast<std::uint64_t>(number<std::int64_t>(args.attrs.start));
    const auto step =
        static_cast<std::uint64_t>(number<std::int64_t>(args.attrs.step));
    return write_each<std::int64_t>(*args.out, [=](std::int64_t i) {
      return static_cast<std::int64_t>(
          start + step * static_cast<std::uint64_t>(i));
    });
  }
  const double start = args.attrs.start.re;
  const double step = args.attrs.step.re;
  return write_each<double>(*args.out, [=](std::int64_t i) {
    return start + step * static_cast<double>(i);
  });
}

// The first half counts up from start, the second down from end: both ends are
// exact. Integers are spaced as doubles and cut off.
template <class T, class Point>
npu_status spaced(const npu_range_args& args, Point point) {
  const std::int64_t n = args.attrs.count;
  const T start = number<T>(args.attrs.start);
  const T end = number<T>(args.attrs.end);
  using Real = decltype(std::abs(T{}));
  const T step = n > 1 ? (end - start) / static_cast<Real>(n - 1) : T(0);
  return write_each<T>(*args.out, [=](std::int64_t i) {
    return point(
        i < n / 2 || n == 1 ? start + step * static_cast<Real>(i)
                            : end - step * static_cast<Real>(n - 1 - i));
  });
}

template <class T>
npu_status range_of(const npu_range_args& args, std::uint32_t code) {
  if (code == NPU_RANGE_LINSPACE) {
    return spaced<T>(args, [](T x) { return x; });
  }
  const double base = args.attrs.base;
  return spaced<T>(args, [base](T x) { return T(std::pow(T(base), x)); });
}

npu_status range(const npu_call& call) {
  const npu_range_args args = npu_range_unpack(&call);
  if (call.code == NPU_RANGE_ARANGE) {
    return arange(args);
  }
  const auto bit = NPU_DTYPE_BIT(args.out->dtype);
  if (bit & kComplexDtypes) {
    return range_of<Complex>(args, call.code);
  }
  if (bit & (kIntDtypes | NPU_DTYPE_BIT(NPU_F64))) {
    return range_of<double>(args, call.code);
  }
  return range_of<float>(args, call.code);
}

// ---- eye, indices ----

npu_status eye(const npu_call& call) {
  const npu_eye_args args = npu_eye_unpack(&call);
  const std::int64_t cols = args.out->sizes[args.out->ndim - 1];
  const std::int64_t rows = args.out->sizes[args.out->ndim - 2];
  return with_number(args.out->dtype, [&](auto type) {
    using T = decltype(type);
    return write_each<T>(*args.out, [=](std::int64_t i) {
      return T(i % cols == i / cols % rows ? 1 : 0);
    });
  });
}

npu_status indices(const npu_call& call) {
  const npu_indices_args args = npu_indices_unpack(&call);
  const Stored<std::int64_t> out(args.out, Stored<std::int64_t>::kAsIs);
  const std::int64_t n = args.out->sizes[1];
  std::int64_t at = 0;
  for (std::int64_t r = 0; r < args.attrs.rows; ++r) {
    const std::int64_t diagonal = r + args.attrs.offset;
    const bool lower = call.code == NPU_INDICES_TRIL;
    const std::int64_t first = lower ? 0 : std::max<std::int64_t>(diagonal, 0);
    const std::int64_t last =
        lower ? std::min(diagonal + 1, args.attrs.cols) : args.attrs.cols;
    for (std::int64_t c = first; c < last && at < n; ++c, ++at) {
      out[at] = r;
      out[n + at] = c;
    }
  }
  return out.store();
}

// ---- rows ----

npu_status range_caps(std::uint32_t code, npu_op_caps& out) {
  const std::uint64_t all = kUsualDtypes & ~NPU_DTYPE_BIT(NPU_BOOL);
  plain_caps(
      out,
      NPU_DTYPES_SAME,
      {code == NPU_RANGE_ARANGE ? all & ~kComplexDtypes : all});
  return code < NPU_RANGE_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status eye_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_SAME, {kUsualDtypes | kByteFloatDtypes});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status indices_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_FREE, {kIndexDtypes});
  return code < NPU_INDICES_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_RANGE, range_caps, nullptr, range},
    {NPU_KIND_EYE, eye_caps, nullptr, eye},
    {NPU_KIND_INDICES, indices_caps, nullptr, indices},
};

}  // namespace

const std::span<const KernelRow> kMakeKernels = kRows;

}  // namespace npu::host
