// SPDX-License-Identifier: Apache-2.0
// How far results move when their arguments do: the majorant of operators that
// have no formula of their own.
#pragma once

#include "judge/host_call.h"

namespace optools {

// Of a dtype that rounds.
bool is_number(const at::Tensor& t);

// A majorant for that reference; undefined, which is |reference|, where the
// sizes say that it belongs to something else.
at::Tensor fitting(const at::Tensor& found, const at::Tensor& reference);

// The sum over arguments of what the results move when that one does.
std::vector<at::Tensor> by_movement(
    const HostCall& call, const std::vector<at::Tensor>& references);

}  // namespace optools
