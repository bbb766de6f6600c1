// SPDX-License-Identifier: Apache-2.0
// The frame of a chain's program.
#include <algorithm>
#include <mutex>
#include <set>

#include "graph/program_builder.h"

namespace npu::graph {
namespace {

// Addresses that stand for operands, so that each leads back to its place.
constexpr std::uintptr_t kApart = std::uintptr_t{1} << 40;

class Addresses {
 public:
  std::byte* add(const Ref& ref, std::uint32_t low_bits) {
    refs_.push_back(ref);
    low_.push_back(low_bits);
    return reinterpret_cast<std::byte*>(refs_.size() * kApart + low_bits);
  }
  std::optional<Ref> find(const void* pointer) const {
    const auto at = reinterpret_cast<std::uintptr_t>(pointer);
    const std::size_t i = at / kApart - 1;
    return Ref{refs_[i].buffer, refs_[i].offset + at % kApart - low_[i]};
  }

 private:
  std::vector<Ref> refs_;
  std::vector<std::uint32_t> low_;
};

// A label outlives the recording: an asynchronous driver may name it in an
// error. There are as many as there are different chains.
const char* lasting(const std::string& label) {
  static std::mutex mutex;
  static std::set<std::string> labels;
  const std::lock_guard<std::mutex> lock(mutex);
  return labels.insert(label).first->c_str();
}

npu_tensor tensor_at(const ProgramOperand& operand, Addresses& addresses) {
  npu_tensor made = operand.tensor;
  std::byte* const base =
      addresses.add(operand.storage[0], operand.low_bits[0]);
  made.storage = base;
  made.data = base + (operand.data[0].offset - operand.storage[0].offset);
  made.sizes = operand.sizes.data();
  made.strides = operand.strides.data();
  made.ndim = static_cast<std::uint16_t>(operand.sizes.size());
  made.flags = 0;
  made.alias_of = 0;
  return made;
}

struct ListAt {
  std::vector<void*> data;
  npu_list list{};

  ListAt(const ProgramOperand& operand, Addresses& addresses) {
    for (std::size_t i = 0; i < operand.data.size(); ++i) {
      data.push_back(addresses.add(operand.data[i], operand.low_bits[i]));
    }
    list.size = sizeof(list);
    list.n = static_cast<std::uint32_t>(data.size());
    list.dtype = operand.dtype;
    list.data = data.data();
    list.numel = operand.sizes.data();
  }
};

}  // namespace

std::optional<FrameCopy> ProgramBuilder::finish(
    const std::vector<std::size_t>& outputs, const Take& take) const {
  if (outputs.empty() || outputs.size() > NPU_PROGRAM_OUTPUTS) {
    return std::nullopt;
  }
  const bool rows = std::ranges::any_of(
      outputs, [&](std::size_t o) { return results_[o].reduced; });
  // The first input gives a program with rows its sizes. A reduction that
  // is never read is left out.
  if (reduced_ != 0 && (!rows || inputs_.empty())) {
    return std::nullopt;
  }
  Addresses addresses;
  npu_program_attrs attrs = attrs_;
  attrs.size = sizeof(attrs);
  std::vector<ListAt> lists;
  lists.reserve(NPU_PROGRAM_OUTPUTS + NPU_PROGRAM_INPUTS);
  Call call(
      lists_ ? NPU_KIND_MULTI_PROGRAM : NPU_KIND_PROGRAM,
      rows ? NPU_PROGRAM_ROWS : 0,
      lasting(label_));
  for (std::size_t o = 0; o < NPU_PROGRAM_OUTPUTS; ++o) {
    const bool there = o < outputs.size();
    attrs.outs[o] = there ? results_[outputs[o]].reg : NPU_PROGRAM_NONE;
    const ProgramOperand* const place =
        there ? &results_[outputs[o]].place : nullptr;
    if (lists_) {
      call.add_list(
          there ? lists.emplace_back(*place, addresses).list : npu_list{});
    } else {
      call.add_output(there ? tensor_at(*place, addresses) : npu_tensor{});
    }
  }
  for (const ProgramOperand& in : inputs_) {
    if (lists_) {
      call.add_list(lists.emplace_back(in, addresses).list);
      continue;
    }
    npu_tensor& added = call.add_input(tensor_at(in, addresses));
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      if (results_[outputs[o]].place.data[0] == in.data[0]) {
        added.flags |= NPU_TENSOR_ALIAS;
        added.alias_of = static_cast<std::uint16_t>(o);
      }
    }
  }
  call.set_attrs(attrs);
  call.frame().flags = flags_;
  call.frame().math_mode = math_mode_;
  call.frame().deterministic = deterministic_;
  const std::optional<PlanHandle> plan = take(call);
  if (!plan) {
    return std::nullopt;
  }
  return FrameCopy::make(
      call.frame(), *plan, [&](const void* pointer, std::uint64_t) {
        return addresses.find(pointer);
      });
}

}  // namespace npu::graph
