// SPDX-License-Identifier: Apache-2.0
// Arithmetic on CPU tensors of one element.
#include "aten/graph/host_numbers.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <string_view>
#include <utility>

namespace npu::graph {
namespace {

struct Row {
  std::string_view name;
  std::string_view overload;
  NumberOp op;
};

// No square root: PyTorch's comes from a library and is not always rounded
// correctly.
constexpr Row kRows[] = {
    {"aten::_foreach_add", "Scalar", NumberOp::kAdd},
    {"aten::_foreach_sub", "Scalar", NumberOp::kSub},
    {"aten::_foreach_mul", "Scalar", NumberOp::kMul},
    {"aten::_foreach_div", "Scalar", NumberOp::kDiv},
    {"aten::_foreach_pow", "ScalarAndTensor", NumberOp::kPowOf},
    {"aten::_foreach_neg", "", NumberOp::kNeg},
    {"aten::_foreach_reciprocal", "", NumberOp::kReciprocal},
};

bool is_number(const c10::IValue& value) {
  if (!value.isTensor()) {
    return false;
  }
  const at::Tensor& tensor = value.toTensor();
  return tensor.defined() && tensor.device().is_cpu() && tensor.dim() == 0 &&
         tensor.scalar_type() == at::kFloat &&
         tensor.layout() == c10::kStrided && tensor.has_storage() &&
         !tensor.is_neg() &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch();
}

// A division by zero is the number's own, as in the kernels.
float computed(NumberOp op, float x, float a) {
  switch (op) {
    case NumberOp::kAdd:
      return x + a;
    case NumberOp::kSub:
      return x - a;
    case NumberOp::kMul:
      return x * a;
    case NumberOp::kDiv:
      return x / a;
    case NumberOp::kPowOf:
      return a == 1.0F ? 1.0F : std::pow(a, x);
    case NumberOp::kNeg:
      return -x;
    case NumberOp::kReciprocal:
      return 1.0F / x;
    case NumberOp::kCopy:
    case NumberOp::kNone:
      break;
  }
  return x;
}

// Numbers of one list in one block, which the last of them frees: memory of
// its own for each costs more than the arithmetic.
class Block {
 public:
  static Block* make(std::size_t n) {
    void* const memory = ::operator new(sizeof(Block) + n * sizeof(float));
    return new (memory) Block(n);
  }
  // The tensor of one number; every one is taken exactly once.
  at::Tensor take(std::size_t i, float value) {
    float* const place = reinterpret_cast<float*>(this + 1) + i;
    *place = value;
    c10::Storage storage(
        c10::Storage::use_byte_size_t(),
        sizeof(float),
        c10::DataPtr(place, this, &Block::drop, c10::Device(c10::kCPU)),
        c10::GetCPUAllocator(),
        /*resizable=*/true);
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage),
        c10::DispatchKeySet(c10::DispatchKey::CPU),
        c10::scalarTypeToTypeMeta(at::kFloat));
    made.unsafeGetTensorImpl()->set_sizes_contiguous({});
    return made;
  }

 private:
  explicit Block(std::size_t n) : held_(n) {}
  static void drop(void* block) {
    auto* const self = static_cast<Block*>(block);
    if (self->held_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      self->~Block();
      ::operator delete(block);
    }
  }
  std::atomic<std::size_t> held_;
};

bool copy_number(torch::jit::Stack& stack) {
  if (!is_number(stack[0]) || !is_number(stack[1])) {
    return false;
  }
  const at::Tensor to = stack[0].toTensor();
  *to.mutable_data_ptr<float>() = *stack[1].toTensor().const_data_ptr<float>();
  stack.clear();
  stack.emplace_back(to);
  return true;
}

}  // namespace

NumberOp number_op(const c10::OperatorHandle& op, bool* in_place) {
  const c10::OperatorName& name = op.operator_name();
  *in_place = name.name.ends_with('_');
  const std::string_view plain = std::string_view(name.name).substr(
      0, name.name.size() - (*in_place ? 1 : 0));
  if (name.name == "aten::copy_") {
    return NumberOp::kCopy;
  }
  const auto row = std::ranges::find_if(kRows, [&](const Row& candidate) {
    return candidate.name == plain && candidate.overload == name.overload_name;
  });
  return row == std::end(kRows) ? NumberOp::kNone : row->op;
}

bool run_numbers(NumberOp op, bool in_place, torch::jit::Stack& stack) {
  if (op == NumberOp::kCopy) {
    return copy_number(stack);
  }
  const bool number_first = op == NumberOp::kPowOf;
  const c10::IValue& list = stack[number_first ? 1 : 0];
  if (!list.isTensorList() || list.toListRef().empty() ||
      !std::ranges::all_of(list.toListRef(), is_number)) {
    return false;
  }
  float number = 0;
  if (stack.size() > 1) {
    const c10::IValue& given = stack[number_first ? 0 : 1];
    if (!given.isDouble() && !given.isInt()) {
      return false;
    }
    number = static_cast<float>(
        given.isDouble() ? given.toDouble()
                         : static_cast<double>(given.toInt()));
  }
  const c10::ArrayRef<c10::IValue> items = list.toListRef();
  c10::List<at::Tensor> results;
  results.reserve(in_place ? 0 : items.size());
  Block* const block = in_place ? nullptr : Block::make(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const at::Tensor& x = items[i].toTensor();
    const float value = computed(op, *x.const_data_ptr<float>(), number);
    if (in_place) {
      *x.mutable_data_ptr<float>() = value;
    } else {
      results.push_back(block->take(i, value));
    }
  }
  stack.clear();
  if (!in_place) {
    stack.emplace_back(std::move(results));
  }
  return true;
}

}  // namespace npu::graph
