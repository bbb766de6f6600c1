/* SPDX-License-Identifier: Apache-2.0 */
/* What contract 1.1 added, for tiny_driver.c: interfaces, tune and warm that
 * count how often they are asked. With TINY_BAD_EXTRAS the interfaces are
 * wrong, one way each. */
#ifndef TINY_EXTRAS_H
#define TINY_EXTRAS_H

#include "npu/capture.h"
#include "npu/comm.h"
#include "npu/ipc.h"
#include "npu/profiler.h"
#include "npu/vmm.h"

NPU_EXPORT int tiny_asked = 0;  /* calls of get_interface */
NPU_EXPORT int tiny_tuned = 0;  /* calls of tune */
NPU_EXPORT int tiny_warmed = 0; /* calls of warm */
NPU_EXPORT npu_status tiny_tune_status = NPU_OK;
/* 0 = tune leaves the plan, 1 = makes a new one, 2 = asks for too much */
NPU_EXPORT int tiny_tune_makes = 0;

static npu_status tune(
    npu_stream stream, const npu_call* call, npu_verdict* verdict) {
  (void)stream;
  __atomic_add_fetch(&tiny_tuned, 1, __ATOMIC_SEQ_CST);
  if (call->workspace == NULL ||
      call->workspace_bytes != verdict->workspace_bytes) {
    services->set_error("tiny: tune without a workspace");
    return NPU_E_INTERNAL;
  }
  if (tiny_tune_status != NPU_OK) {
    services->set_error("tiny: tuning fails, as asked");
    return tiny_tune_status;
  }
  if (tiny_tune_makes != 0) {
    verdict->plan = malloc(1);
    __atomic_add_fetch(&tiny_plans_made, 1, __ATOMIC_SEQ_CST);
  }
  verdict->workspace_bytes = tiny_tune_makes == 2 ? 1u << 30 : 32;
  return NPU_OK;
}

static npu_status warm(npu_device device, uint32_t slot) {
  (void)device;
  (void)slot;
  __atomic_add_fetch(&tiny_warmed, 1, __ATOMIC_SEQ_CST);
  services->set_error("tiny: cold today");
  return NPU_E_INTERNAL; /* logged, and the kind is used all the same */
}

/* How often it was asked to prepare, and with what last. */
NPU_EXPORT int tiny_prepared = 0;
NPU_EXPORT uint32_t tiny_prepared_slot = 0;
static npu_status prepare(npu_device device, const npu_call* call) {
  (void)device;
  __atomic_add_fetch(&tiny_prepared, 1, __ATOMIC_SEQ_CST);
  tiny_prepared_slot = call->slot;
  return NPU_OK;
}

/* ---- interfaces ---- */

static npu_status begin(
    npu_device device,
    const npu_stream* streams,
    uint32_t n_streams,
    uint64_t pool) {
  (void)device;
  (void)streams;
  (void)pool;
  return n_streams > 0 ? NPU_OK : NPU_E_INVALID;
}
static npu_status join(npu_stream origin, npu_stream stream) {
  return origin != stream ? NPU_OK : NPU_E_INVALID;
}
static npu_status end(npu_stream origin, npu_graph* out) {
  *out = (npu_graph)(void*)origin;
  return NPU_OK;
}
static npu_status capture_status(npu_stream stream, npu_capture_info* out) {
  (void)stream;
  out->state = NPU_CAPTURE_NONE;
  return NPU_OK;
}
static npu_status instantiate(npu_graph graph, npu_graph_exec* out) {
  *out = (npu_graph_exec)(void*)graph;
  return NPU_OK;
}
static npu_status launch(npu_graph_exec exec, npu_stream stream) {
  (void)exec;
  return on_stream(stream);
}
static npu_status update(npu_graph_exec exec, npu_graph graph) {
  (void)exec;
  (void)graph;
  return NPU_E_UNSUPPORTED;
}
static npu_status destroy_graph(npu_graph graph) {
  (void)graph;
  return NPU_OK;
}
static npu_status destroy_exec(npu_graph_exec exec) {
  (void)exec;
  return NPU_OK;
}

static npu_status make_id(void* id) {
  memset(id, 7, 16);
  return NPU_OK;
}
static npu_status comm_init(
    const void* id,
    int32_t rank,
    int32_t n_ranks,
    npu_device device,
    const npu_comm_config* config,
    npu_comm* out) {
  (void)id;
  (void)rank;
  (void)device;
  (void)config;
  *out = NULL;
  return n_ranks == 1 ? NPU_OK : NPU_E_UNSUPPORTED;
}
static npu_status on_comm(npu_comm comm) {
  (void)comm;
  return NPU_OK;
}
static npu_status group(void) {
  return NPU_OK;
}
static npu_status gather(
    npu_comm comm,
    const void* send,
    void* recv,
    uint64_t count_,
    npu_dtype dtype,
    npu_stream stream) {
  (void)comm;
  (void)dtype;
  return copy_bytes(stream, recv, send, count_);
}
static npu_status reduce_all(
    npu_comm comm,
    const void* send,
    void* recv,
    uint64_t count_,
    npu_dtype dtype,
    npu_reduction reduction,
    npu_stream stream) {
  (void)reduction;
  return gather(comm, send, recv, count_, dtype, stream);
}
static npu_status reduce_to(
    npu_comm comm,
    const void* send,
    void* recv,
    uint64_t count_,
    npu_dtype dtype,
    npu_reduction reduction,
    int32_t root,
    npu_stream stream) {
  (void)reduction;
  (void)root;
  return gather(comm, send, recv, count_, dtype, stream);
}
static npu_status broadcast(
    npu_comm comm,
    const void* send,
    void* recv,
    uint64_t count_,
    npu_dtype dtype,
    int32_t root,
    npu_stream stream) {
  (void)root;
  return gather(comm, send, recv, count_, dtype, stream);
}
static npu_status send_to(
    npu_comm comm,
    const void* data,
    uint64_t count_,
    npu_dtype dtype,
    int32_t peer,
    npu_stream stream) {
  (void)comm;
  (void)data;
  (void)count_;
  (void)dtype;
  (void)peer;
  return on_stream(stream);
}
static npu_status recv_from(
    npu_comm comm,
    void* data,
    uint64_t count_,
    npu_dtype dtype,
    int32_t peer,
    npu_stream stream) {
  return send_to(comm, data, count_, dtype, peer, stream);
}

static npu_status profile_from(npu_device device, uint32_t kinds) {
  (void)device;
  return kinds != 0 ? NPU_OK : NPU_E_INVALID;
}
static npu_status flush(
    npu_device device, npu_record_fn take, void* context, uint64_t* lost) {
  npu_profile_record one;
  memset(&one, 0, sizeof(one));
  one.correlation = 42;
  one.name = "tiny_kernel";
  one.device = device;
  take(context, &one, 1);
  *lost = 0;
  return NPU_OK;
}
static npu_status clocks(
    npu_device device, int64_t* device_ns, int64_t* host_ns) {
  (void)device;
  *device_ns = *host_ns = 1;
  return NPU_OK;
}

static const npu_capture capture = {
    sizeof(npu_capture),
#ifdef TINY_BAD_EXTRAS
    2, /* of a later version */
#else
    NPU_CAPTURE_VERSION,
#endif
    begin,
    join,
    end,
    capture_status,
    instantiate,
    launch,
    update,
    destroy_graph,
    destroy_exec};
/* split and all_to_all are optional. */
static const npu_comm_table comm = {
#ifdef TINY_BAD_EXTRAS
    4, /* no struct is as short */
#else
    sizeof(npu_comm_table),
#endif
    NPU_COMM_VERSION,
    16,
    0,
    NPU_DTYPE_BIT(NPU_F32),
    1u << NPU_REDUCTION_SUM,
    make_id,
    comm_init,
    on_comm,
    on_comm,
    on_comm,
    NULL,
    group,
    group,
    reduce_all,
    reduce_to,
    broadcast,
    gather,
    reduce_all,
    NULL,
    send_to,
    recv_from,
    NPU_DTYPE_BIT(NPU_BF16)};
static const npu_profiler profiler = {
#ifdef TINY_BAD_EXTRAS
    offsetof(npu_profiler, flush), /* an older one, with too little */
#else
    sizeof(npu_profiler),
#endif
    NPU_PROFILER_VERSION,
    profile_from,
    on_device,
    flush,
    clocks};

static const void* get_interface(const char* name) {
  __atomic_add_fetch(&tiny_asked, 1, __ATOMIC_SEQ_CST);
  if (strcmp(name, NPU_CAPTURE_INTERFACE) == 0)
    return &capture;
  if (strcmp(name, NPU_COMM_INTERFACE) == 0)
    return &comm;
  if (strcmp(name, NPU_PROFILER_INTERFACE) == 0)
    return &profiler;
  return NULL; /* no vmm/1, no ipc/1 */
}

#define EXTRA_INTERFACE get_interface
#define EXTRA_TUNE tune
#define EXTRA_WARM warm
#define EXTRA_PREPARE prepare
#define EXTRA_CALL_FLAGS NPU_CALL_BENCHMARK

#endif /* TINY_EXTRAS_H */
