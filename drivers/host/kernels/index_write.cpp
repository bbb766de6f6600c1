// SPDX-License-Identifier: Apache-2.0
// scatter, index_put, index_update, put: elements written through indices.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
//
// Where an element is written twice, the later index wins: what is split among
// threads never writes to one place from two of them.
#include <cstring>

#include "kernels/index.h"

namespace npu::host {
namespace {

// ---- scatter ----

// Every line along `dim` is one thread's: body(line offsets) with the steps
// along dim, for out, index and src.
struct ScatterShape {
  Nest<3> lines;
  std::int64_t n;      // along dim
  Offsets<3> steps{};  // along dim
};

ScatterShape scatter_shape(
    const npu_scatter_args& args,
    const std::int64_t* out_strides,
    const std::int64_t* src_strides,
    std::int64_t unit) {
  const std::int64_t dim = args.attrs.dim;
  const DenseView table(*args.index, NPU_I64, nullptr);
  const bool one = args.src->ndim < args.index->ndim;  // a host scalar
  ScatterShape shape;
  shape.n = size_at(*args.index, dim);
  for (int d = 0; d < args.index->ndim; ++d) {
    const Offsets<3> steps{
        out_strides[d] * unit,
        table.strides[d],
        one ? 0 : src_strides[d] * unit};
    if (d == dim) {
      shape.steps = steps;
    } else {
      shape.lines.add(args.index->sizes[d], steps);
    }
  }
  return shape;
}

// write(out offset, src offset) for every index.
template <class Write>
npu_status scatter_each(
    const ScatterShape& shape, const Indices& index, Write write) {
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    shape.lines.walk(begin, end, [&](const Offsets<3>& at, std::int64_t n) {
      for (std::int64_t k = 0; k < n; ++k) {
        const std::int64_t to = at[0] + k * shape.lines.step(0);
        const std::int64_t entry = at[1] + k * shape.lines.step(1);
        const std::int64_t from = at[2] + k * shape.lines.step(2);
        for (std::int64_t i = 0; i < shape.n; ++i) {
          write(
              to + index[entry + i * shape.steps[1]] * shape.steps[0],
              from + i * shape.steps[2]);
        }
      }
    });
  };
  return parallel(shape.lines.numel, kGrain / (shape.n + 1) + 1, body);
}

npu_status scatter_set(const npu_scatter_args& args, const Indices& index) {
  const ScatterShape shape = scatter_shape(
      args, args.out->strides, args.src->strides, bytes_of(*args.out));
  char* const out = static_cast<char*>(args.out->data);
  const char* const src = static_cast<const char*>(args.src->data);
  return with_bytes(args.out->dtype, [&](auto bytes) {
    return scatter_each(shape, index, [&](std::int64_t to, std::int64_t from) {
      std::memcpy(out + to, src + from, bytes);
    });
  });
}

Reduction scatter_reduction(std::uint32_t code) {
  switch (code) {
    case NPU_SCATTER_MUL:
      return Reduction::kProduct;
    case NPU_SCATTER_MIN:
      return Reduction::kMin;
    case NPU_SCATTER_MAX:
      return Reduction::kMax;
    case NPU_SCATTER_MEAN:
      return Reduction::kMean;
    default:
      return Reduction::kSum;
  }
}

npu_status scatter(const npu_call& call) {
  const npu_scatter_args args = npu_scatter_unpack(&call);
  const std::int64_t dim = args.attrs.dim;
  const Indices index(
      *args.index, size_at(*args.out, dim), Negative::kRefused, dim);
  if (index.status()) {
    return index.status();
  }
  if (call.code == NPU_SCATTER_SET) {
    return scatter_set(args, index);
  }
  const DenseView out_view(*args.out, args.out->dtype, nullptr);
  const DenseView src_view(*args.src, args.src->dtype, nullptr);
  const ScatterShape shape =
      scatter_shape(args, out_view.strides, src_view.strides, 1);
  return with_number(args.out->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Stored<T> out(args.out, Stored<T>::kLoad);
    const Loaded<T> src(args.src);
    if (const npu_status status = loaded(out, src)) {
      return status;
    }
    Reducer<T> reducer(
        scatter_reduction(call.code),
        args.attrs.include_self != 0,
        out.data(),
        args.out->numel);
    scatter_each(shape, index, [&](std::int64_t to, std::int64_t from) {
      reducer.add(to, src[from]);
    });
    reducer.finish();
    return out.store();
  });
}

// ---- index_put, index_update ----

// Whole slices of out, one per place: `kept` runs over a slice of out and
// source, `picked` over the places and the sources of their slices.
struct Slices {
  Nest<2> kept;
  Nest<2> picked;
};

// write(out offset, source offset) for every element. Threads share slices.
template <class Write>
npu_status write_slices(
    const Slices& slices, const std::int64_t* places, Write write) {
  const std::int64_t n = slices.picked.numel;
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    slices.picked.walk(0, n, [&](const Offsets<2>& pick, std::int64_t m) {
      for (std::int64_t k = 0; k < m; ++k) {
        const std::int64_t to = places[pick[0] + k * slices.picked.step(0)];
        const std::int64_t from = pick[1] + k * slices.picked.step(1);
        slices.kept.walk(
            begin, end, [&](const Offsets<2>& at, std::int64_t run) {
              for (std::int64_t i = 0; i < run; ++i) {
                write(
                    to + at[0] + i * slices.kept.step(0),
                    from + at[1] + i * slices.kept.step(1));
              }
            });
      }
    });
  };
  return parallel(slices.kept.numel, kGrain / (n + 1) + 1, body);
}

Slices put_slices(
    const npu_index_put_args& args,
    const npu_tensor& index_shape,
    const std::int64_t* out_strides,
    const std::int64_t* value_strides,
    std::int64_t unit) {
  Slices slices;
  const DenseView table(index_shape, NPU_I64, nullptr);
  const std::int64_t first = args.attrs.dim;
  const std::int64_t last = first + index_shape.ndim;
  std::uint32_t kept = 0;  // dim of out
  for (std::int64_t d = 0; d < args.values->ndim; ++d) {
    const std::int64_t size = args.values->sizes[d];
    if (d >= first && d < last) {
      slices.picked.add(
          size, {table.strides[d - first], value_strides[d] * unit});
      continue;
    }
    while (args.indices->tensors[kept].dtype != NPU_ABSENT) {
      ++kept;
    }
    slices.kept.add(
        size, {out_strides[kept++] * unit, value_strides[d] * unit});
  }
  return slices;
}

npu_status index_put(const npu_call& call) {
  const npu_index_put_args args = npu_index_put_unpack(&call);
  const npu_tensor& out = *args.out;
  const npu_tensor& values = *args.values;
  if (call.code == NPU_INDEX_PUT_SET) {
    const std::int64_t unit = bytes_of(out);
    const Places places(out, *args.indices, unit, out.strides);
    if (places.status()) {
      return places.status();
    }
    const Slices slices =
        put_slices(args, places.shape(), out.strides, values.strides, unit);
    return with_bytes(out.dtype, [&](auto bytes) {
      return write_slices(
          slices, places.data(), [&](std::int64_t to, std::int64_t from) {
            std::memcpy(
                static_cast<char*>(out.data) + to,
                static_cast<const char*>(values.data) + from,
                bytes);
          });
    });
  }
  const DenseView out_view(out, out.dtype, nullptr);
  const DenseView value_view(values, values.dtype, nullptr);
  const Places places(out, *args.indices, 1, out_view.strides);
  if (places.status()) {
    return places.status();
  }
  const Slices slices =
      put_slices(args, places.shape(), out_view.strides, value_view.strides, 1);
  return with_number(out.dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Stored<T> to(&out, Stored<T>::kLoad);
    const Loaded<T> from(&values);
    if (const npu_status status = loaded(to, from)) {
      return status;
    }
    write_slices(slices, places.data(), [&](std::int64_t i, std::int64_t k) {
      to[i] += from[k];
    });
    return to.store();
  });
}

Reduction update_reduction(std::uint32_t code) {
  switch (code) {
    case NPU_INDEX_UPDATE_PROD:
      return Reduction::kProduct;
    case NPU_INDEX_UPDATE_MEAN:
      return Reduction::kMean;
    case NPU_INDEX_UPDATE_AMIN:
      return Reduction::kMin;
    case NPU_INDEX_UPDATE_AMAX:
      return Reduction::kMax;
    default:
      return Reduction::kSum;
  }
}

// fill has one source element for all.
Slices update_slices(
    const npu_index_update_args& args,
    const std::int64_t* out_strides,
    const std::int64_t* source_strides,
    std::int64_t unit) {
  const npu_tensor& out = *args.out;
  const bool one = args.source->ndim < out.ndim;
  Slices slices;
  for (int d = 0; d < out.ndim; ++d) {
    const std::int64_t from = one ? 0 : source_strides[d] * unit;
    if (d == args.attrs.dim) {
      slices.picked.add(args.index->numel, {1, from});
    } else {
      slices.kept.add(out.sizes[d], {out_strides[d] * unit, from});
    }
  }
  if (out.ndim == 0) {
    slices.picked.add(args.index->numel, {1, 0});
  }
  return slices;
}

std::vector<std::int64_t> scaled(
    const Indices& index, std::int64_t n, std::int64_t step) {
  std::vector<std::int64_t> places(index.data(), index.data() + n);
  for (std::int64_t& place : places) {
    place *= step;
  }
  return places;
}

npu_status update_moved(
    const npu_index_update_args& args, const Indices& index) {
  const npu_tensor& out = *args.out;
  const std::int64_t unit = bytes_of(out);
  const Slices slices =
      update_slices(args, out.strides, args.source->strides, unit);
  const auto places =
      scaled(index, args.index->numel, stride_at(out, args.attrs.dim) * unit);
  return with_bytes(out.dtype, [&](auto bytes) {
    return write_slices(
        slices, places.data(), [&](std::int64_t to, std::int64_t from) {
          std::memcpy(
              static_cast<char*>(out.data) + to,
              static_cast<const char*>(args.source->data) + from,
              bytes);
        });
  });
}

npu_status index_update(const npu_call& call) {
  const npu_index_update_args args = npu_index_update_unpack(&call);
  const std::int64_t dim = args.attrs.dim;
  const bool is_fill = call.code == NPU_INDEX_UPDATE_FILL;
  const Indices index(
      *args.index,
      size_at(*args.out, dim),
      is_fill ? Negative::kFromEnd : Negative::kRefused,
      dim);
  if (index.status()) {
    return index.status();
  }
  if (is_fill || call.code == NPU_INDEX_UPDATE_COPY) {
    return update_moved(args, index);
  }
  const bool is_add = call.code == NPU_INDEX_UPDATE_ADD;
  const DenseView out_view(*args.out, args.out->dtype, nullptr);
  const DenseView source_view(*args.source, args.source->dtype, nullptr);
  const Slices slices =
      update_slices(args, out_view.strides, source_view.strides, 1);
  const auto places =
      scaled(index, args.index->numel, stride_at(out_view.tensor, dim));
  return with_number(args.out->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Stored<T> out(args.out, Stored<T>::kLoad);
    const Loaded<T> source(args.source);
    if (const npu_status status = loaded(out, source)) {
      return status;
    }
    const T alpha = is_add ? number<T>(args.attrs.alpha) : T(1);
    Reducer<T> reducer(
        update_reduction(call.code),
        is_add || args.attrs.include_self != 0,
        out.data(),
        args.out->numel);
    write_slices(slices, places.data(), [&](std::int64_t i, std::int64_t k) {
      reducer.add(i, alpha * source[k]);
    });
    reducer.finish();
    return out.store();
  });
}

// ---- put ----

npu_status put(const npu_call& call) {
  const npu_put_args args = npu_put_unpack(&call);
  const std::int64_t n = args.index->numel;
  const Indices index(*args.index, args.out->numel, Negative::kFromEnd, 0);
  if (index.status()) {
    return index.status();
  }
  if (call.code == NPU_PUT_SET) {
    const DenseBytes out(*args.out);
    const DenseBytes source(*args.source);
    if (const npu_status status = loaded(out, source)) {
      return status;
    }
    const auto bytes = element_bytes(args.out->dtype);
    for (std::int64_t i = 0; i < n; ++i) {
      std::memcpy(
          out.data() + static_cast<std::size_t>(index[i]) * bytes,
          source.data() + static_cast<std::size_t>(i) * bytes,
          bytes);
    }
    return out.store();
  }
  return with_number(args.out->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Stored<T> out(args.out, Stored<T>::kLoad);
    const Loaded<T> source(args.source);
    if (const npu_status status = loaded(out, source)) {
      return status;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      out[index[i]] += source[i];
    }
    return out.store();
  });
}

// ---- rows ----

constexpr std::uint64_t kRealDtypes = kUsualDtypes & ~kComplexDtypes;

// Out, index and source; the source may be one number.
npu_status write_caps(
    npu_op_caps& out, std::uint64_t dtypes, bool code_exists) {
  plain_caps(out, NPU_DTYPES_SAME, {dtypes, kIndexDtypes, dtypes});
  out.flags |= NPU_CAP_HOST_SCALAR;
  return code_exists ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status scatter_caps(std::uint32_t code, npu_op_caps& out) {
  const bool orders = code == NPU_SCATTER_MIN || code == NPU_SCATTER_MAX;
  const std::uint64_t dtypes = orders ? kRealDtypes
                               : code == NPU_SCATTER_MEAN
                                   ? kUsualDtypes & ~NPU_DTYPE_BIT(NPU_BOOL)
                                   : kUsualDtypes;
  return write_caps(out, dtypes, code < NPU_SCATTER_CODES);
}

npu_status index_put_caps(std::uint32_t code, npu_op_caps& out) {
  constexpr std::uint64_t kDtypes = kNumberDtypes | kByteFloatDtypes;
  plain_caps(out, NPU_DTYPES_SAME, {kDtypes, kDtypes});
  return code < NPU_INDEX_PUT_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status index_update_caps(std::uint32_t code, npu_op_caps& out) {
  const bool orders =
      code == NPU_INDEX_UPDATE_AMIN || code == NPU_INDEX_UPDATE_AMAX;
  const bool divides = code == NPU_INDEX_UPDATE_MEAN;
  const std::uint64_t dtypes = orders ? kRealDtypes
                               : divides
                                   ? kUsualDtypes & ~NPU_DTYPE_BIT(NPU_BOOL)
                                   : kNumberDtypes;
  return write_caps(out, dtypes, code < NPU_INDEX_UPDATE_CODES);
}

npu_status put_caps(std::uint32_t code, npu_op_caps& out) {
  return write_caps(out, kUsualDtypes, code < NPU_PUT_CODES);
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_SCATTER, scatter_caps, nullptr, scatter},
    {NPU_KIND_INDEX_PUT, index_put_caps, nullptr, index_put},
    {NPU_KIND_INDEX_UPDATE, index_update_caps, nullptr, index_update},
    {NPU_KIND_PUT, put_caps, nullptr, put},
};

}  // namespace

const std::span<const KernelRow> kIndexWriteKernels = kRows;

}  // namespace npu::host
