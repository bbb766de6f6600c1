# SPDX-License-Identifier: Apache-2.0
# The allocator's sources, seen from src/runtime.
set(NPU_ALLOCATOR_SOURCES)
