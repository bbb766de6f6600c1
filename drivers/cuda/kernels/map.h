// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels: what map.cpp gives them, and the rows they are found by.
#pragma once

#include "kernels/kernel.h"
#include "kernels/layout.h"

namespace npu::cuda {

inline constexpr int kMapOperands = 5;  // two outputs, three inputs

// One operand of a call: how its elements are read or written.
struct MapOperand {
  char* data;
  npu_dtype dtype;
  // The compute dtype of the call where it is narrower than what the kernel
  // computes with: results are rounded to it before they are stored, inputs
  // before they are used. NPU_ABSENT: they are not.
  npu_dtype rounds_to;
  std::uint8_t is_number;  // a host scalar: `number` holds it
  std::uint8_t conjugate;
  std::uint8_t negate;
  std::uint8_t present;
  alignas(16) char number[16];
};

struct MapArgs {
  Layout<kMapOperands> layout;
  MapOperand operands[kMapOperands];  // two outputs, three inputs
  npu_scalar scalars[4];
  Note note;
};

// Contiguous operands of one dtype, and numbers: what most calls are.
struct FlatMapArgs {
  std::int64_t n;
  void* out;
  const void* in[3];  // null: `number` stands for every element
  float number[3];
  std::uint8_t aligned;  // to 16 bytes, all of them
  npu_scalar scalars[4];
};
enum FlatType : int { kFlatF32, kFlatF16, kFlatBF16, kFlatTypes };

// One code of a kind. A row's kernels take MapArgs (flat ones FlatMapArgs)
// alone.
struct MapRow {
  std::uint32_t code;
  int n_in;
  std::uint64_t dtypes;     // it can be computed in
  std::uint64_t in_dtypes;  // of inputs
  bool divides;             // integers divided by zero are an error
  const void* kernel[kComputeTypes];
  npu_dtype out[kComputeTypes];   // what the kernel makes
  npu_dtype out2[kComputeTypes];  // absent in most
  const void* flat[kFlatTypes];   // null where the code is not a frequent one
};
using MapRows = std::span<const MapRow>;

// The tables, in the files of their operators.
extern const MapRows kUnaryElementary;
extern const MapRows kUnarySpecial;
extern const MapRows kUnaryActivations;
extern const MapRows kUnaryWithRows;
extern const MapRows kBinaryArithmetic;
extern const MapRows kBinaryGradients;
extern const MapRows kCompareRows;
extern const MapRows kTernaryRows;

}  // namespace npu::cuda
