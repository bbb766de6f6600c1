// SPDX-License-Identifier: Apache-2.0
// From a frame of kind program or multi_program to a kernel's specification and
// its arguments. No CUDA, so that tests need no GPU.
#pragma once

#include <vector>

#include "jit/source.h"

namespace npu::cuda::jit {

struct Problem {
  Spec spec;
  Args args{};  // without numbers; of program
  std::array<const void*, kOperands> host_values{};
  long long row_bytes = 0;  // the widest operand's, of code rows

  // False, and `why`: what the kernels of programs do not take.
  bool set(const npu_call& call, std::string& why);

 private:
  bool set_tensors(const npu_call& call, std::string& why);
  bool set_lists(const npu_call& call, std::string& why);
  void choose_packs();
};

// Threads of a block: x along a row, y rows; blocks of the grid.
struct Grid {
  unsigned x = 1, y = 1;
  unsigned long long blocks = 1;
};
// For a GPU that runs `most_blocks` at a time or a few times that.
Grid grid_of(const Problem& problem, unsigned long long most_blocks);

// The lists of a call, as many entries to a launch as its arguments have room
// for: body(args, blocks).
template <class Body>
auto for_launches(const npu_call& call, ListArgs args, Body&& body)
    -> decltype(body(args, 0ull)) {
  constexpr long long kBlockElements = 4096;
  const npu_list* const out = npu_call_list(&call, 0);
  unsigned long long blocks = 0;
  args.n = 0;
  for (std::uint32_t e = 0; out != nullptr && e < out->n; ++e) {
    if (out->numel[e] != 0) {
      const int at = args.n++;
      args.numel[at] = out->numel[e];
      args.first[at] = static_cast<unsigned>(blocks);
      args.one[at] = 0;
      const long long wanted =
          (out->numel[e] + kBlockElements - 1) / kBlockElements;
      blocks += static_cast<unsigned long long>(wanted < 4096 ? wanted : 4096);
      for (int k = 0; k < kOperands; ++k) {
        const npu_list* const list =
            npu_call_list(&call, static_cast<std::uint32_t>(k));
        args.data[k][at] =
            list == nullptr ? nullptr : static_cast<char*>(list->data[e]);
        const bool one = k >= static_cast<int>(NPU_PROGRAM_OUTPUTS) &&
                         list != nullptr && list->numel[e] == 1 &&
                         out->numel[e] != 1;
        args.one[at] = static_cast<unsigned short>(
            args.one[at] |
            (one ? 1u << (k - static_cast<int>(NPU_PROGRAM_OUTPUTS)) : 0u));
      }
    }
    const bool last = e + 1 == out->n;
    if (args.n == kEntries || (last && args.n != 0)) {
      args.first[args.n] = static_cast<unsigned>(blocks);
      if (const auto status = body(args, blocks)) {
        return status;
      }
      args.n = 0;
      blocks = 0;
    }
  }
  return {};
}

}  // namespace npu::cuda::jit
