/* SPDX-License-Identifier: Apache-2.0 */
/* Interface "ipc/1": memory and events shared between processes.
 *
 * driver.get_interface("ipc/1") gives an npu_ipc. Every function is required
 * and may be called from any thread. Handles are bytes without pointers: they
 * are sent to another process of this computer as they are. Since 1.1.
 *
 * Reserved: the host side does not ask for it yet, and the kit does not judge
 * it.
 */
#ifndef NPU_IPC_H
#define NPU_IPC_H

#include "npu/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_IPC_INTERFACE "ipc/1"
#define NPU_IPC_VERSION 1u

typedef struct npu_ipc {
  uint32_t size;
  uint32_t version;             /* NPU_IPC_VERSION */
  uint32_t memory_handle_bytes; /* at most 256 */
  uint32_t event_handle_bytes;  /* at most 256 */

  /* A handle of the allocation that holds `ptr`; *offset is ptr's place in it.
   * The owner keeps the allocation while any process has it open. */
  npu_status (*export_memory)(const void* ptr, void* handle, uint64_t* offset);
  /* The allocation in this process, as memory of `device`. Opening it again
   * gives the same address; calls count.
   * Errors: NPU_E_INVALID in the process that exported it. */
  npu_status (*open_memory)(npu_device device, const void* handle, void** out);
  /* No queued work uses it. `ptr` is what open_memory gave. */
  npu_status (*close_memory)(npu_device device, void* ptr);

  /* An event made without NPU_EVENT_TIMING. Records and waits of all processes
   * act on the one event; each destroys its own handle of it. */
  npu_status (*export_event)(npu_event event, void* handle);
  npu_status (*open_event)(
      npu_device device, const void* handle, npu_event* out);
} npu_ipc;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_IPC_H */
