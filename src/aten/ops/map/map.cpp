// SPDX-License-Identifier: Apache-2.0
// Elementwise frames.
#include "aten/ops/map/map.h"

#include "aten/ops/map/map_number.h"
#include "npu/kinds.h"
#include "npu/validate.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace npu {
namespace {

constexpr int kMostOperands = 5;

std::uint32_t outputs_of(std::uint32_t slot) {
  return npu_kind_of(slot)->n_out;
}

// The first input of where is a mask: it has no part in the computation.
bool begins_with_mask(std::uint32_t slot, std::uint32_t code) {
  return slot == NPU_KIND_TERNARY && code == NPU_TERNARY_WHERE;
}

// A protected member of the iterator; the public reader asserts instead of
// saying that there is none.
struct CommonDtype : at::TensorIteratorBase {
  static c10::ScalarType of(const at::TensorIteratorBase& iter) {
    return iter.*(&CommonDtype::common_dtype_);
  }
};

// Operands of a built iterator, in the kind's order.
class MapFrame {
 public:
  MapFrame(
      const NativeSite& site,
      const at::TensorIteratorBase& iter,
      MapInputs inputs)
      : iter_(iter), site_(site) {
    const c10::ScalarType common = CommonDtype::of(iter);
    compute_ = to_npu_dtype(
        begins_with_mask(site.slot(), site.code()) ? iter.dtype(0)
        : common != c10::ScalarType::Undefined     ? common
                                               : iter.dtype(iter.noutputs()));
    fill_sizes();
    match(inputs);
  }

  // False for dtypes the contract does not have.
  bool fill(Call& call) {
    widen_for_numbers();
    call.frame().compute_dtype = compute_;
    bool fine = compute_ != NPU_ABSENT;
    for (int i = 0; i < iter_.noutputs(); ++i) {
      fine = add(call, i, true) && fine;
    }
    // Outputs that only other codes of the kind have.
    while (call.frame().n_out < outputs_of(call.frame().slot)) {
      call.add_output(npu_tensor{});
    }
    for (const int operand : places_) {
      if (operand < 0) {
        call.add_input(npu_tensor{});
      } else {
        fine = add(call, operand, false) && fine;
      }
    }
    return fine;
  }
  // The compute dtype is a number's, not the tensors'.
  bool is_widened() const {
    return widened_;
  }

 private:
  static constexpr int kAbsent = -1;
  static constexpr int kUnknown = -2;

  void fill_sizes() {
    const int ndim = iter_.ndim();
    for (int d = 0; d < ndim; ++d) {
      sizes_[d] = iter_.shape()[ndim - 1 - d];
    }
  }

  // Metas put operands in orders of their own: tensors are found by identity,
  // the rest (numbers, casts) fills the gaps in order.
  void match(MapInputs inputs) {
    std::uint32_t taken = 0;
    for (const at::Tensor* const input : inputs) {
      int place = kUnknown;
      if (input != nullptr) {
        place = input->defined() ? find(*input, taken) : kAbsent;
      }
      if (place >= 0) {
        taken |= 1u << place;
      }
      places_.push_back(place);
    }
    int next = iter_.noutputs();
    for (int& place : places_) {
      if (place != kUnknown) {
        continue;
      }
      while ((taken >> next & 1) != 0) {
        ++next;
      }
      TORCH_INTERNAL_ASSERT(next < iter_.ntensors());
      place = next;
      taken |= 1u << next;
    }
  }
  void widen_for_numbers() {
    for (std::uint32_t i = 0; i < places_.size(); ++i) {
      if (places_[i] < 0 || !iter_.tensor_base(places_[i]).device().is_cpu()) {
        continue;
      }
      const npu_dtype dtype =
          number_dtype(site_, compute_, i, iter_.tensor_base(places_[i]));
      if (needs_wider_compute(site_, compute_, dtype)) {
        compute_ = dtype;
        widened_ = true;
      }
    }
  }
  int find(const at::Tensor& tensor, std::uint32_t taken) const {
    for (int i = iter_.noutputs(); i < iter_.ntensors(); ++i) {
      if ((taken >> i & 1) == 0 && iter_.tensor_base(i).unsafeGetTensorImpl() ==
                                       tensor.unsafeGetTensorImpl()) {
        return i;
      }
    }
    return kUnknown;
  }

  bool add(Call& call, int i, bool output) {
    const at::TensorBase& tensor = iter_.tensor_base(i);
    if (!output && tensor.device().is_cpu()) {
      HostNumber& number = numbers_[i];
      const npu_dtype dtype =
          number_dtype(site_, compute_, call.frame().n_in, tensor);
      call.add_input(host_operand(number, dtype));
      return store_number(number, tensor, dtype);
    }
    npu_tensor out{};
    const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    const c10::Storage& storage = impl->unsafe_storage();
    const int ndim = iter_.ndim();
    const auto item = static_cast<std::int64_t>(iter_.element_size(i));
    for (int d = 0; d < ndim; ++d) {
      strides_[i][d] =
          sizes_[d] == 1 ? 0 : iter_.strides(i)[ndim - 1 - d] / item;
    }
    out.data = iter_.data_ptr(i);
    out.storage = const_cast<void*>(storage.data());
    out.storage_bytes = storage.nbytes();
    out.numel = iter_.numel();
    out.sizes = sizes_.data();
    out.strides = strides_[i].data();
    out.dtype = to_npu_dtype(iter_.dtype(i));
    out.ndim = static_cast<std::uint16_t>(ndim);
    out.flags = (impl->is_conj() ? NPU_TENSOR_CONJ : 0u) |
                (impl->is_neg() ? NPU_TENSOR_NEG : 0u);
    out.device = driver_device(impl->device().index());
    if (output) {
      // A kernel writes values as they are: storing one under such a bit, as
      // neg_ of a negated view does, is the CPU function's.
      if (out.flags != 0) {
        return false;
      }
      call.add_output(out);
    } else {
      const npu_tensor& result = call.frame().tensors[0];
      if (out.data == result.data && npu_same_place(&out, &result)) {
        out.flags |= NPU_TENSOR_ALIAS;
      } else if (
          out.storage == result.storage && npu_ranges_meet(&out, &result)) {
        return false;  // x.add_(x[0]): kernels read while they write
      }
      call.add_input(out);
    }
    return out.dtype != NPU_ABSENT;
  }

  const at::TensorIteratorBase& iter_;
  const NativeSite& site_;
  npu_dtype compute_;
  bool widened_ = false;
  c10::SmallVector<int, kMostOperands> places_;
  std::array<std::int64_t, NPU_MAX_DIMS> sizes_;
  std::array<std::array<std::int64_t, NPU_MAX_DIMS>, kMostOperands> strides_;
  std::array<HostNumber, kMostOperands> numbers_;
};

bool is_half_dtype(npu_dtype dtype) {
  return dtype == NPU_F16 || dtype == NPU_BF16;
}

// Kernels compute halves in float32: an output of another type would get digits
// that the compute dtype does not have.
bool rounds_first(const npu_call& call, npu_dtype out) {
  constexpr std::uint64_t kInexact =
      NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16) |
      NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64) | NPU_DTYPE_BIT(NPU_C32) |
      NPU_DTYPE_BIT(NPU_C64) | NPU_DTYPE_BIT(NPU_C128);
  return is_half_dtype(call.compute_dtype) &&
         (kInexact & NPU_DTYPE_BIT(out)) != 0;
}

// Real operands, a complex result: it never is in the compute dtype.
bool makes_complex(const npu_call& call) {
  return call.slot == NPU_KIND_BINARY &&
         (call.code == NPU_BINARY_COMPLEX || call.code == NPU_BINARY_POLAR);
}

// Operands that have to be in the compute dtype: all for a driver without casts
// of its own, except masks.
std::uint64_t casts_needed(
    const npu_op_caps& caps, const npu_call& call, bool widened) {
  std::uint64_t mask = 0;
  if (call.slot == NPU_KIND_COMPARE) {
    return mask;
  }
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    const npu_dtype dtype = call.tensors[i].dtype;
    const bool mask_operand =
        i == call.n_out && begins_with_mask(call.slot, call.code);
    const bool complex_result = i < call.n_out && makes_complex(call);
    if (dtype == NPU_ABSENT || dtype == call.compute_dtype || mask_operand ||
        complex_result) {
      continue;
    }
    if (widened || caps.dtype_rule == NPU_DTYPES_SAME ||
        (i < call.n_out && rounds_first(call, dtype))) {
      mask |= std::uint64_t{1} << i;
    }
  }
  return mask;
}

npu_reason run_whole(
    NativeSite& site,
    const at::TensorIteratorBase& iter,
    MapInputs inputs,
    const MapAttrs& attrs) {
  MapFrame frame(site, iter, inputs);
  Call call = site.call();
  if (!frame.fill(call)) {
    return NPU_REASON_DTYPE;
  }
  call.frame().attrs = attrs.data;
  call.frame().attr_bytes = attrs.bytes;
  return site.run(
      call,
      iter.device(0).index(),
      {.casts = casts_needed(*site.caps(), call.frame(), frame.is_widened())});
}

}  // namespace

npu_reason run_map(
    NativeSite& site,
    at::TensorIteratorBase& iter,
    MapInputs inputs,
    const MapAttrs& attrs) {
  if (iter.numel() == 0) {
    return NPU_REASON_NONE;
  }
  const npu_reason why = run_whole(site, iter, inputs, attrs);
  if (C10_LIKELY(why != NPU_REASON_INDEX_WIDTH)) {
    return why;
  }
  // Operands of the parts are those of the whole, in its order.
  for (auto& part : iter.with_32bit_indexing()) {
    const npu_reason declined = run_whole(site, part, inputs, attrs);
    TORCH_CHECK(
        declined == NPU_REASON_NONE,
        "npu: ",
        site.overload(),
        ": the driver took the first part of a large call and declines "
        "another. Report it to the driver's vendor.",
        ops_error(Code::kInternal));
  }
  return NPU_REASON_NONE;
}

npu_reason run_map(
    NativeSite& site,
    Outputs& outputs,
    at::TensorIterator iter,
    MapInputs inputs,
    const MapAttrs& attrs) {
  const npu_reason why = run_map(site, iter, inputs, attrs);
  for (int i = 0; why == NPU_REASON_NONE && i < iter.noutputs(); ++i) {
    outputs.keep(i, iter.output(i));
  }
  return why;
}

at::TensorIterator map_iterator(
    MapRule rule, at::Tensor out, MapInputs inputs) {
  const at::Tensor& first = *inputs.begin()[0];
  switch (rule) {
    case MapRule::kUnary:
      return at::TensorIterator::unary_op(out, first);
    case MapRule::kFloat:
      return at::TensorIterator::unary_float_op(out, first);
    case MapRule::kBinary:
      return at::TensorIterator::binary_op(out, first, *inputs.begin()[1]);
    case MapRule::kCompare:
      return at::TensorIterator::comparison_op(out, first, *inputs.begin()[1]);
    case MapRule::kBool:
      break;
  }
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(true)
      .check_all_same_dtype(false)
      .add_output(out)
      .add_const_input(first);
  if (!out.defined()) {
    config.declare_static_dtype(c10::kBool);
  }
  return config.build();
}

}  // namespace npu
