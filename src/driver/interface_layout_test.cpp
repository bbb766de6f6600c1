// SPDX-License-Identifier: Apache-2.0
// The binary form of the optional interfaces and of the mailbox, frozen as
// abi_layout_test.cpp freezes the tables.
#include <cstddef>

#include "npu/capture.h"
#include "npu/comm.h"
#include "npu/ipc.h"
#include "npu/mailbox.h"
#include "npu/profiler.h"
#include "npu/vmm.h"

#define NPU_SIZE(type, bytes) static_assert(sizeof(type) == (bytes))
#define NPU_AT(type, field, offset) \
  static_assert(offsetof(type, field) == (offset))

NPU_SIZE(npu_capture, 80);
NPU_AT(npu_capture, size, 0);
NPU_AT(npu_capture, version, 4);
NPU_AT(npu_capture, begin, 8);
NPU_AT(npu_capture, join, 16);
NPU_AT(npu_capture, end, 24);
NPU_AT(npu_capture, status, 32);
NPU_AT(npu_capture, instantiate, 40);
NPU_AT(npu_capture, launch, 48);
NPU_AT(npu_capture, update, 56);
NPU_AT(npu_capture, destroy_graph, 64);
NPU_AT(npu_capture, destroy_exec, 72);

NPU_SIZE(npu_capture_info, 24);
NPU_AT(npu_capture_info, size, 0);
NPU_AT(npu_capture_info, state, 4);
NPU_AT(npu_capture_info, id, 8);
NPU_AT(npu_capture_info, pool, 16);

NPU_SIZE(npu_comm_config, 16);
NPU_AT(npu_comm_config, size, 0);
NPU_AT(npu_comm_config, timeout_ms, 4);
NPU_AT(npu_comm_config, name, 8);

NPU_SIZE(npu_comm_table, 168);
NPU_AT(npu_comm_table, size, 0);
NPU_AT(npu_comm_table, version, 4);
NPU_AT(npu_comm_table, id_bytes, 8);
NPU_AT(npu_comm_table, reserved, 12);
NPU_AT(npu_comm_table, dtypes, 16);
NPU_AT(npu_comm_table, reductions, 24);
NPU_AT(npu_comm_table, make_id, 32);
NPU_AT(npu_comm_table, init, 40);
NPU_AT(npu_comm_table, state, 48);
NPU_AT(npu_comm_table, abort, 56);
NPU_AT(npu_comm_table, destroy, 64);
NPU_AT(npu_comm_table, split, 72);
NPU_AT(npu_comm_table, group_begin, 80);
NPU_AT(npu_comm_table, group_end, 88);
NPU_AT(npu_comm_table, all_reduce, 96);
NPU_AT(npu_comm_table, reduce, 104);
NPU_AT(npu_comm_table, broadcast, 112);
NPU_AT(npu_comm_table, all_gather, 120);
NPU_AT(npu_comm_table, reduce_scatter, 128);
NPU_AT(npu_comm_table, all_to_all, 136);
NPU_AT(npu_comm_table, send, 144);
NPU_AT(npu_comm_table, recv, 152);
NPU_AT(npu_comm_table, dtypes_per_hop, 160);

NPU_SIZE(npu_profile_record, 64);
NPU_AT(npu_profile_record, correlation, 0);
NPU_AT(npu_profile_record, stream, 8);
NPU_AT(npu_profile_record, begin_ns, 16);
NPU_AT(npu_profile_record, end_ns, 24);
NPU_AT(npu_profile_record, name, 32);
NPU_AT(npu_profile_record, bytes, 40);
NPU_AT(npu_profile_record, device, 48);
NPU_AT(npu_profile_record, kind, 52);
NPU_AT(npu_profile_record, reserved, 56);

NPU_SIZE(npu_profiler, 40);
NPU_AT(npu_profiler, size, 0);
NPU_AT(npu_profiler, version, 4);
NPU_AT(npu_profiler, start, 8);
NPU_AT(npu_profiler, stop, 16);
NPU_AT(npu_profiler, flush, 24);
NPU_AT(npu_profiler, clocks, 32);

NPU_SIZE(npu_vmm, 72);
NPU_AT(npu_vmm, size, 0);
NPU_AT(npu_vmm, version, 4);
NPU_AT(npu_vmm, granularity, 8);
NPU_AT(npu_vmm, reserve, 16);
NPU_AT(npu_vmm, unreserve, 24);
NPU_AT(npu_vmm, create, 32);
NPU_AT(npu_vmm, release, 40);
NPU_AT(npu_vmm, map, 48);
NPU_AT(npu_vmm, unmap, 56);
NPU_AT(npu_vmm, set_access, 64);

NPU_SIZE(npu_ipc, 56);
NPU_AT(npu_ipc, size, 0);
NPU_AT(npu_ipc, version, 4);
NPU_AT(npu_ipc, memory_handle_bytes, 8);
NPU_AT(npu_ipc, event_handle_bytes, 12);
NPU_AT(npu_ipc, export_memory, 16);
NPU_AT(npu_ipc, open_memory, 24);
NPU_AT(npu_ipc, close_memory, 32);
NPU_AT(npu_ipc, export_event, 40);
NPU_AT(npu_ipc, open_event, 48);

NPU_SIZE(npu_mailbox, 128);
NPU_AT(npu_mailbox, state, 0);
NPU_AT(npu_mailbox, error, 4);
NPU_AT(npu_mailbox, slot, 8);
NPU_AT(npu_mailbox, operand, 12);
NPU_AT(npu_mailbox, correlation, 16);
NPU_AT(npu_mailbox, position, 24);
NPU_AT(npu_mailbox, value, 32);
NPU_AT(npu_mailbox, limit, 40);
NPU_AT(npu_mailbox, label, 48);
NPU_AT(npu_mailbox, reserved, 112);
