# SPDX-License-Identifier: Apache-2.0
"""The one runner: what a driver is given, whatever the kind, and what is counted."""

import pytest
import torch
from child import run_child
from faulty import faulty_environment
from programs import program
from torch_npu import _C

HEAD = program(__file__, "_head")


def faulty_child(code, **env):
    return run_child(HEAD + code, **{**faulty_environment(), **env})


def log_of(fn):
    _C._start_work_log()
    fn()
    return _C._take_work_log()


# ---- the hook for recorders ----


def test_recorder_sees_frames_of_every_kind_and_bytes():
    x = torch.randn(8, 8).npu()
    lines = log_of(
        lambda: (x + x, x.t().contiguous(), x.clone(), torch.zeros_like(x), x.uniform_())
    )
    assert [line.split()[0] for line in lines] == [
        "binary.add",
        "copy",
        "256",
        "256",
        "random.uniform",
    ]
    assert "(aten::add.Tensor) out f32[64] in f32[64] f32[64]" in lines[0]
    assert lines[2:4] == ["256 bytes on the device", "256 bytes set"]
    assert _C._take_work_log() == []


def test_recorder_is_of_one_thread():
    import threading

    x = torch.randn(4).npu()
    other = threading.Thread(target=lambda: x.mul(x))
    _C._start_work_log()
    other.start()
    other.join()
    x.add(x)
    assert [line.split()[0] for line in _C._take_work_log()] == ["binary.add"]


# ---- what is counted ----


def test_every_kind_is_counted():
    before = _C._native_calls()
    x = torch.randn(4, 6).npu().requires_grad_()
    torch.empty(3, 3, device="npu").fill_(2)
    torch.empty(8, 8, device="npu").t()[:, :3].copy_(torch.ones(8, 3, device="npu"))
    torch.native_dropout(x, 0.5, True)
    torch.randn(5, device="npu")
    torch.randperm(5, device="npu")
    torch._foreach_add([x.detach()], [x.detach()])
    torch.nn.LSTMCell(6, 4).npu()(x)
    rows = _C._native_calls()
    grown = {name for name in rows if rows[name] != before.get(name)}
    assert {"aten::fill_.Scalar", "aten::copy_", "aten::native_dropout", "aten::normal_"} <= grown
    assert {"aten::randperm.generator_out", "aten::_thnn_fused_lstm_cell"} <= grown
    assert any(name.startswith("aten::_foreach_add") for name in grown)


def test_rung_2_rows_have_bytes_time_and_every_reason():
    out = faulty_child(
        program(__file__, "_rung_2_rows_have_bytes_time_and_every_reason"),
        NPU_FAULTY_LACKS="strides,unaligned,halves",
        NPU_HOST_KERNELS="all",
    )
    assert "done" in out


# ---- numbers in host memory ----

NUMBERS = program(__file__, "_numbers")


@pytest.mark.parametrize(
    "env", [{}, {"NPU_DISABLE_KIND": "fill"}, {"NPU_HOST_ASYNC": "1"}], ids=str
)
def test_numbers_for_a_driver_without_host_scalars_cost_no_synchronize(env):
    assert "done" in faulty_child(
        NUMBERS, NPU_FAULTY_LACKS="host_scalar", NPU_HOST_KERNELS="all", **env
    )


# ---- lists, random frames and cells inside what the driver declared ----

INSIDE = program(__file__, "_inside")


@pytest.mark.parametrize("lacks", ["host_scalar,unaligned", "strides,unaligned", "halves"])
def test_lists_random_frames_and_cells_are_mended(lacks):
    dtype = "torch.bfloat16" if lacks == "halves" else "torch.float32"
    out = faulty_child(
        f"DTYPE = {dtype}\n" + INSIDE, NPU_FAULTY_LACKS=lacks, NPU_HOST_KERNELS="all"
    )
    assert "done" in out


# ---- workspaces ----

WORKSPACES = program(__file__, "_workspaces")


@pytest.mark.parametrize("run_async", ["0", "1"])
def test_workspaces_and_carry_live_until_the_stream_passes(run_async):
    out = faulty_child(
        WORKSPACES, NPU_FAULTY_ASKS="1", NPU_HOST_KERNELS="all", NPU_HOST_ASYNC=run_async
    )
    assert "done" in out


# ---- frames that draw, on a driver without the kind ----

DRAWS = program(__file__, "_draws")


def test_frames_that_draw_end_on_the_embedded_host_driver():
    kinds = {"NPU_DISABLE_KIND": "random,randperm,multinomial,dropout"}
    want = run_child("RUNG = 0\n" + DRAWS)
    assert run_child("RUNG = 4\n" + DRAWS, **kinds) == want
    assert (
        run_child(
            "RUNG = 5\n" + DRAWS, **kinds, **faulty_environment(), NPU_FAULTY_HOST_ACCESS="none"
        )
        == want
    )


# ---- half numbers ----

HALVES = program(__file__, "_halves")


@pytest.mark.parametrize(
    "mode", ["plain", "all", "decline", "casts", "casts and host_scalar", "halves"]
)
def test_half_times_a_number_keeps_the_numbers_digits(mode):
    env = {"NPU_HOST_KERNELS": "fast" if mode == "plain" else "all"}
    if mode == "decline":
        env["NPU_HOST_DECLINE"] = "60,3"
    elif mode not in ("plain", "all"):
        env |= faulty_environment() | {"NPU_FAULTY_LACKS": mode.replace(" and ", ",")}
    assert "done" in run_child(HALVES, **env)
