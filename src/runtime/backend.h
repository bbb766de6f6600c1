// SPDX-License-Identifier: Apache-2.0
// The plugin as a whole: its name in PyTorch, and its shutdown.
#pragma once

namespace npu {

// The device string. The one place that knows it.
inline constexpr char kBackendName[] = "npu";

// Names PrivateUse1; idempotent. Guard, hooks, allocators register themselves
// when the library is loaded.
void register_backend();

// Before the interpreter ends: ends autograd's device threads and waits for
// queued work. The caller does not hold the GIL. Backward on npu is an error
// afterwards.
void prepare_exit() noexcept;

}  // namespace npu
