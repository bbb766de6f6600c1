// SPDX-License-Identifier: Apache-2.0
// The source of a program's kernel. It knows neither CUDA nor NVRTC, so that
// tests compile what it makes for the host.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "npu/program.h"

namespace npu::cuda::jit {

// Of jit/program.cuh, which lays out the same.
inline constexpr int kOperands = 16;
inline constexpr int kDims = 8;
inline constexpr int kNumbers = 96;
inline constexpr int kEntries = 64;
struct Args {
  long long numel;
  long long row;
  int ndim;
  int reserved;
  long long sizes[kDims];
  long long strides[kOperands][kDims];
  long long inner[kOperands];
  char* data[kOperands];
  npu_scalar scalars[kNumbers];
};
struct ListArgs {
  int n;
  int reserved;
  long long numel[kEntries];
  unsigned first[kEntries + 1];
  unsigned short one[kEntries];
  char* data[kOperands][kEntries];
  npu_scalar scalars[kNumbers];
};

enum class Access : std::uint8_t {
  kAbsent,
  kFlat,     // contiguous: over all, or within a row
  kSame,     // one element for all of them, or for a row
  kNumber,   // in host memory
  kStrided,  // anything else
};

// What a kernel is made for. Equal ones are served by one kernel.
struct Spec {
  npu_program_attrs attrs{};
  std::array<npu_dtype, kOperands> dtypes{};  // outputs first
  std::array<Access, kOperands> access{};
  bool wide = false;   // 64-bit indices
  bool rows = false;   // code rows
  bool lists = false;  // multi_program
  int each = 1;        // elements that a thread takes at once
};

// Where the numbers of an operation lie among the kernel's: behind one another.
// -1: it has none.
struct Numbers {
  std::array<int, NPU_PROGRAM_OPS> of_op{};
  std::array<int, kOperands> of_operand{};
  int n = 0;
};

// The source, or nothing and `why`: an operation, a dtype that has no formula.
struct Source {
  std::string text;
  Numbers numbers;
  std::string why;
};
Source make_source(const Spec& spec);

// The numbers themselves, for a program of that source: scalars as the formulas
// read them, values of fills and of operands in host memory.
bool fill_numbers(
    npu_scalar* out,
    const Numbers& numbers,
    const Spec& spec,
    const npu_scalar* scalars,
    const void* const* host_values);

// Headers that the source includes, by the name it includes them by.
struct Header {
  const char* name;
  const char* text;
};
extern const std::vector<Header> kHeaders;  // made by embed.cmake

}  // namespace npu::cuda::jit
