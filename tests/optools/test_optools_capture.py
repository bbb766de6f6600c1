# SPDX-License-Identifier: Apache-2.0
"""OpCapture: what was captured is what was there, bit for bit."""

import os
import threading
from pathlib import Path

import op_tools
import pytest
import torch
from op_tools import _C, captures
from torch import nn


def capture(body, **options):
    tool = op_tools.OpCapture()
    for name, value in options.items():
        setattr(tool, name, value)
    with tool:
        body()
    return captures.open(tool.folder), tool


def only(found, op):
    (record,) = found.select(op=op)
    return record


def bits(tensor):
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return tensor.reshape(-1).view(torch.uint8) if tensor.dim() == 0 else tensor.view(torch.uint8)


def assert_same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    assert got.stride() == want.stride()
    assert torch.equal(bits(got), bits(want))


def test_a_training_step(device):
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(3, 8, device=device)
    _C.set_step(0)

    def body():
        for _ in range(2):
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()

    found, tool = capture(body)
    assert found.problems == [] and found.finished
    assert len(found) == tool.totals()["records"] == found.end["records"]
    assert {record.phase for record in found} == {"forward", "backward", "optimizer"}
    assert {record.step for record in found} == {0, 1}
    numbers = [record.number for record in found]
    assert numbers == sorted(set(numbers))
    gelu = next(found.select(op="aten::gelu"))
    assert gelu.module == "1"
    assert "test_optools_capture.py" in gelu.site
    backward = next(found.select(op="aten::gelu_backward"))
    assert backward.forward == gelu.number and backward.module == "1"
    assert backward.args[1].hash == gelu.args[0].hash
    assert str(gelu.args[0].device).startswith(device)
    assert tool.unread().keys() <= {"uninitialised"}


def test_every_kernel_can_be_called_again(device):
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)
    x = torch.randn(3, 8, device=device)
    found, _ = capture(lambda: model(x).softmax(-1).log().sum().backward(), views=True)
    again = 0
    for record in found:
        args, kwargs = record.load(device)
        result = captures.resolve(record.op)(*args, **kwargs)
        wanted = record.load_outputs(device)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        for got, want in zip(results, wanted, strict=True):
            assert torch.equal(got, want), record.op
            again += 1
    assert again > 20


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.complex64, torch.complex128, torch.bool, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip


def bytes_as(dtype, count):
    if dtype == torch.bool:
        return torch.arange(count) % 3 == 0
    raw = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8)
    return raw.view(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_bit_for_bit(on_cpu, dtype):
    x = bytes_as(dtype, 35).view(5, 7)  # any bits at all: NaN payloads, subnormals, -0
    views = [
        x, x.t(), x[1:4], x[:, 2:5], x[::2, 1::3], x[0, 0], x[:0], x[:1].expand(6, 7),
        x[:, :1].expand(5, 4), x.as_strided((4, 3), (2, 1)), x[:, 1:3].t(), x.view(5, 7, 1),
        x[None, :, ::2].expand(3, 5, 4), x[2],
    ]  # fmt: skip
    found, _ = capture(lambda: [torch.ops.aten.alias(view) for view in views], views=True)
    records = list(found.select(op="aten::alias"))
    assert len(records) == len(views)
    for record, view in zip(records, views, strict=True):
        assert_same(record.args[0].load(), view)
        assert_same(record.outputs[0].load(), view)


def test_strided_views_on_a_device(device):
    x = torch.randn(6, 8, 4, device=device)
    views = [x, x.transpose(0, 2), x[:, 5], x[1::2, 1::2, ::2], x[3:4].expand(7, 8, 4), x[..., :2]]
    found, _ = capture(lambda: [torch.ops.aten.alias(view) for view in views], views=True)
    for record, view in zip(found.select(op="aten::alias"), views, strict=True):
        assert_same(record.args[0].load(), view)
        again = record.args[0].load(device)
        assert again.device.type == device and again.stride() == view.stride()


def test_conjugate_and_negative_views(on_cpu):
    x = torch.randn(4, dtype=torch.complex64)
    found, _ = capture(lambda: torch.ops.aten._conj(x), views=True)
    conjugate = only(found, "aten::_conj").outputs[0].load()
    assert conjugate.is_conj() and torch.equal(conjugate, x.conj())


def test_a_view_stores_its_own_elements_only(on_cpu):
    base = torch.randn(1 << 20)
    found, tool = capture(lambda: base[5:6].mul(2))
    assert tool.totals()["blob_bytes"] < 1000
    assert_same(only(found, "aten::mul.Tensor").args[0].load(), base[5:6])
    view = only(found, "aten::slice.Tensor")
    assert view.args[0].reason == "a view only"
    args, kwargs = view.load()  # memory of that shape will do
    again = captures.resolve(view.op)(*args, **kwargs)
    assert again.storage_offset() == 5 and again.shape == view.outputs[0].shape
    found, tool = capture(lambda: base[5:6].mul(2), views=True)
    assert tool.totals()["blob_bytes"] > 4 << 20


def test_in_place_operators_are_read_before_and_after(device):
    x = torch.arange(6.0, device=device)
    found, _ = capture(lambda: x.mul_(2).add_(x))
    mul = only(found, "aten::mul_.Tensor")
    assert mul.args[0].load().tolist() == [0, 1, 2, 3, 4, 5]
    assert mul.outputs[0].load().tolist() == [0, 2, 4, 6, 8, 10]
    add = only(found, "aten::add_.Tensor")
    args, kwargs = add.load()
    assert args[0] is args[1]  # one tensor then, one tensor now
    assert captures.resolve(add.op)(*args, **kwargs).tolist() == [0, 4, 8, 12, 16, 20]


def test_copies_are_right_when_the_tensor_changes_later(on_cpu):
    x = torch.zeros(200_000)

    def body():
        for i in range(60):
            x.fill_(i)
            x.neg()
            x.numpy()[:] = -1  # no operator, no version

    found, _ = capture(body)
    negated = list(found.select(op="aten::neg"))
    assert len(negated) == 60
    for i, record in enumerate(negated):
        assert record.args[0].load().unique().tolist() == [i]
        assert record.outputs[0].load().unique().tolist() == [-i]


def test_arguments_written_and_not_returned(device):
    xs = [torch.ones(3, device=device), torch.ones(2, device=device)]
    found, _ = capture(lambda: torch._foreach_add_(xs, 2.0))
    records = list(found.select(op="aten::_foreach_add_.Scalar"))
    if not records:
        pytest.skip("the device has no such kernel")
    (record,) = records
    assert [t.load().tolist() for t in record.args[0]] == [[1, 1, 1], [1, 1]]
    assert record.args[1] == 2.0
    assert [t.load().tolist() for t in record.after[0]] == [[3, 3, 3], [3, 3]]


def test_out_arguments(device):
    x, out = torch.ones(3, device=device), torch.empty(3, device=device)
    found, _ = capture(lambda: torch.add(x, x, out=out))
    record = only(found, "aten::add.out")
    args, kwargs = record.load(device)
    assert captures.resolve(record.op)(*args, **kwargs).tolist() == [2, 2, 2]
    assert kwargs["out"].tolist() == [2, 2, 2]


def test_equal_contents_are_stored_once(on_cpu):
    weight = torch.randn(256, 256)

    def body():
        for _ in range(20):
            weight.t().mul(1.0)  # the same bytes each time, and as the weight's
            weight.clone()

    found, tool = capture(body)
    totals = tool.totals()
    assert totals["blobs"] == 2 and totals["blob_bytes"] == weight.nbytes + 8  # and 1.0
    assert totals["seen_bytes"] > 60 * weight.nbytes
    assert_same(next(found.select(op="aten::mul.Tensor")).args[0].load(), weight.t())


def test_arguments_that_are_no_tensors(on_cpu):
    x = torch.randn(2, 3, 4, 4)
    z = x.to(torch.complex64)

    def body():
        torch.ops.aten._to_copy(
            x, dtype=torch.float64, device="cpu", memory_format=torch.channels_last
        )
        torch.ops.aten.sum.dim_IntList(x, [1, 2], True)
        torch.ops.aten.add.Scalar(x, 1.5, 2)
        torch.ops.aten.mul.Scalar(z, 1 + 2j)
        torch.ops.aten.full([2], float("nan"), layout=torch.strided)
        torch.ops.aten.gelu(x, approximate="tanh")
        torch.ops.aten.index.Tensor(x, [None, torch.tensor([1, 0])])
        torch.ops.aten.cat([x, x], 1)

    found, _ = capture(body)
    copy = only(found, "aten::_to_copy")
    assert copy.args[1:] == [torch.float64, None, torch.device("cpu"), None, False, torch.channels_last]  # fmt: skip
    assert only(found, "aten::sum.dim_IntList").args[1:3] == [[1, 2], True]
    assert only(found, "aten::add.Scalar").args[1:] == [1.5, 2]
    assert only(found, "aten::mul.Scalar").args[1] == 1 + 2j
    full = only(found, "aten::full")
    assert str(full.args[1]) == "nan" and full.args[3] is torch.strided
    assert only(found, "aten::gelu").args[1] == "tanh"
    index = only(found, "aten::index.Tensor").args[1]
    assert index[0] is None and index[1].load().tolist() == [1, 0]
    assert [t.shape for t in only(found, "aten::cat").args[0]] == [(2, 3, 4, 4)] * 2
    for record in found:
        args, kwargs = record.load()
        captures.resolve(record.op)(*args, **kwargs)


def test_random_operators_repeat(on_cpu):
    x = torch.ones(1000)
    found, _ = capture(lambda: torch.ops.aten.bernoulli_.float(x, 0.5))
    record = only(found, "aten::bernoulli_.float")
    args, kwargs = record.load()
    generator = torch.Generator()
    generator.set_state(record.rng.load())
    kwargs["generator"] = generator
    assert torch.equal(captures.resolve(record.op)(*args, **kwargs), x)


def test_tensors_that_cannot_be_read_are_recorded_as_such(on_cpu, capsys):
    dense = torch.eye(3)
    sparse = dense.to_sparse()
    quantised = torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])

    def body():
        torch.sparse.mm(sparse, dense)
        quantised.dequantize()
        nested * 2

    found, tool = capture(body)
    reasons = {ref.reason for record in found for _, ref in record.tensors()}
    assert {"sparse", "quantised", "nested"} <= reasons
    assert {"sparse", "quantised", "nested"} <= tool.unread().keys()
    assert "OpCapture: 1 tensor without contents: sparse" in capsys.readouterr().out
    ref = next(ref for r in found for _, ref in r.tensors() if ref.reason == "sparse")
    with pytest.raises(captures.CaptureError, match="without contents: sparse"):
        ref.load()


def test_a_call_that_raised(device):
    a = torch.ones(2, 3, device=device)
    tool = op_tools.OpCapture()
    with pytest.raises(RuntimeError), tool:
        torch.mm(a, a)
    record = only(captures.open(tool.folder), "aten::mm")
    assert record.raised and record.outputs == []
    assert record.args[0].load().tolist() == a.tolist()


def test_lists_of_operators_and_apis(device, monkeypatch):
    monkeypatch.setenv("OP_CAPTURE_LIST", "torch.nn.functional.linear,aten::exp")
    monkeypatch.setenv("OP_CAPTURE_DISABLE_LIST", "aten::t")
    layer = nn.Linear(3, 2).to(device)
    found, _ = capture(lambda: layer(torch.ones(1, 3, device=device)).exp().sin().sum().backward())
    ops = {record.op for record in found}
    assert {"aten::addmm", "aten::exp", "aten::mm"} <= ops
    assert not ops & {"aten::sin", "aten::cos", "aten::t"}
    addmm = only(found, "aten::addmm")
    assert addmm.api == "torch.nn.functional.linear" and addmm.api_call > 0


def test_limits_of_calls_steps_and_tensors(on_cpu, monkeypatch):
    x = torch.ones(4)
    found, _ = capture(lambda: [x.neg() for _ in range(9)] + [x.abs()], max_calls=3)
    assert [r.op for r in found].count("aten::neg") == 3
    assert [r.op for r in found].count("aten::abs") == 1

    def steps():
        for step in range(6):
            _C.set_step(step)
            x.neg()

    monkeypatch.setenv("OP_CAPTURE_STEPS", "2-3")
    found, _ = capture(steps)
    assert [r.step for r in found] == [2, 3]
    monkeypatch.delenv("OP_CAPTURE_STEPS")
    big = torch.ones(1 << 19)
    found, tool = capture(lambda: [big.neg(), x.neg()], max_tensor_mb=1)
    assert [r.args[0].reason for r in found] == ["larger than asked for", None]
    assert tool.unread() == {"larger than asked for": 2}
    _C.set_step(0)


def test_the_limit_of_bytes_stops_the_capture_and_nothing_else(on_cpu, capfd):
    done = []

    def body():
        for i in range(40):
            done.append(torch.full((1 << 16,), float(i)).neg().sum().item())

    found, tool = capture(body, max_mb=2)
    assert len(done) == 40
    assert found.problems == [] and found.finished
    assert 0 < tool.totals()["blob_bytes"] <= 2 << 20
    assert tool.totals()["refused"] > 0
    for record in found:
        record.load()
        record.load_outputs()
    err = capfd.readouterr().err
    assert err.count("stopped capturing, the program goes on: the limit of 2 MiB") == 1


def test_contents_by_hash_or_not_at_all(on_cpu):
    x = torch.randn(100)
    full, _ = capture(lambda: x.neg())
    hashed, tool = capture(lambda: x.neg(), content="hash")
    assert tool.totals()["blobs"] == 0
    assert hashed[0].args[0].hash == full[0].args[0].hash
    with pytest.raises(captures.CaptureError, match="no blob"):
        hashed[0].args[0].load()
    bare, _ = capture(lambda: x.neg(), content="none")
    assert bare[0].args[0].hash is None and bare[0].args[0].shape == (100,)


def test_threads(on_cpu):
    def work(seed):
        x = torch.full((500,), float(seed))
        for _ in range(50):
            x = x.add(1)

    def body():
        threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found, _ = capture(body)
    assert found.problems == []
    adds = list(found.select(op="aten::add.Tensor"))
    assert len(adds) == 200 and len({r.thread for r in adds}) == 4
    for record in adds:
        before, after = record.args[0].load(), record.outputs[0].load()
        assert torch.equal(before + 1, after)


def test_a_small_queue_loses_nothing(on_cpu, monkeypatch):
    monkeypatch.setenv("OP_CAPTURE_QUEUE_MB", "1")
    monkeypatch.setenv("OP_CAPTURE_PACK_MB", "3")
    found, tool = capture(lambda: [torch.full((1 << 18,), float(i)).neg() for i in range(24)])
    assert tool.totals()["packs"] > 5 and found.problems == []
    negated = list(found.select(op="aten::neg"))
    assert len(negated) == 24
    for i, record in enumerate(negated):
        assert record.args[0].load().unique().tolist() == [i]


def test_the_safetensors_library_reads_packs(on_cpu):
    from safetensors.torch import load_file

    x = torch.randn(33)
    found, tool = capture(lambda: [x.neg(), x.bfloat16().neg()])
    packs = [f for f in os.listdir(tool.folder) if f.endswith(".safetensors")]
    assert len(packs) == 1
    blobs = load_file(os.path.join(tool.folder, packs[0]))
    assert len(blobs) == tool.totals()["blobs"]
    assert torch.equal(blobs[found[0].args[0].hash].view(torch.float32), x)
    for name, raw in blobs.items():
        assert _C.hash_bytes(raw.numpy()) == name


def test_the_dispatcher_is_as_before_and_forks_are_harmless(on_cpu):
    before = _C.dump_dispatcher()
    tool = op_tools.OpCapture()
    tool.start()
    torch.ones(3).neg()
    child = os.fork()
    if child == 0:
        torch.ones(3).abs()
        tool.stop()
        del tool
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    torch.ones(3).neg()
    tool.stop()
    assert _C.dump_dispatcher() == before
    ops = [record.op for record in captures.open(tool.folder)]
    assert ops.count("aten::neg") == 2 and "aten::abs" not in ops


def test_malformed_variables_are_named(monkeypatch):
    for name, value in (
        ("OP_CAPTURE_CONTENT", "some"),
        ("OP_CAPTURE_STEPS", "7-3"),
        ("OP_CAPTURE_MAX_MB", "lots"),
        ("OP_CAPTURE_FORMAT", "pickle"),
    ):
        monkeypatch.setenv(name, value)
        with pytest.raises(ValueError, match=name):
            op_tools.OpCapture().start()
        monkeypatch.delenv(name)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.mul(2)

    @staticmethod
    def backward(ctx, gradient):
        return nn.functional.gelu(gradient).mul(0).add(gradient.mul(2))


class Doubling(nn.Module):
    def forward(self, x):
        return Doubled.apply(x.sin()).cos()


def test_calls_in_a_users_backward_have_their_line_and_module(device):
    """And those of a hook. PyTorch's own backward operators have the line of their forward call."""
    model = nn.Sequential(Doubling(), nn.ReLU()).to(device)
    x = torch.randn(2, 4, device=device, requires_grad=True)

    def body():
        y = model(x)
        y.register_hook(lambda gradient: gradient.div(1))
        y.sum().backward()

    found, _ = capture(body)
    backward = [record for record in found if record.phase == "backward"]
    places = {}
    for record in backward:
        places.setdefault(record.op, set()).add(
            (str(record.site).rpartition(" ")[2], record.module)
        )
    assert places["aten::gelu"] == places["aten::add.Tensor"] == {("backward", "0")}
    assert places["aten::div.Tensor"] == {("<lambda>", "1")}
    assert places["aten::cos"] == {("forward", "0")}  # of sin
    assert places["aten::threshold_backward"] == {("body", "1")}
    lines = {record.op: str(record.site).split(" ")[0].rpartition(":")[2] for record in backward}
    source = Path(__file__).read_text().splitlines()
    assert "gelu(gradient)" in source[int(lines["aten::gelu"]) - 1]
    assert "x.sin()" in source[int(lines["aten::cos"]) - 1]
