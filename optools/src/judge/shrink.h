// SPDX-License-Identifier: Apache-2.0
// An elementwise call cut down to the few elements in doubt.
#pragma once

#include <optional>

#include "judge/host_call.h"

namespace optools {

struct SmallCall {
  HostCall call;
  // By result: which elements it has (flat, in C order).
  std::vector<at::Tensor> elements;
};

// `doubtful`: by result, the flat numbers of the elements that matter; may be
// undefined. Nothing where the call is no elementwise one.
std::optional<SmallCall> shrunk(
    const HostCall& call, const std::vector<at::Tensor>& doubtful);

}  // namespace optools
