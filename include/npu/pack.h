/* SPDX-License-Identifier: Apache-2.0 */
/* Operator packs: more kinds for an existing driver.
 *
 * A pack is a shared library that exports npu_ops_entry. The host side loads
 * those that NPU_OP_PACKS names after the driver, checks every row, and finds
 * them by name (op.find comes after). A pack that is wrong in any part is left
 * out whole, with one message. Packs are never unloaded.
 */
#ifndef NPU_PACK_H
#define NPU_PACK_H

#include "npu/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Slots of rows, given out by the host side in the order of loading. A call
 * says its row's slot; a pack need not look at it. */
#define NPU_FIRST_PACK_SLOT 65536u

/* One operator of a pack: a kind of its own, for a driver already loaded. The
 * functions follow the rules of those of the same name in npu_op_table. */
typedef struct npu_op_row {
  uint32_t size;
  uint32_t attr_bytes; /* of its attribute struct; 0 = it has none */
  const char* name;    /* "vendor.name/1": lower case, digits, '_' */
  npu_status (*caps)(uint32_t code, struct npu_op_caps* out);
  /* May be NULL when caps never ask for plans. */
  npu_status (*plan)(
      npu_device device,
      const struct npu_call* call,
      struct npu_verdict* verdict);
  npu_status (*run)(npu_stream stream, const struct npu_call* call);
  /* Default: plans own nothing. Optional. Since 1.1. */
  void (*release_plan)(void* plan);
} npu_op_row;

/* Static data of the library; never freed. */
typedef struct npu_op_pack {
  uint32_t size;
  uint32_t abi;
  const char* name;
  uint32_t row_bytes; /* stride of rows: sizeof(npu_op_row) as built */
  uint32_t n_rows;
  const npu_op_row* rows;
} npu_op_pack;

#define NPU_OPS_ENTRY "npu_ops_entry"

/* The one exported symbol, called once per driver. NPU_E_UNSUPPORTED: this pack
 * has nothing for a driver of that name. The pack reaches the driver's streams
 * (native_handle, mailbox) through services->find_driver(driver_name). */
typedef npu_status (*npu_ops_entry_fn)(
    uint32_t host_abi,
    const npu_host_services* services,
    const char* driver_name,
    const npu_op_pack** out);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_PACK_H */
