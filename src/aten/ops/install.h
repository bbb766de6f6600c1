// SPDX-License-Identifier: Apache-2.0
// Everything this plugin registers with PyTorch's dispatcher at load time.
#pragma once

namespace npu {

// The generated adapters, then the ladder for what they leave. Idempotent.
void install_operators();

}  // namespace npu
