// SPDX-License-Identifier: Apache-2.0
// Family loss: its rows, which lie in several files.
#pragma once

#include "kernels/dense.h"

namespace npu::host {

// Attribute `reduction` of every loss.
enum class Reduction : std::uint32_t { kNone, kMean, kSum };

npu_status nll_caps(std::uint32_t code, npu_op_caps& out);
npu_status nll_run(const npu_call& call);
npu_status nll_grad_caps(std::uint32_t code, npu_op_caps& out);
npu_status nll_grad_run(const npu_call& call);
npu_status cross_entropy_caps(std::uint32_t code, npu_op_caps& out);
npu_status cross_entropy_run(const npu_call& call);
npu_status cross_entropy_grad_caps(std::uint32_t code, npu_op_caps& out);
npu_status cross_entropy_grad_run(const npu_call& call);

npu_status ctc_caps(std::uint32_t code, npu_op_caps& out);
npu_status ctc_run(const npu_call& call);
npu_status ctc_grad_caps(std::uint32_t code, npu_op_caps& out);
npu_status ctc_grad_run(const npu_call& call);

npu_status margin_caps(std::uint32_t code, npu_op_caps& out);
npu_status margin_run(const npu_call& call);
npu_status margin_grad_caps(std::uint32_t code, npu_op_caps& out);
npu_status margin_grad_run(const npu_call& call);

}  // namespace npu::host
