// SPDX-License-Identifier: Apache-2.0
// Frames of elementwise kinds that follow each other, as one program
// (npu/program.h) while it grows.
//
// Values between the frames are registers of the program; a value that another
// frame needs becomes an output. A frame joins when the result is the same:
// every place that is read and written has one geometry, and places overlap
// entirely or not at all. All of them work on tensors, or all on lists. A
// reduction over the last dimensions of what the program made may join too
// (code rows).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/program_operand.h"
#include "npu/program.h"

namespace npu::graph {

class ProgramBuilder {
 public:
  // A number in all elements of a buffer, from a fill before the program reads
  // it.
  struct Filled {
    npu_scalar value;
    npu_dtype dtype;
  };
  using FilledBuffers = std::map<BufferId, Filled>;

  // False, and the builder is of no use, when the frame cannot be part of it.
  bool join(const FrameCopy& frame, const FilledBuffers& filled);
  // The same for a frame of kind reduce.
  bool join_reduction(const FrameCopy& frame);
  bool has_rows() const noexcept {
    return reduced_ != 0;
  }

  // Places that were written, each with the register that is there in the end.
  struct Result {
    ProgramOperand place;
    std::uint32_t reg;
    bool reduced = false;
  };
  const std::vector<Result>& results() const noexcept {
    return results_;
  }
  // Buffers whose number became a constant of the program.
  const std::vector<BufferId>& constants() const noexcept {
    return constants_;
  }
  bool touches(const std::function<bool(BufferId)>& is) const;

  // Called with the frame of the program; `outputs` are indices of results().
  // What `take` answers is the frame's plan; nothing: the driver declines.
  using Take = std::function<std::optional<PlanHandle>(Call& call)>;
  std::optional<FrameCopy> finish(
      const std::vector<std::size_t>& outputs, const Take& take) const;

 private:
  bool join_tensors(const FrameCopy& frame, const FilledBuffers& filled);
  bool join_lists(const FrameCopy& frame, const FilledBuffers& filled);
  bool unify_sizes(std::vector<ProgramOperand>& operands);
  bool take_sizes(const std::vector<std::int64_t>& sizes);
  bool split_rows(std::int64_t length);
  std::optional<std::uint8_t> read(
      const ProgramOperand& operand, const FilledBuffers& filled);
  bool write(const ProgramOperand& operand, std::uint8_t reg);
  std::optional<std::uint8_t> constant(
      const npu_scalar& value, npu_dtype dtype);
  std::optional<std::uint8_t> add(npu_program_op op);
  std::optional<std::uint8_t> find_or_add(npu_program_op op);
  bool add_scalars(
      const npu_scalar* scalars, std::uint32_t n, npu_program_op& op);
  bool same_call(const npu_call& call);

  npu_program_attrs attrs_{};
  std::uint32_t n_scalars_ = 0;
  std::vector<ProgramOperand> inputs_;  // registers from 0 on
  std::vector<Result> results_;
  std::vector<BufferId> constants_;
  std::vector<std::int64_t> sizes_;
  std::string label_;
  std::size_t reduced_ = 0;  // of the last dimensions; 0: none yet
  bool lists_ = false;
  bool empty_ = true;
  std::uint32_t flags_ = ~0u;
  std::uint16_t math_mode_ = 0;
  std::uint32_t deterministic_ = 0;
};

// The number of a fill of all of a buffer; nothing for other frames.
struct FillOfBuffer {
  BufferId buffer;
  std::uint64_t bytes;
  ProgramBuilder::Filled filled;
};
std::optional<FillOfBuffer> fill_of(const FrameCopy& frame);

}  // namespace npu::graph
