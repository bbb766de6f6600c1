// SPDX-License-Identifier: Apache-2.0
// oneDNN's LSTM layer by its definition: its kernel knows no float64.
#pragma once

#include <optional>

#include "judge/host_call.h"

namespace optools {

// output, hy and cy of mkldnn_rnn_layer from float64 arguments; nothing for
// another operator, dtype or form.
std::optional<std::vector<c10::IValue>> recurrent_answer(
    const Operator& op, const std::vector<c10::IValue>& inputs);

}  // namespace optools
