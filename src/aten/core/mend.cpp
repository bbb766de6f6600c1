// SPDX-License-Identifier: Apache-2.0
// Copies of operands, made with the driver's own copy kind.
#include "aten/core/mend.h"

#include <cstring>

#include "driver/build_call.h"
#include "npu/validate.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu {
namespace {

constexpr std::int64_t kZeros[NPU_MAX_DIMS] = {};

bool is_inout(const npu_call& call, std::uint32_t place) {
  const npu_kind_info* const kind = npu_kind_of(call.slot);
  return kind != nullptr && place < kind->n_out &&
         kind->operands[place].mode == NPU_MODE_INOUT;
}

// Elementwise operands have one size; a number stands for all elements.
bool broadcasts(const npu_call& call) {
  const npu_kind_info* const kind = npu_kind_of(call.slot);
  return kind != nullptr && std::strcmp(kind->family, "map") == 0;
}

}  // namespace

npu_tensor Mender::contiguous_like(const npu_tensor& tensor, npu_dtype dtype) {
  npu_tensor out = tensor;
  Dims& strides = dims_.emplace_back(tensor.ndim);
  std::int64_t step = 1;
  for (std::size_t d = tensor.ndim; d-- > 0;) {
    strides[d] = step;
    step *= tensor.sizes[d];
  }
  const std::uint64_t bytes =
      static_cast<std::uint64_t>(step) * npu_dtype_bytes(dtype);
  memory_.push_back(allocate(bytes, device_));
  out.data = out.storage = memory_.back().get();
  out.storage_bytes = bytes;
  out.numel = step;
  out.strides = strides.data();
  out.dtype = dtype;
  out.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  out.device = driver_device(device_);
  out.format = 0;
  out.alias_of = 0;
  return out;
}

bool Mender::copy(const npu_tensor& to, const npu_tensor& from) {
  Call call(NPU_KIND_COPY, 0, "npu::mend");
  npu_tensor source = from;
  source.flags &= ~NPU_TENSOR_ALIAS;
  build::copy(call, to, source);
  if (call.plan(driver_, driver_device(device_)).answer != NPU_VERDICT_YES) {
    return false;
  }
  check_driver(
      call.run(driver_, current_stream_handle(device_)), "copy an operand");
  return true;
}

bool Mender::mend_input(
    npu_tensor& tensor, const npu_tensor& like, npu_dtype dtype) {
  if ((tensor.flags & NPU_TENSOR_HOST_SCALAR) == 0) {
    const npu_tensor made = contiguous_like(tensor, dtype);
    if (!copy(made, tensor)) {
      return false;
    }
    tensor = made;
    return true;
  }
  // The number goes up as it is; expanded, it is an operand as any other.
  npu_tensor one = contiguous_like(tensor, tensor.dtype);
  check_driver(
      driver_.memory().copy_to_device(
          current_stream_handle(device_),
          one.data,
          tensor.data,
          npu_dtype_bytes(tensor.dtype)),
      "copy a number to the device");
  // It lives on the caller's stack.
  synchronize_stream(current_stream(device_));
  if (like.dtype != NPU_ABSENT) {
    one.sizes = like.sizes;
    one.strides = kZeros;
    one.ndim = like.ndim;
    one.numel = like.numel;
    one.flags = 0;
  }
  tensor = one;
  return true;
}

bool Mender::mend(Call& call, const npu_verdict& verdict) {
  npu_call& frame = call.frame();
  // The frame's array is the call's own.
  auto* const tensors = const_cast<npu_tensor*>(frame.tensors);
  const bool casts = verdict.answer == NPU_VERDICT_IF_CAST;
  const npu_tensor like = broadcasts(frame) ? tensors[0] : npu_tensor{};
  for (std::uint32_t i = 0; i < frame.n_out + frame.n_in; ++i) {
    npu_tensor& tensor = tensors[i];
    if ((verdict.mask >> i & 1) == 0 || tensor.dtype == NPU_ABSENT) {
      continue;
    }
    const npu_dtype dtype = casts ? verdict.cast_dtype : tensor.dtype;
    if (i >= frame.n_out) {
      if (!mend_input(tensor, like, dtype)) {
        return false;
      }
      continue;
    }
    const npu_tensor made = contiguous_like(tensor, dtype);
    if (is_inout(frame, i) && !copy(made, tensor)) {
      return false;
    }
    outputs_.push_back({tensor, made});
    tensor = made;
    for (std::uint32_t k = frame.n_out; k < frame.n_out + frame.n_in; ++k) {
      if (tensors[k].alias_of == i) {
        tensors[k].flags &= ~NPU_TENSOR_ALIAS;
      }
    }
  }
  if (casts && frame.compute_dtype != NPU_ABSENT) {
    frame.compute_dtype = verdict.cast_dtype;
  }
  return true;
}

void Mender::finish() {
  // The last stand-in first: an output may have been moved twice.
  for (auto moved = outputs_.rbegin(); moved != outputs_.rend(); ++moved) {
    TORCH_CHECK(
        copy(moved->home, moved->stand_in),
        "npu: the driver '",
        driver_.name(),
        "' declines to copy an output home, which it did for its inputs. ",
        "Report it to the driver's vendor.",
        ops_error(Code::kInternal));
  }
}

}  // namespace npu
