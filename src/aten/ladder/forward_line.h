// SPDX-License-Identifier: Apache-2.0
// Where the forward call was that a backward operator belongs to.
#pragma once

#include <string>

namespace npu::ladder {

// In PyTorch's own backward code: the first call site of the forward operator,
// by the name of autograd's node. Empty elsewhere, in a user's backward
// function, and where the forward operator was not counted.
std::string forward_call_site();

}  // namespace npu::ladder
