# SPDX-License-Identifier: Apache-2.0
"""The names of torch_npu that programs look for."""

import importlib
import re
import runpy
from pathlib import Path

import pytest
import torch
import torch_npu
from torch_npu.npu._later import LATER

NAMES = [
    "is_available",
    "device_count",
    "init",
    "is_initialized",
    "set_device",
    "current_device",
    "synchronize",
    "device",
    "device_of",
    "get_device_name",
    "get_device_properties",
    "get_device_capability",
    "can_device_access_peer",
    "mem_get_info",
    "utilization",
    "set_device_limit",
    "get_device_limit",
    "set_stream_limit",
    "get_stream_limit",
    "reset_stream_limit",
    "set_op_timeout_ms",
    "current_blas_handle",
    "ipc_collect",
    "is_bf16_supported",
    "get_soc_version",
    "Stream",
    "ExternalStream",
    "SyncLaunchStream",
    "Event",
    "ExternalEvent",
    "stream",
    "StreamContext",
    "set_stream",
    "current_stream",
    "default_stream",
    "empty_cache",
    "empty_virt_addr_cache",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_snapshot",
    "memory_allocated",
    "memory_reserved",
    "memory_cached",
    "max_memory_allocated",
    "max_memory_reserved",
    "max_memory_cached",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "set_per_process_memory_fraction",
    "get_per_process_memory_fraction",
    "get_allocator_backend",
    "MemPool",
    "use_mem_pool",
    "NPUPluggableAllocator",
    "change_current_allocator",
    "host_empty_cache",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "reset_peak_host_memory_stats",
    "reset_accumulated_host_memory_stats",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "initial_seed",
    "get_rng_state",
    "get_rng_state_all",
    "set_rng_state",
    "set_rng_state_all",
    "default_generators",
    "amp",
    "get_autocast_dtype",
    "set_autocast_dtype",
    "is_autocast_enabled",
    "set_autocast_enabled",
    "get_amp_supported_dtype",
    "NPUGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "super_kernel_scope_begin",
    "super_kernel_scope_end",
    "NpuGraphOpHandler",
    "register_npu_graph_handler",
    "set_option",
    "set_compile_mode",
    "is_jit_compile_false",
    "config",
    "matmul",
    "conv",
    "set_mm_bmm_format_nd",
    "get_mm_bmm_format_nd",
    "set_aoe",
    "init_dump",
    "set_dump",
    "finalize_dump",
    "set_deterministic_level",
    "use_compatible_impl",
    "are_compatible_impl_enabled",
    "enable_deterministic_with_backward",
    "disable_deterministic_with_backward",
    "sdp_kernel",
    "set_sync_debug_mode",
    "get_sync_debug_mode",
    "npu_check_overflow",
    "get_npu_overflow_flag",
    "clear_npu_overflow_flag",
    "stop_device",
    "restart_device",
    "check_uce_in_memory",
    "stress_detect",
    "obfuscation_initialize",
    "obfuscation_calculate",
    "obfuscation_finalize",
    "mstx",
    "FloatTensor",
    "DoubleTensor",
    "HalfTensor",
    "BFloat16Tensor",
    "LongTensor",
    "IntTensor",
    "ShortTensor",
    "CharTensor",
    "ByteTensor",
    "BoolTensor",
    "FloatStorage",
    "DoubleStorage",
    "HalfStorage",
    "OutOfMemoryError",
    "fallback_report",
    "fallback_stats",
    "set_fallback",
    "get_fallback",
]


@pytest.mark.parametrize("name", NAMES)
def test_torch_npu_has(name):
    assert hasattr(torch.npu, name)
    assert name in torch.npu.__all__


def test_all_names_exist():
    assert [name for name in torch.npu.__all__ if not hasattr(torch.npu, name)] == []


def test_private_names_others_use():
    for name in ("_lazy_init", "_lazy_call", "_is_in_bad_fork", "_exchange_device", "_sleep"):
        assert callable(getattr(torch.npu, name))
    for name in (
        "_record_memory_history",
        "_snapshot",
        "_dump_snapshot",
        "_set_allocator_settings",
    ):
        assert callable(getattr(torch.npu.memory, name))
    assert torch.npu._utils._get_device_index("npu:0") == 0


@pytest.mark.parametrize("name", sorted(LATER))
def test_later_names_say_so(name):
    with pytest.raises(NotImplementedError, match=rf"torch\.npu\.{name} is not in this version"):
        getattr(torch.npu, name)()


def test_later_classes_are_classes():
    assert not isinstance(3, torch.npu.NpuGraphOpHandler)


def test_docs_list_what_waits():
    root = Path(__file__).parents[2]
    script = runpy.run_path(str(root / "scripts" / "api_page.py"))
    assert script["main"](write=False) == 0, "python scripts/api_page.py --write"
    page = (root / "docs" / "api.md").read_text(encoding="utf-8")
    assert set(LATER) <= set(re.findall(r"`(\w+)`", page))


def test_top_level():
    assert torch_npu.npu is torch.npu
    assert torch_npu.Format.FRACTAL_NZ == 29 and torch_npu.Format(2).name == "ND"
    assert (torch_npu.float32, torch_npu.bfloat16, torch_npu.hifloat8) == (256, 283, 290)
    assert torch.quint8 in torch_npu.unsupported_dtype
    assert torch_npu.profiler.__name__ == "torch_npu.profiler"
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        torch_npu.nonsense  # noqa: B018


def test_mem_get_info_is_where_cuda_has_it():
    assert torch.npu.memory.mem_get_info is torch.npu.mem_get_info


def test_storage_use_count():
    x = torch.zeros(4, device="npu")
    pointer = x.untyped_storage()._cdata
    one = torch_npu._C._storage_Use_Count(pointer)
    y = x.view(2, 2)
    assert torch_npu._C._storage_Use_Count(pointer) == one + 1
    del y


MODULES = [
    "_inductor", "contrib.function.iou", "contrib.module.focus", "npu._memory_viz", "npu.aclnn",
    "npu.aclnn.backends", "npu.amp.autocast_mode", "npu.amp.common", "npu.amp.grad_scaler",
    "npu.amp.sharded_grad_scaler", "npu.backends", "npu.deterministic", "npu.graphs", "npu.memory",
    "npu.npu_config", "npu.utils", "optim.npu_fused_adadelta", "optim.npu_fused_adam",
    "optim.npu_fused_adamp", "optim.npu_fused_adamw", "optim.npu_fused_bert_adam",
    "optim.npu_fused_lamb", "optim.npu_fused_optim_base", "optim.npu_fused_rmsprop",
    "optim.npu_fused_rmsprop_tf", "optim.npu_fused_sgd", "testing._internal.common_utils",
    "testing._testcase", "testing.common_utils", "utils._inductor", "utils.affinity",
    "utils.collect_env", "utils.combine_tensors", "utils.cpp_extension", "utils.flops_count",
    "utils.serialization", "utils.utils",
]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_module_paths(name):
    module = importlib.import_module(f"torch_npu.{name}")
    missing = [n for n in getattr(module, "__all__", []) if not hasattr(module, n)]
    assert missing == []


def test_modules_lead_to_the_same_things():
    npu = torch_npu.npu
    assert npu.utils.StreamContext is npu.StreamContext
    assert npu.graphs.NPUGraph is npu.NPUGraph
    assert npu.npu_config.set_option is npu.set_option
    assert npu.backends.sdp_kernel is npu.sdp_kernel
    assert npu.amp.autocast_mode.autocast is npu.amp.autocast
    assert npu.memory.MemPool is npu.MemPool
    assert npu.amp.common.amp_definitely_not_available() is False
    lamb = importlib.import_module("torch_npu.optim.npu_fused_lamb")
    assert lamb.NpuFusedLamb is torch_npu.optim.NpuFusedLamb
    with pytest.warns(UserWarning, match="aclnn.version"):
        assert npu.aclnn.version() is None
    with pytest.raises(NotImplementedError, match="ERR00007 PTA feature not supported"):
        npu.graphs.NpuGraphOpHandler()


def test_memory_viz_reads_our_snapshots():
    from torch_npu.npu import _memory_viz

    x = torch.ones(1000, device="npu")
    snapshot = torch.npu.memory._snapshot()
    assert "MiB" in _memory_viz.segsum(snapshot) and x is not None
    block = {"frames": [{"line": 1, "filename": "f.py", "name": "g"}], "requested_size": 8}
    assert _memory_viz._block_extra(block) == (block["frames"], 8)
    assert _memory_viz._frame_filter("user_function", "/some/path")


def test_weak_ref_tensor():
    x = torch.arange(6.0, device="npu").view(2, 3).t()
    weak = torch_npu._C._weak_ref_tensor(x)
    assert weak.data_ptr() == x.data_ptr() and weak.stride() == x.stride()
    assert weak.device == x.device
    weak[0, 0] = 7
    assert x[0, 0].item() == 7
    part = torch.arange(6.0, device="npu")[2:4]
    weak = torch_npu._C._weak_ref_tensor(part)
    assert weak.storage_offset() == 2 and weak.tolist() == [2.0, 3.0]
    assert weak.untyped_storage().nbytes() == part.untyped_storage().nbytes()
    with pytest.raises(ValueError, match="expected an npu tensor"):
        torch_npu._C._weak_ref_tensor(torch.zeros(1))
