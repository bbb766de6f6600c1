/* SPDX-License-Identifier: Apache-2.0 */
/* The error mailbox: how a kernel says that an operand's values are wrong.
 *
 * A kernel finds an index that is out of range long after run returned. It must
 * not read or write through it, and records the error instead:
 *
 * - The driver has one npu_mailbox per stream, in memory that both the device
 *   and the host can reach, made with the stream and zero at first.
 * - A kernel takes it with an atomic compare-and-swap of `state` from EMPTY to
 *   TAKEN, fills the rest, and stores FULL. A kernel that does not get it does
 *   nothing: the first error is the one that is reported. Elements with a wrong
 * index are skipped by writes and read as zero.
 * - `label` and `correlation` are copied from the call by the host half of the
 *   kernel, or looked up by `correlation` when it is read.
 * - The driver reads it in the calls that may answer NPU_E_ASYNC (npu/status.h)
 *   for this stream, when the work before them is done: FULL means NPU_E_ASYNC
 *   with a text made of it (npu_mailbox_text), and EMPTY again. The host side
 *   never reads it.
 * - While a graph is captured, kernels get the mailbox of the stream that
 *   launches it, or one of the graph's own that launch watches.
 */
#ifndef NPU_MAILBOX_H
#define NPU_MAILBOX_H

#include <stdio.h>

#include "npu/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_MAILBOX_EMPTY 0u
#define NPU_MAILBOX_TAKEN 1u
#define NPU_MAILBOX_FULL 2u

#define NPU_MAILBOX_INDEX 1u  /* value outside 0 .. limit-1, or -limit .. */
#define NPU_MAILBOX_VALUE 2u  /* a value the kind does not allow */
#define NPU_MAILBOX_ASSERT 3u /* anything else; label says it */

/* 128 bytes, frozen. */
typedef struct npu_mailbox {
  uint32_t state;
  uint32_t error; /* NPU_MAILBOX_INDEX, ... */
  uint32_t slot;
  uint32_t operand; /* place in call.tensors */
  uint64_t correlation;
  int64_t position; /* of the element in that operand, counted in row order */
  int64_t value;    /* the value found there */
  int64_t limit;    /* the exclusive limit */
  char label[64];   /* "aten::index_select", cut and ended with 0 */
  uint64_t reserved[2];
} npu_mailbox;

/* One line for services->set_error; returns its length. */
static inline int npu_mailbox_text(
    const npu_mailbox* box, char* text, size_t n) {
  const int chars = (int)sizeof(box->label) - 1;
  if (box->error == NPU_MAILBOX_INDEX) {
    return snprintf(
        text,
        n,
        "%.*s: index %lld is out of bounds for size %lld (element %lld of "
        "operand %u)",
        chars,
        box->label,
        (long long)box->value,
        (long long)box->limit,
        (long long)box->position,
        (unsigned)box->operand);
  }
  if (box->error == NPU_MAILBOX_VALUE) {
    return snprintf(
        text,
        n,
        "%.*s: value %lld is not allowed (element %lld of operand %u)",
        chars,
        box->label,
        (long long)box->value,
        (long long)box->position,
        (unsigned)box->operand);
  }
  return snprintf(text, n, "%.*s: a kernel failed", chars, box->label);
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_MAILBOX_H */
