// SPDX-License-Identifier: Apache-2.0
// Random programs (npu/program.h) of operations whose results are fixed to the
// bit, and the kit's own evaluation of them: in float64 or wrapping integers,
// rounded to the register's dtype after every operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kit.h"
#include "npu/program.h"
#include "reference.h"

namespace npu::kit {

struct Program {
  npu_dtype main;
  std::vector<npu_dtype> ins;
  npu_program_attrs attrs{};

  npu_dtype dtype(std::uint32_t reg) const;
  std::uint32_t outs() const;
  void add(npu_program_op op) {
    attrs.ops[attrs.n_ops++] = npu_program_word(op);
  }
  // Registers of the outputs, for inputs of one element each.
  std::vector<Value> evaluate(const std::vector<Value>& inputs) const;
  // All registers; those of reductions stay empty.
  std::vector<Value> registers(const std::vector<Value>& inputs) const;
  std::string text() const;
};

Program draw_program(npu_dtype main, std::uint64_t seed);
// The same with one to three outputs that are reduced: code rows.
Program draw_rows(npu_dtype main, std::uint64_t seed);

}  // namespace npu::kit
