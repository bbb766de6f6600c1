// SPDX-License-Identifier: Apache-2.0
// Hearing of blocks that go back to the pool.
#pragma once

#include <cstddef>

namespace npu {

// Called from any thread, after the block was freed: somebody may have it
// again. Must not throw, nor allocate or free device memory.
using BlockFreed = void (*)(const void* ptr, std::size_t bytes);

// Set once; never taken back.
void set_block_freed(BlockFreed fn) noexcept;

}  // namespace npu
