// SPDX-License-Identifier: Apache-2.0
// Whether torch.autocast("npu") is on. PyTorch's own header for it brings every
// operator there is.
#pragma once

namespace npu {

bool autocast_enabled();

}  // namespace npu
