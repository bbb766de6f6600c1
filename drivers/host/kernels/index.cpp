// SPDX-License-Identifier: Apache-2.0
// gather, index, index_select, take: elements read through indices.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include "kernels/index.h"

#include <cstring>

#include "kernels/remap.h"

namespace npu::host {

// ---- indices ----

Indices::Indices(
    const npu_tensor& tensor,
    std::int64_t size,
    Negative negative,
    std::int64_t dim)
    : loaded_(&tensor), data_(loaded_.data()), status_(loaded_.status()) {
  const std::int64_t low = negative == Negative::kFromEnd ? -size : 0;
  bool any_negative = false;
  for (std::int64_t i = 0; status_ == NPU_OK && i < tensor.numel; ++i) {
    const std::int64_t index = data_[i];
    any_negative = any_negative || index < 0;
    if (index < low || index >= size) {
      status_ = fail(
          NPU_E_INVALID,
          "index %lld is out of bounds for dimension %lld with size %lld",
          static_cast<long long>(index),
          static_cast<long long>(dim),
          static_cast<long long>(size));
    }
  }
  if (status_ == NPU_OK && any_negative) {
    wrapped_.assign(data_, data_ + tensor.numel);
    for (std::int64_t& index : wrapped_) {
      index += index < 0 ? size : 0;
    }
    data_ = wrapped_.data();
  }
}

Places::Places(
    const npu_tensor& tensor,
    const npu_list& indices,
    std::int64_t unit,
    const std::int64_t* strides) {
  for (std::uint32_t d = 0; d < indices.n; ++d) {
    const npu_tensor& index = indices.tensors[d];
    if (index.dtype == NPU_ABSENT) {
      continue;
    }
    const Indices values(index, tensor.sizes[d], Negative::kFromEnd, d);
    if (status_ = values.status(); status_ != NPU_OK) {
      return;
    }
    shape_ = &index;
    offsets_.resize(static_cast<std::size_t>(index.numel));
    for (std::int64_t i = 0; i < index.numel; ++i) {
      offsets_[static_cast<std::size_t>(i)] += values[i] * strides[d] * unit;
    }
  }
  if (shape_ == nullptr) {
    status_ = fail(NPU_E_INVALID, "npu: host driver: a call without indices.");
  }
}

namespace {

// out = in[... + step * table[t]] over a shape; the nest's offsets are bytes of
// out, places in the table and bytes of in.
npu_status read_through(
    const Nest<3>& nest,
    const npu_tensor& out,
    const npu_tensor& in,
    const std::int64_t* table,
    std::int64_t step) {
  return with_bytes(out.dtype, [&](auto bytes) {
    char* const to = static_cast<char*>(out.data);
    const char* const from = static_cast<const char*>(in.data);
    const auto body = [&](std::int64_t begin, std::int64_t end) {
      nest.walk(begin, end, [&](const Offsets<3>& at, std::int64_t n) {
        for (std::int64_t k = 0; k < n; ++k) {
          std::memcpy(
              to + at[0] + k * nest.step(0),
              from + at[2] + k * nest.step(2) +
                  table[at[1] + k * nest.step(1)] * step,
              bytes);
        }
      });
    };
    return parallel(nest.numel, kGrain, body);
  });
}

// ---- gather ----

npu_status gather(const npu_call& call) {
  const npu_gather_args args = npu_gather_unpack(&call);
  const npu_tensor& in = *args.in;
  const std::int64_t dim = args.attrs.dim;
  const Indices index(*args.index, size_at(in, dim), Negative::kRefused, dim);
  if (index.status()) {
    return index.status();
  }
  const std::int64_t bytes = bytes_of(in);
  const DenseView table(*args.index, NPU_I64, nullptr);
  Nest<3> nest;
  for (int d = 0; d < args.out->ndim; ++d) {
    nest.add(
        args.out->sizes[d],
        {args.out->strides[d] * bytes,
         table.strides[d],
         d == dim ? 0 : in.strides[d] * bytes});
  }
  return read_through(
      nest, *args.out, in, index.data(), stride_at(in, dim) * bytes);
}

// ---- index ----

npu_status index(const npu_call& call) {
  const npu_index_args args = npu_index_unpack(&call);
  const npu_tensor& in = *args.in;
  const npu_tensor& out = *args.out;
  const std::int64_t bytes = bytes_of(in);
  const Places places(in, *args.indices, bytes, in.strides);
  if (places.status()) {
    return places.status();
  }
  const DenseView table(places.shape(), NPU_I64, nullptr);
  const std::int64_t first = args.attrs.dim;
  const std::int64_t last = first + places.shape().ndim;
  Nest<3> nest;
  std::uint32_t kept = 0;  // dim of in
  for (std::int64_t d = 0; d < out.ndim; ++d) {
    const std::int64_t step = out.strides[d] * bytes;
    if (d >= first && d < last) {
      nest.add(out.sizes[d], {step, table.strides[d - first], 0});
      continue;
    }
    while (args.indices->tensors[kept].dtype != NPU_ABSENT) {
      ++kept;
    }
    nest.add(out.sizes[d], {step, 0, in.strides[kept++] * bytes});
  }
  return read_through(nest, out, in, places.data(), 1);
}

// ---- index_select ----

npu_status index_select(const npu_call& call) {
  const npu_index_select_args args = npu_index_select_unpack(&call);
  const std::int64_t dim = args.attrs.dim;
  const Indices index(
      *args.index, size_at(*args.in, dim), Negative::kRefused, dim);
  if (index.status()) {
    return index.status();
  }
  Remap remap(*args.out, *args.in);
  if (dim < args.out->ndim) {
    remap[dim].assign(index.data(), index.data() + args.index->numel);
  }
  return remap.run();
}

// ---- take ----

npu_status take(const npu_call& call) {
  const npu_take_args args = npu_take_unpack(&call);
  const DenseBytes in(*args.in);
  const Indices index(*args.index, args.in->numel, Negative::kFromEnd, 0);
  if (const npu_status status = loaded(in, index)) {
    return status;
  }
  npu_tensor flat = *args.in;
  flat.data = in.data();
  const std::int64_t bytes = bytes_of(flat);
  const DenseView table(*args.index, NPU_I64, nullptr);
  Nest<3> nest;
  for (int d = 0; d < args.out->ndim; ++d) {
    nest.add(
        args.out->sizes[d],
        {args.out->strides[d] * bytes, table.strides[d], 0});
  }
  return read_through(nest, *args.out, flat, index.data(), bytes);
}

// ---- rows ----

template <std::uint64_t Dtypes>
npu_status read_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_SAME, {Dtypes, Dtypes, kIndexDtypes});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_GATHER, read_caps<kUsualDtypes>, nullptr, gather},
    {NPU_KIND_INDEX, read_caps<kAnyDtype>, nullptr, index},
    {NPU_KIND_INDEX_SELECT, read_caps<kAnyDtype>, nullptr, index_select},
    {NPU_KIND_TAKE, read_caps<kUsualDtypes>, nullptr, take},
};

}  // namespace

const std::span<const KernelRow> kIndexKernels = kRows;

}  // namespace npu::host
