// SPDX-License-Identifier: Apache-2.0
// Recurrent layers and cells by their definitions.
#pragma once

#include <optional>

#include "judge/host_call.h"

namespace optools {

// Each takes the float64 arguments of its operator, in the order of the schema,
// and gives its results; nothing for a form it does not know.

// output, hy and cy of mkldnn_rnn_layer, whose kernel knows no float64.
std::optional<std::vector<c10::IValue>> lstm_layer(
    const std::vector<c10::IValue>& inputs);

// Fused cells. The last result of a forward one is undefined: what it holds is
// between it and its backward. That reads the activated gates: input, forget,
// cell, output of an LSTM's; reset, update and new gate, hx and the hidden part
// of the new gate of a GRU's.
std::optional<std::vector<c10::IValue>> lstm_cell(
    const std::vector<c10::IValue>& inputs);
std::optional<std::vector<c10::IValue>> lstm_cell_backward(
    const std::vector<c10::IValue>& inputs);
std::optional<std::vector<c10::IValue>> gru_cell(
    const std::vector<c10::IValue>& inputs);
std::optional<std::vector<c10::IValue>> gru_cell_backward(
    const std::vector<c10::IValue>& inputs);

}  // namespace optools
