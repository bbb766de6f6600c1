// SPDX-License-Identifier: Apache-2.0
// item(): one element read back from the device.
#include <ATen/Dispatch_v2.h>
#include <c10/core/Scalar.h>
#include <torch/library.h>

#include "aten/core/copy.h"
#include "aten/core/frame.h"
#include "driver/registry.h"
#include "runtime/error.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu {
namespace {

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  sanitizer::raise_pending();
  TORCH_CHECK(
      self.numel() == 1,
      "npu: item: expected one element, got ",
      self.numel(),
      ".",
      ops_error(Code::kParam));
  const at::Tensor plain = C10_LIKELY(!self.is_conj() && !self.is_neg())
                               ? self
                               : self.resolve_conj().resolve_neg();
  const c10::Stream stream = current_stream(self.device().index());
  alignas(16) unsigned char element[16];
  TORCH_INTERNAL_ASSERT(plain.element_size() <= 16);
  check_driver(
      active_driver().memory().copy_to_host(
          stream_handle(stream),
          element,
          plain.data_ptr(),
          plain.element_size()),
      "item");
  synchronize_stream(stream);
  c10::Scalar out;
  AT_DISPATCH_V2(
      plain.scalar_type(),
      "_local_scalar_dense_npu",
      AT_WRAP([&] {
        scalar_t value;
        std::memcpy(&value, element, sizeof(value));
        out = c10::Scalar(value);
      }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
      AT_EXPAND(AT_FLOAT8_TYPES),
      c10::kComplexHalf,
      c10::kHalf,
      c10::kBFloat16,
      c10::kBool);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

}  // namespace npu
