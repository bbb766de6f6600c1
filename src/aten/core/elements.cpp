// SPDX-License-Identifier: Apache-2.0
// Strided uploads: in one piece, run by run, or packed and spread out by the
// driver's own copy.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <optional>

#include "aten/core/factories.h"
#include "aten/core/transfer.h"
#include "driver/registry.h"
#include "npu/kinds.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

namespace npu {
namespace {

struct Dim {
  std::int64_t size;
  std::int64_t step;  // in bytes
};

// A strided tensor as runs of bytes without gaps.
struct Runs {
  std::int64_t bytes;             // of one run
  c10::SmallVector<Dim, 6> dims;  // which runs there are, outermost first
  std::int64_t count = 1;
};

Runs runs_of(const c10::TensorImpl& tensor) {
  Runs runs{static_cast<std::int64_t>(tensor.itemsize()), {}};
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    // Expanded dimensions reach the same elements again.
    if (tensor.size(d) > 1 && tensor.stride(d) != 0) {
      runs.dims.push_back(
          {tensor.size(d),
           tensor.stride(d) * static_cast<std::int64_t>(tensor.itemsize())});
    }
  }
  std::stable_sort(
      runs.dims.begin(), runs.dims.end(), [](const Dim& a, const Dim& b) {
        return a.step > b.step;
      });
  while (!runs.dims.empty() && runs.dims.back().step == runs.bytes) {
    runs.bytes *= runs.dims.back().size;
    runs.dims.pop_back();
  }
  for (const Dim& dim : runs.dims) {
    runs.count *= dim.size;
  }
  return runs;
}

void upload_bytes(
    npu_stream stream, char* to, const char* from, std::int64_t bytes) {
  check_driver(
      active_driver().memory().copy_to_device(
          stream, to, from, static_cast<std::uint64_t>(bytes)),
      "copy to the device");
}

void upload_runs(
    npu_stream stream, char* to, const char* from, const Runs& runs) {
  for (std::int64_t i = 0; i < runs.count; ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (std::size_t d = runs.dims.size(); d-- > 0;) {
      offset += rest % runs.dims[d].size * runs.dims[d].step;
      rest /= runs.dims[d].size;
    }
    upload_bytes(stream, to + offset, from + offset, runs.bytes);
  }
}

// A dtype of this size that copies move bit by bit.
std::optional<c10::ScalarType> integer_of(std::size_t bytes) {
  switch (bytes) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    case 8:
      return at::kLong;
    default:
      return std::nullopt;
  }
}

// False when the driver has no copy for it: then nothing was done.
bool upload_packed(
    const c10::TensorImpl& dst, const char* from, c10::Stream stream) {
  const std::optional<c10::ScalarType> dtype = integer_of(dst.itemsize());
  if (!dtype || !active_driver().has_kind(NPU_KIND_COPY) ||
      at::has_internal_overlap(const_cast<c10::TensorImpl*>(&dst)) !=
          at::MemOverlap::No) {
    return false;
  }
  const at::Tensor scattered = at::from_blob(
      const_cast<char*>(from), dst.sizes(), dst.strides(), *dtype);
  c10::DataPtr packed = pinned_allocator()->allocate(
      static_cast<std::size_t>(dst.numel()) * dst.itemsize());
  at::from_blob(packed.get(), dst.sizes(), *dtype).copy_(scattered);
  const at::Tensor arrived =
      make_empty(dst.sizes(), *dtype, dst.device().index());
  upload_bytes(
      stream_handle(stream),
      static_cast<char*>(arrived.data_ptr()),
      static_cast<const char*>(packed.get()),
      static_cast<std::int64_t>(arrived.nbytes()));
  record_pinned(packed.get(), packed.get_context(), stream);
  auto bits = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(dst.unsafe_storage()),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(*dtype));
  bits->set_sizes_and_strides(dst.sizes(), dst.strides(), dst.storage_offset());
  return copy_with_kernel(at::Tensor(std::move(bits)), arrived);
}

// Up to here single copies cost less than packing.
constexpr std::int64_t kFewRuns = 16;

}  // namespace

void upload_elements(
    const c10::TensorImpl& dst, const void* host, c10::Stream stream) {
  const c10::Storage& storage = dst.unsafe_storage();
  const npu_stream handle = stream_handle(stream);
  char* const to = static_cast<char*>(storage.mutable_data());
  const char* const from = static_cast<const char*>(host);
  if (dst.is_nested()) {
    upload_bytes(handle, to, from, static_cast<std::int64_t>(storage.nbytes()));
    return;
  }
  if (dst.numel() == 0) {
    return;
  }
  const Runs runs = runs_of(dst);
  const std::int64_t first =
      dst.storage_offset() * static_cast<std::int64_t>(dst.itemsize());
  if (runs.count > kFewRuns && upload_packed(dst, from + first, stream)) {
    return;
  }
  upload_runs(handle, to + first, from + first, runs);
}

}  // namespace npu
