# SPDX-License-Identifier: Apache-2.0
"""The one runner: what a driver is given, whatever the kind, and what is counted."""

import pytest
import torch
from child import run_child
from faulty import faulty_environment
from torch_npu import _C

HEAD = """
import ctypes, os, torch, torch_npu
from torch_npu import _C
torch.manual_seed(0)
faulty = ctypes.CDLL(os.environ["NPU_DRIVER"])
faulty.npu_faulty_calls.restype = ctypes.c_int64
faulty.npu_faulty_broken.restype = ctypes.c_char_p

def broken():
    torch.npu.synchronize()
    return faulty.npu_faulty_broken().decode()

def calls(overload, *rungs):
    return sum(row[rung] for row in _C._native_calls().get("aten::" + overload, []) for rung in rungs)

def off_by_one(tensor):
    # The same values at an address that is no multiple of 64.
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device="npu")
    return room[1:].view(tensor.shape).copy_(tensor)
"""


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
        """
torch.npu.synchronize()
_C._fallback_reset()
x = torch.rand(64, 32).npu()
x[:, ::2].exp()                  # strides
off_by_one(x).exp()              # alignment
torch.rand(64, 32).half().npu().exp()
rows = [r for r in _C._fallback_rows() if r["rung"] == 2 and r["overload"].startswith("aten::exp")]
assert {r["reason"] for r in rows} == {"strides not supported", "alignment not supported", "dtype not supported"}, rows
assert all(r["calls"] == 1 and r["seconds"] > 0 for r in rows), rows
by = {r["reason"].split()[0]: r["bytes"] for r in rows}
assert by == {"strides": 64 * 16 * 4, "alignment": 64 * 32 * 4, "dtype": 64 * 32 * 6}, by
assert not broken()
_C._fallback_reset()
assert not [r for r in _C._fallback_rows() if r["rung"] == 2]
print("done")
""",
        NPU_FAULTY_LACKS="strides,unaligned,halves",
        NPU_HOST_KERNELS="all",
    )
    assert "done" in out


# ---- numbers in host memory ----

NUMBERS = """
x = torch.rand(40).npu()
xs = [torch.rand(3, 4).npu(), torch.rand(5).npu()]
params = [torch.rand(3, 3).npu().requires_grad_()]
params[0].grad = torch.rand_like(params[0])
wants = [x.cpu() * 3.7,
         *torch._foreach_mul([t.cpu() for t in xs], [2.5, -1.0]), x.cpu().bool().logical_and(torch.tensor(True)),
         x.cpu().long() + 7, x.cpu() * (1 + 2j)]
torch.npu.synchronize()
waits = faulty.npu_faulty_calls(b"stream.synchronize")
runs = faulty.npu_faulty_calls(b"op.run")
gots = [x * 3.7, *torch._foreach_mul(xs, [2.5, -1.0]),
        x.bool().logical_and(torch.tensor(True)), x.long() + 7, x * (1 + 2j)]
assert faulty.npu_faulty_calls(b"stream.synchronize") == waits, "the host waited for a number"
assert faulty.npu_faulty_calls(b"op.run") > runs + 4
for got, want in zip(gots, wants):
    torch.testing.assert_close(got.cpu(), want)
faults = broken()
assert not faults, faults
assert calls("mul.Tensor", 2) > 0 and calls("_foreach_mul.ScalarList", 2) + calls("_foreach_mul", 2) > 0
print("done")
"""


@pytest.mark.parametrize(
    "env", [{}, {"NPU_DISABLE_KIND": "fill"}, {"NPU_HOST_ASYNC": "1"}], ids=str
)
def test_numbers_for_a_driver_without_host_scalars_cost_no_synchronize(env):
    assert "done" in faulty_child(
        NUMBERS, NPU_FAULTY_LACKS="host_scalar", NPU_HOST_KERNELS="all", **env
    )


# ---- lists, random frames and cells inside what the driver declared ----

INSIDE = """
def lists():
    xs = [off_by_one(torch.rand(3, 5, dtype=DTYPE)) for _ in range(3)]
    ys = [torch.rand(3, 5, dtype=DTYPE).npu() for _ in range(3)]
    host = [t.cpu() for t in xs]
    for fn in (lambda a, b: torch._foreach_add(a, b), lambda a, b: torch._foreach_mul(a, [1.5, 2.5, 0.5]),
               lambda a, b: torch._foreach_sqrt(a), lambda a, b: torch._foreach_norm(a),
               lambda a, b: (torch._foreach_mul_(a, b), a)[1]):
        for got, want in zip(fn(xs, ys), fn(host, [t.cpu() for t in ys])):
            torch.testing.assert_close(got.cpu(), want)

def optimizer():
    def step(device):
        torch.manual_seed(1)
        values = [torch.rand(4, 3, dtype=DTYPE) for _ in range(4)]
        place = off_by_one if device == "npu" else torch.clone
        p, g, m, v = ([place(value)] for value in values)
        steps = [torch.ones((), device=device)]
        torch._fused_adamw_(p, g, m, v, [], steps, lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-6,
                            amsgrad=False, maximize=False)
        return [p[0], m[0], v[0]]
    for got, want in zip(step("npu"), step("cpu")):
        torch.testing.assert_close(got.cpu(), want)

def random():
    plain, moved = torch.empty(33, device="npu"), off_by_one(torch.empty(33))
    for draw in ("uniform_", "normal_", "exponential_"):
        torch.manual_seed(3); getattr(plain, draw)()
        torch.manual_seed(3); getattr(moved, draw)()
        assert plain.equal(moved), draw
    torch.manual_seed(3); a, mask = torch.native_dropout(plain, 0.5, True)
    torch.manual_seed(3); b, mask2 = torch.native_dropout(moved, 0.5, True)
    assert a.equal(b) and mask.equal(mask2)
    moved.fill_(2.5)
    assert moved.eq(2.5).all().item()

def cells():
    cell = torch.nn.LSTMCell(6, 4)
    x, h, c = torch.rand(3, 6), torch.rand(3, 4), torch.rand(3, 4)
    want = cell(x, (h, c))
    got = cell.npu()(x.npu(), (off_by_one(h), torch.stack([c, c], 2).npu()[..., 1]))
    for one, other in zip(got, want):
        torch.testing.assert_close(one.cpu(), other)

def attention():
    q, k, v = (off_by_one(torch.rand(1, 2, 8, 4)) for _ in range(3))
    def drop(*args):
        torch.manual_seed(5)
        return torch.nn.functional.scaled_dot_product_attention(*args, dropout_p=0.5)
    assert drop(q, k, v).equal(drop(q.clone(), k.clone(), v.clone()))

lists(), optimizer()
if DTYPE == torch.float32:
    random(), cells(), attention()
faults = broken()
assert not faults, faults
for name in ("_foreach_sqrt", "_fused_adamw_"):
    assert calls(name, 2), (name, _C._native_calls().get("aten::" + name))
if DTYPE == torch.float32:
    for name in ("uniform_", "native_dropout", "_thnn_fused_lstm_cell"):
        assert calls(name, 2), (name, _C._native_calls().get("aten::" + name))
print("done")
"""


@pytest.mark.parametrize("lacks", ["host_scalar,unaligned", "strides,unaligned", "halves"])
def test_lists_random_frames_and_cells_are_mended(lacks):
    dtype = "torch.bfloat16" if lacks == "halves" else "torch.float32"
    out = faulty_child(
        f"DTYPE = {dtype}\n" + INSIDE, NPU_FAULTY_LACKS=lacks, NPU_HOST_KERNELS="all"
    )
    assert "done" in out


# ---- workspaces ----

WORKSPACES = """
x = torch.rand(64, 64).npu()
for _ in range(20):
    torch.softmax(x, 1); x @ x; torch.cumsum(x, 0); x.sort(1)
    junk = [torch.rand(16).pin_memory() for _ in range(4)]  # takes pinned blocks that were given back too early
    for t in junk:
        t.fill_(0)
torch.npu.synchronize()
assert torch.nonzero(x > 0.5).cpu().equal(torch.nonzero(x.cpu() > 0.5))
values = torch.randint(5, (40,))
assert torch.unique(values.npu(), return_counts=True)[1].cpu().equal(torch.unique(values, return_counts=True)[1])
assert torch.bincount(values.npu()).cpu().equal(torch.bincount(values))
assert x[x > 0.5].cpu().equal(x.cpu()[x.cpu() > 0.5])
torch.manual_seed(1); a = torch.randperm(50, device="npu")
assert a.sort()[0].cpu().equal(torch.arange(50))
faults = broken()
assert not faults, faults
print("done")
"""


@pytest.mark.parametrize("run_async", ["0", "1"])
def test_workspaces_and_carry_live_until_the_stream_passes(run_async):
    out = faulty_child(
        WORKSPACES, NPU_FAULTY_ASKS="1", NPU_HOST_KERNELS="all", NPU_HOST_ASYNC=run_async
    )
    assert "done" in out


# ---- frames that draw, on a driver without the kind ----

DRAWS = """
import torch, torch_npu
from torch_npu import _C
torch.manual_seed(4)
x = torch.empty(4, 6, device="npu").t().uniform_()
print([round(v, 6) for v in x.flatten().tolist()], torch.randperm(6, device="npu").tolist(),
      torch.multinomial(torch.ones(9, device="npu"), 4).tolist(),
      torch.nn.functional.dropout(torch.ones(9, device="npu")).tolist())
rows = {row["overload"]: row for row in _C._fallback_rows()}
names = ("aten::uniform_", "aten::randperm.generator_out", "aten::multinomial.out", "aten::native_dropout")
if RUNG:
    assert all(rows[name]["rung"] == RUNG and rows[name]["calls"] for name in names), rows
    assert all((rows[name]["bytes"] > 0) == (RUNG == 5) for name in names), rows
else:
    assert not any(name in rows for name in names), rows
"""


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

HALVES = """
import torch, torch_npu
for dtype in (torch.float16, torch.bfloat16):
    x = torch.tensor([1e-3, -0.25, 0.7, 3.0], dtype=dtype)
    y = x.npu()
    for number in (65536.0, 1e-5, 0.1, 2.0, 1 / 3, 70000, float("inf"), float("nan")):
        for fn in (lambda a: a * number, lambda a: a / number, lambda a: a.clone().mul_(number),
                   lambda a: a.clone().div_(number), lambda a: torch.div(a, number, rounding_mode="floor"),
                   lambda a: torch.div(a, number, rounding_mode="trunc"), lambda a: number * a,
                   lambda a: a + number, lambda a: a - number, lambda a: a > number):
            got, want = fn(y).cpu(), fn(x)
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, msg=f"{dtype} {number} {got} {want}")
print("done")
"""


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
