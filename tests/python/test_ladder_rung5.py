# SPDX-License-Identifier: Apache-2.0
"""Rung 5, CPU kernels on copies: they read what the device's memory holds at the call, and only what they wrote comes back.

On tests/drivers/discrete, whose memory host code cannot read. It counts the bytes it copies, and its only
arithmetic is a float32 add, so `x * 1` is always a CPU kernel that reads x.
"""

import pytest
import torch
from faulty import built_driver
from programs import names, program, variables

HEAD = program(__file__, "_head")


@pytest.fixture
def discrete(run_python):
    def run(code, **env):
        variables = {"NPU_FALLBACK": "silent", "NPU_DISCRETE_DELAY_US": "20", **env}
        return run_python(HEAD + code, NPU_DRIVER=built_driver("discrete"), **variables)

    return run


@pytest.mark.parametrize("name", names(__file__))
def test_program(discrete, name):
    discrete(program(__file__, name), **variables(__file__, name))


def test_a_view_takes_as_much_host_memory_as_it_has_elements(discrete):
    discrete("""
large = torch.zeros(16 << 20, device="npu")
large[5:9].cos_()  # in place on a small view
assert large[4:10].tolist() == [0, 1, 1, 1, 1, 0]
assert torch.npu.host_memory_stats()["allocated_bytes.peak"] < large.nbytes // 4
""")


def test_writes_that_pytorch_does_not_know_of_are_read(discrete):
    discrete("""
w = torch.ones(64).npu()
address = w[3:].data_ptr()
for value in (5.0, 6.0):
    read(w)
    torch.npu.synchronize()
    library.npu_discrete_poke(ctypes.c_void_p(address), ctypes.c_float(value))
    assert read(w)[3] == value and read(w).sum() == 63 + value
""")


WRITES = program(__file__, "_writes")


def test_every_write_is_seen(discrete):
    discrete(
        WRITES
        + """
for name, write in writes.items():
    a, b = start.clone(), start.npu()
    for i in range(3):
        for at in (slice(None), slice(2, 3), (slice(None), slice(1, 7, 2))):
            assert torch.equal(read(b[at]), b[at].cpu()), (name, i, at)
        write(a), write(b)
        torch.testing.assert_close(read(b), a, msg=lambda text: f"{name} {i}: {text}")
        assert torch.equal(read(b), b.cpu()), (name, i, read(b), b.cpu())
for draw in ("normal_", "uniform_", "bernoulli_", "exponential_"):
    b = start.npu()
    for i in range(3):
        seen = read(b)
        getattr(b, draw)()
        assert torch.equal(read(b), b.cpu()) and not torch.equal(read(b), seen), draw
""",
        NPU_DISCRETE_DELAY_US="0",
    )


def test_two_devices(discrete):
    discrete("""
x, y = torch.ones(16, device="npu:0"), torch.full((16,), 2.0, device="npu:1")
for i in range(3):
    read(x), read(y)
    y.copy_(x); x.mul_(2)
    assert torch.equal(read(y), torch.full((16,), 2.0**i)) and torch.equal(read(x), torch.full((16,), 2.0 ** (i + 1)))
""")


# The same program on both devices; every read goes through a CPU kernel.
RANDOM = """
import random
def make_views(base):
    return [base, base[1:], base[:, 2:5], base.t(), base[::2, ::3], base.view(-1)[9:31], base[3], base[4:, 6:]]
dtypes = [torch.float32, torch.float32, torch.float64, torch.int64]
def step(rng, views, second):
    a = views[rng.randrange(len(views))]
    b = rng.randrange(11)
    value = rng.randrange(1, 5)
    if b == 0: a.add_(value)
    elif b == 1: a.mul_(-1)
    elif b == 2: a.fill_(value)
    elif b == 3: a.copy_(torch.full(a.shape, value).to(a.dtype))
    elif b == 4: a.copy_(second[0, 0].expand(a.shape))
    elif b == 5: a[..., 0] = value
    elif b == 6: torch._foreach_add_([a, second], value)
    elif b == 7: torch.mul(a, value % 3 - 1, out=a)
    elif b == 8: a.view(-1).zero_() if a.is_contiguous() else a.zero_()
    elif b == 9: torch.add(a, value, out=a)
    else: a.clamp_(-9, 9)
for seed in range(SEEDS):
    dtype = dtypes[seed % len(dtypes)]
    a = torch.arange(64).view(8, 8).to(dtype)
    b = a.npu()
    p, q = make_views(a), make_views(b)
    c, d = a.clone(), b.clone()
    one, two = random.Random(seed), random.Random(seed)
    look = random.Random(-seed)
    for i in range(12):
        step(one, p, c), step(two, q, d)
        for _ in range(look.randrange(3)):
            k = look.randrange(len(p))
            assert torch.equal(read(q[k]), p[k]), (seed, i, k)
        if look.randrange(4) == 0:
            c, d = c * 1, d * 1  # the old block can be reused
    assert torch.equal(read(b), a) and torch.equal(b.cpu(), a) and torch.equal(read(d), c), seed
"""


def test_random_programs(discrete):
    discrete(RANDOM.replace("SEEDS", "60"), NPU_DISCRETE_DELAY_US="0")


def test_random_programs_on_the_host_driver(run_python):
    head = "import torch, torch_npu\nread = lambda x: torch.fmod(x, 1000).cpu()\n"
    run_python(head + RANDOM.replace("SEEDS", "60"), NPU_HOST_ACCESS="none", NPU_HOST_ASYNC="1")


def test_another_tensor_over_the_same_storage(discrete):
    discrete("""
w = torch.randn(64).npu()
w * 2
alias = torch.empty(0, device="npu").set_(w.untyped_storage())
alias.mul_(3)
assert torch.equal(read(w), alias.cpu())
""")


def test_a_kernel_that_writes_what_it_says_it_only_reads(discrete):
    discrete("""
lib = torch.library.Library("lies", "DEF")
lib.define("read(Tensor x) -> Tensor")
lib.impl("read", lambda x: x.add_(1).clone(), "CPU")
w = torch.ones(64).npu()
for _ in range(2):
    torch.ops.lies.read(w)
    assert torch.equal(read(w), w.cpu()) and w.cpu().eq(1).all()
""")


def test_a_lazy_clone_parts_from_its_source(discrete):
    discrete("""
w = torch.ones(64).npu()
read(w)
c = torch._lazy_clone(w)
assert read(c).eq(1).all()
c.mul_(3)
assert read(c).eq(3).all() and read(w).eq(1).all() and w.cpu().eq(1).all() and c.cpu().eq(3).all()
w.mul_(5)
assert read(c).eq(3).all() and read(w).eq(5).all()
""")


def test_the_report_counts_what_was_copied(discrete):
    discrete("""
def row():
    return next(r for r in torch.npu.fallback_stats() if r["overload"].startswith("aten::mul"))
w = torch.randn(64, 64).npu()
y = w * w
assert row()["bytes"] == 2 * w.nbytes and row()["rung"] == 5, row()
y = w * w
assert row()["bytes"] == 4 * w.nbytes, row()
""")


COMPOSED = program(__file__, "_composed")


def test_a_composite_kernel_comes_before_copies(run_python):
    """Its parts may have kernels of the driver; a CPU kernel on the same bytes would still be better."""
    hidden = {"NPU_HOST_ACCESS": "none", "NPU_HOST_KERNELS": "all", "NPU_FALLBACK": "silent"}
    run_python(COMPOSED + "assert 5 not in rungs.values(), rungs", **hidden)
    run_python(COMPOSED + "assert rungs == {'pixel_shuffle': 4, 'pixel_unshuffle': 4}, rungs")


def test_parts_of_composites_are_native_on_a_discrete_device(discrete):
    discrete(COMPOSED + "assert not set(calls) & set(rungs), rungs")


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch may have CUDA kernels")
def test_platform_cuda_without_cuda_kernels_takes_rung_5(discrete):
    done = discrete(
        """
assert torch_npu._C._twin() == ""
x = torch.arange(6.0).view(2, 3).npu()
assert torch.trace(x).item() == 4 and torch.trace(x + x).item() == 8
# trace is composed here; the sum in it has no kernel of the driver
assert {r["overload"]: r["rung"] for r in torch.npu.fallback_stats()} == {"aten::sum.dim_IntList": 5}
""",
        NPU_DISCRETE_PLATFORM="cuda",
        ASCEND_GLOBAL_LOG_LEVEL="2",
        SLOG_PRINT_TO_STDOUT="1",
    )
    assert done.stdout.count("this torch has no CUDA kernels") == 1, done.stdout
