// SPDX-License-Identifier: Apache-2.0
// torch._foreach_*: one call of kind multi_map for a whole list.
#include "aten/ops/lists/foreach.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/_foreach_copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_zero_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

#include <algorithm>

#include "aten/core/factories.h"
#include "aten/core/frame.h"
#include "aten/core/list_frame.h"
#include "driver/build_call.h"
#include "runtime/torch_compat.h"

#if NPU_HAS_FOREACH_CLONE
#include <ATen/ops/_foreach_clone_compositeexplicitautograd_dispatch.h>
#endif

namespace npu::foreach {
namespace {

// A number the driver computes with as it is.
bool is_real(const at::Scalar& value) {
  return !value.isComplex() && !value.isSymbolic();
}

// PyTorch refuses truth values here: subtracted, or as the factor of a list
// that is added or subtracted.
bool refuses_bools(const Op& op, const Lists& lists) {
  return op.site.code() == NPU_MULTI_MAP_BINARY &&
         (op.op == NPU_BINARY_SUB || (op.op == NPU_BINARY_ADD && lists.n == 2));
}

// A number that is added to halves, or subtracted, is rounded to their dtype
// first, as a loop over the tensors does it. Factors keep their digits.
bool rounds_numbers(const Op& op, const Lists& lists) {
  return lists.n == 1 && !lists.x.empty() &&
         at::isReducedFloatingType(lists.x[0].scalar_type()) &&
         op.site.code() == NPU_MULTI_MAP_BINARY &&
         (op.op == NPU_BINARY_ADD || op.op == NPU_BINARY_SUB);
}

at::Scalar rounded(const at::Scalar& value, c10::ScalarType half) {
  if (!is_real(value) || value.isBoolean()) {
    return value;
  }
  const auto number = static_cast<float>(value.toDouble());
  return half == at::kHalf ? static_cast<float>(c10::Half(number))
                           : static_cast<float>(c10::BFloat16(number));
}

// The factor of a call, with the numbers read from a tensor on the host.
class ResolvedFactor {
 public:
  ResolvedFactor(const Op& op, const Factor& given, const Lists& lists)
      : factor_(given), refuses_bools_(refuses_bools(op, lists)) {
    if (given.tensor != nullptr) {
      read_tensor(*given.tensor, lists);
    }
    if (rounds_numbers(op, lists)) {
      round_numbers(lists.x[0].scalar_type());
    }
  }

  const Factor& factor() const {
    return factor_;
  }
  bool fits(List x) const {
    if (!fits_) {
      return false;
    }
    const auto takes = [&](const at::Scalar& value) {
      return is_real(value) && !(refuses_bools_ && value.isBoolean());
    };
    if (factor_.is_list) {
      return factor_.each.size() == x.size() &&
             std::all_of(factor_.each.begin(), factor_.each.end(), takes);
    }
    if (factor_.tensor != nullptr) {
      const at::Tensor& tensor = *factor_.tensor;
      return tensor.dim() == 0 && tensor.device() == x[0].device() &&
             at::isFloatingType(tensor.scalar_type());
    }
    return factor_.one == nullptr || takes(*factor_.one);
  }

 private:
  void read_tensor(const at::Tensor& tensor, const Lists& lists) {
    if (lists.n == 3) {
      fits_ = read_list(tensor, lists.x);
      return;
    }
    fits_ = keeps_dtype(tensor, lists.x);
    if (fits_ && tensor.device().is_cpu() && tensor.dim() == 0) {
      values_.emplace_back(tensor.item());
      factor_ = Factor(values_.front());
    }
  }
  void round_numbers(c10::ScalarType half) {
    std::vector<at::Scalar> numbers;
    if (factor_.one != nullptr) {
      numbers.push_back(rounded(*factor_.one, half));
    }
    for (const at::Scalar& value : factor_.each) {
      numbers.push_back(rounded(value, half));
    }
    values_ = std::move(numbers);
    if (factor_.one != nullptr) {
      factor_ = Factor(values_.front());
    } else if (factor_.is_list) {
      factor_ = Factor(Scalars(values_));
    }
  }
  bool read_list(const at::Tensor& tensor, List x) {
    if (!tensor.device().is_cpu() || tensor.dim() != 1 ||
        !tensor.is_contiguous() ||
        tensor.numel() != static_cast<std::int64_t>(x.size()) ||
        !at::isFloatingType(tensor.scalar_type())) {
      return false;
    }
    const at::Tensor wide = tensor.to(at::kDouble);
    const double* const first = wide.const_data_ptr<double>();
    values_.assign(first, first + wide.numel());
    factor_ = Factor(Scalars(values_));
    return true;
  }
  // Among 0-dim tensors the wider dtype wins: here no result may have another
  // dtype than its input.
  static bool keeps_dtype(const at::Tensor& factor, List x) {
    return std::all_of(x.begin(), x.end(), [&](const at::Tensor& tensor) {
      return tensor.dim() != 0 || tensor.scalar_type() == factor.scalar_type();
    });
  }

  Factor factor_;
  std::vector<at::Scalar> values_;
  const bool refuses_bools_;
  bool fits_ = true;
};

// A second list of numbers on the host, which optimizers have: bias corrections
// computed from step tensors. They go with the call, one per tensor.
class HostNumbers {
 public:
  HostNumbers(const Lists& lists, const Factor& factor) {
    if (lists.n != 2 || lists.y.size() != lists.x.size() || lists.x.empty() ||
        factor.one != nullptr || factor.is_list || factor.tensor != nullptr) {
      return;
    }
    for (std::size_t i = 0; i < lists.x.size(); ++i) {
      const at::Tensor& y = lists.y[i];
      // Among 0-dim tensors the wider dtype would win.
      if (!y.device().is_cpu() || y.dim() != 0 || lists.x[i].dim() == 0 ||
          y.scalar_type() != lists.x[i].scalar_type() ||
          (y.scalar_type() != at::kFloat && y.scalar_type() != at::kDouble) ||
          y.is_neg() || y.requires_grad()) {
        values_.clear();
        return;
      }
      values_.emplace_back(
          y.scalar_type() == at::kDouble
              ? *y.const_data_ptr<double>()
              : static_cast<double>(*y.const_data_ptr<float>()));
    }
  }
  explicit operator bool() const {
    return !values_.empty();
  }
  Factor factor() const {
    return Factor(Scalars(values_));
  }

 private:
  std::vector<at::Scalar> values_;
};

// A list that was given has tensors in it.
bool is_whole(const Lists& lists) {
  return (lists.n < 2 || !lists.y.empty()) && (lists.n < 3 || !lists.z.empty());
}

// Autograd leaves this to the kernels that take lists.
void written(List tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_inference()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

bool run(const Op& op, List out, List x, List y, List z, const Factor& factor) {
  ListFrame lists(x);
  if (lists.n() == 0) {
    return true;
  }
  npu_multi_map_attrs attrs{.op = op.op};
  if (factor.one != nullptr) {
    attrs.a = to_npu_scalar(*factor.one);
  }
  npu_list each{};
  const npu_list* scalars = nullptr;
  if (factor.is_list) {
    each = lists.scalars(factor.each, at::toOpMathType(x[0].scalar_type()));
    scalars = &each;
  } else if (factor.tensor != nullptr) {
    each = lists.repeated(*factor.tensor);
    scalars = &each;
  }
  const npu_list ys = y.empty() ? npu_list{} : lists.of(y);
  const npu_list zs = z.empty() ? npu_list{} : lists.of(z);
  Call call = op.site.call();
  build::multi_map(
      call,
      lists.of(out),
      lists.of(x),
      y.empty() ? nullptr : &ys,
      z.empty() ? nullptr : &zs,
      scalars,
      attrs);
  return op.site.run(call, x[0].device().index()) == NPU_REASON_NONE;
}

}  // namespace

bool map_new(
    const Op& op, const Lists& lists, const Factor& factor, Results& made) {
  const List x = lists.x;
  if (const HostNumbers numbers(lists, factor); numbers) {
    return map_new(op, x, numbers.factor(), made);
  }
  if (!is_whole(lists) || !goes_as_lists(x, {lists.y, lists.z})) {
    return false;
  }
  const ResolvedFactor resolved(op, factor, lists);
  if (!resolved.fits(x)) {
    return false;
  }
  made.reserve(x.size());
  for (const at::Tensor& tensor : x) {
    made.push_back(make_empty_like(tensor, tensor.scalar_type()));
  }
  return run(op, made, x, lists.y, lists.z, resolved.factor());
}

bool map_into(const Op& op, const Lists& lists, const Factor& given) {
  const List self = lists.x;
  const bool copies = op.site.code() == NPU_MULTI_MAP_COPY;
  if (const HostNumbers numbers(lists, given); !copies && numbers) {
    return map_into(op, self, numbers.factor());
  }
  if (!is_whole(lists) || !goes_as_lists(self, {lists.y, lists.z}, copies) ||
      !writes_apart(self, {lists.y, lists.z})) {
    return false;
  }
  const ResolvedFactor resolved(op, given, lists);
  const Factor& factor = resolved.factor();
  if (!resolved.fits(self) ||
      (factor.tensor != nullptr &&
       std::any_of(self.begin(), self.end(), [&](const at::Tensor& tensor) {
         return tensor.is_alias_of(*factor.tensor);
       }))) {
    return false;
  }
  const bool done = copies ? run(op, self, lists.y, {}, {}, factor)
                           : run(op, self, self, lists.y, lists.z, factor);
  if (done) {
    written(self);
  }
  return done;
}

// ---- overloads whose code is one of multi_map itself ----

namespace {

namespace loops = at::compositeexplicitautograd;

void zero_(List self) {
  static NativeSite site(
      "aten::_foreach_zero_", NPU_KIND_MULTI_MAP, NPU_MULTI_MAP_FILL);
  if (!map_into({site}, self, at::Scalar(0))) {
    loops::_foreach_zero_(self);
  }
}

void copy_(List self, List src, bool non_blocking) {
  static NativeSite site(
      "aten::_foreach_copy_", NPU_KIND_MULTI_MAP, NPU_MULTI_MAP_COPY);
  if (!map_into({site}, {self, src}, {})) {
    loops::_foreach_copy_(self, src, non_blocking);
  }
}

#if NPU_HAS_FOREACH_CLONE
Results clone(List self, std::optional<c10::MemoryFormat> format) {
  static NativeSite site(
      "aten::_foreach_clone", NPU_KIND_MULTI_MAP, NPU_MULTI_MAP_COPY);
  Results made;
  if (format.value_or(c10::MemoryFormat::Preserve) ==
          c10::MemoryFormat::Preserve &&
      map_new({site}, self, {}, made)) {
    return made;
  }
  return loops::_foreach_clone(self, format);
}
#endif

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_foreach_zero_", &zero_);
  m.impl("_foreach_copy_", &copy_);
#if NPU_HAS_FOREACH_CLONE
  m.impl("_foreach_clone", &clone);
#endif
}

}  // namespace npu::foreach
