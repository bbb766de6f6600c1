// SPDX-License-Identifier: Apache-2.0
// Every function of the driver's tables by name: X(table, slot).
#pragma once

// A driver without one of these is refused.
#define NPU_REQUIRED_SLOTS(X) \
  X(device, count)            \
  X(device, open)             \
  X(device, close)            \
  X(device, properties)       \
  X(device, synchronize)      \
  X(device, memory_info)      \
  X(memory, alloc)            \
  X(memory, free)             \
  X(memory, host_alloc)       \
  X(memory, host_free)        \
  X(memory, copy_to_device)   \
  X(memory, copy_to_host)     \
  X(memory, copy_on_device)   \
  X(memory, set_bytes)        \
  X(memory, pointer_info)     \
  X(stream, create)           \
  X(stream, destroy)          \
  X(stream, synchronize)      \
  X(stream, query)            \
  X(stream, wait_event)       \
  X(stream, host_call)        \
  X(event, create)            \
  X(event, destroy)           \
  X(event, record)            \
  X(event, query)             \
  X(event, synchronize)       \
  X(event, elapsed_ms)        \
  X(op, find)                 \
  X(op, caps)                 \
  X(op, plan)                 \
  X(op, run)

// Null means the default that npu/driver.h states; the loader fills it in.
// copy_peer is required with several devices, host_open and host_close with
// NPU_HOST_ACCESS_EXPLICIT.
#define NPU_OPTIONAL_SLOTS(X) \
  X(device, can_access_peer)  \
  X(device, trim)             \
  X(device, enable_peer)      \
  X(device, native_handle)    \
  X(memory, copy_peer)        \
  X(memory, host_open)        \
  X(memory, host_close)       \
  X(memory, host_register)    \
  X(memory, host_unregister)  \
  X(stream, priority_range)   \
  X(stream, native_handle)    \
  X(stream, mailbox)          \
  X(event, native_handle)     \
  X(op, release_plan)         \
  X(op, warm)                 \
  X(op, tune)

// Slots that answer a status and so can fail.
#define NPU_FALLIBLE_SLOTS(X) \
  NPU_REQUIRED_SLOTS(X)       \
  X(device, can_access_peer)  \
  X(device, trim)             \
  X(device, enable_peer)      \
  X(memory, copy_peer)        \
  X(memory, host_open)        \
  X(memory, host_close)       \
  X(memory, host_register)    \
  X(memory, host_unregister)  \
  X(stream, priority_range)   \
  X(op, warm)                 \
  X(op, tune)
