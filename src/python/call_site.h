// SPDX-License-Identifier: Apache-2.0
// Where in the user's Python program the calling thread is.
#pragma once

#include <string>

namespace npu {

// "train.py:31 in step": the innermost frame outside PyTorch and this package,
// or the innermost of all. Empty on a thread that runs no Python. Takes the
// GIL.
std::string python_call_site();

} // namespace npu
