// SPDX-License-Identifier: Apache-2.0
// A function of CPU tensors called with npu tensors, as rungs 4 and 5 call an
// operator's CPU kernel: on the same bytes where host code can read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace npu::ladder {

using HostFunction =
    std::function<std::vector<at::Tensor>(std::vector<at::Tensor>&&)>;

// A call that is part of generated host code, "aten::fmax": warned about,
// refused and counted as if the operator had been called by itself.
void count_compiled(const std::string& overload);
// The same for the verdict about dtypes: those of its tensors, in order.
void judge_compiled(
    const std::string& overload, const std::vector<c10::ScalarType>& dtypes);

// The function may write every tensor it gets. What it returns becomes npu
// tensors of `device`: an argument's wrapper the argument, new memory moves.
std::vector<at::Tensor> run_host_function(
    const HostFunction& function, at::TensorList arguments, c10::Device device);

}  // namespace npu::ladder
