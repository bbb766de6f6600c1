/* SPDX-License-Identifier: Apache-2.0 */
/* Interface "profiler/1": when queued work ran on the device.
 *
 * driver.get_interface("profiler/1") gives an npu_profiler. Every function is
 * required; one thread at a time calls them. Since 1.1.
 */
#ifndef NPU_PROFILER_H
#define NPU_PROFILER_H

#include "npu/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_PROFILER_INTERFACE "profiler/1"
#define NPU_PROFILER_VERSION 1u

/* The kinds of records; start takes a mask of them, bit 1 << kind. */
#define NPU_RECORD_KERNEL 0u
#define NPU_RECORD_COPY 1u /* bytes between host, device and peers */
#define NPU_RECORD_SET 2u
#define NPU_RECORD_WAIT 3u /* a stream stood still for an event */
#define NPU_RECORD_COLLECTIVE 4u
#define NPU_RECORD_GRAPH 5u /* one launch of a captured graph */
#define NPU_RECORD_COUNT 6u

/* 64 bytes, frozen. */
typedef struct npu_profile_record {
  uint64_t correlation; /* npu_call.correlation; 0 for work of other slots */
  uint64_t stream;      /* the npu_stream handle as a number */
  int64_t begin_ns;     /* on the device's clock */
  int64_t end_ns;
  const char* name; /* of the kernel; valid until the next start */
  uint64_t bytes;   /* read and written, or 0 when not counted */
  npu_device device;
  uint32_t kind; /* NPU_RECORD_* */
  uint64_t reserved;
} npu_profile_record;

/* Takes records in any order. It must not call the driver. */
typedef void (*npu_record_fn)(
    void* context, const npu_profile_record* records, uint32_t n);

typedef struct npu_profiler {
  uint32_t size;
  uint32_t version; /* NPU_PROFILER_VERSION */

  /* Work queued from now on is recorded. */
  npu_status (*start)(npu_device device, uint32_t kinds);
  /* Work queued from now on is not; records wait to be flushed. */
  npu_status (*stop)(npu_device device);

  /* Passes on, and deletes, the records of all work that is done; call it
   * after a synchronize for all of them, or at any time for those so far.
   * *lost counts records dropped since the last flush because room ran out. */
  npu_status (*flush)(
      npu_device device, npu_record_fn take, void* context, uint64_t* lost);

  /* One moment on both clocks: the device's, as in records, and the host's
   * CLOCK_MONOTONIC. Two of them, before and after, give offset and drift. */
  npu_status (*clocks)(npu_device device, int64_t* device_ns, int64_t* host_ns);
} npu_profiler;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_PROFILER_H */
