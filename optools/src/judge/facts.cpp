// SPDX-License-Identifier: Apache-2.0
// What has to be right about a result besides its values.
#include "judge/facts.h"

#include <mutex>
#include <sstream>
#include <unordered_map>

#include "core/fork_mutex.h"
#include "core/tool.h"
#include "core/values.h"
#include "judge/attention.h"

namespace optools {

using c10::ScalarType;

at::Tensor OwnAnswer::result(const HostResult& result) {
  run();
  return there_ ? corresponding(result, inputs_, outputs_) : at::Tensor();
}

bool OwnAnswer::changes(size_t position, uint16_t item) {
  run();
  HostResult place;
  place.output = false;
  place.position = static_cast<uint8_t>(position);
  place.item = item;
  return there_ && judge_equal(
                       corresponding(place, inputs_, {}),
                       corresponding(place, call_.inputs, {}),
                       {})
                           .verdict != Verdict::kPass;
}

bool OwnAnswer::shares(const HostResult& mine) {
  const at::Tensor theirs = result(mine);
  bool found = false;
  if (theirs.defined()) {
    each_tensor(inputs_[mine.shares], [&](const at::Tensor& t) {
      found = found || t.is_alias_of(theirs);
    });
  }
  return found;
}

namespace {

// Accelerators save the statistics of norms in float32 beside halves, which
// the CPU's kernels refuse: it saves them in the half dtype. Empty where no
// such tensor is among the inputs.
std::vector<c10::IValue> with_narrow_statistics(const HostCall& call) {
  auto half = ScalarType::Undefined;
  bool any = false;
  for (const auto& value : call.inputs) {
    each_tensor(value, [&](const at::Tensor& t) {
      if (at::isReducedFloatingType(t.scalar_type())) {
        half = t.scalar_type();
      }
      any = any || t.scalar_type() == ScalarType::Float;
    });
  }
  if (half == ScalarType::Undefined || !any) {
    return {};
  }
  auto inputs = widened(call, ScalarType::Undefined);
  for (auto& value : inputs) {
    value = map_tensors(value, [&](const at::Tensor& t) {
      return t.scalar_type() == ScalarType::Float ? t.to(half) : t;
    });
  }
  return inputs;
}

}  // namespace

void OwnAnswer::run() {
  if (tried_) {
    return;
  }
  tried_ = true;
  there_ = run_with([this] { return widened(call_, ScalarType::Undefined); }) ||
           run_with([this] { return with_narrow_statistics(call_); });
}

template <class Inputs>
bool OwnAnswer::run_with(Inputs make) {
  try {
    inputs_ = make();
    if (inputs_.empty() && !call_.inputs.empty()) {
      return false;
    }
    auto fused = attention_on_host(*call_.op, inputs_);
    outputs_ = fused ? std::move(*fused) : run_on_host(*call_.op, inputs_);
    return true;
  } catch (const std::exception&) {  // then there is no such answer
    return false;
  }
}

namespace {

template <class List>
std::string shape_text(const List& sizes) {
  std::ostringstream out;
  out << "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    out << (i == 0 ? "" : ", ") << sizes[i];
  }
  out << "]";
  return out.str();
}

// Which dtypes the CPU's results have, by operator and argument dtypes: asked
// once of each.
class KnownDtypes {
 public:
  static KnownDtypes& get() {
    static auto* known = new KnownDtypes;
    return *known;
  }
  ScalarType expected(
      const HostCall& call, const HostResult& result, OwnAnswer& own) {
    const std::string key = signature(call, result);
    {
      std::lock_guard lock(mutex_);
      if (const auto it = known_.find(key); it != known_.end()) {
        return it->second;
      }
    }
    const at::Tensor theirs = own.result(result);
    const auto dtype =
        theirs.defined() ? theirs.scalar_type() : ScalarType::Undefined;
    std::lock_guard lock(mutex_);
    known_.emplace(key, dtype);
    return dtype;
  }

  size_t size() {
    std::lock_guard lock(mutex_);
    return known_.size();
  }

 private:
  KnownDtypes() = default;
  ForkMutex<KnownDtypes> mutex_;
  std::unordered_map<std::string, ScalarType> known_;

  static std::string signature(const HostCall& call, const HostResult& result) {
    std::ostringstream out;
    out << call.op->index << (result.output ? "o" : "a") << int{result.position}
        << "." << result.item;
    const auto& arguments = call.op->handle.schema().arguments();
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const auto& value = call.inputs[i];
      out << "," << value.tagKind();
      if (value.isInt() && is_dtype(arguments[i])) {
        out << value.toInt();
      }
      each_tensor(value, [&](const at::Tensor& t) {
        out << " " << static_cast<int>(t.scalar_type()) << (t.dim() == 0)
            << t.unsafeGetTensorImpl()->is_wrapped_number();
      });
    }
    return out.str();
  }
};

// Statistics of a normalisation, which kernels for half precision keep in
// float32: PyTorch's do so on devices, its CPU's where the weights are float32.
bool is_statistic(const HostCall& call, const HostResult& result) {
  return result.position > 0 &&
         base_name(*call.op).find("_norm") != std::string::npos &&
         base_name(*call.op).find("backward") == std::string::npos;
}

// Attention for backends lays its results out like its operands, which its host
// twin does not.
bool has_own_layout(const HostCall& call) {
  return base_name(*call.op).find("overrideable") != std::string::npos &&
         base_name(*call.op).find("_scaled_dot_product") == 0;
}

}  // namespace

// Shape, dtype and strides; an empty string when they are right.
std::string wrong_facts(
    const HostCall& call,
    const HostResult& result,
    const at::Tensor& reference,
    OwnAnswer& own) {
  if (reference.sizes() != result.got.sizes()) {
    return "shape " + shape_text(result.got.sizes()) + " instead of " +
           shape_text(reference.sizes());
  }
  const bool is_float = c10::isFloatingType(result.dtype);
  if (is_float != c10::isFloatingType(reference.scalar_type()) ||
      c10::isComplexType(result.dtype) !=
          c10::isComplexType(reference.scalar_type())) {
    return std::string("dtype ") + c10::toString(result.dtype) +
           " instead of one like " + c10::toString(reference.scalar_type());
  }
  if (call.device != c10::DeviceType::CPU && result.output) {
    const auto dtype = KnownDtypes::get().expected(call, result, own);
    const bool wider =
        result.dtype == ScalarType::Float && is_statistic(call, result) &&
        (dtype == ScalarType::Half || dtype == ScalarType::BFloat16);
    if (dtype != ScalarType::Undefined && dtype != result.dtype && !wider) {
      return std::string("dtype ") + c10::toString(result.dtype) +
             " instead of " + c10::toString(dtype);
    }
  }
  if (result.shares >= 0 && !own.shares(result)) {
    return "shares the memory of argument " +
           call.op->handle.schema().arguments()[result.shares].name() +
           ", and has to be new";
  }
  if (!result.output || !call.true_strides || reference.numel() == 0 ||
      has_own_layout(call) || same_strides(reference, result.strides)) {
    return {};
  }
  const at::Tensor theirs = own.result(result);
  if (!theirs.defined() || same_strides(theirs, result.strides)) {
    return {};  // in its own dtype the CPU lays it out like this
  }
  return "strides " + shape_text(result.strides) + " instead of " +
         shape_text(theirs.strides());
}

size_t known_dtypes() {
  return KnownDtypes::get().size();
}

}  // namespace optools
