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

// "/home/me/train.py:31 in step": the innermost frame outside PyTorch and this
// package, or the innermost of all; empty where there is none.
std::string python_call_site();
// The same, for callers who ask at every launch: it looks at no more frames
// than it needs, and not at all on a thread that has run no Python.
std::string python_line();
// "train.py:31 in step".
std::string without_folder(const std::string& site);

}  // namespace npu
