// SPDX-License-Identifier: Apache-2.0
// The binary form of the contract, frozen. A line that fails here means that
// drivers already built would break: add at the end of a table, or raise the
// major version.
#include <cstddef>
#include <type_traits>

#include "npu/kinds.h"

#define NPU_SIZE(type, bytes) static_assert(sizeof(type) == (bytes))
#define NPU_AT(type, field, offset) \
  static_assert(offsetof(type, field) == (offset))

NPU_SIZE(npu_host_services, 96);
NPU_AT(npu_host_services, size, 0);
NPU_AT(npu_host_services, abi, 4);
NPU_AT(npu_host_services, log_level, 8);
NPU_AT(npu_host_services, log, 16);
NPU_AT(npu_host_services, set_error, 24);
NPU_AT(npu_host_services, last_error, 32);
NPU_AT(npu_host_services, parallel_for, 40);
NPU_AT(npu_host_services, range_push, 48);
NPU_AT(npu_host_services, range_pop, 56);
NPU_AT(npu_host_services, account, 64);
NPU_AT(npu_host_services, stream_worker, 72);
NPU_AT(npu_host_services, find_driver, 80);
NPU_AT(npu_host_services, torch_platform, 88);

NPU_SIZE(npu_device_properties, 184);
NPU_AT(npu_device_properties, size, 0);
NPU_AT(npu_device_properties, host_access, 4);
NPU_AT(npu_device_properties, name, 8);
NPU_AT(npu_device_properties, architecture, 72);
NPU_AT(npu_device_properties, uuid, 104);
NPU_AT(npu_device_properties, total_memory, 120);
NPU_AT(npu_device_properties, max_single_allocation, 128);
NPU_AT(npu_device_properties, allocation_alignment, 136);
NPU_AT(npu_device_properties, allocation_granularity, 140);
NPU_AT(npu_device_properties, compute_units, 144);
NPU_AT(npu_device_properties, integrated, 148);
NPU_AT(npu_device_properties, capability_major, 152);
NPU_AT(npu_device_properties, capability_minor, 156);
NPU_AT(npu_device_properties, needs_stream_lock, 160);
NPU_AT(npu_device_properties, unified_address, 164);
NPU_AT(npu_device_properties, l2_bytes, 168);
NPU_AT(npu_device_properties, shared_memory_per_block, 176);
NPU_AT(npu_device_properties, clock_khz, 180);

NPU_SIZE(npu_device_table, 88);
NPU_AT(npu_device_table, size, 0);
NPU_AT(npu_device_table, reserved, 4);
NPU_AT(npu_device_table, count, 8);
NPU_AT(npu_device_table, open, 16);
NPU_AT(npu_device_table, close, 24);
NPU_AT(npu_device_table, properties, 32);
NPU_AT(npu_device_table, synchronize, 40);
NPU_AT(npu_device_table, memory_info, 48);
NPU_AT(npu_device_table, can_access_peer, 56);
NPU_AT(npu_device_table, trim, 64);
NPU_AT(npu_device_table, enable_peer, 72);
NPU_AT(npu_device_table, native_handle, 80);

NPU_SIZE(npu_pointer_info, 32);
NPU_AT(npu_pointer_info, size, 0);
NPU_AT(npu_pointer_info, kind, 4);
NPU_AT(npu_pointer_info, device, 8);
NPU_AT(npu_pointer_info, reserved, 12);
NPU_AT(npu_pointer_info, base, 16);
NPU_AT(npu_pointer_info, bytes, 24);

NPU_SIZE(npu_memory_table, 128);
NPU_AT(npu_memory_table, size, 0);
NPU_AT(npu_memory_table, reserved, 4);
NPU_AT(npu_memory_table, alloc, 8);
NPU_AT(npu_memory_table, free, 16);
NPU_AT(npu_memory_table, host_alloc, 24);
NPU_AT(npu_memory_table, host_free, 32);
NPU_AT(npu_memory_table, copy_to_device, 40);
NPU_AT(npu_memory_table, copy_to_host, 48);
NPU_AT(npu_memory_table, copy_on_device, 56);
NPU_AT(npu_memory_table, copy_peer, 64);
NPU_AT(npu_memory_table, set_bytes, 72);
NPU_AT(npu_memory_table, pointer_info, 80);
NPU_AT(npu_memory_table, host_open, 88);
NPU_AT(npu_memory_table, host_close, 96);
NPU_AT(npu_memory_table, host_register, 104);
NPU_AT(npu_memory_table, host_unregister, 112);
NPU_AT(npu_memory_table, discard, 120);

NPU_SIZE(npu_stream_table, 80);
NPU_AT(npu_stream_table, size, 0);
NPU_AT(npu_stream_table, reserved, 4);
NPU_AT(npu_stream_table, create, 8);
NPU_AT(npu_stream_table, destroy, 16);
NPU_AT(npu_stream_table, synchronize, 24);
NPU_AT(npu_stream_table, query, 32);
NPU_AT(npu_stream_table, wait_event, 40);
NPU_AT(npu_stream_table, host_call, 48);
NPU_AT(npu_stream_table, priority_range, 56);
NPU_AT(npu_stream_table, native_handle, 64);
NPU_AT(npu_stream_table, mailbox, 72);

NPU_SIZE(npu_event_table, 64);
NPU_AT(npu_event_table, size, 0);
NPU_AT(npu_event_table, reserved, 4);
NPU_AT(npu_event_table, create, 8);
NPU_AT(npu_event_table, destroy, 16);
NPU_AT(npu_event_table, record, 24);
NPU_AT(npu_event_table, query, 32);
NPU_AT(npu_event_table, synchronize, 40);
NPU_AT(npu_event_table, elapsed_ms, 48);
NPU_AT(npu_event_table, native_handle, 56);

NPU_SIZE(npu_op_table, 72);
NPU_AT(npu_op_table, size, 0);
NPU_AT(npu_op_table, reserved, 4);
NPU_AT(npu_op_table, find, 8);
NPU_AT(npu_op_table, caps, 16);
NPU_AT(npu_op_table, plan, 24);
NPU_AT(npu_op_table, run, 32);
NPU_AT(npu_op_table, release_plan, 40);
NPU_AT(npu_op_table, warm, 48);
NPU_AT(npu_op_table, tune, 56);
NPU_AT(npu_op_table, prepare, 64);

NPU_SIZE(npu_driver, 120);
NPU_AT(npu_driver, size, 0);
NPU_AT(npu_driver, abi, 4);
NPU_AT(npu_driver, name, 8);
NPU_AT(npu_driver, vendor, 16);
NPU_AT(npu_driver, version, 24);
NPU_AT(npu_driver, tensor_flags_known, 32);
NPU_AT(npu_driver, call_flags_known, 36);
NPU_AT(npu_driver, device, 40);
NPU_AT(npu_driver, memory, 48);
NPU_AT(npu_driver, stream, 56);
NPU_AT(npu_driver, event, 64);
NPU_AT(npu_driver, op, 72);
NPU_AT(npu_driver, get_interface, 80);
NPU_AT(npu_driver, shutdown, 88);
NPU_AT(npu_driver, flags, 96);
NPU_AT(npu_driver, reserved, 100);
NPU_AT(npu_driver, default_profile, 104);
NPU_AT(npu_driver, platform, 112);

NPU_SIZE(npu_op_row, 48);
NPU_AT(npu_op_row, size, 0);
NPU_AT(npu_op_row, attr_bytes, 4);
NPU_AT(npu_op_row, name, 8);
NPU_AT(npu_op_row, caps, 16);
NPU_AT(npu_op_row, plan, 24);
NPU_AT(npu_op_row, run, 32);
NPU_AT(npu_op_row, release_plan, 40);

NPU_SIZE(npu_op_pack, 32);
NPU_AT(npu_op_pack, size, 0);
NPU_AT(npu_op_pack, abi, 4);
NPU_AT(npu_op_pack, name, 8);
NPU_AT(npu_op_pack, row_bytes, 16);
NPU_AT(npu_op_pack, n_rows, 20);
NPU_AT(npu_op_pack, rows, 24);

NPU_SIZE(npu_tensor, 96);
NPU_AT(npu_tensor, data, 0);
NPU_AT(npu_tensor, storage, 8);
NPU_AT(npu_tensor, storage_bytes, 16);
NPU_AT(npu_tensor, numel, 24);
NPU_AT(npu_tensor, sizes, 32);
NPU_AT(npu_tensor, strides, 40);
NPU_AT(npu_tensor, dtype, 48);
NPU_AT(npu_tensor, ndim, 50);
NPU_AT(npu_tensor, flags, 52);
NPU_AT(npu_tensor, device, 56);
NPU_AT(npu_tensor, format, 60);
NPU_AT(npu_tensor, alias_of, 62);
NPU_AT(npu_tensor, reserved, 64);

NPU_SIZE(npu_list, 40);
NPU_AT(npu_list, size, 0);
NPU_AT(npu_list, n, 4);
NPU_AT(npu_list, dtype, 8);
NPU_AT(npu_list, reserved0, 10);
NPU_AT(npu_list, flags, 12);
NPU_AT(npu_list, data, 16);
NPU_AT(npu_list, numel, 24);
NPU_AT(npu_list, tensors, 32);

NPU_SIZE(npu_scalar, 32);
NPU_AT(npu_scalar, kind, 0);
NPU_AT(npu_scalar, reserved, 4);
NPU_AT(npu_scalar, i, 8);
NPU_AT(npu_scalar, re, 16);
NPU_AT(npu_scalar, im, 24);

NPU_SIZE(npu_rng, 32);
NPU_AT(npu_rng, seed, 0);
NPU_AT(npu_rng, offset, 8);
NPU_AT(npu_rng, seed_ptr, 16);
NPU_AT(npu_rng, offset_ptr, 24);

NPU_SIZE(npu_call, 176);
NPU_AT(npu_call, size, 0);
NPU_AT(npu_call, slot, 4);
NPU_AT(npu_call, code, 8);
NPU_AT(npu_call, flags, 12);
NPU_AT(npu_call, math_mode, 16);
NPU_AT(npu_call, compute_dtype, 18);
NPU_AT(npu_call, deterministic, 20);
NPU_AT(npu_call, label, 24);
NPU_AT(npu_call, correlation, 32);
NPU_AT(npu_call, n_out, 40);
NPU_AT(npu_call, n_in, 44);
NPU_AT(npu_call, tensors, 48);
NPU_AT(npu_call, attrs, 56);
NPU_AT(npu_call, attr_bytes, 64);
NPU_AT(npu_call, n_lists, 68);
NPU_AT(npu_call, lists, 72);
NPU_AT(npu_call, workspace, 80);
NPU_AT(npu_call, workspace_bytes, 88);
NPU_AT(npu_call, host_workspace, 96);
NPU_AT(npu_call, host_workspace_bytes, 104);
NPU_AT(npu_call, carry, 112);
NPU_AT(npu_call, carry_bytes, 120);
NPU_AT(npu_call, plan, 128);
NPU_AT(npu_call, rng, 136);
NPU_AT(npu_call, workspace_limit, 168);
static_assert(NPU_CALL_BYTES_1_0 == 168);

NPU_SIZE(npu_verdict, 152);
NPU_AT(npu_verdict, size, 0);
NPU_AT(npu_verdict, answer, 4);
NPU_AT(npu_verdict, reason, 8);
NPU_AT(npu_verdict, cast_dtype, 12);
NPU_AT(npu_verdict, alignment, 14);
NPU_AT(npu_verdict, mask, 16);
NPU_AT(npu_verdict, workspace_bytes, 24);
NPU_AT(npu_verdict, host_workspace_bytes, 32);
NPU_AT(npu_verdict, carry_bytes, 40);
NPU_AT(npu_verdict, plan, 48);
NPU_AT(npu_verdict, detail, 56);

NPU_SIZE(npu_op_caps, 216);
NPU_AT(npu_op_caps, size, 0);
NPU_AT(npu_op_caps, flags, 4);
NPU_AT(npu_op_caps, dtype_rule, 8);
NPU_AT(npu_op_caps, plan_use, 12);
NPU_AT(npu_op_caps, max_ndim, 16);
NPU_AT(npu_op_caps, min_alignment, 20);
NPU_AT(npu_op_caps, alias_mask, 24);
NPU_AT(npu_op_caps, accumulate, 32);
NPU_AT(npu_op_caps, dtypes, 40);
NPU_AT(npu_op_caps, numel_limit, 168);
NPU_AT(npu_op_caps, dtype_rows, 200);
NPU_AT(npu_op_caps, n_dtype_rows, 208);
NPU_AT(npu_op_caps, reserved, 212);

NPU_SIZE(npu_dtype_row, 32);

// Growing tables at their end is fine; these never grow.
static_assert(std::is_trivially_copyable_v<npu_call>);
static_assert(std::is_standard_layout_v<npu_call>);
static_assert(sizeof(npu_tensor) == 96, "arrays of it carry no row size");

// Numbers drivers are built with.
static_assert(NPU_KIND_COPY == 1 && NPU_KIND_FILL == 2);
static_assert(NPU_KIND_RANDOM == 3 && NPU_KIND_RANDPERM == 4);
static_assert(NPU_KIND_MULTINOMIAL == 5 && NPU_KIND_DROPOUT == 6);
static_assert(NPU_RANDOM_UNIFORM == 0 && NPU_RANDOM_BINOMIAL == 10);
static_assert(NPU_FIRST_VENDOR_SLOT == 4096 && NPU_KIND_LIMIT <= 256);
static_assert(NPU_DTYPE_COUNT <= 64, "sets of dtypes are 64-bit masks");
static_assert(NPU_KIND_LIMIT <= NPU_FIRST_VENDOR_SLOT);
static_assert(NPU_FIRST_VENDOR_SLOT < NPU_FIRST_PACK_SLOT);

// Attributes that came with 1.1 lie where 1.0 had unused bytes or ended.
NPU_AT(npu_conv_attrs, epilogue, 124);
NPU_AT(npu_gemm_attrs, bias_gradient, 76);
// As does what came with 1.2.
NPU_AT(npu_attention_attrs, dropout_rule, 72);
static_assert(NPU_GEMM_EPILOGUE_RELU_GRAD == 5);
static_assert(NPU_GEMM_EPILOGUE_GELU_TANH_GRAD == 6);
static_assert(NPU_KIND_BATCH_NORM == 124 && NPU_KIND_BATCH_NORM_GRAD == 125);
static_assert(NPU_MATH_HALF_PARTIALS == 3);
static_assert(NPU_CAP_WIDE_STATISTICS == 16384);
static_assert(NPU_CAP_EPILOGUE_GRAD == 32768 && NPU_CAP_DROPOUT_RULE == 65536);
static_assert(NPU_DRIVER_OWN_RANDOM == 8);
