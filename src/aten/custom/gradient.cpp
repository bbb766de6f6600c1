// SPDX-License-Identifier: Apache-2.0
#include "aten/custom/gradient.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "aten/core/site.h"

namespace npu::custom {
namespace {

using From = Source::From;
using torch::autograd::AutogradContext;
using torch::jit::Stack;

constexpr char kValues[] = "values";

template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor() && value.toTensor().defined()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      visit(tensor);
    }
  }
}

bool wants_gradient(const c10::IValue& value) {
  bool wanted = false;
  each_tensor(value, [&wanted](const at::Tensor& tensor) {
    wanted = wanted || tensor.requires_grad();
  });
  return wanted;
}

// Inside torch.func, or with a forward gradient.
bool is_transformed(const c10::IValue& value) {
  constexpr c10::DispatchKeySet kKeys(
      {c10::DispatchKey::FuncTorchBatched,
       c10::DispatchKey::FuncTorchGradWrapper});
  bool found = false;
  each_tensor(value, [&](const at::Tensor& tensor) {
    found = found || tensor.key_set().has_any(kKeys) ||
            tensor._fw_grad(/*level=*/0).defined();
  });
  return found;
}

at::Tensor tensor_or_none(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

c10::IValue optional_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? c10::IValue(tensor) : c10::IValue();
}

// A result that depends on the inputs: a gradient that is computed from it
// cannot be differentiated.
bool is_derived(const Source& source, const Stack& results) {
  return source.from == From::kResult &&
         at::isFloatingType(results[source.index].toTensor().scalar_type());
}

c10::IValue read(
    const Source& source,
    at::ArrayRef<c10::IValue> arguments,
    const Stack& results) {
  const auto is_wanted = [&] {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if ((source.for_gradients_of >> i & 1) != 0 &&
          wants_gradient(arguments[i])) {
        return true;
      }
    }
    return source.for_gradients_of == 0;
  };
  switch (source.from) {
    case From::kArgument:
      return is_wanted() ? arguments[source.index] : c10::IValue();
    case From::kResult:
      return results[source.index];
    case From::kSize: {
      const at::Tensor& tensor = arguments[source.index].toTensor();
      return source.dim < tensor.dim()
                 ? tensor.sym_size(source.dim).guard_int(__FILE__, __LINE__)
                 : std::int64_t{1};
    }
    case From::kDtype:
      return arguments[source.index].toTensor().scalar_type();
    default:
      return {};
  }
}

// What the node keeps: tensors, and a list of all that is none, beginning with
// the row and the arguments that are there (bits of Gradient::of). In a list,
// numbers stay numbers where the backward pass is compiled.
class Kept {
 public:
  static constexpr std::size_t kFirst = 2;
  Kept(const Gradient& row, std::int64_t inputs)
      : values_(c10::AnyType::get()) {
    values_.push_back(c10::IValue(reinterpret_cast<std::int64_t>(&row)));
    values_.push_back(c10::IValue(inputs));
  }
  void add(const c10::IValue& value) {
    tensors_.push_back(tensor_or_none(value));
    values_.push_back(value.isTensor() ? c10::IValue() : value);
  }
  void save(AutogradContext* ctx) && {
    ctx->save_for_backward(std::move(tensors_));
    ctx->saved_data[kValues] = std::move(values_);
  }

 private:
  variable_list tensors_;
  c10::impl::GenericList values_;
};

Stack defaults_of(const c10::OperatorHandle& op) {
  Stack values;
  for (const c10::Argument& argument : op.schema().arguments()) {
    values.push_back(argument.default_value().value_or(c10::IValue()));
  }
  return values;
}

struct Recorded : torch::autograd::Function<Recorded> {
  static constexpr std::size_t kOthers = 5;  // arguments behind the inputs

  static variable_list forward(
      AutogradContext* ctx,
      at::TensorList /*inputs*/,
      std::int64_t given,
      const Gradient* row,
      const c10::OperatorHandle* op,
      c10::DispatchKeySet keys,
      Stack* stack) {
    const Stack arguments = *stack;
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      op->redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    }
    Kept kept(*row, given);
    bool again = false;
    for (const Source& source : row->sources) {
      kept.add(read(source, arguments, *stack));
      again = again || (row->backward == nullptr && is_derived(source, *stack));
    }
    if (again) {
      for (const c10::IValue& argument : arguments) {
        kept.add(argument);
      }
    }
    std::move(kept).save(ctx);
    variable_list outs;
    variable_list constant;
    for (std::size_t i = 0; i < stack->size(); ++i) {
      if (const at::Tensor out = tensor_or_none((*stack)[i]); out.defined()) {
        outs.push_back(out);
        if ((row->results >> i & 1) == 0) {
          constant.push_back(out);
        }
      }
    }
    ctx->mark_non_differentiable(constant);
    // A function that reads several gradients does without those not there.
    ctx->set_materialize_grads(std::has_single_bit(row->results));
    return outs;
  }

  static variable_list backward(
      AutogradContext* ctx, const variable_list& grads) {
    const variable_list tensors = ctx->get_saved_variables();
    const auto values = ctx->saved_data[kValues].toList();
    const auto& row = *reinterpret_cast<const Gradient*>(values.get(0).toInt());
    const auto kept = [&](std::size_t i) {
      return tensors[i].defined() ? c10::IValue(tensors[i])
                                  : values.get(i + Kept::kFirst);
    };
    const std::size_t n = row.sources.size();
    variable_list found;
    if (tensors.size() > n && at::GradMode::is_enabled()) {
      Stack arguments;
      for (std::size_t i = n; i < tensors.size(); ++i) {
        arguments.push_back(kept(i));
      }
      found = gradients_of_composition(
          find_operator(row.of_operator), std::move(arguments), row.of, grads);
    } else {
      Stack stack;
      for (std::size_t i = 0; i < n; ++i) {
        const Source& source = row.sources.begin()[i];
        stack.push_back(
            source.from == From::kGrad ? optional_tensor(grads[source.index])
                                       : kept(i));
      }
      found = row.backward != nullptr ? row.backward(stack)
                                      : call(row, std::move(stack));
    }
    variable_list wanted;
    const std::int64_t given = values.get(1).toInt();
    for (std::size_t place = 0; place < row.of.size(); ++place) {
      if ((given >> place & 1) != 0) {
        wanted.push_back(found[place]);
      }
    }
    wanted.resize(wanted.size() + kOthers);
    return wanted;
  }

 private:
  static variable_list call(const Gradient& row, Stack stack) {
    const c10::OperatorHandle op = find_operator(row.overload);
    const Stack defaults = defaults_of(op);
    for (std::size_t i = 0; i < stack.size(); ++i) {
      if (row.sources.begin()[i].from == From::kDefault) {
        stack[i] = defaults[i];
      }
    }
    op.callBoxed(&stack);
    variable_list found;
    for (const c10::IValue& result : stack) {
      found.push_back(result.toTensor());
    }
    return found;
  }
};

class Record final : public c10::OperatorKernel {
 public:
  explicit Record(const Gradient* row) : row_(row) {}
  void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) const {
    const auto arguments =
        torch::jit::last(*stack, op.schema().arguments().size());
    const bool transformed =
        std::any_of(arguments.begin(), arguments.end(), is_transformed);
    const bool wanted = at::GradMode::is_enabled() && is_wanted(arguments);
    if (transformed ||
        (wanted && (row_ == nullptr || (row_->recorded != nullptr &&
                                        !row_->recorded({op, *stack}))))) {
      op.redispatchBoxed(kComposition, stack);
    } else if (!wanted) {
      const at::AutoDispatchBelowADInplaceOrView below;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    } else {
      record(op, keys, stack);
    }
  }

 private:
  bool is_wanted(at::ArrayRef<c10::IValue> arguments) const {
    if (row_ == nullptr) {
      return std::any_of(arguments.begin(), arguments.end(), wants_gradient);
    }
    return std::any_of(row_->of.begin(), row_->of.end(), [&](int i) {
      return i != Gradient::kNone && wants_gradient(arguments[i]);
    });
  }
  void record(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      Stack* stack) const {
    const std::size_t n = op.schema().arguments().size();
    Stack own(
        std::make_move_iterator(stack->end() - n),
        std::make_move_iterator(stack->end()));
    torch::jit::drop(*stack, n);
    variable_list inputs;
    std::int64_t given = 0;
    for (std::size_t place = 0; place < row_->of.size(); ++place) {
      const int i = row_->of.begin()[place];
      if (i != Gradient::kNone && tensor_or_none(own[i]).defined()) {
        inputs.push_back(own[i].toTensor());
        given |= std::int64_t{1} << place;
      }
    }
    const variable_list outs =
        Recorded::apply(at::TensorList(inputs), given, row_, &op, keys, &own);
    auto out = outs.begin();
    for (c10::IValue& result : own) {
      stack->push_back(
          result.isTensor() ? c10::IValue(*out++) : std::move(result));
    }
  }
  const Gradient* const row_;
};

}  // namespace

variable_list gradients_of_composition(
    const c10::OperatorHandle& op,
    Stack arguments,
    std::initializer_list<int> of,
    const variable_list& grads) {
  variable_list inputs;
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < of.size(); ++place) {
    const int i = of.begin()[place];
    if (i != Gradient::kNone && wants_gradient(arguments[i])) {
      // One tensor may be several arguments: each gets a variable of its own.
      const at::Tensor given = arguments[i].toTensor();
      inputs.push_back(given.view_as(given));
      arguments[i] = inputs.back();
      places.push_back(place);
    }
  }
  op.redispatchBoxed(kComposition, &arguments);
  variable_list outs;
  variable_list of_outs;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const at::Tensor out = tensor_or_none(arguments[i]);
    if (out.defined() && out.requires_grad() && grads[i].defined()) {
      outs.push_back(out);
      of_outs.push_back(grads[i]);
    }
  }
  const variable_list found = torch::autograd::grad(
      outs,
      inputs,
      of_outs,
      /*retain_graph=*/true,
      /*create_graph=*/true,
      /*allow_unused=*/true);
  variable_list all(of.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    all[places[i]] = found[i];
  }
  return all;
}

void install_gradient(
    torch::Library& library, const char* overload, const Gradient* row) {
  library.impl(
      overload,
      torch::dispatch(
          c10::DispatchKey::Autograd,
          torch::CppFunction::makeFromBoxedFunctor(
              std::make_unique<Record>(row))));
}

}  // namespace npu::custom
