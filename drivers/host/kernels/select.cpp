// SPDX-License-Identifier: Apache-2.0
// masked_select, masked_scatter, nonzero: positions found by looking at values.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
//
// Elements are taken in chunks of a fixed size. A count call leaves the number
// found in each chunk in the carry, so that the fill can write all chunks at
// once; without a carry they are counted again.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/dense.h"
#include "kernels/kernel.h"

namespace npu::host {
namespace {

constexpr std::int64_t kChunk = kGrain;

std::int64_t chunks_of(std::int64_t numel) {
  return (numel + kChunk - 1) / kChunk;
}

// How many are true in each chunk.
void count_chunks(
    const Loaded<bool>& mask, std::int64_t numel, std::int64_t* counts) {
  parallel(chunks_of(numel), 1, [&](std::int64_t c, std::int64_t end) {
    for (; c < end; ++c) {
      const bool* const first = mask.data() + c * kChunk;
      const std::int64_t n = std::min(kChunk, numel - c * kChunk);
      counts[c] = std::count(first, first + n, true);
    }
  });
}

// Where the elements found in each chunk go; the last entry is their total.
class Starts {
 public:
  Starts(const npu_call& call, const Loaded<bool>& mask, std::int64_t numel) {
    const auto n = static_cast<std::size_t>(chunks_of(numel));
    starts_.resize(n + 1);
    const bool counting = (call.flags & NPU_CALL_COUNT) != 0;
    const bool carried =
        call.carry != nullptr && call.carry_bytes >= n * sizeof(starts_[0]);
    if (carried && !counting) {
      std::memcpy(starts_.data() + 1, call.carry, n * sizeof(starts_[0]));
    } else {
      count_chunks(mask, numel, starts_.data() + 1);
    }
    if (carried && counting) {
      std::memcpy(call.carry, starts_.data() + 1, n * sizeof(starts_[0]));
    }
    for (std::size_t c = 1; c <= n; ++c) {
      starts_[c] += starts_[c - 1];
    }
  }
  std::int64_t total() const {
    return starts_.back();
  }
  std::int64_t operator[](std::int64_t chunk) const {
    return starts_[static_cast<std::size_t>(chunk)];
  }

 private:
  std::vector<std::int64_t> starts_;
};

// found(position, element) for every true element below `limit` of them.
template <class Found>
npu_status for_true(
    const Loaded<bool>& mask,
    std::int64_t numel,
    const Starts& starts,
    std::int64_t limit,
    Found found) {
  const auto body = [&](std::int64_t c, std::int64_t end) {
    for (; c < end; ++c) {
      std::int64_t at = starts[c];
      const std::int64_t last = std::min(numel, (c + 1) * kChunk);
      for (std::int64_t i = c * kChunk; i < last && at < limit; ++i) {
        if (mask[i]) {
          found(at++, i);
        }
      }
    }
  };
  return parallel(chunks_of(numel), 1, body);
}

npu_status write_total(const npu_tensor* total, std::int64_t value) {
  if (total == nullptr) {
    return fail(NPU_E_INVALID, "npu: host driver: a count needs its output.");
  }
  std::memcpy(total->data, &value, sizeof(value));
  return NPU_OK;
}

npu_status carry_plan(const npu_call& call, npu_verdict& verdict) {
  const npu_tensor& in = call.tensors[call.n_out];
  verdict.carry_bytes =
      static_cast<std::uint64_t>(chunks_of(in.numel)) * sizeof(std::int64_t);
  return NPU_OK;
}

// ---- masked_select ----

npu_status masked_select(const npu_call& call) {
  const npu_masked_select_args args = npu_masked_select_unpack(&call);
  const Loaded<bool> mask(args.mask);
  if (mask.status()) {
    return mask.status();
  }
  const std::int64_t numel = args.mask->numel;
  const Starts starts(call, mask, numel);
  if (call.flags & NPU_CALL_COUNT) {
    return write_total(args.total, starts.total());
  }
  const DenseBytes in(*args.in);
  if (in.status()) {
    return in.status();
  }
  char* const out = static_cast<char*>(args.out->data);
  const std::int64_t step = stride_at(*args.out, 0) * bytes_of(*args.out);
  return with_bytes(args.in->dtype, [&](auto bytes) {
    return for_true(
        mask,
        numel,
        starts,
        args.out->numel,
        [&](std::int64_t to, std::int64_t from) {
          std::memcpy(
              out + to * step,
              in.data() + static_cast<std::size_t>(from) * bytes,
              bytes);
        });
  });
}

// ---- masked_scatter ----

npu_status masked_scatter(const npu_call& call) {
  const npu_masked_scatter_args args = npu_masked_scatter_unpack(&call);
  const Loaded<bool> mask(args.mask);
  const DenseBytes source(*args.source);
  const DenseBytes out(*args.out);
  if (const npu_status status = loaded(mask, source, out)) {
    return status;
  }
  const std::int64_t numel = args.mask->numel;
  const Starts starts(call, mask, numel);
  if (starts.total() > args.source->numel) {
    return fail(
        NPU_E_INVALID,
        "masked_scatter: the mask has %lld true elements, the source only "
        "%lld elements",
        static_cast<long long>(starts.total()),
        static_cast<long long>(args.source->numel));
  }
  const npu_status status = with_bytes(args.out->dtype, [&](auto bytes) {
    return for_true(
        mask,
        numel,
        starts,
        args.source->numel,
        [&](std::int64_t from, std::int64_t to) {
          std::memcpy(
              out.data() + static_cast<std::size_t>(to) * bytes,
              source.data() + static_cast<std::size_t>(from) * bytes,
              bytes);
        });
  });
  return status ? status : out.store();
}

// ---- nonzero ----

npu_status nonzero(const npu_call& call) {
  const npu_nonzero_args args = npu_nonzero_unpack(&call);
  const npu_tensor& in = *args.in;
  const Loaded<bool> mask(args.in);
  if (mask.status()) {
    return mask.status();
  }
  const Starts starts(call, mask, in.numel);
  if (call.flags & NPU_CALL_COUNT) {
    return write_total(args.total, starts.total());
  }
  const Stored<std::int64_t> out(args.out, Stored<std::int64_t>::kAsIs);
  const std::int64_t rows = args.out->sizes[0];
  std::fill(
      out.data() + std::min(rows, starts.total()) * in.ndim,
      out.data() + args.out->numel,
      args.attrs.fill_value);
  for_true(
      mask, in.numel, starts, rows, [&](std::int64_t row, std::int64_t at) {
        for (int d = in.ndim - 1; d >= 0; --d) {
          out[row * in.ndim + d] = at % in.sizes[d];
          at /= in.sizes[d];
        }
      });
  return out.store();
}

// ---- rows ----

npu_status masked_select_caps(std::uint32_t code, npu_op_caps& out) {
  constexpr std::uint64_t kMask = NPU_DTYPE_BIT(NPU_BOOL);
  plain_caps(
      out,
      NPU_DTYPES_FREE,
      {NPU_DTYPE_BIT(NPU_I64),
       kNumberDtypes | kByteFloatDtypes,
       kNumberDtypes | kByteFloatDtypes,
       kMask});
  out.plan_use = NPU_PLAN_BY_SHAPE;
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status masked_scatter_caps(std::uint32_t code, npu_op_caps& out) {
  constexpr std::uint64_t kMask = NPU_DTYPE_BIT(NPU_BOOL);
  plain_caps(out, NPU_DTYPES_SAME, {kUsualDtypes, kMask, kUsualDtypes});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status nonzero_caps(std::uint32_t code, npu_op_caps& out) {
  constexpr std::uint64_t kI64 = NPU_DTYPE_BIT(NPU_I64);
  plain_caps(out, NPU_DTYPES_FREE, {kI64, kI64, kNumberDtypes});
  out.plan_use = NPU_PLAN_BY_SHAPE;
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_MASKED_SELECT, masked_select_caps, carry_plan, masked_select},
    {NPU_KIND_MASKED_SCATTER, masked_scatter_caps, nullptr, masked_scatter},
    {NPU_KIND_NONZERO, nonzero_caps, carry_plan, nonzero},
};

}  // namespace

const std::span<const KernelRow> kSelectKernels = kRows;

}  // namespace npu::host
