// SPDX-License-Identifier: Apache-2.0
// The generated adapters, as rows for the dispatcher.
#pragma once

#include <vector>

#include "aten/ladder/unboxed_rows.h"

namespace npu {

// Instances are made per signature, not per operator.
template <class Signature>
ladder::UnboxedRow native_row(
    const char* name, const char* overload, Signature* function) {
  using Row = ladder::UnboxedRow;
  return {
      name,
      overload,
      reinterpret_cast<Row::Function>(function),
      [](const c10::OperatorHandle&, Row::Function kernel) {
        return c10::KernelFunction::makeFromUnboxedRuntimeFunction(
            reinterpret_cast<Signature*>(kernel));
      }};
}

std::vector<ladder::UnboxedRows> native_rows();

}  // namespace npu
