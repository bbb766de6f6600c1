// SPDX-License-Identifier: Apache-2.0
// Elementwise frames.
#include "aten/adapters/map.h"

#include <ATen/Context.h>
#include <ATen/Dispatch_v2.h>

#include <cstring>
#include <limits>

#include "aten/factories.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "driver/verdict.h"
#include "npu/kinds.h"
#include "npu/validate.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu {
namespace {

constexpr int kMostOperands = 5;

// An operand that is a number on the host, in the compute type.
struct HostNumber {
  alignas(16) unsigned char bytes[16];
};

// A 0-dim CPU tensor's number as `T`, cast as PyTorch casts elements.
template <class T>
T number_as(const at::TensorBase& tensor) {
  T value{};
  AT_DISPATCH_V2(
      tensor.scalar_type(),
      "npu host scalar",
      AT_WRAP(
          [&] { value = c10::convert<T>(*tensor.const_data_ptr<scalar_t>()); }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
      c10::kComplexHalf,
      c10::kHalf,
      c10::kBFloat16,
      c10::kBool);
  return value;
}

template <class T>
void store(HostNumber& to, T value) {
  static_assert(sizeof(value) <= sizeof(to.bytes));
  std::memcpy(to.bytes, &value, sizeof(value));
}

template <class T>
void store_integer(HostNumber& to, const at::TensorBase& tensor) {
  store(to, static_cast<T>(number_as<std::int64_t>(tensor)));
}

// False for types without arithmetic.
bool store_number(
    HostNumber& to, const at::TensorBase& tensor, npu_dtype dtype) {
  switch (dtype) {
    case NPU_F32:
      store(to, number_as<float>(tensor));
      return true;
    case NPU_F64:
      store(to, number_as<double>(tensor));
      return true;
    case NPU_F16:
      store(to, c10::Half(number_as<float>(tensor)));
      return true;
    case NPU_BF16:
      store(to, c10::BFloat16(number_as<float>(tensor)));
      return true;
    case NPU_BOOL:
      store(to, number_as<bool>(tensor));
      return true;
    case NPU_U8:
    case NPU_I8:
      store_integer<std::int8_t>(to, tensor);
      return true;
    case NPU_I16:
    case NPU_U16:
      store_integer<std::int16_t>(to, tensor);
      return true;
    case NPU_I32:
    case NPU_U32:
      store_integer<std::int32_t>(to, tensor);
      return true;
    case NPU_I64:
    case NPU_U64:
      store_integer<std::int64_t>(to, tensor);
      return true;
    case NPU_C64:
      store(to, number_as<c10::complex<float>>(tensor));
      return true;
    case NPU_C128:
      store(to, number_as<c10::complex<double>>(tensor));
      return true;
    default:
      return false;
  }
}

// The dtype a number is handed over in: halves are computed in float, and a
// number rounded to half first would lose what PyTorch's CPU keeps.
npu_dtype number_dtype(const npu_op_caps& caps, npu_dtype compute) {
  const bool half = compute == NPU_F16 || compute == NPU_BF16;
  return half && caps.dtype_rule == NPU_DTYPES_CAST ? npu_dtype{NPU_F32}
                                                    : compute;
}

std::uint32_t outputs_of(std::uint32_t slot) {
  return npu_kind_of(slot)->n_out;
}

npu_tensor host_operand(HostNumber& number, npu_dtype dtype) {
  npu_tensor out{};
  out.data = out.storage = number.bytes;
  out.storage_bytes = sizeof(number.bytes);
  out.numel = 1;
  out.dtype = dtype;
  out.flags = NPU_TENSOR_HOST_SCALAR | NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  return out;
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
      : iter_(iter), caps_(*site.caps()) {
    const c10::ScalarType common = CommonDtype::of(iter);
    // The first input of this one is a mask.
    const bool masked =
        site.slot() == NPU_KIND_TERNARY && site.code() == NPU_TERNARY_WHERE;
    compute_ = to_npu_dtype(
        masked                                 ? iter.dtype(0)
        : common != c10::ScalarType::Undefined ? common
                                               : iter.dtype(iter.noutputs()));
    fill_sizes();
    match(inputs);
  }

  // False for dtypes the contract does not have.
  bool fill(Call& call) {
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
      const npu_dtype dtype = number_dtype(caps_, compute_);
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
      call.add_output(out);
    } else {
      if (out.data == iter_.data_ptr(0)) {
        out.flags |= NPU_TENSOR_ALIAS;
      }
      call.add_input(out);
    }
    return out.dtype != NPU_ABSENT;
  }

  const at::TensorIteratorBase& iter_;
  const npu_op_caps& caps_;
  npu_dtype compute_;
  c10::SmallVector<int, kMostOperands> places_;
  std::array<std::int64_t, NPU_MAX_DIMS> sizes_;
  std::array<std::array<std::int64_t, NPU_MAX_DIMS>, kMostOperands> strides_;
  std::array<HostNumber, kMostOperands> numbers_;
};

// Operands that a driver without casts of its own needs in the compute dtype.
std::uint64_t casts_needed(const npu_op_caps& caps, const npu_call& call) {
  std::uint64_t mask = 0;
  if (caps.dtype_rule != NPU_DTYPES_SAME || call.slot == NPU_KIND_COMPARE) {
    return mask;
  }
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    const npu_dtype dtype = call.tensors[i].dtype;
    if (dtype != NPU_ABSENT && dtype != call.compute_dtype) {
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
      call, iter.device(0).index(), casts_needed(*site.caps(), call.frame()));
}

// ---- the fast path ----

constexpr std::uint64_t kFastDtypes =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16) | NPU_DTYPE_BIT(NPU_F32) |
    NPU_DTYPE_BIT(NPU_F64);

bool is_plain_tensor(const c10::TensorImpl& impl) {
  constexpr c10::DispatchKeySet kOthers =
      c10::DispatchKeySet(c10::DispatchKey::Conjugate) |
      c10::DispatchKeySet(c10::DispatchKey::Negative) |
      c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return !impl.key_set().has_any(kOthers) && impl.is_contiguous();
}

const Driver& driver() {
  static const Driver& active = active_driver();
  return active;
}

// Stands for every number a fast call may carry.
constexpr std::int64_t kUnitStride = 1;

class FastCall {
 public:
  explicit FastCall(NativeSite& site, const npu_op_caps& caps)
      : site_(site), caps_(caps), n_out_(outputs_of(site.slot())) {
    for (std::uint32_t i = 1; i < n_out_; ++i) {
      tensors_[i] = npu_tensor{};
    }
  }

  // The first input decides; false when it is none for this path.
  bool start(const at::Tensor& first) {
    const c10::TensorImpl& impl = *first.unsafeGetTensorImpl();
    numel_ = impl.numel();
    dtype_ = to_npu_dtype(c10::typeMetaToScalarType(impl.dtype()));
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (impl.device_type() != kDeviceType || !is_plain_tensor(impl) ||
        numel_ == 0 || numel_ > kMost / 8 ||
        (kFastDtypes & caps_.dtypes[n_out_] & NPU_DTYPE_BIT(dtype_)) == 0 ||
        !wants_size(caps_, dtype_, numel_)) {
      return false;
    }
    first_ = &impl;
    device_ = impl.device().index();
    return add(impl);
  }
  bool add_input(const at::Tensor& tensor) {
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (impl.device_type() == c10::DeviceType::CPU) {
      return add_number(tensor);
    }
    return impl.device() == first_->device() &&
           impl.dtype() == first_->dtype() && impl.sizes() == first_->sizes() &&
           is_plain_tensor(impl) && add(impl);
  }
  bool add_output(const c10::TensorImpl& impl, npu_dtype dtype) {
    npu_tensor& out = tensors_[0] = operand(impl, dtype);
    return aligned(out);
  }
  bool may_alias() {
    if ((caps_.flags & NPU_CAP_ALIAS) == 0 || (caps_.alias_mask & 1) == 0) {
      return false;
    }
    tensors_[n_out_].flags |= NPU_TENSOR_ALIAS;
    return true;
  }

  // In place: an input shares some, not all, of what is written. The long way
  // says what is wrong with that.
  bool partly_overlaps() const {
    const char* const out = static_cast<const char*>(tensors_[n_out_].data);
    const auto bytes =
        numel_ * static_cast<std::int64_t>(npu_dtype_bytes(dtype_));
    for (std::uint32_t i = 1; i < n_in_; ++i) {
      const npu_tensor& in = tensors_[n_out_ + i];
      const std::int64_t apart = static_cast<const char*>(in.data) - out;
      if (in.storage == tensors_[n_out_].storage && apart != 0 &&
          apart < bytes && -apart < bytes) {
        return true;
      }
    }
    return false;
  }

  void run(const MapAttrs& attrs) {
    npu_call frame{};
    frame.size = sizeof(frame);
    frame.slot = site_.slot();
    frame.code = site_.code();
    frame.flags = NPU_CALL_INDEX32 & driver().table().call_flags_known;
    frame.compute_dtype = dtype_;
    frame.label = site_.overload();
    frame.n_out = n_out_;
    frame.n_in = n_in_;
    frame.tensors = tensors_;
    frame.attrs = attrs.data;
    frame.attr_bytes = attrs.bytes;
    check_driver(
        driver().op().run(current_stream_handle(device_), &frame),
        site_.overload());
    site_.count(1);
  }

  c10::DeviceIndex device() const {
    return device_;
  }
  npu_dtype dtype() const {
    return dtype_;
  }

 private:
  npu_tensor operand(const c10::TensorImpl& impl, npu_dtype dtype) const {
    npu_tensor out{};
    const c10::Storage& storage = impl.unsafe_storage();
    out.storage = const_cast<void*>(storage.data());
    out.data = static_cast<char*>(out.storage) +
               impl.storage_offset() * npu_dtype_bytes(dtype);
    out.storage_bytes = storage.nbytes();
    out.numel = numel_;
    out.sizes = &numel_;
    out.strides = &kUnitStride;
    out.dtype = dtype;
    out.ndim = 1;
    out.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
    out.device = driver_device(device_);
    return out;
  }
  bool add(const c10::TensorImpl& impl) {
    npu_tensor& in = tensors_[n_out_ + n_in_++] = operand(impl, dtype_);
    return aligned(in);
  }
  bool aligned(const npu_tensor& tensor) const {
    return caps_.min_alignment <= 1 ||
           reinterpret_cast<std::uintptr_t>(tensor.data) %
                   caps_.min_alignment ==
               0;
  }
  // A 0-dim tensor of the host does not decide the dtype next to one that has
  // dimensions, unless it is complex.
  bool add_number(const at::Tensor& tensor) {
    const npu_dtype dtype = number_dtype(caps_, dtype_);
    const bool known =
        (driver().table().tensor_flags_known & NPU_TENSOR_HOST_SCALAR) != 0 &&
        (caps_.flags & NPU_CAP_HOST_SCALAR) != 0;
    if (!known || first_->dim() == 0 || tensor.dim() != 0 ||
        tensor.is_complex() || tensor.is_conj() || tensor.is_neg() ||
        has_number_ || !store_number(number_, tensor, dtype)) {
      return false;
    }
    has_number_ = true;
    tensors_[n_out_ + n_in_++] = host_operand(number_, dtype);
    return true;
  }

  NativeSite& site_;
  const npu_op_caps& caps_;
  const c10::TensorImpl* first_ = nullptr;
  std::int64_t numel_ = 0;
  npu_dtype dtype_ = NPU_ABSENT;
  c10::DeviceIndex device_ = -1;
  const std::uint32_t n_out_;
  std::uint32_t n_in_ = 0;
  bool has_number_ = false;
  npu_tensor tensors_[2 + 3];
  HostNumber number_;
};

// Whatever wants to know or to choose more than the fast path does.
bool takes_the_long_way() {
  return forked_child() || log_enabled(NPU_LOG_DEBUG) ||
         at::globalContext().deterministicAlgorithms();
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

bool run_map_fast(
    NativeSite& site,
    at::Tensor& out,
    MapInputs inputs,
    const MapAttrs& attrs,
    bool bools) {
  const npu_op_caps* const caps = site.caps();
  if (caps == nullptr || takes_the_long_way()) {
    return false;
  }
  FastCall call(site, *caps);
  const at::Tensor* const* input = inputs.begin();
  if (!call.start(**input)) {
    return false;
  }
  while (++input != inputs.end()) {
    if (!call.add_input(**input)) {
      return false;
    }
  }
  if (out.defined()) {
    if (bools || !call.may_alias() || call.partly_overlaps()) {
      return false;
    }
    call.add_output(*out.unsafeGetTensorImpl(), call.dtype());
    call.run(attrs);
    return true;
  }
  const at::Tensor& first = **inputs.begin();
  at::Tensor made = make_empty(
      first.sizes(), bools ? c10::kBool : first.scalar_type(), call.device());
  if (!call.add_output(
          *made.unsafeGetTensorImpl(),
          bools ? npu_dtype{NPU_BOOL} : call.dtype())) {
    return false;
  }
  call.run(attrs);
  out = std::move(made);
  return true;
}

}  // namespace npu
