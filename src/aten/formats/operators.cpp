// SPDX-License-Identifier: Apache-2.0
// torch_npu's operators on storage formats: torch.ops.npu.npu_format_cast & co.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "aten/formats/formats.h"
#include "aten/formats/shape.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace npu {
namespace {

using OptInt = std::optional<std::int64_t>;

// customize_dtype and input_dtype say what packed integers hold. Nothing is
// packed here: a tensor's blocks are those of its own dtype.
at::Tensor cast(const at::Tensor& input, std::int64_t format, OptInt, OptInt) {
  return cast_format(input, format);
}

at::Tensor cast_like(
    const at::Tensor& input, const at::Tensor& dst, OptInt, OptInt) {
  return cast_format(input, format_of(dst));
}

// Other tensors on the old storage keep it.
at::Tensor& cast_(at::Tensor& input, std::int64_t format, OptInt, OptInt) {
  const at::Tensor made = cast_format(input, format);
  if (!made.is_same(input)) {
    c10::TensorImpl* const impl = input.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(made.storage());
    impl->set_storage_offset(0);
    impl->set_sizes_contiguous(made.sizes());
  }
  return input;
}

at::Tensor& cast_like_(
    at::Tensor& input, const at::Tensor& src, OptInt a, OptInt b) {
  return cast_(input, format_of(src), a, b);
}

// The arguments every factory has.
struct Factory {
  std::optional<c10::ScalarType> dtype;
  std::optional<c10::Layout> layout;
  std::optional<c10::Device> device;
  std::optional<bool> pin_memory;
};

at::Tensor make(
    const char* name,
    at::IntArrayRef sizes,
    const Factory& how,
    std::int64_t format,
    bool allow_internal) {
  const c10::Device where = how.device.value_or(c10::Device(kDeviceType));
  TORCH_CHECK(
      where.type() == kDeviceType,
      "npu: ",
      name,
      ": expected an npu device, but got ",
      where,
      ".",
      ops_error(Code::kParam));
  TORCH_CHECK(
      how.layout.value_or(c10::kStrided) == c10::kStrided &&
          !how.pin_memory.value_or(false),
      "npu: ",
      name,
      ": makes strided tensors in device memory, neither sparse nor pinned "
      "ones.",
      ops_error(Code::kParam));
  const c10::DeviceIndex index = device_or_current(where.index());
  check_device_index(index);
  return make_with_format(
      sizes, c10::dtype_or_default(how.dtype), index, format, allow_internal);
}

// base_addr_aligned_kb: the allocator aligns as it needs.
at::Tensor empty_with_format(
    at::IntArrayRef sizes,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::int64_t format,
    OptInt) {
  return make(
      "empty_with_format",
      sizes,
      {dtype, layout, device, pin_memory},
      format,
      allow_internal_format());
}

// keep_format asks for the format whatever allow_internal_format says.
at::Tensor unsafe_empty_with_format(
    at::IntArrayRef sizes,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::int64_t format,
    bool keep_format) {
  return make(
      "unsafe_empty_with_format",
      sizes,
      {dtype, layout, device, pin_memory},
      format,
      keep_format || allow_internal_format());
}

at::Tensor cast_below_autograd(const at::Tensor& input, std::int64_t format) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("npu::npu_format_cast", "")
          .typed<at::Tensor(const at::Tensor&, std::int64_t, OptInt, OptInt)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  return op.call(input, format, std::nullopt, std::nullopt);
}

// The values are the same, so is their gradient.
struct NpuFormatCast : torch::autograd::Function<NpuFormatCast> {
  static at::Tensor forward(
      torch::autograd::AutogradContext*,
      const at::Tensor& input,
      std::int64_t format) {
    return cast_below_autograd(input, format);
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*,
      const torch::autograd::variable_list& grads) {
    return {grads[0], at::Tensor()};
  }
};

at::Tensor cast_autograd(
    const at::Tensor& input, std::int64_t format, OptInt, OptInt) {
  if (keeps_storage(input, format)) {
    return cast_below_autograd(input, format);
  }
  return NpuFormatCast::apply(input, format);
}

at::Tensor cast_like_autograd(
    const at::Tensor& input, const at::Tensor& dst, OptInt a, OptInt b) {
  return cast_autograd(input, format_of(dst), a, b);
}

at::Tensor cast_meta(const at::Tensor& input, std::int64_t, OptInt, OptInt) {
  return at::empty_like(input, {}, c10::MemoryFormat::Contiguous);
}

at::Tensor& cast_meta_(at::Tensor& input, std::int64_t, OptInt, OptInt) {
  return input;
}

std::int64_t default_format(const at::Tensor& input) {
  return format::default_of(input.dim());
}

std::int64_t element_count(const at::Tensor& input) {
  return input.numel();
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(npu, m) {
  m.def(
      "npu_format_cast(Tensor input, int acl_format, *, "
      "int? customize_dtype=None, int? input_dtype=None) -> Tensor");
  m.def(
      "npu_format_cast.Tensor(Tensor input, Tensor dst, *, "
      "int? customize_dtype=None, int? input_dtype=None) -> Tensor");
  m.def(
      "npu_format_cast_(Tensor(a!) input, Tensor src, *, "
      "int? customize_dtype=None, int? input_dtype=None) -> Tensor(a!)");
  m.def(
      "npu_format_cast_.acl_format(Tensor(a!) input, int acl_format, *, "
      "int? customize_dtype=None, int? input_dtype=None) -> Tensor(a!)");
  m.def("get_npu_format(Tensor input) -> int");
  m.def("get_storage_size(Tensor input) -> int");
  m.def(
      "empty_with_format(int[] size, *, ScalarType? dtype=None, "
      "Layout? layout=None, Device? device=None, bool? pin_memory=None, "
      "int acl_format=2, int? base_addr_aligned_kb=None) -> Tensor");
  m.def(
      "unsafe_empty_with_format(int[] size, *, ScalarType? dtype=None, "
      "Layout? layout=None, Device? device=None, bool? pin_memory=None, "
      "int acl_format=2, bool keep_format=False) -> Tensor");
}

TORCH_LIBRARY_IMPL(npu, PrivateUse1, m) {
  m.impl("npu_format_cast", TORCH_FN(cast));
  m.impl("npu_format_cast.Tensor", TORCH_FN(cast_like));
  m.impl("npu_format_cast_", TORCH_FN(cast_like_));
  m.impl("npu_format_cast_.acl_format", TORCH_FN(cast_));
  m.impl("get_npu_format", TORCH_FN(format_of));
  m.impl("get_storage_size", TORCH_FN(storage_size_of));
}

// No tensor says where to go.
TORCH_LIBRARY_IMPL(npu, BackendSelect, m) {
  m.impl("empty_with_format", TORCH_FN(empty_with_format));
  m.impl("unsafe_empty_with_format", TORCH_FN(unsafe_empty_with_format));
}

TORCH_LIBRARY_IMPL(npu, AutogradPrivateUse1, m) {
  m.impl("npu_format_cast", TORCH_FN(cast_autograd));
  m.impl("npu_format_cast.Tensor", TORCH_FN(cast_like_autograd));
  for (const char* const name :
       {"npu_format_cast_",
        "npu_format_cast_.acl_format",
        "get_npu_format",
        "get_storage_size"}) {
    m.impl(name, torch::CppFunction::makeFallthrough());
  }
}

TORCH_LIBRARY_IMPL(npu, Meta, m) {
  m.impl("npu_format_cast", TORCH_FN(cast_meta));
  m.impl("npu_format_cast_.acl_format", TORCH_FN(cast_meta_));
  m.impl("get_npu_format", TORCH_FN(default_format));
  m.impl("get_storage_size", TORCH_FN(element_count));
}

}  // namespace npu
