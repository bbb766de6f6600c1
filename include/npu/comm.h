/* SPDX-License-Identifier: Apache-2.0 */
/* Interface "comm/1": communicators between devices and processes.
 *
 * driver.get_interface("comm/1") gives an npu_comm_table. Functions are
 * required unless marked. Collectives and send / recv queue on a stream and
 * return; all ranks call them in the same order, and they run in that order.
 * One communicator is used by one thread at a time, except abort and state.
 * Buffers are device memory, live until the stream passes the call, and hold
 * `count` elements of `dtype`, dense; count is never 0. Since 1.1.
 *
 * Declining: what queues may answer NPU_E_UNSUPPORTED, and the host side moves
 * the data itself. All ranks must answer the same, so the answer depends only
 * on what they share: the function, counts, dtype, reduction, root, the number
 * of ranks.
 *
 * Lost ranks: a driver need not notice that a peer is gone. The host side
 * watches processes and the time, and calls abort.
 *
 * Which functions and dtypes the plugin asks for: docs/driver-guide.md.
 */
#ifndef NPU_COMM_H
#define NPU_COMM_H

#include "npu/op.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_COMM_INTERFACE "comm/1"
#define NPU_COMM_VERSION 1u

typedef struct npu_comm_s* npu_comm;

/* Halves and float8 are summed in float32 or wider and rounded once. A driver
 * whose library rounds at every hop leaves them out of `dtypes` and names them
 * in `dtypes_per_hop`: the host side sums them in float32 then, unless the user
 * prefers half the bytes. */
typedef uint32_t npu_reduction;
#define NPU_REDUCTION_SUM 0u
#define NPU_REDUCTION_PRODUCT 1u
#define NPU_REDUCTION_MIN 2u
#define NPU_REDUCTION_MAX 3u
#define NPU_REDUCTION_AVERAGE 4u /* of integers: rounded towards zero */
#define NPU_REDUCTION_AND 5u     /* bitwise; on bool logical */
#define NPU_REDUCTION_OR 6u
#define NPU_REDUCTION_XOR 7u
#define NPU_REDUCTION_COUNT 8u

#define NPU_COMM_NO_COLOR (-1) /* split: this rank gets no communicator */

typedef struct npu_comm_config {
  uint32_t size;       /* set by the caller */
  uint32_t timeout_ms; /* of init and split; 0 = the driver's own */
  const char* name;    /* of the group, for messages; may be NULL */
} npu_comm_config;

typedef struct npu_comm_table {
  uint32_t size;
  uint32_t version;  /* NPU_COMM_VERSION */
  uint32_t id_bytes; /* of the blob that make_id writes */
  uint32_t reserved;
  /* it reduces; bit NPU_DTYPE_BIT. Functions that only move data take every
   * dtype. */
  uint64_t dtypes;
  uint64_t reductions; /* it knows: bit 1 << NPU_REDUCTION_* */

  /* A new group's id, made by one rank and carried to the others as bytes. */
  npu_status (*make_id)(void* id);

  /* Join the group as `rank` of `n_ranks` with this device. Returns at once;
   * state says when all are there. May be called for several devices of one
   * process between group_begin and group_end. */
  npu_status (*init)(
      const void* id,
      int32_t rank,
      int32_t n_ranks,
      npu_device device,
      const npu_comm_config* config,
      npu_comm* out);

  /* NPU_OK when usable and healthy, NPU_NOT_READY while init or split goes on,
   * else what went wrong in the background (a peer died, the network); the
   * communicator is then only good for abort. Any thread. */
  npu_status (*state)(npu_comm comm);

  /* Give up: queued and running operations of it end, in any state of the
   * other ranks, and the streams go on. From any thread, also while another is
   * inside a call about the same communicator, which then returns an error. The
   * communicator is gone afterwards. What it ended may be reported as
   * NPU_E_ASYNC, by the streams it was queued on alone. */
  npu_status (*abort)(npu_comm comm);
  /* Work still queued finishes first. */
  npu_status (*destroy)(npu_comm comm);

  /* New groups of the ranks with equal `color`, ordered by `key` and then old
   * rank. All ranks of `comm` call it. *out is NULL with NPU_COMM_NO_COLOR.
   * Optional: default NPU_E_UNSUPPORTED, and the host side uses a new id. */
  npu_status (*split)(
      npu_comm comm,
      int32_t color,
      int32_t key,
      const npu_comm_config* config,
      npu_comm* out);

  /* What is called between them, on this thread, is queued as one: sends and
   * receives cannot block each other, several devices go together. They nest.
   * Calls about one communicator are on one stream then. An error of a call in
   * between comes from it or from the last group_end: nothing is queued then.
   */
  npu_status (*group_begin)(void);
  npu_status (*group_end)(void);

  /* send == recv is in place. */
  npu_status (*all_reduce)(
      npu_comm comm,
      const void* send,
      void* recv,
      uint64_t count,
      npu_dtype dtype,
      npu_reduction reduction,
      npu_stream stream);
  /* recv is written on `root` alone and may be NULL elsewhere. */
  npu_status (*reduce)(
      npu_comm comm,
      const void* send,
      void* recv,
      uint64_t count,
      npu_dtype dtype,
      npu_reduction reduction,
      int32_t root,
      npu_stream stream);
  /* send is read on `root` alone. */
  npu_status (*broadcast)(
      npu_comm comm,
      const void* send,
      void* recv,
      uint64_t count,
      npu_dtype dtype,
      int32_t root,
      npu_stream stream);
  /* `count` elements of each rank, in order of rank; in place when send is this
   * rank's part of recv. */
  npu_status (*all_gather)(
      npu_comm comm,
      const void* send,
      void* recv,
      uint64_t count,
      npu_dtype dtype,
      npu_stream stream);
  /* recv gets this rank's `count` elements; in place when it is that part of
   * send. */
  npu_status (*reduce_scatter)(
      npu_comm comm,
      const void* send,
      void* recv,
      uint64_t count,
      npu_dtype dtype,
      npu_reduction reduction,
      npu_stream stream);
  /* Counts and offsets in elements, one per rank, read before it returns.
   * Optional: default NPU_E_UNSUPPORTED, and the host side sends and receives
   * in a group. */
  npu_status (*all_to_all)(
      npu_comm comm,
      const void* send,
      const uint64_t* send_counts,
      const uint64_t* send_offsets,
      void* recv,
      const uint64_t* recv_counts,
      const uint64_t* recv_offsets,
      npu_dtype dtype,
      npu_stream stream);

  /* `peer` is another rank. Messages of two ranks are in order. */
  npu_status (*send)(
      npu_comm comm,
      const void* data,
      uint64_t count,
      npu_dtype dtype,
      int32_t peer,
      npu_stream stream);
  npu_status (*recv)(
      npu_comm comm,
      void* data,
      uint64_t count,
      npu_dtype dtype,
      int32_t peer,
      npu_stream stream);

  /* Dtypes it also reduces, but rounding at every hop, so that the result
   * depends on the number of ranks. The host side asks for these when the user
   * allows it, or the platform is "cuda" and the user does not forbid it, and
   * else sums them in float32. No bit is in `dtypes` too. Default: none. Since
   * 1.2. */
  uint64_t dtypes_per_hop;
} npu_comm_table;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_COMM_H */
