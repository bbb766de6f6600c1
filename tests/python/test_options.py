# SPDX-License-Identifier: Apache-2.0
"""Switches, error codes and the fallback policy as Python sees them."""

import re

import pytest
import torch
import torch_npu
from torch_npu.utils import ErrCode, ops_error, pta_error

LINE = r"\n\[ERROR\] \d{4}-\d\d-\d\d-\d\d:\d\d:\d\d \(PID:\d+, Device:-?\d+, RankID:-?\d+\) "


def test_error_lines():
    assert re.fullmatch(LINE + "ERR00002 PTA invalid type", pta_error(ErrCode.TYPE))
    assert re.fullmatch(LINE + "ERR01007 OPS feature not supported", ops_error(ErrCode.NOT_SUPPORT))
    with pytest.raises(TypeError, match="ErrCode"):
        pta_error(2)


def test_set_option():
    with pytest.raises(RuntimeError, match="invalid npu option name:nonsense"):
        torch.npu.set_option({"nonsense": "1"})
    with pytest.raises(TypeError, match="npu option must be a dict"):
        torch.npu.set_option("jitCompile")
    with pytest.raises(ValueError, match=r"high_performance.*high_precision"):
        torch.npu.set_option({"ACL_OP_SELECT_IMPL_MODE": "fast"})
    with pytest.raises(ValueError, match="ACL_AICORE_NUM"):
        torch.npu.set_option({"ACL_AICORE_NUM": "0"})
    torch.npu.set_option({"ACL_PRECISION_MODE": "must_keep_origin_dtype"})


def test_a_wrong_option_sets_none():
    with pytest.raises(RuntimeError, match="invalid npu option name:nonsense"):
        torch.npu.set_option({"jitCompile": "enable", "nonsense": "1"})
    assert torch.npu.is_jit_compile_false()


def test_compile_mode():
    assert torch.npu.is_jit_compile_false()
    torch.npu.set_compile_mode(jit_compile=True)
    assert not torch.npu.is_jit_compile_false()
    torch.npu.set_compile_mode(jit_compile=False)


def test_flags():
    assert torch.npu.config.allow_internal_format is False
    assert torch.npu.matmul.allow_hf32 is False
    assert torch.npu.conv.allow_hf32 is True
    torch.npu.matmul.allow_hf32 = True
    assert torch.npu.matmul.allow_hf32 is True
    torch.npu.matmul.allow_hf32 = False
    assert torch.npu.get_mm_bmm_format_nd() is True


def test_sync_debug_mode():
    torch.npu.set_sync_debug_mode("warn")
    assert torch.npu.get_sync_debug_mode() == 1
    torch.npu.set_sync_debug_mode(0)
    for bad, allowed in (("loud", "`default`, `warn`, `error`"), (3, "0,1,2"), (-1, "0,1,2")):
        text = f"invalid value of debug_mode, expected one of {allowed}"
        with pytest.raises(RuntimeError, match=text):
            torch.npu.set_sync_debug_mode(bad)
    assert torch.npu.get_sync_debug_mode() == 0


def test_precision_mode_and_lists():
    for mode in ("allow_fp32_to_fp16", "must_keep_origin_dtype"):
        torch.npu.set_option({"ACL_PRECISION_MODE": mode})
    with pytest.raises(ValueError, match=r"value of ACL_PRECISION_MODE should be in .*force_fp32"):
        torch.npu.set_option({"ACL_PRECISION_MODE": "force_fp32"})
    torch.npu.set_option({"FORCE_ACLNN_OP_LIST": "index"})


def test_cube_math_type():
    kinds = torch.npu.CubeMathType
    assert torch.npu.matmul.cube_math_type == kinds.UNDEFINED
    torch.npu.matmul.cube_math_type = kinds.USE_HF32
    assert torch.npu.matmul.cube_math_type is kinds.USE_HF32
    torch.npu.matmul.cube_math_type = -1
    with pytest.raises(ValueError, match="KEEP_DTYPE"):
        torch.npu.matmul.cube_math_type = 9


def test_deterministic_with_backward():
    seen = []
    look = torch.are_deterministic_algorithms_enabled
    x = torch.ones(2, device="npu", requires_grad=True)
    y = torch.npu.enable_deterministic_with_backward(x)
    seen.append(look())
    y = y * 2
    y.register_hook(lambda grad: seen.append(look()))
    y = torch.npu.disable_deterministic_with_backward(y)
    seen.append(look())
    y.sum().backward()
    assert seen == [True, False, True] and look() is False
    assert x.grad.tolist() == [2.0, 2.0]
    with pytest.raises(TypeError, match="expected a tensor"):
        torch.npu.enable_deterministic_with_backward(None)
    assert look() is False


def test_memory_fraction_errors():
    with pytest.raises(TypeError, match=r"(?s)fraction.*ERR00002 PTA invalid type"):
        torch.npu.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match=r"(?s)1.5.*ERR00003 PTA invalid value"):
        torch.npu.set_per_process_memory_fraction(1.5)


def test_overflow():
    assert torch.npu.npu_check_overflow(torch.tensor([1.0, float("inf")], device="npu"))
    assert not torch.npu.npu_check_overflow(torch.ones(3, device="npu"))
    assert torch.npu.npu_check_overflow(float("nan"))


def test_memory_summary_layout():
    torch.zeros(10, device="npu")
    lines = torch.npu.memory_summary().splitlines()
    assert {len(line) for line in lines} == {77}
    assert "PyTorch NPU memory summary, device ID 0" in lines[1]
    assert "NPU OOMs: " in lines[3] and "npuMalloc retries: " in lines[3]
    assert len(torch.npu.memory_summary(abbreviated=True).splitlines()) < len(lines)


def test_raw_blocks():
    before = torch.npu.memory_allocated()
    pointer = torch.npu.caching_allocator_alloc(4096)
    assert torch.npu.memory_allocated() == before + 4096
    torch.npu.caching_allocator_delete(pointer)
    assert torch.npu.memory_allocated() == before
    with pytest.raises(ValueError):
        torch.npu.caching_allocator_delete(pointer)
    with pytest.raises(ValueError, match="-1 is not a number of bytes"):
        torch.npu.caching_allocator_alloc(-1)
    with pytest.raises(TypeError, match="stream"):
        torch.npu.caching_allocator_alloc(16, stream="s")


def test_memory_history(tmp_path):
    torch.npu.memory._record_memory_history()
    try:
        x = torch.zeros(1000, device="npu")
        snapshot = torch.npu.memory._snapshot()
        traces = snapshot["device_traces"][0]
        mine = [t for t in traces if t["action"] == "alloc" and t["addr"] == x.data_ptr()]
        assert mine and any("test_options.py" in f["filename"] for f in mine[-1]["frames"])
        blocks = [b for s in torch.npu.memory_snapshot() for b in s["blocks"]]
        assert any(
            b["address"] == x.data_ptr() and b["state"] == "active_allocated" for b in blocks
        )
        torch.npu.memory._dump_snapshot(str(tmp_path / "s.pickle"))
        assert (tmp_path / "s.pickle").stat().st_size > 100
    finally:
        torch.npu.memory._record_memory_history(None)
    with pytest.raises(ValueError, match="enabled"):
        torch.npu.memory._record_memory_history("some")


def test_host_memory_stats():
    x = torch.zeros(1000).pin_memory()
    stats = torch.npu.host_memory_stats()
    assert stats["active_bytes.current"] >= x.nbytes
    torch.npu.reset_peak_host_memory_stats()
    torch.npu.reset_accumulated_host_memory_stats()
    assert torch.npu.host_memory_stats()["allocations.allocated"] == 0
    del x
    torch.npu.host_empty_cache()


def test_fallback_policy():
    assert torch.npu.get_fallback() in ("warn", "silent", "error")
    before = torch.npu.get_fallback()
    a = torch.randn(4, 4, device="npu")
    torch.npu.reset_fallback_stats()  # the call site is the first call's
    torch.npu.set_fallback("silent")
    try:
        torch.linalg.lstsq(a, a)
        rows = [r for r in torch.npu.fallback_stats() if "lstsq" in r["overload"]]
        assert rows and rows[0]["calls"] >= 1 and "test_options.py" in rows[0]["call_site"]
        assert "aten::linalg_lstsq" in torch.npu.fallback_report()
        torch.npu.set_fallback("error")
        with pytest.raises(RuntimeError, match="ERR01007 OPS feature not supported"):
            torch.linalg.lstsq(a, a)
    finally:
        torch.npu.set_fallback(before)
    with pytest.raises(ValueError, match="'loud'"):
        torch.npu.set_fallback("loud")


def test_mstx():
    with torch.npu.mstx.mstx_range("here"):
        torch.npu.mstx.mark("there")
    assert torch.npu.mstx.range_push("a") == 0
    assert torch.npu.mstx.range_pop() == 0
    with pytest.raises(RuntimeError, match="no range is open"):
        torch.npu.mstx.range_pop()
    with pytest.raises(ValueError, match="no open range"):
        torch.npu.mstx.range_end(-5)
    assert torch_npu.npu.mstx.annotate("f")(lambda: 3)() == 3
