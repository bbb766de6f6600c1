/* SPDX-License-Identifier: Apache-2.0 */
/* Interface "vmm/1": address ranges separate from memory, for segments that
 * grow.
 *
 * driver.get_interface("vmm/1") gives an npu_vmm. Every function is required
 * and may be called from any thread. Sizes and offsets are multiples of
 * granularity. pointer_info knows mapped ranges as NPU_MEMORY_DEVICE, with the
 * reservation as base. Since 1.1.
 *
 * Reserved: the host side does not ask for it yet, and the kit does not judge
 * it.
 */
#ifndef NPU_VMM_H
#define NPU_VMM_H

#include "npu/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_VMM_INTERFACE "vmm/1"
#define NPU_VMM_VERSION 1u

typedef struct npu_physical_s* npu_physical; /* memory without an address */

typedef struct npu_vmm {
  uint32_t size;
  uint32_t version; /* NPU_VMM_VERSION */

  /* A power of two, the same until the process ends. */
  npu_status (*granularity)(npu_device device, uint64_t* bytes);

  /* Addresses without memory; they cannot be used before map. */
  npu_status (*reserve)(npu_device device, uint64_t bytes, void** out);
  /* Nothing is mapped there any more. */
  npu_status (*unreserve)(npu_device device, void* ptr, uint64_t bytes);

  /* Memory without an address. Errors: NPU_E_OUT_OF_MEMORY. */
  npu_status (*create)(npu_device device, uint64_t bytes, npu_physical* out);
  /* Gives it back once it is mapped nowhere. */
  npu_status (*release)(npu_physical memory);

  /* Put all of `memory` at ptr, inside a reservation; at most once at a time.
   * Contents stay over unmap and map. The device itself may read and write. */
  npu_status (*map)(void* ptr, uint64_t bytes, npu_physical memory);
  /* No queued work uses the range, which is one that map was given. */
  npu_status (*unmap)(void* ptr, uint64_t bytes);

  /* Let another device use a mapped range too, or no more. access is a mask of
   * NPU_ACCESS_*; 0 takes it away. */
  npu_status (*set_access)(
      void* ptr, uint64_t bytes, npu_device peer, uint32_t access);
} npu_vmm;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_VMM_H */
