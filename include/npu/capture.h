/* SPDX-License-Identifier: Apache-2.0 */
/* Interface "capture/1": work recorded into a graph of the device, replayed.
 *
 * driver.get_interface("capture/1") gives an npu_capture. Every function is
 * required; it may be called from any thread, and those about one capture come
 * from one thread at a time. Since 1.1.
 */
#ifndef NPU_CAPTURE_H
#define NPU_CAPTURE_H

#include "npu/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_CAPTURE_INTERFACE "capture/1"
#define NPU_CAPTURE_VERSION 1u

typedef struct npu_graph_s* npu_graph;           /* a recorded graph */
typedef struct npu_graph_exec_s* npu_graph_exec; /* ready to be launched */

#define NPU_CAPTURE_NONE 0u    /* the stream runs its work */
#define NPU_CAPTURE_ACTIVE 1u  /* it records */
#define NPU_CAPTURE_INVALID 2u /* it recorded, and the capture failed */

typedef struct npu_capture_info {
  uint32_t size;  /* set by the caller */
  uint32_t state; /* NPU_CAPTURE_* */
  uint64_t id;    /* of the capture, never 0 and never used twice */
  uint64_t pool;  /* as given to begin */
} npu_capture_info;

typedef struct npu_capture {
  uint32_t size;
  uint32_t version; /* NPU_CAPTURE_VERSION */

  /* From now on, what is queued on these streams of one device is recorded and
   * not run. streams[0] is the origin: the others wait for it from the start,
   * as after an event. Nothing else begins a capture: an event wait does not
   * make a stream part of it. Calls carry NPU_CALL_CAPTURE; their pointers,
   * plans and device workspaces stay valid until the graph and everything made
   * of it are destroyed (the host side keeps them). `pool` is the host side's
   * number for the memory the recorded calls use. Two graphs with the same
   * number share it and are never launched at once; 0 = not shared. Errors:
   * NPU_E_INVALID for a stream that records already. */
  npu_status (*begin)(
      npu_device device,
      const npu_stream* streams,
      uint32_t n_streams,
      uint64_t pool);

  /* One more stream of the same device, which waits for what the origin has
   * recorded so far. */
  npu_status (*join)(npu_stream origin, npu_stream stream);

  /* Ends the capture that `origin` began; its end waits for all streams of it.
   * Errors: NPU_E_INVALID with *out NULL when the capture was broken: work
   * that cannot be recorded, a synchronize, a wait for an event of a stream
   * outside. The streams run again in either case. */
  npu_status (*end)(npu_stream origin, npu_graph* out);

  /* The state of the stream. Never an error for a live stream. */
  npu_status (*status)(npu_stream stream, npu_capture_info* out);

  /* The same graph may be instantiated more than once. */
  npu_status (*instantiate)(npu_graph graph, npu_graph_exec* out);

  /* Queue one run of all of it. Launches of one exec do not overlap. */
  npu_status (*launch)(npu_graph_exec exec, npu_stream stream);

  /* Make exec do what `graph` does, cheaper than instantiate: the same nodes
   * with other pointers and numbers. Launches queued before keep the old ones.
   * Errors: NPU_E_UNSUPPORTED when they differ in more; instantiate then. */
  npu_status (*update)(npu_graph_exec exec, npu_graph graph);

  /* An exec outlives its graph. Queued launches finish first. */
  npu_status (*destroy_graph)(npu_graph graph);
  npu_status (*destroy_exec)(npu_graph_exec exec);
} npu_capture;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_CAPTURE_H */
