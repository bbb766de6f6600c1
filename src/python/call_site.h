// SPDX-License-Identifier: Apache-2.0
// Where in the user's Python program the calling thread is.
#pragma once

#include <string>
#include <vector>

namespace npu {

struct PythonFrame {
  std::string file;
  int line = 0;
  std::string function;
};

// Innermost first; empty on a thread that runs no Python. Takes the GIL, never
// throws.
std::vector<PythonFrame> python_frames() noexcept;

// "train.py:31 in step": the innermost frame outside PyTorch and this package,
// or the innermost of all; empty where there is none.
std::string python_call_site();

}  // namespace npu
