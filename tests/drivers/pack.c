/* SPDX-License-Identifier: Apache-2.0 */
/* An operator pack with two operators, for tests of the loader. Built several
 * times; each PACK_* macro breaks one promise.
 *
 * acme.double/1 writes 2 * x + attrs.add into a float32 output, on drivers
 * whose streams run inline; acme.planned/1 is planned by shape.
 */
#include <stdlib.h>
#include <string.h>

#include "npu/op.h"

#ifndef PACK_ABI
#define PACK_ABI NPU_ABI
#endif
#ifndef PACK_NAME
#define PACK_NAME "acme.double/1"
#endif
#ifndef PACK_SECOND
#define PACK_SECOND "acme.planned/1"
#endif
#ifndef PACK_ROWS
#define PACK_ROWS 2
#endif

static const npu_host_services* services;

NPU_EXPORT int pack_plans_made = 0;
NPU_EXPORT int pack_plans_released = 0;
NPU_EXPORT const npu_driver* pack_driver = NULL;

typedef struct double_attrs {
  uint32_t size;
  float add;
} double_attrs;

static npu_status caps(uint32_t code, npu_op_caps* out) {
  if (code != 0) {
    services->set_error("acme: one code only");
    return NPU_E_UNSUPPORTED;
  }
  out->dtypes[0] = NPU_DTYPE_BIT(NPU_F32);
#ifdef PACK_NO_PLAN
  out->plan_use = NPU_PLAN_BY_SHAPE;
#endif
  return NPU_OK;
}
static npu_status planned_caps(uint32_t code, npu_op_caps* out) {
  const npu_status status = caps(code, out);
  out->plan_use = NPU_PLAN_BY_SHAPE;
  return status;
}
static npu_status plan(
    npu_device device, const npu_call* call, npu_verdict* verdict) {
  (void)device;
  (void)call;
  verdict->answer = NPU_VERDICT_YES;
  verdict->plan = malloc(1);
  ++pack_plans_made;
  return NPU_OK;
}
static void release_plan(void* made) {
  free(made);
  ++pack_plans_released;
}
#ifndef PACK_NO_RUN
static npu_status run(npu_stream stream, const npu_call* call) {
  const double_attrs* attrs = (const double_attrs*)call->attrs;
  const float* in = (const float*)call->tensors[1].data;
  float* out = (float*)call->tensors[0].data;
  int64_t i;
  (void)stream;
  for (i = 0; i < call->tensors[0].numel; ++i)
    out[i] = 2 * in[i] + attrs->add;
  return NPU_OK;
}
#endif
static npu_status run_planned(npu_stream stream, const npu_call* call) {
  (void)stream;
  return call->plan != NULL ? NPU_OK : NPU_E_INTERNAL;
}

static const npu_op_row rows[] = {
    {
#ifdef PACK_1_0
        offsetof(npu_op_row, release_plan), /* of contract 1.0 */
#else
        sizeof(npu_op_row),
#endif
        sizeof(double_attrs),
        PACK_NAME,
        caps,
        NULL,
#ifdef PACK_NO_RUN
        NULL,
#else
        run,
#endif
#ifdef PACK_1_0
        (void (*)(void*))(uintptr_t)1},
#else
        NULL},
#endif
    {sizeof(npu_op_row),
     0,
     PACK_SECOND,
     planned_caps,
     plan,
     run_planned,
     release_plan}};

static const npu_op_pack pack = {
    sizeof(npu_op_pack),
#ifdef PACK_1_0
    NPU_ABI_MAKE(1, 0),
#else
    PACK_ABI,
#endif
    "acme",
#ifdef PACK_ROW_BYTES
    PACK_ROW_BYTES,
#else
    sizeof(npu_op_row),
#endif
#ifdef PACK_1_0
    1,
#else
    PACK_ROWS,
#endif
    rows};

#ifdef PACK_NO_ENTRY
#define npu_ops_entry some_other_entry
#endif
NPU_EXPORT npu_status npu_ops_entry(
    uint32_t host_abi,
    const npu_host_services* given,
    const char* driver_name,
    const npu_op_pack** out);
npu_status npu_ops_entry(
    uint32_t host_abi,
    const npu_host_services* given,
    const char* driver_name,
    const npu_op_pack** out) {
  (void)host_abi;
  (void)pack;
  (void)out;
  services = given;
  pack_driver = given->find_driver(driver_name);
#if defined(PACK_FOREIGN)
  services->set_error("acme: for driver 'acme' only");
  return NPU_E_UNSUPPORTED;
#elif defined(PACK_FAILS)
  services->set_error("acme: no licence");
  return NPU_E_INTERNAL;
#elif defined(PACK_GIVES_NULL)
  return NPU_OK;
#else
  *out = &pack;
  return NPU_OK;
#endif
}
