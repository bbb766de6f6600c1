// SPDX-License-Identifier: Apache-2.0
// Fills the frames of a decomposition's parts.
#include "compose/builder.h"

#include <algorithm>
#include <array>
#include <limits>

#include "driver/build_call.h"
#include "npu/validate.h"

namespace npu::compose {
namespace {

constexpr std::size_t kMapOperands = 4;

// Sizes and strides of map operands as drivers are promised them: dimensions of
// size 1 dropped, the output's strides descending, neighbours merged.
struct Geometry {
  Sizes sizes;
  std::array<Sizes, kMapOperands> strides;

  Geometry(const Tensor* const* tensors, std::size_t n) : n_(n) {
    const Tensor& out = *tensors[0];
    std::vector<std::size_t> order;
    for (std::size_t d = 0; d < out.sizes().size(); ++d) {
      if (out.sizes()[d] != 1) {
        order.push_back(d);
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
      return out.strides()[a] > out.strides()[b];
    });
    for (const std::size_t d : order) {
      append(tensors, d);
    }
  }

 private:
  void append(const Tensor* const* tensors, std::size_t d) {
    const std::int64_t size = tensors[0]->sizes()[d];
    bool merges = !sizes.empty();
    for (std::size_t i = 0; i < n_ && merges; ++i) {
      merges =
          !*tensors[i] || strides[i].back() == tensors[i]->strides()[d] * size;
    }
    if (merges) {
      sizes.back() *= size;
    } else {
      sizes.push_back(size);
    }
    for (std::size_t i = 0; i < n_; ++i) {
      const std::int64_t stride = *tensors[i] ? tensors[i]->strides()[d] : 0;
      merges ? void(strides[i].back() = stride) : strides[i].push_back(stride);
    }
  }
  std::size_t n_;
};

bool is_half(npu_dtype dtype) {
  return dtype == NPU_F16 || dtype == NPU_BF16;
}

// What a reduction gives where it has nothing to reduce.
double empty_value(std::uint32_t code) {
  return code == NPU_REDUCE_MEAN ? std::numeric_limits<double>::quiet_NaN() : 0;
}

}  // namespace

bool writes_nothing(const npu_call& call) noexcept {
  return call.n_out > 0 &&
         std::all_of(
             call.tensors, call.tensors + call.n_out, [](const npu_tensor& t) {
               return t.dtype == NPU_ABSENT || t.numel == 0;
             });
}

Tensor Builder::out(std::uint32_t i) const {
  const npu_tensor* operand = npu_call_out(&call_, i);
  return operand != nullptr ? Tensor(*operand) : Tensor();
}

Tensor Builder::in(std::uint32_t i) const {
  const npu_tensor* operand = npu_call_in(&call_, i);
  return operand != nullptr ? Tensor(*operand) : Tensor();
}

Tensor Builder::make(npu_dtype dtype, const Sizes& sizes) {
  const npu_device device = call_.tensors[0].device;
  Tensor tensor(dtype, sizes, nullptr, device);
  const auto bytes =
      static_cast<std::uint64_t>(tensor.numel()) * npu_dtype_bytes(dtype);
  return Tensor(dtype, sizes, runner_.allocate(bytes), device);
}

Tensor Builder::wide(const Tensor& x) {
  return x && is_half(x.dtype()) ? cast(x, NPU_F32) : x;
}

Tensor Builder::contiguous(const Tensor& x) {
  if (!x || x.is_contiguous()) {
    return x;
  }
  const Tensor out = make(x.dtype(), x.sizes());
  copy(out, x);
  return out;
}

Tensor Builder::cast(const Tensor& x, npu_dtype dtype) {
  if (!x || x.dtype() == dtype) {
    return x;
  }
  const Tensor out = make(dtype, x.sizes());
  copy(out, x);
  return out;
}

void Builder::run(Call& call) {
  if (writes_nothing(call.frame())) {
    return;
  }
  call.frame().deterministic = call_.deterministic;
  call.frame().math_mode = call_.math_mode;
  call.frame().flags |= call_.flags & NPU_CALL_CAPTURE;
  call.frame().correlation = call_.correlation;
  if (!runner_.run(call)) {
    throw Declined{};
  }
}

void Builder::map(
    std::uint32_t slot,
    std::uint32_t code,
    const Tensor& out,
    std::initializer_list<const Tensor*> ins,
    std::uint32_t absent_outs,
    const void* attrs,
    std::uint32_t attr_bytes) {
  std::array<Tensor, kMapOperands> expanded;
  std::array<const Tensor*, kMapOperands> tensors;
  std::size_t n = 0;
  tensors[n++] = &out;
  for (const Tensor* in : ins) {
    expanded[n] = *in ? in->expand(out.sizes()) : Tensor();
    tensors[n] = &expanded[n];
    ++n;
  }
  const Geometry geometry(tensors.data(), n);
  Call call(slot, code, call_.label);
  for (std::size_t i = 0; i < n; ++i) {
    const npu_tensor operand =
        tensors[i]->operand(geometry.sizes, geometry.strides[i]);
    if (i == 0) {
      call.add_output(operand);
      for (std::uint32_t k = 0; k < absent_outs; ++k) {
        call.add_output(npu_tensor{});
      }
    } else {
      call.add_input(operand);
    }
  }
  call.frame().attrs = attrs;
  call.frame().attr_bytes = attr_bytes;
  // The last input's: the first one of `where` is bool.
  call.frame().compute_dtype = tensors[n - 1]->dtype();
  run(call);
}

void Builder::copy(const Tensor& out, const Tensor& x) {
  map(NPU_KIND_COPY, 0, out, {&x}, 0, nullptr, 0);
}

void Builder::fill(const Tensor& out, double value) {
  npu_fill_attrs attrs{};
  attrs.size = sizeof(attrs);
  const bool whole = out.dtype() == NPU_I64 || out.dtype() == NPU_I32;
  attrs.value =
      whole ? whole_number(static_cast<std::int64_t>(value)) : number(value);
  map(NPU_KIND_FILL, 0, out, {}, 0, &attrs, sizeof(attrs));
}

void Builder::unary(std::uint32_t code, const Tensor& out, const Tensor& x) {
  map(NPU_KIND_UNARY, code, out, {&x}, 1, nullptr, 0);
}

void Builder::unary_with(
    std::uint32_t code,
    const Tensor& out,
    const Tensor& x,
    npu_scalar a,
    npu_scalar b) {
  npu_unary_with_attrs attrs{};
  attrs.size = sizeof(attrs);
  attrs.a = a;
  attrs.b = b;
  map(NPU_KIND_UNARY_WITH, code, out, {&x}, 0, &attrs, sizeof(attrs));
}

void Builder::binary(
    std::uint32_t code, const Tensor& out, const Tensor& x, const Tensor& y) {
  npu_binary_attrs attrs{};
  attrs.size = sizeof(attrs);
  map(NPU_KIND_BINARY, code, out, {&x, &y}, 0, &attrs, sizeof(attrs));
}

Tensor Builder::unary(std::uint32_t code, const Tensor& x) {
  const Tensor out = make(x.dtype(), x.sizes());
  unary(code, out, x);
  return out;
}

Tensor Builder::affine(const Tensor& x, double times, double plus) {
  const Tensor out = make(x.dtype(), x.sizes());
  unary_with(NPU_UNARY_WITH_AFFINE, out, x, number(times), number(plus));
  return out;
}

Tensor Builder::binary(std::uint32_t code, const Tensor& x, const Tensor& y) {
  const Tensor out = make(x.dtype(), broadcast(x.sizes(), y.sizes()));
  binary(code, out, x, y);
  return out;
}

Tensor Builder::compare(std::uint32_t code, const Tensor& x, const Tensor& y) {
  const Tensor out = make(NPU_BOOL, broadcast(x.sizes(), y.sizes()));
  map(NPU_KIND_COMPARE, code, out, {&x, &y}, 0, nullptr, 0);
  return out;
}

Tensor Builder::where(const Tensor& mask, const Tensor& yes, const Tensor& no) {
  const Tensor out = make(
      yes.dtype(), broadcast(mask.sizes(), broadcast(yes.sizes(), no.sizes())));
  npu_ternary_attrs attrs{};
  attrs.size = sizeof(attrs);
  map(NPU_KIND_TERNARY,
      NPU_TERNARY_WHERE,
      out,
      {&mask, &yes, &no},
      1,
      &attrs,
      sizeof(attrs));
  return out;
}

Tensor Builder::constant(npu_dtype dtype, double value) {
  const Tensor out = make(dtype, {});
  fill(out, value);
  return out;
}

void Builder::reduce(
    std::uint32_t code,
    const Tensor& out,
    const Tensor& x,
    std::uint64_t dims,
    double p) {
  if (x.numel() == 0) {
    fill(out, empty_value(code));
    return;
  }
  npu_reduce_attrs attrs{};
  attrs.dims = dims;
  attrs.p = p;
  attrs.keepdim = 1;
  Call call(NPU_KIND_REDUCE, code, call_.label);
  build::reduce(call, out.operand(), nullptr, x.operand(), attrs);
  run(call);
}

Tensor Builder::reduce(
    std::uint32_t code, const Tensor& x, std::uint64_t dims, double p) {
  Sizes sizes = x.sizes();
  for (int d = 0; d < x.ndim(); ++d) {
    if ((dims & dim_bit(d)) != 0) {
      sizes[static_cast<std::size_t>(d)] = 1;
    }
  }
  const Tensor out = make(x.dtype(), sizes);
  reduce(code, out, x, dims, p);
  return out;
}

Tensor Builder::range(
    std::int64_t count, std::int64_t start, std::int64_t step) {
  const Tensor out = make(NPU_I64, {count});
  npu_range_attrs attrs{};
  attrs.start = whole_number(start);
  attrs.end = whole_number(start + step * count);
  attrs.step = whole_number(step);
  attrs.count = count;
  Call call(NPU_KIND_RANGE, NPU_RANGE_ARANGE, call_.label);
  build::range(call, out.operand(), attrs);
  run(call);
  return out;
}

void Builder::index_select(
    const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  npu_index_select_attrs attrs{};
  attrs.dim = dim;
  Call call(NPU_KIND_INDEX_SELECT, 0, call_.label);
  build::index_select(call, out.operand(), x.operand(), index.operand(), attrs);
  run(call);
}

void Builder::sort(const Tensor& out, const Tensor& x) {
  npu_sort_attrs attrs{};
  const npu_tensor values = out.operand();
  Call call(NPU_KIND_SORT, 0, call_.label);
  build::sort(call, &values, nullptr, x.operand(), attrs);
  run(call);
}

Tensor Builder::searchsorted(const Tensor& sorted, const Tensor& values) {
  const Tensor out = make(NPU_I64, values.sizes());
  npu_searchsorted_attrs attrs{};
  Call call(NPU_KIND_SEARCHSORTED, 0, call_.label);
  build::searchsorted(
      call, out.operand(), sorted.operand(), values.operand(), nullptr, attrs);
  run(call);
  return out;
}

Tensor Builder::cumprod(const Tensor& x, int dim) {
  const Tensor out = make(x.dtype(), x.sizes());
  npu_scan_attrs attrs{};
  attrs.dim = dim;
  Call call(NPU_KIND_SCAN, NPU_SCAN_CUMPROD, call_.label);
  build::scan(call, out.operand(), nullptr, x.operand(), attrs);
  run(call);
  return out;
}

Tensor Builder::gather(const Tensor& x, const Tensor& index, int dim) {
  const Tensor out = make(x.dtype(), index.sizes());
  npu_gather_attrs attrs{};
  attrs.dim = dim;
  Call call(NPU_KIND_GATHER, 0, call_.label);
  build::gather(call, out.operand(), x.operand(), index.operand(), attrs);
  run(call);
  return out;
}

void Builder::scatter(
    std::uint32_t code,
    const Tensor& out,
    const Tensor& index,
    const Tensor& src,
    int dim) {
  if (index.numel() == 0) {
    return;
  }
  npu_scatter_attrs attrs{};
  attrs.dim = dim;
  attrs.include_self = 1;
  const Tensor full = src.expand(index.sizes());
  Call call(NPU_KIND_SCATTER, code, call_.label);
  build::scatter(call, out.operand(), index.operand(), full.operand(), attrs);
  run(call);
}

}  // namespace npu::compose
