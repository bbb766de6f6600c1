// SPDX-License-Identifier: Apache-2.0
// PyTorch's intra-op threads, for use by drivers.
#pragma once

namespace npu {

// From now on services->parallel_for runs on at::parallel_for.
void lend_torch_threads() noexcept;

}  // namespace npu
