# SPDX-License-Identifier: Apache-2.0
"""What a capture of torch.npu.graph leaves as it was, and what its replays see: statistics,
generators, autocast, bits of views, memory that the program only allocated."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.modes


def captured(body):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = body()
    return graph, out


def replayed(graph):
    graph.replay()
    torch.npu.synchronize()


CONJUGATED = {
    "a product with the conjugate": lambda f: f @ f.conj().T,
    "mH": lambda f: f.mH + 0,
    "angle": lambda f: f.conj().angle(),
    "a negated view": lambda f: torch._neg_view(f.real) + 1,
    "the conjugate's imaginary part": lambda f: f.conj().imag * 2,
    "the conjugate of a result": lambda f: (f * 2).conj() * 1j,
    "a result that is a conjugate": lambda f: (f * 2).conj(),
}


@pytest.mark.parametrize("name", CONJUGATED)
def test_conjugate_and_negative_bits_are_captured(name):
    body = CONJUGATED[name]
    f = torch.randn(3, 3, dtype=torch.complex64, device="npu")
    graph, out = captured(lambda: body(f))
    for _ in range(3):
        f.copy_(torch.randn_like(f))
        replayed(graph)
        wanted = body(f.cpu())
        torch.testing.assert_close(
            out.cpu().resolve_conj().resolve_neg(), wanted.resolve_conj().resolve_neg()
        )


def test_batch_norm_counts_replays_only():
    layer, eager = nn.BatchNorm1d(4).npu(), nn.BatchNorm1d(4).npu()
    x = torch.randn(16, 4, device="npu") + 5
    graph, out = captured(lambda: layer(x))
    assert layer.running_mean.tolist() == [0] * 4 and layer.num_batches_tracked.item() == 0
    for _ in range(3):
        replayed(graph)
        assert torch.equal(out, eager(x))
        for name, buffer in eager.named_buffers():
            assert torch.equal(layer.get_buffer(name), buffer), name


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_draws_its_mask_again(reentrant):
    linear, x = nn.Linear(8, 8).npu(), torch.randn(4, 8, device="npu", requires_grad=True)

    def body():
        x.grad = None
        drop = lambda t: nn.functional.dropout(linear(t), 0.5)  # noqa: E731
        y = checkpoint(drop, x, use_reentrant=reentrant)
        y.sum().backward()
        return y.detach() * 1, x.grad

    graph, (y, gradient) = captured(body)
    masks = set()
    for _ in range(3):
        replayed(graph)
        mask = (y != 0).float() * 2
        masks.add(str(mask.tolist()))
        torch.testing.assert_close(gradient, mask @ linear.weight.detach())
    assert len(masks) == 3


def test_generators_are_where_eager_mode_has_them():
    mine, eager = torch.Generator("npu"), torch.Generator("npu")
    for generator in (mine, eager):
        generator.manual_seed(7)
    before = mine.get_state()
    graph, out = captured(lambda: torch.rand(5, device="npu", generator=mine))
    assert torch.equal(mine.get_state(), before)
    for _ in range(3):
        replayed(graph)
        assert torch.equal(out, torch.rand(5, device="npu", generator=eager))
        assert torch.equal(mine.get_state(), eager.get_state())


def test_a_seed_inside_a_capture_is_set_at_every_replay():
    def body():
        torch.npu.manual_seed(3)
        return torch.rand(4, device="npu")

    wanted = body()
    graph, out = captured(body)
    for _ in range(2):
        out.zero_()
        replayed(graph)
        assert torch.equal(out, wanted)


def test_indices_are_captured_and_masks_are_refused():
    x, rows = torch.randn(6, 3, device="npu"), torch.tensor([0, 2, 1], device="npu")
    graph, out = captured(lambda: x[rows, rows])
    for k in range(3):
        rows.copy_(torch.tensor([k, 0, 2]))
        replayed(graph)
        assert torch.equal(out, x[rows, rows])
    with pytest.raises(RuntimeError, match="not permitted while a stream is captured"):
        captured(lambda: x[x > 0])


VIEWS = {
    "reshaped": lambda x: (x * 2).reshape(6, 4).view(torch.int32),
    "odd rows": lambda x: (x.half() + 1).view(8, 3).view(-1).view(torch.int32) * 1,
    "permuted": lambda x: (x.view(4, 6) + 1).t().contiguous().view(torch.int16) * 1,
    "a slice as bytes": lambda x: (x + 1)[4:].view(torch.uint8)[3:7] + 1,
}


@pytest.mark.parametrize("name", VIEWS)
def test_other_dtypes_of_results_are_captured(name):
    body, x = VIEWS[name], torch.arange(24.0, device="npu")
    graph, out = captured(lambda: body(x))
    for k in range(3):
        x.add_(k)
        replayed(graph)
        assert torch.equal(out, body(x))


def test_memory_that_is_only_allocated_is_left_alone():
    made = {}

    def body():
        made["whole"] = torch.empty(4, device="npu")
        made["part"] = torch.empty(8, device="npu")
        made["part"][:4].fill_(1)
        return made["part"][:4] * 2

    graph, out = captured(body)
    made["whole"].fill_(7)
    made["part"].fill_(9)
    for _ in range(3):
        replayed(graph)
        assert made["whole"].tolist() == [7] * 4
        assert made["part"].tolist() == [1] * 4 + [9] * 4
        assert out.tolist() == [2] * 4


def test_replays_are_as_precise_as_the_capture():
    a, b = torch.randn(32, 32, device="npu"), torch.randn(32, 32, device="npu")
    exact = a.cpu().double() @ b.cpu().double()
    graph, out = captured(lambda: a @ b)
    layer, x = nn.Linear(32, 32).npu(), torch.randn(4, 32, device="npu")
    wanted = layer(x).detach()
    graphed = torch.npu.make_graphed_callables(layer, (x.clone(),))
    for _ in range(2):
        with torch.autocast("npu", torch.float16):
            replayed(graph)
            result = graphed(x)
        assert (out.cpu().double() - exact).abs().max() < 1e-4
        torch.testing.assert_close(result, wanted)


def test_the_capturing_graph_is_known():
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        torch.ones(2, device="npu")
        assert torch.npu.NPUGraph.get_currently_capturing_graph() is graph
    with pytest.raises(RuntimeError, match="the current stream is not being captured"):
        torch.npu.NPUGraph.get_currently_capturing_graph()


def test_a_replay_inside_a_capture_is_a_part_of_it():
    x, total = torch.ones(4, device="npu"), torch.zeros(4, device="npu")
    inner, y = captured(lambda: x.mul_(2) + 1)

    def body():
        inner.replay()
        total.add_(y)
        return total * 1, y - x

    outer, (sum_, difference) = captured(body)
    assert x.tolist() == [1] * 4 and total.tolist() == [0] * 4
    value, wanted = 1, 0
    for _ in range(3):
        replayed(outer)
        value *= 2
        wanted += value + 1
        assert x.tolist() == [value] * 4 and sum_.tolist() == total.tolist() == [wanted] * 4
        assert difference.tolist() == [1] * 4


LISTS = {
    "foreach": lambda x: torch._foreach_mul(torch._foreach_add([x, x[0]], 1), 2),
    "copies of rows": lambda x: torch.unbind_copy(x * 2),
    "parts": lambda x: torch.split_with_sizes_copy(x + 1, [1, 3], dim=1),
    "several results": lambda x: (*torch.linalg.qr(x @ x.t()), *torch.sort(x), *torch.std_mean(x)),
    "of the CPU": lambda x: (*torch.linalg.slogdet(x @ x.t() + 3 * torch.eye(3, device=x.device)),),
}


@pytest.mark.parametrize("name", LISTS)
def test_calls_with_several_results_are_captured(name):
    body, x = LISTS[name], torch.randn(3, 4, device="npu")
    graph, out = captured(lambda: body(x))
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        replayed(graph)
        assert all(map(torch.equal, out, body(x)))


def test_two_storages_over_the_same_memory():
    """Which of them a call writes is known by their addresses only: calls keep their order."""
    x = torch.arange(8.0, device="npu")
    part = torch.from_dlpack(x[2:6])
    assert part.untyped_storage()._cdata != x.untyped_storage()._cdata

    def body(x, part):
        before = x * 2
        part.add_(1)
        middle = x * 3
        x.mul_(2)
        return before, middle, part + 0, x.exp()

    graph, out = captured(lambda: body(x, part))
    cpu = x.cpu()
    for _ in range(3):
        replayed(graph)
        for a, b in zip(out, body(cpu, cpu[2:6]), strict=True):
            torch.testing.assert_close(a.cpu(), b)


def test_results_are_written_where_they_are(tmp_path):
    """No copy at the end of a replay, no instruction for views and memory that is only allocated."""
    x = torch.ones(4, 4, device="npu")

    def body():
        out = torch.empty(16, device="npu")
        torch.mul(x.view(-1), 2, out=out)
        return out.view(4, 4).t() + 1

    graph, _ = captured(body)
    graph.debug_dump(str(tmp_path / "dump"))
    assert (tmp_path / "dump").read_text().split() == ["aten::mul.out", "aten::add.Tensor"]


def test_memory_that_became_smaller_is_told():
    x = torch.ones(64, device="npu")
    graph, out = captured(lambda: x * 2)
    x.untyped_storage().resize_(0)
    with pytest.raises(
        RuntimeError, match="has 0 bytes of memory; it had 256 when it was captured"
    ):
        graph.replay()
    x.untyped_storage().resize_(256)
    x.fill_(3)
    replayed(graph)
    assert out.tolist() == [6] * 64


def test_an_error_that_the_program_catches_leaves_the_capture_whole():
    x = torch.ones(3, device="npu")

    def body():
        y = x * 2
        with pytest.raises(RuntimeError):
            y @ torch.ones(5, device="npu")
        return y + 1

    graph, out = captured(body)
    x.fill_(4)
    replayed(graph)
    assert out.tolist() == [9] * 3


def test_sparse_tensors_are_refused():
    sparse = torch.eye(3).to_sparse().to("npu")
    x = torch.ones(3, 3, device="npu")
    with pytest.raises(RuntimeError, match="only strided tensors are captured"):
        captured(lambda: torch.sparse.mm(sparse, x))
    assert (x + 1).sum().item() == 18


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["npu", "inductor"])
def test_a_compiled_function_is_captured(backend):
    torch._dynamo.reset()
    x = torch.randn(8, 8, device="npu")
    function = torch.compile(lambda x: torch.relu(x @ x) * 2 + x.sum(), backend=backend)
    for _ in range(2):
        function(x)
    graph, out = captured(lambda: function(x))
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        replayed(graph)
        torch.testing.assert_close(out, torch.relu(x @ x) * 2 + x.sum())


def test_autocast_and_second_derivatives_are_captured():
    x = torch.randn(4, 4, device="npu", requires_grad=True)

    def body(x):
        with torch.autocast(x.device.type, torch.bfloat16):
            y = (x @ x).float()
        (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        return y.detach() * 1, first.detach() * 1, second

    graph, out = captured(lambda: body(x))
    for _ in range(2):
        with torch.no_grad():
            x.copy_(torch.randn(4, 4))
        replayed(graph)
        assert all(map(torch.equal, out, body(x)))
