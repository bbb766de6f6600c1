// SPDX-License-Identifier: Apache-2.0
// A program (npu/program.h) made ready to run, block by block.
//
// Registers hold a block of elements each, in the type their dtype is computed
// in: float for half types, rounded to the half type. An operation is the line
// of its map kind between registers, so results have the bits of separate
// calls. Inputs and outputs that are contiguous and need no conversion are used
// where they lie. What is reduced (code rows) goes into sums and extremes of
// the row as blocks pass by.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/cast.h"
#include "kernels/kernel.h"
#include "kernels/map.h"
#include "kernels/row_sum.h"
#include "npu/program.h"

namespace npu::host {

inline constexpr int kProgramOperands =
    static_cast<int>(NPU_PROGRAM_OUTPUTS + NPU_PROGRAM_INPUTS);

// What a program is told of an operand, outputs first.
struct ProgramOperand {
  npu_dtype dtype = NPU_ABSENT;
  bool negate = false;
  bool conj = false;
  bool contiguous = false;    // along a line
  bool constant = false;      // one element all over
  std::uint32_t lies_in = 0;  // of an input: outputs with the same memory
};
using ProgramOperands = std::array<ProgramOperand, kProgramOperands>;

// A list of at most N plain items without memory of its own: programs are made
// ready for every call.
template <class T, std::size_t N>
class ShortList {
 public:
  T& push_back(const T& item) noexcept {
    return items_[n_++] = item;
  }
  T pop_back() noexcept {
    return items_[--n_];
  }
  bool empty() const noexcept {
    return n_ == 0;
  }
  const T* begin() const noexcept {
    return items_;
  }
  const T* end() const noexcept {
    return items_ + n_;
  }

 private:
  std::size_t n_ = 0;
  T items_[N];
};

class Program {
 public:
  // NPU_OK, or the status with its text: what is no program is invalid, what
  // has no kernel is unsupported.
  npu_status set(
      const npu_program_attrs& attrs, const ProgramOperands& operands);

  int operations() const noexcept {
    return n_steps_;
  }

  // The memory of one thread's registers.
  class Scratch;

 private:
  friend class Scratch;
  static constexpr int kRegisters =
      static_cast<int>(NPU_PROGRAM_INPUTS + NPU_PROGRAM_OPS);
  static constexpr int kNoBuffer = -1;
  static constexpr int kTemporaries = 4;  // of converted operands, of a result

  struct Register {
    npu_dtype dtype;
    npu_dtype unit;
    std::int16_t buffer;    // kNoBuffer: used where it lies
    std::int16_t operand;   // ... in this operand
    std::int16_t last_use;  // step; kEnd for outputs
  };
  struct Step {
    MapLineFn fn;  // null: conversions alone
    const npu_scalar* scalars;
    std::int16_t n_in;
    std::int16_t in[3];        // registers
    std::int16_t in_cast[3];   // in casts_; -1: none
    std::int16_t in_bytes[3];  // of the unit of the register
    std::int16_t unit_bytes;   // of what the line reads
    std::int16_t result;       // register
    std::int16_t first_cast;   // of the result, one after the other
    std::int16_t n_casts;
  };
  struct ChainCast {
    Cast cast;
    std::int64_t from_bytes;
    std::int64_t to_bytes;
  };
  // What kind reduce would make of a register.
  struct Reduction {
    std::uint32_t code;
    std::int16_t reg;     // read
    std::int16_t made;    // the register it makes
    std::int16_t type;    // computed in: float, double or int64
    std::int16_t cast;    // in casts_, to that type; -1: none
    std::int16_t output;  // operand; -1: none
    Cast store;
  };
  struct Constant {
    std::int16_t reg;
    alignas(16) char element[16];
  };

  npu_status check(
      const npu_program_attrs& attrs, const ProgramOperands& operands) const;
  npu_status add_step(
      const npu_program_attrs& attrs, int index, const npu_program_op& op);
  npu_status add_reduction(int index, const npu_program_op& op);
  npu_status add_fill(const npu_scalar& value, int index, npu_dtype dtype);
  bool choose_line(
      const npu_program_attrs& attrs, npu_program_op op, Step& step);
  bool add_result_casts(
      Step& step, npu_dtype made, npu_dtype computed, npu_dtype dtype);
  int add_cast(npu_dtype to, npu_dtype from);
  bool set_ports(const ProgramOperands& operands);
  void place_reductions(const ProgramOperands& operands);
  void find_last_uses();
  void find_loads(const ProgramOperands& operands);
  void place_outputs(const ProgramOperands& operands);
  void place_registers();

  int n_steps_ = 0;
  int n_buffers_ = 0;
  std::int64_t widest_ = 1;  // unit
  std::array<Register, kRegisters> registers_;
  std::array<Step, NPU_PROGRAM_OPS> steps_;
  std::vector<ChainCast> casts_;
  ShortList<std::array<npu_scalar, 4>, NPU_PROGRAM_OPS> scalars_;
  ShortList<Constant, NPU_PROGRAM_OPS> constants_;
  std::vector<Reduction> reductions_;
  // Inputs to be loaded, and those that are the same all over.
  ShortList<std::int16_t, NPU_PROGRAM_INPUTS> loads_;
  ShortList<std::int16_t, NPU_PROGRAM_INPUTS> once_;
  ShortList<std::int16_t, NPU_PROGRAM_OUTPUTS> stores_;  // not made in place
  std::array<std::int16_t, NPU_PROGRAM_OUTPUTS> outs_;   // registers; -1
  std::array<Cast, kProgramOperands> ports_;
};

class Program::Scratch {
 public:
  explicit Scratch(const Program& program);

  // Elements of a block; calls of run have at most that many.
  std::int64_t block() const noexcept {
    return block_;
  }
  // What is the same all over: once, before the first run.
  void load_constants(char* const* data, const std::int64_t* strides);
  // n elements; operands begin at `data` and step by `strides`, in bytes.
  npu_status run(
      char* const* data, const std::int64_t* strides, std::int64_t n);
  // A row of so many elements begins; what was run until it ends is reduced
  // into the outputs at `data`.
  void begin_row(std::int64_t elements);
  void end_row(char* const* data);

 private:
  struct RowState {
    RowSum<double> sum;
    RowSum<std::uint64_t> whole;
    double best;  // of floats and doubles alike: no rounding
    std::int64_t whole_best;
  };
  void reduce(std::int64_t n);
  template <class T>
  void reduce_as(
      std::uint32_t code, RowState& state, const T* x, std::int64_t n) const;
  npu_status run_step(const Step& step, std::int64_t n);
  char* buffer(int i) noexcept {
    return memory_ + i * block_ * program_.widest_;
  }
  char* temporary(int i) noexcept {
    return buffer(program_.n_buffers_ + i);
  }
  void load(
      int operand,
      char* const* data,
      const std::int64_t* strides,
      std::int64_t n);

  const Program& program_;
  std::int64_t block_;
  std::array<char*, kRegisters> at_;  // where each register is
  std::vector<RowState> rows_;
  std::int64_t row_elements_ = 0;
  std::int64_t row_done_ = 0;
  // 92 buffers of 64 elements of 16 bytes, when there are that many.
  static constexpr std::int64_t kBytes = std::int64_t{96} * 1024;
  alignas(64) char memory_[kBytes];
};

}  // namespace npu::host
