// SPDX-License-Identifier: Apache-2.0
// LSTM and GRU steps whose tensors are all contiguous float32: row by row with
// the loops of isa/cells.h.
#pragma once

#include "kernels/kernel.h"

namespace npu::host {

// False: the tensors are of another dtype or layout, and nothing was done.
bool lstm_rows(const npu_lstm_cell_args& args, npu_status& status);
bool lstm_grad_rows(const npu_lstm_cell_grad_args& args, npu_status& status);
bool gru_rows(const npu_gru_cell_args& args, npu_status& status);
bool gru_grad_rows(const npu_gru_cell_grad_args& args, npu_status& status);

}  // namespace npu::host
