// SPDX-License-Identifier: Apache-2.0
// Copies of operands, made with the driver's own copy and fill.
#include "aten/core/mend.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <cstring>

#include "aten/core/queue.h"
#include "aten/core/workspace.h"
#include "driver/build_call.h"
#include "driver/registry.h"
#include "driver/verdict.h"
#include "npu/validate.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

namespace npu {
namespace {

constexpr std::int64_t kZeros[NPU_MAX_DIMS] = {};

bool is_inout(const npu_call& call, std::uint32_t place) {
  const npu_kind_info* const kind = npu_kind_of(call.slot);
  return kind != nullptr && place < kind->n_out &&
         kind->operands[place].mode == NPU_MODE_INOUT;
}

// Of a vendor's own kind nothing is known: read and written, perhaps.
std::uint32_t list_mode(const npu_call& call, std::uint32_t which) {
  const npu_kind_info* const kind = npu_kind_of(call.slot);
  return kind != nullptr && which < kind->n_lists
             ? kind->operands[kind->n_out + kind->n_in + which].mode
             : NPU_MODE_INOUT;
}

// Elementwise operands have one size; a number stands for all elements.
bool broadcasts(const npu_call& call) {
  const npu_kind_info* const kind = npu_kind_of(call.slot);
  return kind != nullptr && std::strcmp(kind->family, "map") == 0;
}

bool takes_strides(const npu_call& call) {
  const npu_op_caps* const caps = active_driver().caps(call.slot, call.code);
  return caps != nullptr && (caps->flags & NPU_CAP_STRIDED_IN) != 0;
}

template <class T>
T read(const void* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

npu_scalar real(double value) {
  return {NPU_SCALAR_FLOAT, 0, 0, value, 0};
}
npu_scalar integer(std::int64_t value) {
  return {NPU_SCALAR_INT, 0, value, static_cast<double>(value), 0};
}
npu_scalar complex(c10::complex<double> value) {
  return {NPU_SCALAR_COMPLEX, 0, 0, value.real(), value.imag()};
}

// The number of a host scalar; kind NPU_SCALAR_NONE for other dtypes.
npu_scalar number_of(const npu_tensor& scalar) {
  const void* const data = scalar.data;
  switch (scalar.dtype) {
    case NPU_BOOL:
    case NPU_U8:
      return integer(read<std::uint8_t>(data));
    case NPU_I8:
      return integer(read<std::int8_t>(data));
    case NPU_I16:
      return integer(read<std::int16_t>(data));
    case NPU_I32:
      return integer(read<std::int32_t>(data));
    case NPU_I64:
      return integer(read<std::int64_t>(data));
    case NPU_F16:
      return real(read<c10::Half>(data));
    case NPU_BF16:
      return real(read<c10::BFloat16>(data));
    case NPU_F32:
      return real(read<float>(data));
    case NPU_F64:
      return real(read<double>(data));
    case NPU_C64:
      return complex(c10::complex<double>(read<c10::complex<float>>(data)));
    case NPU_C128:
      return complex(read<c10::complex<double>>(data));
    default:
      return {};
  }
}

std::uint64_t bytes_of(const npu_tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel) *
         npu_dtype_bytes(tensor.dtype);
}

bool copies_as_bytes(const npu_tensor& to, const npu_tensor& from) {
  constexpr std::uint32_t kMeaning = NPU_TENSOR_CONJ | NPU_TENSOR_NEG;
  return to.dtype == from.dtype && (from.flags & kMeaning) == 0 &&
         is_contiguous(to) && is_contiguous(from);
}

npu_tensor expanded(npu_tensor one, const npu_tensor& like) {
  one.sizes = like.sizes;
  one.strides = kZeros;
  one.ndim = like.ndim;
  one.numel = like.numel;
  // All strides are 0: contiguous only where there is one element.
  if (like.numel != 1) {
    one.flags &= ~(NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE);
  }
  return one;
}

}  // namespace

Mender::~Mender() {
  if (Recorder* const watching = recorder()) {
    for (c10::DataPtr& memory : memory_) {
      watching->on_temporary(std::move(memory));
    }
  }
}

void* Mender::allocate(std::uint64_t bytes) {
  return memory_.emplace_back(npu::allocate(bytes, device_)).get();
}

npu_tensor Mender::contiguous_like(const npu_tensor& tensor, npu_dtype dtype) {
  npu_tensor out = tensor;
  Dims& strides = dims_.emplace_back(tensor.ndim);
  std::int64_t step = 1;
  for (std::size_t d = tensor.ndim; d-- > 0;) {
    strides[d] = step;
    step *= tensor.sizes[d];
  }
  out.numel = step;
  out.strides = strides.data();
  out.dtype = dtype;
  out.storage_bytes = bytes_of(out);
  out.data = out.storage = allocate(out.storage_bytes);
  out.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  out.device = driver_device(device_);
  out.format = 0;
  out.alias_of = 0;
  return out;
}

bool Mender::copy(const npu_tensor& to, const npu_tensor& from) {
  bytes_ += bytes_of(to);
  if (copies_as_bytes(to, from)) {
    queue_copy(
        ByteWork::kOnDevice,
        to.data,
        from.data,
        bytes_of(to),
        device_,
        "copy an operand");
    return true;
  }
  Call call(NPU_KIND_COPY, 0, "npu::mend");
  return queue_planned(call, plan_copy(call, to, from), "copy an operand");
}

bool Mender::queue_planned(Call& call, npu_verdict verdict, const char* what) {
  Workspace workspace;
  if (verdict.answer != NPU_VERDICT_YES ||
      workspace.take(call, verdict, device_) != NPU_REASON_NONE) {
    return false;
  }
  check_driver(queue_frame(call, device_), what);
  workspace.queued(device_);
  return true;
}

npu_verdict Mender::plan_copy(
    Call& call, const npu_tensor& to, const npu_tensor& from) const {
  npu_tensor source = from;
  source.flags &= ~NPU_TENSOR_ALIAS;
  build::copy(call, to, source);
  return call.plan(active_driver(), driver_device(device_));
}

bool Mender::can_copy(const npu_tensor& to, const npu_tensor& from) const {
  if (copies_as_bytes(to, from)) {
    return true;
  }
  Call call(NPU_KIND_COPY, 0, "npu::mend");
  return plan_copy(call, to, from).answer == NPU_VERDICT_YES;
}

bool Mender::fill(const npu_tensor& to, const npu_scalar& value) {
  if (value.kind == NPU_SCALAR_NONE) {
    return false;
  }
  Call call(NPU_KIND_FILL, 0, "npu::mend");
  npu_fill_attrs attrs{.value = value};
  build::fill(call, to, attrs);
  if (!queue_planned(
          call,
          call.plan(active_driver(), driver_device(device_)),
          "write a number to the device")) {
    return false;
  }
  bytes_ += bytes_of(to);
  return true;
}

void* Mender::upload(const void* numbers, std::uint64_t bytes) {
  // From pinned memory, which stays until the stream has passed the copy: the
  // host does not wait.
  c10::DataPtr pinned = pinned_allocator()->allocate(bytes);
  std::memcpy(pinned.get(), numbers, bytes);
  void* const to = allocate(bytes);
  queue_copy(
      ByteWork::kToDevice,
      to,
      pinned.get(),
      bytes,
      device_,
      "copy a number to the device");
  record_pinned(pinned.get(), pinned.get_context(), current_stream(device_));
  memory_.push_back(std::move(pinned));
  bytes_ += bytes;
  return to;
}

bool Mender::mend_number(
    const npu_call& frame, npu_tensor& number, npu_dtype dtype) {
  const bool spreads = broadcasts(frame);
  const npu_tensor& like = frame.tensors[0];
  const bool in_full = spreads && !takes_strides(frame);
  npu_tensor made = contiguous_like(in_full ? like : number, dtype);
  if (!fill(made, number_of(number))) {
    npu_tensor one = number;
    one.data = one.storage = upload(number.data, npu_dtype_bytes(number.dtype));
    one.device = made.device;
    one.flags &= ~NPU_TENSOR_HOST_SCALAR;
    if (!in_full && dtype == number.dtype) {
      made = one;
    } else if (!copy(made, in_full ? expanded(one, like) : one)) {
      return false;
    }
  }
  number = spreads && !in_full ? expanded(made, like) : made;
  return true;
}

bool Mender::mend_input(
    const npu_call& frame, npu_tensor& tensor, npu_dtype dtype) {
  if ((tensor.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
    return mend_number(frame, tensor, dtype);
  }
  const npu_tensor made = contiguous_like(tensor, dtype);
  if (!copy(made, tensor)) {
    return false;
  }
  tensor = made;
  return true;
}

bool Mender::mend_output(Call& call, std::uint32_t place, npu_dtype dtype) {
  const npu_call& frame = call.frame();
  auto* const tensors = const_cast<npu_tensor*>(frame.tensors);
  npu_tensor& tensor = tensors[place];
  const npu_tensor made = contiguous_like(tensor, dtype);
  // finish() is too late to learn that the driver has no copy for the way back.
  if (!can_copy(tensor, made) ||
      (is_inout(frame, place) && !copy(made, tensor))) {
    return false;
  }
  outputs_.push_back({tensor, made});
  tensor = made;
  for (std::uint32_t k = frame.n_out; k < frame.n_out + frame.n_in; ++k) {
    if (tensors[k].alias_of == place) {
      tensors[k].flags &= ~NPU_TENSOR_ALIAS;
    }
  }
  return true;
}

bool Mender::mend(Call& call, const npu_verdict& verdict) {
  npu_call& frame = call.frame();
  // The frame's arrays are the call's own.
  auto* const tensors = const_cast<npu_tensor*>(frame.tensors);
  auto* const lists = const_cast<npu_list*>(frame.lists);
  const bool casts = verdict.answer == NPU_VERDICT_IF_CAST;
  const std::uint32_t operands = frame.n_out + frame.n_in;
  for (std::uint32_t i = 0; i < operands + frame.n_lists; ++i) {
    if ((verdict.mask >> i & 1) == 0) {
      continue;
    }
    bool done = true;
    if (i >= operands) {
      done = mend_list(
          frame, lists[i - operands], list_mode(frame, i - operands), verdict);
    } else if (tensors[i].dtype != NPU_ABSENT) {
      const npu_dtype dtype = casts ? verdict.cast_dtype : tensors[i].dtype;
      done = i < frame.n_out ? mend_output(call, i, dtype)
                             : mend_input(frame, tensors[i], dtype);
    }
    if (!done) {
      return false;
    }
  }
  if (casts && frame.compute_dtype != NPU_ABSENT) {
    frame.compute_dtype = verdict.cast_dtype;
  }
  return true;
}

void Mender::finish() {
  // The last temporary first: an output may have been replaced twice.
  for (auto replaced = outputs_.rbegin(); replaced != outputs_.rend();
       ++replaced) {
    TORCH_CHECK(
        copy(replaced->output, replaced->temporary),
        "npu: the driver '",
        active_driver().name(),
        "' declines to copy a temporary back to an output, which it did for "
        "inputs. Report it to the driver's vendor.",
        ops_error(Code::kInternal));
  }
}

}  // namespace npu
