// SPDX-License-Identifier: Apache-2.0
// Lists of numbers on the CPU that go with a frame: bound at every replay.
//
// Optimizers divide lists of npu tensors by bias corrections, one number per
// parameter, which come from step tensors on the CPU. List kinds take such
// numbers as they are; a recording has to know where they come from.
#include <bit>

#include "aten/graph/maker.h"

namespace npu::graph {

std::optional<double> NumberList::read(
    const c10::IValue& value, c10::ScalarType dtype) {
  if (!value.isTensor()) {
    return std::nullopt;
  }
  const at::Tensor& tensor = value.toTensor();
  if (!tensor.defined() || !tensor.device().is_cpu() || tensor.dim() != 0 ||
      tensor.layout() != c10::kStrided || tensor.scalar_type() != dtype ||
      tensor.is_neg() || tensor.unsafeGetTensorImpl()->is_python_dispatch()) {
    return std::nullopt;
  }
  return dtype == c10::kDouble ? *tensor.const_data_ptr<double>()
                               : double{*tensor.const_data_ptr<float>()};
}

NumberList Recording::Maker::number_list(
    const Instruction& instruction,
    const std::vector<c10::IValue>& registers) const {
  NumberList found;
  if (instruction.kind != Instruction::kCall) {
    return {};
  }
  for (const Operand& argument : instruction.arguments) {
    std::vector<at::Tensor> tensors;
    bool only_npu = true;
    for_each_register({argument}, [&](const Operand& operand) {
      only_npu = gather(registers[operand.index], tensors) && only_npu;
    });
    if (only_npu) {
      continue;
    }
    if (argument.kind != Operand::kList || !found.registers.empty()) {
      return {};
    }
    const c10::IValue& first = registers[argument.items[0].index];
    found.dtype = first.isTensor() && first.toTensor().defined()
                      ? first.toTensor().scalar_type()
                      : c10::kFloat;
    if (found.dtype != c10::kFloat && found.dtype != c10::kDouble) {
      return {};
    }
    for (const Operand& item : argument.items) {
      if (item.kind != Operand::kRegister ||
          !NumberList::read(registers[item.index], found.dtype)) {
        return {};
      }
      found.registers.push_back(item.index);
    }
  }
  return found;
}

bool Recording::Maker::bind_numbers(const std::vector<double>& values) {
  auto* const frame = work_.nodes.size() == 1
                          ? std::get_if<FrameCopy>(&work_.nodes.front())
                          : nullptr;
  if (frame == nullptr || frame->numbers().n != values.size()) {
    return false;
  }
  const bool wide = frame->numbers().dtype == NPU_F64;
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    const double wanted =
        wide ? values[i] : double{static_cast<float>(values[i])};
    if (std::bit_cast<std::uint64_t>(frame->number(i)) !=
        std::bit_cast<std::uint64_t>(wanted)) {
      return false;
    }
  }
  frame->bind_numbers_to(static_cast<std::int32_t>(r_.numbers_.size()));
  r_.numbers_.push_back(numbers_);
  return true;
}

}  // namespace npu::graph
