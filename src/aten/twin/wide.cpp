// SPDX-License-Identifier: Apache-2.0
// Which calls are wide, and their copies.
#include "aten/twin/wide.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <bit>
#include <span>
#include <string_view>

#include "aten/twin/entry.h"
#include "aten/twin/half_products.h"
#include "aten/twin/wrapper_pool.h"

namespace npu::twin {
namespace {

using c10::ScalarType;

constexpr std::uint64_t bit(ScalarType dtype) {
  return std::uint64_t{1} << static_cast<unsigned>(dtype);
}

constexpr std::uint64_t kFloating =
    bit(ScalarType::Half) | bit(ScalarType::BFloat16) | bit(ScalarType::Float) |
    bit(ScalarType::Double) | bit(ScalarType::ComplexHalf) |
    bit(ScalarType::ComplexFloat) | bit(ScalarType::ComplexDouble);

ScalarType next_wider(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::ComplexHalf:
      return ScalarType::ComplexFloat;
    case ScalarType::Bool:
      return ScalarType::Byte;
    default:
      return ScalarType::Float;
  }
}

// Copies between CPU tensors, as a kernel makes them.
constexpr c10::DispatchKeySet kExcluded =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView |
    c10::autocast_dispatch_keyset;

at::Tensor tensor_of(c10::TensorImpl* impl) {
  return at::Tensor(TensorImplPtr::reclaim_copy(impl));
}

// Strides are kept where elements do not share memory.
// In the order of its dimensions, also where elements overlap: results of
// elementwise operators take it over.
at::Tensor empty_wide(const at::Tensor& plain, ScalarType dtype) {
  return at::empty_like(
      plain, plain.options().dtype(dtype), c10::MemoryFormat::Preserve);
}

int place_of(const c10::FunctionSchema& schema, const char* argument) {
  return argument == nullptr
             ? -1
             : schema.argumentIndexWithName(argument).value_or(-1);
}

// In-place forms have the rows of the functional ones.
std::span<const WideRow> rows_of(std::string_view name) {
  if (!name.empty() && name.back() == '_') {
    name.remove_suffix(1);
  }
  const WideTable table = wide_table();
  const auto [first, last] = std::ranges::equal_range(
      table.rows, table.rows + table.n, name, {}, [](const WideRow& row) {
        return std::string_view(row.name);
      });
  return {first, last};
}

}  // namespace

std::vector<WideFact> wide_facts(std::string_view name) {
  std::vector<WideFact> facts;
  for (const WideRow& row : rows_of(name)) {
    for (std::uint64_t left = row.dtypes; left != 0; left &= left - 1) {
      const auto dtype = static_cast<ScalarType>(std::countr_zero(left));
      const ScalarType wide =
          row.wide == ScalarType::Undefined ? next_wider(dtype) : row.wide;
      const bool used = !row.slow || multiplied_in_float32(dtype);
      facts.push_back({dtype, used ? wide : dtype, row.when, row.slow});
    }
  }
  return facts;
}

std::unique_ptr<const WideRules> find_wide(const c10::FunctionSchema& schema) {
  auto found = std::make_unique<WideRules>();
  for (const WideRow& row : rows_of(schema.name())) {
    const char* const named = row.when ? row.when : row.indices;
    const int argument = place_of(schema, named);
    if (named == nullptr || argument >= 0) {
      found->rules.push_back({&row, argument});
      found->complex_halves |= (row.dtypes & bit(ScalarType::ComplexHalf)) != 0;
      found->dtypes |=
          row.indices != nullptr ? bit(ScalarType::Int) : row.dtypes;
    }
  }
  if (found->rules.empty()) {
    return nullptr;
  }
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    found->outs |= std::uint64_t{schema.arguments()[i].is_out()} << i;
  }
  return found;
}

void WideInputs::see(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return;
  }
  strided_ = strided_ && tensor.layout() == c10::kStrided;
  if ((rules_.outs >> at_ & 1) != 0) {
    outs_ |= bit(tensor.scalar_type());
    return;
  }
  if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    dtypes_ |= bit(tensor.scalar_type());
  }
  factors_[0] = factors_[1];
  factors_[1] = &tensor;
  if (rules_.complex_halves) {
    promoted_ = at::native::update_result_type_state(tensor, promoted_);
  }
}

void WideInputs::see(const c10::List<std::optional<at::Tensor>>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    see(list.get(i));
  }
}

void WideInputs::see(const c10::IValue& value) {
  if (value.isTensor()) {
    see(value.toTensor());
  } else if (value.isBool()) {
    see(value.toBool());
  } else if (value.isScalar()) {
    see(value.toScalar());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor()) {
        see(item.toTensor());
      }
    }
  }
}

// Also of halves and a complex number, of complex halves and halves, and where
// dtype= asks for them.
bool Wide::makes_complex_halves(const WideInputs& inputs) {
  if (!inputs.rules_.complex_halves) {
    return false;
  }
  return inputs.asked_ ? *inputs.asked_ == ScalarType::ComplexHalf
                       : at::native::result_type(inputs.promoted_) ==
                             ScalarType::ComplexHalf;
}

// Where the row's conditions other than dtypes hold.
bool Wide::applies(const WideInputs& inputs, const WideRules::Rule& rule) {
  const WideRow& row = *rule.row;
  if (row.when != nullptr && (inputs.trues_ >> rule.argument & 1) == 0) {
    return false;
  }
  return !row.products ||
         (inputs.factors_[0] != nullptr &&
          outweigh_casts(
              inputs.factors_[0]->sizes(), inputs.factors_[1]->sizes()));
}

// Not where PyTorch has other kernels for the layout, and not where it refuses
// the dtype of out=: the call is the same on every CPU.
bool Wide::is_faster_wide(const WideInputs& inputs, ScalarType low) {
  return inputs.strided_ && (inputs.outs_ & ~bit(low)) == 0 &&
         multiplied_in_float32(low);
}

std::unique_ptr<Wide> Wide::plan(const WideInputs& inputs) {
  std::unique_ptr<Wide> made;
  if (C10_LIKELY(
          (inputs.dtypes_ & inputs.rules_.dtypes) == 0 &&
          !inputs.rules_.complex_halves)) {
    return made;
  }
  const auto wide = [&made]() -> Wide& {
    if (made == nullptr) {
      made = std::make_unique<Wide>();
    }
    return *made;
  };
  for (const WideRules::Rule& rule : inputs.rules_.rules) {
    const WideRow& row = *rule.row;
    if (row.indices != nullptr) {
      if ((inputs.dtypes_ & bit(ScalarType::Int)) != 0) {
        wide().indices_ = rule.argument;
      }
      continue;
    }
    const bool complex = (row.dtypes & bit(ScalarType::ComplexHalf)) != 0 &&
                         makes_complex_halves(inputs);
    const std::uint64_t here =
        complex ? bit(ScalarType::ComplexHalf) : inputs.dtypes_ & row.dtypes;
    if (here == 0 || !applies(inputs, rule)) {
      continue;
    }
    const auto low = static_cast<ScalarType>(std::countr_zero(here));
    if (row.slow && !is_faster_wide(inputs, low)) {
      continue;
    }
    const bool mixed = !complex && (bit(low) & kFloating) != 0 &&
                       (inputs.dtypes_ & kFloating & ~bit(low)) != 0;
    if (mixed && row.mixed == 0) {
      continue;
    }
    Wide& plan = wide();
    plan.low_ = low;
    plan.wide_ = row.wide == ScalarType::Undefined ? next_wider(low) : row.wide;
    plan.narrows_ = mixed ? row.mixed : row.rounded;
    if (inputs.asked_ && *inputs.asked_ != low) {
      plan.narrows_ = 0;
    }
  }
  return made;
}

ScalarType Wide::narrow_of(ScalarType dtype) const {
  if (dtype == wide_) {
    return low_;
  }
  // What abs and angle make of complex numbers.
  return low_ == ScalarType::ComplexHalf && dtype == ScalarType::Float
             ? ScalarType::Half
             : dtype;
}

bool Wide::casts(const c10::TensorImpl& plain, const Arg& arg) const {
  const auto dtype = c10::typeMetaToScalarType(plain.dtype());
  // An out= tensor that is wide itself gets the rounded result as well.
  return dtype == low_ || (arg.out && narrow_of(dtype) != dtype) ||
         (low_ == ScalarType::ComplexHalf && dtype == ScalarType::Half) ||
         (arg.index == indices_ && dtype == ScalarType::Int);
}

ScalarType Wide::wide_of(ScalarType dtype) const {
  if (dtype == low_ || dtype == wide_) {
    return wide_;
  }
  return dtype == ScalarType::Int ? ScalarType::Long : ScalarType::Float;
}

c10::TensorImpl* Wide::stand_in(c10::TensorImpl* plain, const Arg& arg) {
  if (plain == c10::UndefinedTensorImpl::singleton() ||
      plain->layout() != c10::kStrided) {
    return plain;
  }
  for (Pair& pair : pairs_) {
    if (pair.plain == plain) {
      pair.written |= arg.written;
      return pair.wide.unsafeGetTensorImpl();
    }
  }
  if (!casts(*plain, arg)) {
    return plain;
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  const at::Tensor tensor = tensor_of(plain);
  pairs_.push_back(
      {plain, empty_wide(tensor, wide_of(tensor.scalar_type())), arg.written});
  return pairs_.back().wide.unsafeGetTensorImpl();
}

std::optional<ScalarType> Wide::stand_in(
    std::optional<ScalarType> dtype) const {
  return dtype && *dtype == low_ ? wide_ : dtype;
}

void Wide::fill() {
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  for (const Pair& pair : pairs_) {
    pair.wide.copy_(tensor_of(pair.plain));
  }
}

void Wide::copy_home() {
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  for (const Pair& pair : pairs_) {
    if (!pair.written) {
      continue;
    }
    const at::Tensor plain = tensor_of(pair.plain);
    if (plain.sizes() != pair.wide.sizes()) {
      plain.resize_(pair.wide.sizes(), pair.wide.suggest_memory_format());
    }
    plain.copy_(pair.wide.to(narrow_of(pair.wide.scalar_type())));
  }
}

c10::TensorImpl* Wide::plain_of(const c10::TensorImpl* result) const {
  for (const Pair& pair : pairs_) {
    if (pair.wide.unsafeGetTensorImpl() == result) {
      return pair.plain;
    }
  }
  return nullptr;
}

at::Tensor Wide::narrow(at::Tensor result) {
  const unsigned i = results_++;
  if (!result.defined() || i >= 32 || (narrows_ >> i & 1) == 0) {
    return result;
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  return result.to(narrow_of(result.scalar_type()));
}

}  // namespace npu::twin
