// SPDX-License-Identifier: Apache-2.0
// Frames that draw random numbers.
#include "aten/random/seeded.h"

#include <array>

#include "aten/core/copy.h"
#include "aten/core/factories.h"
#include "aten/core/frame.h"
#include "aten/core/recorder.h"
#include "runtime/generator.h"

namespace npu {
namespace {

constexpr std::int64_t kUnitStride = 1;
constexpr std::size_t kMostTensors = 4;

// Adds the operands and keeps what they point to.
class Operands {
 public:
  Operands(Call& call, const SeededFrame& frame) {
    TORCH_INTERNAL_ASSERT(frame.tensors.size() <= numels_.size());
    for (std::size_t i = 0; i < frame.tensors.size(); ++i) {
      npu_tensor operand = make(frame.tensors[i], i, frame.flat);
      if (i < frame.n_out) {
        call.add_output(operand);
      } else {
        call.add_input(operand);
      }
    }
    call.set_rng(frame.rng);
  }

 private:
  npu_tensor make(const at::Tensor& tensor, std::size_t i, bool flat) {
    if (!tensor.defined()) {
      return npu_tensor{};
    }
    npu_tensor out = to_operand(tensor);
    if (flat) {
      numels_[i] = out.numel;
      out.ndim = 1;
      out.sizes = &numels_[i];
      out.strides = &kUnitStride;
      out.flags |= NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
    }
    return out;
  }

  std::array<std::int64_t, kMostTensors> numels_{};
};

}  // namespace

void run_seeded_bytes(
    const SeededFrame& frame, const void* attrs, std::uint32_t attr_bytes) {
  Call call = frame.site.call();
  const Operands operands(call, frame);
  call.frame().attrs = attrs;
  call.frame().attr_bytes = attr_bytes;
  frame.site.run(call, frame.tensors[0].device().index(), {.embedded = true});
}

npu_rng reserve_random(
    const std::optional<at::Generator>& given,
    c10::DeviceIndex device,
    std::int64_t words) {
  Generator& generator = generator_for(given, device);
  const auto n = static_cast<std::uint64_t>(words);
  const npu_rng rng = generator.reserve(n);
  if (Recorder* const watching = recorder();
      C10_UNLIKELY(watching != nullptr)) {
    watching->on_draw(generator, n, rng);
  }
  return rng;
}

at::Tensor dense_or_temporary(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) {
    return tensor;
  }
  return make_empty(
      tensor.sizes(), tensor.scalar_type(), tensor.device().index());
}

at::Tensor laid_out_like(const at::Tensor& tensor, const at::Tensor& like) {
  if (tensor.sizes().equals(like.sizes()) &&
      tensor.strides().equals(like.strides()) && !tensor.is_conj() &&
      !tensor.is_neg()) {
    return tensor;
  }
  at::Tensor out = make_empty_strided(
      like.sizes(),
      like.strides(),
      tensor.scalar_type(),
      like.device().index());
  copy(out, tensor, false);
  return out;
}

void check_floating(const char* name, const at::Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::isFloatingType(self.scalar_type()),
      "\"",
      name,
      "\" not implemented for '",
      c10::toString(self.scalar_type()),
      "'");
}

}  // namespace npu
