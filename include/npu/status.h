/* SPDX-License-Identifier: Apache-2.0 */
/* What calls of the contract answer, and why one was declined. */
#ifndef NPU_STATUS_H
#define NPU_STATUS_H

#include <stdint.h>

/* ---- status ---- */

/* Every entry point that can fail returns one of these and, when it is not
 * NPU_OK or NPU_NOT_READY, has called services->set_error with what and where.
 */
typedef int32_t npu_status;
#define NPU_OK 0
#define NPU_NOT_READY 1       /* query: the work has not finished */
#define NPU_E_INVALID 2       /* an argument is wrong; nothing was done */
#define NPU_E_UNSUPPORTED 3   /* declined; nothing was done */
#define NPU_E_OUT_OF_MEMORY 4 /* device or host memory; nothing was done */
#define NPU_E_ASYNC 5         /* earlier queued work failed; see below */
#define NPU_E_DEVICE_LOST 6   /* sticky: every later call answers it too */
#define NPU_E_TIMEOUT 7
#define NPU_E_SHUTDOWN 8 /* after shutdown, or in a forked child */
#define NPU_E_INTERNAL 9

/* NPU_E_ASYNC is about work queued earlier. Each failure is reported once, by
 * the first of these calls that comes after it; all of them may, none has to
 * but those marked *:
 *   about one stream   stream.synchronize*, stream.query (once idle),
 *                      event.synchronize and event.query of an event recorded
 *                      on it after the failure, copy_to_host when it waits
 *   about any stream   device.synchronize*
 *   while queueing     op.run, op.tune, memory.copy_* and set_bytes,
 *                      stream.wait_event and host_call, event.record, and what
 *                      queues in capture/1 and comm/1: nothing was queued then
 * No other entry point answers it. Destroying a stream discards a failure that
 * has not been reported. The error text says what failed; npu/mailbox.h defines
 * how kernels record it. */

/* Why a call was declined: verdict.reason, and the catalogue users read. */
typedef uint32_t npu_reason;
#define NPU_REASON_NONE 0u
#define NPU_REASON_NO_KERNEL 1u   /* the driver has no such kind or code */
#define NPU_REASON_DTYPE 2u       /* a dtype, or this mix of them */
#define NPU_REASON_STRIDES 3u     /* a layout no copy can mend */
#define NPU_REASON_NDIM 4u        /* too many dimensions */
#define NPU_REASON_SIZE 5u        /* too large, or an unsupported extent */
#define NPU_REASON_INDEX_WIDTH 6u /* needs 64-bit offsets */
#define NPU_REASON_ALIGNMENT 7u
#define NPU_REASON_ALIAS 8u     /* an output overlaps an input */
#define NPU_REASON_ATTRIBUTE 9u /* an attribute's value */
#define NPU_REASON_FORMAT 10u   /* a storage format */
#define NPU_REASON_MATH_MODE 11u
#define NPU_REASON_DETERMINISTIC 12u /* only a non-deterministic kernel */
#define NPU_REASON_CAPTURE 13u       /* not while a graph is captured */
#define NPU_REASON_WORKSPACE 14u     /* would need too much of it */
#define NPU_REASON_DISABLED 15u      /* switched off by the user */
#define NPU_REASON_SLOWER 16u        /* has a kernel; another rung is faster */
#define NPU_REASON_HARDWARE 17u      /* this device's generation lacks it */
/* arguments that a frame cannot express, or that PyTorch refuses */
#define NPU_REASON_ARGUMENTS 18u
#define NPU_REASON_COUNT 19u

#endif /* NPU_STATUS_H */
