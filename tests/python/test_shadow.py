# SPDX-License-Identifier: Apache-2.0
"""Rung 5 keeps host copies of what CPU kernels used (src/runtime/shadow.h): they save copies and are never stale.

On tests/drivers/discrete, whose memory host code cannot read. It counts the bytes it copies, and its only
arithmetic is a float32 add, so `x * 1` is always a CPU kernel that reads x.
"""

import pytest
from faulty import built_driver

HEAD = """
import ctypes, os, sys, torch, torch_npu
library = ctypes.CDLL(os.environ["NPU_DRIVER"])
def traffic():
    down, up = ctypes.c_uint64(), ctypes.c_uint64()
    library.npu_discrete_traffic(ctypes.byref(down), ctypes.byref(up))
    return down.value
def downloaded(work):
    before = traffic()
    work()
    return traffic() - before
def read(x):
    "What a CPU kernel sees of x."
    return (x * 1).cpu()
def shadows():
    return torch_npu._C._shadow_stats()
"""


@pytest.fixture
def discrete(run_python):
    def run(code, **env):
        variables = {"NPU_FALLBACK": "silent", "NPU_DISCRETE_DELAY_US": "20", **env}
        return run_python(HEAD + code, NPU_DRIVER=built_driver("discrete"), **variables)

    return run


def test_unchanged_arguments_are_copied_once(discrete):
    discrete("""
w = torch.randn(64, 64).npu()
assert downloaded(lambda: w * 2) == w.nbytes
assert downloaded(lambda: [w * i for i in range(5)]) == 0
assert downloaded(lambda: [w[3] * 2, w.t() * 2, w[:, 5:] * 2, w.view(-1)[7:9] * 2]) == 0
# What a CPU kernel made or wrote is known too, so a chain of them copies nothing down.
y = w * 2
assert downloaded(lambda: torch.tanh(torch.exp(y) * w)) == 0
y.mul_(2)
torch.mul(w, 3, out=y)
assert downloaded(lambda: (y * 2).clamp_(0).mul_(w)) == 0
# A small view of a large storage is copied alone.
table = torch.randn(4096).npu()
assert downloaded(lambda: table[8:16] * 2) == 32
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8, bias=False) for _ in range(3))).npu().double()
x = torch.randn(4, 8, dtype=torch.float64).npu()
assert downloaded(lambda: model(x)) == x.nbytes + sum(p.nbytes for p in model.parameters())
assert downloaded(lambda: [model(x) for _ in range(3)]) == 0
""")


WRITES = """
other = lambda like: torch.arange(float(like.numel())).view(like.shape).to(like.device)
class Holder(torch.nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = torch.nn.Parameter(w)
def load(w):
    Holder(w).load_state_dict({"w": other(w)})
def optimizer(kind, **options):
    def write(w):
        p = torch.nn.Parameter(w)
        p.grad = other(w)
        kind([p], lr=0.1, **options).step()
    return write
def assign_data(w):
    w.data = other(w) + 3
def assign_storage(w):
    w.set_(other(w).untyped_storage(), 0, w.shape)
def setitem(*at):
    def write(w):
        w[at] = 7.5
    return write
def grow(w):
    w.resize_(20, 20).fill_(3)
    w.resize_(8, 8)
indices = lambda w: torch.tensor([0, 3, 5]).to(w.device)
writes = {
    "native": lambda w: w.add_(1),
    "cpu kernel": lambda w: w.mul_(2),
    "copy from host": lambda w: w.copy_(torch.full((8, 8), 4.0)),
    "copy from strided host": lambda w: w.copy_(torch.arange(64.0).view(8, 8).t()),
    "queued copy": lambda w: w.copy_(torch.full((8, 8), 5.0).pin_memory(), non_blocking=True),
    "cast copy": lambda w: w.copy_(other(w).double()),
    "copy on device": lambda w: w.copy_(other(w)),
    "transposed copy": lambda w: w.t().copy_(other(w)),
    "copy from the other device": lambda w: w.copy_(other(w).to(w.device if w.is_cpu else "npu:1")),
    "fill": lambda w: w.fill_(9), "zero": lambda w: w.zero_(), "masked": lambda w: w.masked_fill_(w > 0, 1),
    "row": setitem(3), "column": setitem(slice(None), 2), "element": setitem(1, 1),
    "view": lambda w: w[2:4].add_(1), "strided view": lambda w: w[::2, 1::3].add_(1),
    "view by cpu": lambda w: w[::2, 1::3].mul_(3), "flat": lambda w: w.view(-1)[10:20].mul_(3),
    "bits": lambda w: w.view(torch.int32).copy_(other(w).to(torch.int32)),
    "index_put": lambda w: w.index_put_((indices(w),), other(w)[:3]),
    "scatter": lambda w: w.scatter_add_(0, indices(w).view(3, 1), other(w)),
    "out native": lambda w: torch.add(w, 2, out=w), "out by cpu": lambda w: torch.mul(w, 2, out=w),
    "out view": lambda w: torch.mul(w[0], 2, out=w[1]),
    "foreach": lambda w: torch._foreach_add_([w], [other(w)]),
    "foreach by cpu": lambda w: torch._foreach_mul_([w, w[0]], 2.0),
    "sgd": optimizer(torch.optim.SGD, momentum=0.9), "adamw": optimizer(torch.optim.AdamW),
    "fused": optimizer(torch.optim.AdamW, fused=True), "one by one": optimizer(torch.optim.AdamW, foreach=False),
    "data": assign_data, "set_": assign_storage, "load": load, "grow": grow,
    "storage copy": lambda w: w.untyped_storage().copy_(other(w).untyped_storage()),
    "storage fill": lambda w: w.untyped_storage().fill_(0),
    "swap": lambda w: torch.utils.swap_tensors(w, other(w)),
}
start = torch.randn(8, 8)
"""


def test_every_write_is_seen(discrete):
    discrete(
        WRITES
        + """
for name, write in writes.items():
    a, b = start.clone(), start.npu()
    for i in range(3):  # a shadow of the start, of what was written, of what was written on that
        for at in (slice(None), slice(2, 3), (slice(None), slice(1, 7, 2))):
            assert torch.equal(read(b[at]), b[at].cpu()), (name, i, at)
        write(a), write(b)
        torch.testing.assert_close(read(b), a, msg=lambda text: f"{name} {i}: {text}")
        assert torch.equal(read(b), b.cpu()), (name, i, read(b), b.cpu())
assert shadows()["hits"] > 100
for draw in ("normal_", "uniform_", "bernoulli_", "exponential_"):
    b = start.npu()
    for i in range(3):
        seen = read(b)
        getattr(b, draw)()
        assert torch.equal(read(b), b.cpu()) and not torch.equal(read(b), seen), draw
""",
        NPU_DISCRETE_DELAY_US="0",
    )


def test_freed_memory_is_forgotten(discrete):
    discrete("""
def fresh(value):
    return torch.full((512,), float(value)).npu()
for i in range(20):
    x = fresh(i)
    assert read(x).eq(i).all()
    assert shadows()["shadows"] <= 3, shadows()
    del x
assert shadows()["bytes"] == 0, shadows()
torch.npu.empty_cache()
x = fresh(3)
assert read(x).eq(3).all()
pool = torch.npu.MemPool() if hasattr(torch.npu, "MemPool") else None
if pool is not None:
    for i in range(3):
        with torch.npu.use_mem_pool(pool):
            y = fresh(i)
            assert read(y).eq(i).all()
            del y
""")


def test_streams_that_wait_for_each_other(discrete):
    discrete(
        """
side = torch.npu.Stream()
main = torch.npu.current_stream()
w = torch.zeros(64).npu()
for i in range(6):
    read(w)
    side.wait_stream(main)
    with torch.npu.stream(side):
        w.add_(1)
        done = side.record_event()
    if i % 2:
        w * 1  # unordered: may see either, but must leave nothing stale behind
    main.wait_event(done)
    assert read(w).eq(i + 1).all(), (i, read(w))
    with torch.npu.stream(side):
        assert read(w).eq(i + 1).all()
""",
        NPU_DISCRETE_DELAY_US="3000",
    )


def test_two_devices(discrete):
    discrete("""
x, y = torch.ones(16, device="npu:0"), torch.full((16,), 2.0, device="npu:1")
for i in range(3):
    read(x), read(y)
    y.copy_(x); x.mul_(2)
    assert torch.equal(read(y), torch.full((16,), 2.0**i)) and torch.equal(read(x), torch.full((16,), 2.0 ** (i + 1)))
""")


def test_threads_write_and_read_views_of_one_storage(discrete):
    discrete(
        """
import threading
base = torch.zeros(6, 64).npu()
torch.npu.synchronize()
failures = []
def work(row):
    mine, stream = base[row], torch.npu.Stream()
    try:
        with torch.npu.stream(stream):
            for i in range(40):
                (mine.add_ if i % 2 else mine.sub_)(-1 if i % 3 else 1)
                expected = mine.cpu()
                assert torch.equal(read(mine), expected), (row, i)
                mine.mul_(2)
                assert torch.equal(read(mine), expected * 2), (row, i)
                mine.copy_(expected)
                stream.synchronize()
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(row,)) for row in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not failures, failures
""",
        NPU_DISCRETE_DELAY_US="0",
    )


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
            c, d = c * 1, d * 1  # the old block is free for somebody else
    assert torch.equal(read(b), a) and torch.equal(b.cpu(), a) and torch.equal(read(d), c), seed
assert shadows()["hits"] > 0
"""


@pytest.mark.parametrize("limit", ["1G", "2K"])
def test_random_programs(discrete, limit):
    discrete(RANDOM.replace("SEEDS", "60"), NPU_SHADOW_MEMORY=limit, NPU_DISCRETE_DELAY_US="0")


def test_random_programs_on_the_host_driver(run_python):
    code = RANDOM.replace("SEEDS", "60").replace("\nassert shadows", "\nif False: shadows")
    head = "import torch, torch_npu\nread = lambda x: torch.fmod(x, 1000).cpu()\n"
    run_python(head + code, NPU_HOST_ACCESS="none", NPU_HOST_ASYNC="1")


def test_the_bound_is_honoured(discrete):
    discrete(
        """
import re
def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
tensors = [torch.full((1 << 18,), float(i)).npu() for i in range(48)]
read(tensors[0])
before = anonymous()
for _ in range(2):
    for i, t in enumerate(tensors):
        assert torch.sum(t * 0).item() == 0
        assert t[:1].item() == i
        assert shadows()["bytes"] <= 4 << 20, shadows()
assert anonymous() - before < 16 << 20, anonymous() - before
""",
        NPU_SHADOW_MEMORY="4M",
        NPU_DISCRETE_DELAY_US="0",
        MALLOC_MMAP_THRESHOLD_="65536",  # what is freed leaves the process, holes in the heap do not count
    )


def test_zero_turns_it_off(discrete):
    discrete(
        """
assert shadows() is None
w = torch.randn(64).npu()
assert downloaded(lambda: [w * 2 for _ in range(3)]) == 3 * w.nbytes
""",
        NPU_SHADOW_MEMORY="0",
    )


def test_a_wrong_bound_is_refused(discrete):
    with pytest.raises(AssertionError, match="NPU_SHADOW_MEMORY"):
        discrete("torch.ones(2).npu() * 2", NPU_SHADOW_MEMORY="much")


def test_a_stream_handle_given_out_ends_it(discrete):
    discrete("""
stream = torch.npu.Stream()
hash(stream), repr(stream), {stream: 1}
w = torch.randn(64).npu()
w * 2
assert shadows() is not None and downloaded(lambda: w * 2) == 0
stream.npu_stream
assert shadows() is None and downloaded(lambda: w * 2) == w.nbytes
""")


def test_memory_of_the_programs_own_allocator_has_none(discrete):
    discrete("""
w = torch.randn(64).npu()
w * 2
assert shadows() is not None
torch.npu.memory.NPUPluggableAllocator(os.environ["NPU_DRIVER"], "npu_discrete_poke", "npu_discrete_traffic")
assert shadows() is None and downloaded(lambda: w * 2) == w.nbytes
""")


def test_another_tensor_over_the_same_storage(discrete):
    discrete("""
w = torch.randn(64).npu()
w * 2
alias = torch.empty(0, device="npu").set_(w.untyped_storage())  # the same storage: the same shadow
assert downloaded(lambda: alias * 2) == 0
alias.mul_(3)
assert torch.equal(read(w), alias.cpu())
""")


def test_a_kernel_that_keeps_its_argument(discrete):
    discrete("""
lib = torch.library.Library("keeps", "DEF")
lib.define("see(Tensor x) -> Tensor")
lib.define("write(Tensor(a!) x) -> ()")
kept = []
def see(x):
    kept.append(x)
    return x.clone()
def write(x):
    kept.append(x)
    x.mul_(2)
lib.impl("see", see, "CPU")
lib.impl("write", write, "CPU")
w = torch.ones(64).npu()
read(w)
torch.ops.keeps.see(w)
kept[-1].fill_(9)  # its own memory by now
assert read(w).eq(1).all()
torch.ops.keeps.write(w)
kept[-1].fill_(9)
assert read(w).eq(2).all() and w.cpu().eq(2).all()
w.mul_(2)
assert kept[-1].eq(9).all() and read(w).eq(4).all()
""")


def test_a_kernel_that_writes_what_it_says_it_only_reads(discrete):
    discrete("""
lib = torch.library.Library("lies", "DEF")
lib.define("read(Tensor x) -> Tensor")
lib.impl("read", lambda x: x.add_(1).clone(), "CPU")
w = torch.ones(64).npu()
for shadowed in (False, True):
    torch.ops.lies.read(w)
    assert torch.equal(read(w), w.cpu()), shadowed
""")


def test_an_error_in_the_kernel_leaves_nothing_stale(discrete):
    discrete("""
lib = torch.library.Library("fails", "DEF")
lib.define("half(Tensor(a!) x) -> ()")
lib.define("out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
def half(x):
    x[:32] = 7
    raise ValueError("no")
def out(x, out):
    out[:3] = 5
    raise ValueError("no")
lib.impl("half", half, "CPU")
lib.impl("out", out, "CPU")
w, o = torch.ones(64).npu(), torch.ones(64).npu()
for call in (lambda: torch.ops.fails.half(w), lambda: torch.ops.fails.out(w, out=o)):
    read(w), read(o)
    try:
        call()
    except ValueError:
        pass
    assert torch.equal(read(w), w.cpu()) and torch.equal(read(o), o.cpu())
assert w.cpu()[:32].eq(7).all()
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


def test_an_address_given_out_ends_the_shadow_of_that_memory(discrete):
    discrete("""
import io
def poke(address, value):
    torch.npu.synchronize()
    library.npu_discrete_poke(ctypes.c_void_p(address), ctypes.c_float(value))
w, v = torch.ones(64).npu(), torch.ones(64).npu()
read(w), read(v)
address = w[3:].data_ptr()
for value in (5.0, 6.0):
    poke(address, value)
    assert read(w)[3] == value and read(w).sum() == 63 + value
assert downloaded(lambda: v * 2) == 0
address = v.untyped_storage().data_ptr()
poke(address, 7.0)
assert read(v)[0] == 7
del v, w
x = torch.ones(64).npu()  # perhaps in the same block: nobody has this tensor's address
x * 2
torch.save(x, io.BytesIO())  # looks at addresses only
assert downloaded(lambda: x * 2) == 0
""")


def test_a_forked_child_is_told(discrete):
    discrete("""
w = torch.ones(64).npu()
w * 2
pid = os.fork()
if pid == 0:
    try:
        w * 2
    except RuntimeError:
        os._exit(0)
    os._exit(1)
assert os.waitpid(pid, 0)[1] == 0
assert read(w).eq(1).all()
""")


def test_the_report_counts_what_was_copied(discrete):
    discrete("""
def row():
    return next(r for r in torch.npu.fallback_stats() if r["overload"].startswith("aten::mul"))
w = torch.randn(64, 64).npu()
y = w * w
assert row()["bytes"] == 2 * w.nbytes and row()["rung"] == 5, row()
y = w * w
assert row()["bytes"] == 3 * w.nbytes, row()
""")
