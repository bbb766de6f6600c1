/* SPDX-License-Identifier: Apache-2.0 */
/* A driver as small as the contract allows, for tests of the loader. Built
 * several times; each TINY_* macro breaks one promise or changes one trait.
 */
#include <stdlib.h>
#include <string.h>

#include "npu/kinds.h"

#ifndef TINY_DEVICES
#define TINY_DEVICES 1
#endif
#ifndef TINY_ABI
#define TINY_ABI NPU_ABI
#endif
#ifndef TINY_HOST_ACCESS
#define TINY_HOST_ACCESS NPU_HOST_ACCESS_COHERENT
#endif

/* TINY_1_0: as a driver built against the headers of contract 1.0. What lies
 * behind its shorter tables must never be called. */
#ifdef TINY_1_0
#undef TINY_ABI
#define TINY_ABI NPU_ABI_MAKE(1, 0)
#define SIZE_OF(table, first_of_1_1, first_of_1_2) offsetof(table, first_of_1_1)
#define SINCE_1_1(value) ((void*)(uintptr_t)1)
#define SINCE_1_2(value) ((void*)(uintptr_t)1)
/* TINY_1_1: the same for contract 1.1. */
#elif defined(TINY_1_1)
#undef TINY_ABI
#define TINY_ABI NPU_ABI_MAKE(1, 1)
#define SIZE_OF(table, first_of_1_1, first_of_1_2) first_of_1_2
#define SINCE_1_1(value) value
#define SINCE_1_2(value) ((void*)(uintptr_t)1)
#else
#define SIZE_OF(table, first_of_1_1, first_of_1_2) sizeof(table)
#define SINCE_1_1(value) value
#define SINCE_1_2(value) value
#endif

#ifndef TINY_FLAGS
#define TINY_FLAGS 0
#endif
#ifndef TINY_PLATFORM
#define TINY_PLATFORM NULL
#endif

static const npu_host_services* services;

/* What tests look at from outside. */
NPU_EXPORT int tiny_plans_made = 0;
NPU_EXPORT int tiny_plans_released = 0;
NPU_EXPORT int tiny_inside = 0;  /* calls inside stream slots right now */
NPU_EXPORT int tiny_overlap = 0; /* 1 = two were inside at once */
NPU_EXPORT uint32_t tiny_call_flags = 0;
NPU_EXPORT uint32_t tiny_call_size = 0;
NPU_EXPORT uint32_t tiny_caps_size = 0;

static npu_status count(int32_t* n) {
  *n = TINY_DEVICES;
  return NPU_OK;
}
static npu_status on_device(npu_device device) {
  (void)device;
  return NPU_OK;
}
static npu_status properties(npu_device device, npu_device_properties* out) {
  (void)device;
  out->host_access = TINY_HOST_ACCESS;
  strcpy(out->name, "tiny");
#ifdef TINY_NEEDS_LOCK
  out->needs_stream_lock = 1;
#endif
  return NPU_OK;
}
static npu_status memory_info(
    npu_device device, uint64_t* available, uint64_t* total) {
  (void)device;
  *available = *total = 1u << 20;
  return NPU_OK;
}

static npu_status host_alloc(uint64_t bytes, void** out) {
  *out = malloc(bytes);
  return *out != NULL ? NPU_OK : NPU_E_OUT_OF_MEMORY;
}
static npu_status host_free(void* ptr) {
  free(ptr);
  return NPU_OK;
}
static npu_status device_alloc(npu_device device, uint64_t bytes, void** out) {
  (void)device;
  return host_alloc(bytes, out);
}
static npu_status device_free(npu_device device, void* ptr) {
  (void)device;
  return host_free(ptr);
}
static npu_status copy_bytes(
    npu_stream stream, void* dst, const void* src, uint64_t bytes) {
  (void)stream;
  memcpy(dst, src, bytes);
  return NPU_OK;
}
static npu_status set_bytes(
    npu_stream stream, void* dst, int32_t value, uint64_t bytes) {
  (void)stream;
  memset(dst, value, bytes);
  return NPU_OK;
}
static npu_status pointer_info(const void* ptr, npu_pointer_info* out) {
  (void)ptr;
  out->kind = NPU_MEMORY_UNKNOWN;
  out->device = -1;
  return NPU_OK;
}

static npu_status create_stream(
    npu_device device, int32_t priority, npu_stream* out) {
  (void)device;
  (void)priority;
  *out = (npu_stream)malloc(1);
  return NPU_OK;
}
static npu_status destroy_stream(npu_stream stream) {
  free(stream);
  return NPU_OK;
}
static npu_status on_stream(npu_stream stream) {
  volatile int spin;
  (void)stream;
  if (__atomic_add_fetch(&tiny_inside, 1, __ATOMIC_SEQ_CST) > 1) {
    __atomic_store_n(&tiny_overlap, 1, __ATOMIC_SEQ_CST);
  }
  for (spin = 0; spin < 10000; ++spin) {
  }
  __atomic_sub_fetch(&tiny_inside, 1, __ATOMIC_SEQ_CST);
  return NPU_OK;
}
static npu_status wait_event(npu_stream stream, npu_event event) {
  (void)event;
  return on_stream(stream);
}
#ifndef TINY_NO_HOST_CALL
static npu_status host_call(npu_stream stream, npu_host_fn fn, void* context) {
  fn(context);
  return on_stream(stream);
}
#endif

static npu_status create_event(
    npu_device device, uint32_t flags, npu_event* out) {
  (void)device;
  (void)flags;
  *out = (npu_event)malloc(1);
  return NPU_OK;
}
static npu_status destroy_event(npu_event event) {
  free(event);
  return NPU_OK;
}
static npu_status record(npu_event event, npu_stream stream) {
  (void)event;
  return on_stream(stream);
}
static npu_status on_event(npu_event event) {
  (void)event;
  return NPU_OK;
}
static npu_status elapsed(npu_event start, npu_event end, double* out) {
  (void)start;
  (void)end;
  *out = 0;
  return NPU_OK;
}

/* Has fill (float32, contiguous) and gemm (planned by shape). */
static npu_status find(const char* name, uint32_t* slot) {
  *slot = npu_kind_find(name);
#ifdef TINY_WRONG_SLOT
  if (strcmp(name, "fill") == 0) {
    *slot = 77;
    return NPU_OK;
  }
#endif
  if (strcmp(name, "fill") != 0 && strcmp(name, "gemm") != 0) {
    services->set_error("tiny: no such kind");
    return NPU_E_UNSUPPORTED;
  }
  return NPU_OK;
}
static npu_status caps(uint32_t slot, uint32_t code, npu_op_caps* out) {
  (void)code;
  tiny_caps_size = out->size;
  out->dtypes[0] = NPU_DTYPE_BIT(NPU_F32);
  if (slot != NPU_KIND_FILL) {
    out->plan_use = NPU_PLAN_BY_SHAPE;
    out->flags = NPU_CAP_STRIDED_IN;
#ifdef TINY_LONG_CAPS
    memset(out + 1, 0, 16); /* as if compiled with a later header */
#endif
#ifdef TINY_NO_ROWS
    out->dtype_rule = NPU_DTYPES_ROWS;
    out->n_dtype_rows = 2;
#endif
  }
  return NPU_OK;
}
static npu_status plan(
    npu_device device, const npu_call* call, npu_verdict* verdict) {
  (void)device;
  if (call->tensors[0].sizes[0] == 13) {
    verdict->reason = NPU_REASON_SIZE;
    strcpy(verdict->detail, "13 rows");
    return NPU_E_UNSUPPORTED;
  }
  if (call->tensors[0].sizes[0] == 14) {
    services->set_error("tiny: planner broke");
    return NPU_E_INTERNAL;
  }
  verdict->answer = NPU_VERDICT_YES;
  verdict->workspace_bytes = 64;
  if (call->tensors[0].sizes[0] >= 1000) {
    /* Wants a megabyte, can do with 4096 bytes, but not with less. */
    const uint64_t limit = npu_call_workspace_limit(call);
    verdict->workspace_bytes = limit < (1u << 20) ? 4096 : 1u << 20;
    if (limit < 4096) {
      verdict->answer = NPU_VERDICT_NO;
      verdict->reason = NPU_REASON_WORKSPACE;
      return NPU_OK;
    }
  }
  verdict->plan = malloc(1);
  __atomic_add_fetch(&tiny_plans_made, 1, __ATOMIC_SEQ_CST);
  return NPU_OK;
}
static void release_plan(void* made) {
  free(made);
  __atomic_add_fetch(&tiny_plans_released, 1, __ATOMIC_SEQ_CST);
}
static npu_status run(npu_stream stream, const npu_call* call) {
  __atomic_store_n(&tiny_call_flags, call->flags, __ATOMIC_SEQ_CST);
  __atomic_store_n(&tiny_call_size, call->size, __ATOMIC_SEQ_CST);
  return on_stream(stream);
}

#ifdef TINY_EXTRAS
#include "tiny_extras.h"
#else
#define EXTRA_INTERFACE NULL
#define EXTRA_TUNE NULL
#define EXTRA_WARM NULL
#define EXTRA_PREPARE NULL
#define EXTRA_CALL_FLAGS 0
#endif

static const npu_device_table device_table = {
    SIZE_OF(npu_device_table, enable_peer, sizeof(npu_device_table)),
    0,
    count,
    on_device,
    on_device,
    properties,
    on_device,
    memory_info,
    NULL,
    NULL,
    SINCE_1_1(NULL),
    SINCE_1_1(NULL)};
static const npu_memory_table memory_table = {
    SIZE_OF(npu_memory_table, host_register, sizeof(npu_memory_table)),
    0,
    device_alloc,
    device_free,
    host_alloc,
    host_free,
    copy_bytes,
    copy_bytes,
    copy_bytes,
    NULL,
    set_bytes,
    pointer_info,
    NULL,
    NULL,
    SINCE_1_1(NULL),
    SINCE_1_1(NULL),
    SINCE_1_1(NULL)};
static const npu_stream_table stream_table = {
#ifdef TINY_SHORT_TABLES
    offsetof(npu_stream_table, priority_range), /* an older minor */
#else
    SIZE_OF(npu_stream_table, mailbox, sizeof(npu_stream_table)),
#endif
    0,
    create_stream,
    destroy_stream,
    on_stream,
    on_stream,
    wait_event,
#ifdef TINY_NO_HOST_CALL
    NULL,
#else
    host_call,
#endif
#ifdef TINY_SHORT_TABLES
    /* What lies behind the older table must never be called. */
    (npu_status (*)(npu_device, int32_t*, int32_t*))(uintptr_t)1,
    (void* (*)(npu_stream))(uintptr_t)1,
#else
    NULL,
    NULL,
#endif
    SINCE_1_1(NULL)};
static const npu_event_table event_table = {
    sizeof(npu_event_table),
    0,
    create_event,
    destroy_event,
    record,
#ifdef TINY_NO_HOST_CALL
    NULL,
#else
    on_event,
#endif
    on_event,
    elapsed,
    NULL};
static const npu_op_table op_table = {
    SIZE_OF(npu_op_table, tune, offsetof(npu_op_table, prepare)),
    0,
    find,
    caps,
    plan,
    run,
    release_plan,
    EXTRA_WARM,
    SINCE_1_1(EXTRA_TUNE),
    SINCE_1_2(EXTRA_PREPARE)};

#ifndef TINY_NAME
#define TINY_NAME "tiny"
#endif

static const npu_driver driver = {
#ifdef TINY_NO_SIZE
    0,
#else
    SIZE_OF(npu_driver, flags, offsetof(npu_driver, platform)),
#endif
    TINY_ABI,
    TINY_NAME,
    "OpenNPU tests",
    "0.1",
    NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE,
    NPU_CALL_INDEX32 | EXTRA_CALL_FLAGS,
    &device_table,
    &memory_table,
    &stream_table,
#ifdef TINY_NO_EVENT_TABLE
    NULL,
#else
    &event_table,
#endif
    &op_table,
    EXTRA_INTERFACE,
    NULL,
#ifdef TINY_1_0
    ~0u,
    ~0u,
    (const char*)(uintptr_t)1,
#else
    TINY_FLAGS,
    0,
    NULL,
#endif
    SINCE_1_2((const char*)TINY_PLATFORM)};

#ifdef TINY_NO_ENTRY
#define npu_driver_entry some_other_entry
#endif
NPU_EXPORT npu_status npu_driver_entry(
    uint32_t host_abi, const npu_host_services* given, const npu_driver** out);
npu_status npu_driver_entry(
    uint32_t host_abi, const npu_host_services* given, const npu_driver** out) {
  (void)host_abi;
  (void)out;
  (void)driver;
  (void)event_table;
  services = given;
#ifdef TINY_INIT_FAILS
  services->set_error("no card in slot 3");
  return NPU_E_DEVICE_LOST;
#elif defined(TINY_GIVES_NULL)
  return NPU_OK;
#else
  *out = &driver;
  return NPU_OK;
#endif
}
