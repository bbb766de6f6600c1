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

// What arguments are moved by, relatively.
double step_of(const HostCall& call);

// How far a run with moved arguments is from the references, in steps:
// `largest` becomes the larger of that and what it was.
void add_moves(
    const HostCall& call,
    const std::vector<c10::IValue>& inputs,
    const std::vector<at::Tensor>& references,
    double step,
    std::vector<at::Tensor>& largest);

// The sum over arguments of what the results move when that one does.
std::vector<at::Tensor> by_movement(
    const HostCall& call, const std::vector<at::Tensor>& references);

}  // namespace optools
