# SPDX-License-Identifier: Apache-2.0
"""Fake and meta tensors: shapes of npu programs without the memory or the work."""

import pytest
import torch
from small_models import MODELS, make
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv


@pytest.mark.parametrize("name", MODELS)
def test_models_made_and_trained_under_the_mode(name):
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.max_memory_allocated()
    with FakeTensorMode():
        with torch.device("npu"):
            model, x = make(name)
        out = model(x)
        out.sum().backward()
        torch.optim.AdamW(model.parameters()).step()
    real, y = make(name)
    assert isinstance(out, FakeTensor) and out.device == torch.device("npu:0")
    assert out.shape == real(y).shape
    assert all(p.grad.device.type == "npu" for p in model.parameters())
    # The mode keeps numbers, like a batch norm's counter, as real tensors.
    assert torch.npu.max_memory_allocated() <= before + 4096


@pytest.mark.parametrize("name", MODELS)
def test_fakes_of_real_tensors(name):
    model, x = make(name)
    model, x = model.npu(), x.npu()
    mode = FakeTensorMode(shape_env=ShapeEnv())
    state = {k: mode.from_tensor(v) for k, v in model.state_dict(keep_vars=True).items()}
    with mode:
        out = functional_call(model, state, (mode.from_tensor(x),))
    want = model(x)
    assert (out.shape, out.dtype, out.device) == (want.shape, want.dtype, want.device)
    assert out.stride() == want.stride()


def test_a_tensor_larger_than_the_device():
    with FakeTensorMode():
        x = torch.empty(2**44, device="npu")
        assert (x + 1).device == torch.device("npu:0") and x.nbytes == 2**46


def test_devices_do_not_mix():
    with FakeTensorMode():
        with pytest.raises(RuntimeError, match="npu"):
            torch.ones(3, device="npu") + torch.ones(3)
        assert (torch.ones(3, device="npu") + torch.tensor(1.0)).device.type == "npu"
        assert torch.ones(3, device="npu").cpu().device.type == "cpu"


def test_data_dependent_values_are_refused():
    with FakeTensorMode(), pytest.raises(Exception, match="_local_scalar_dense"):
        torch.ones(1, device="npu").item()


def test_deferred_init():
    model, x = make("mlp")
    with torch.device("meta"):
        shell, _ = make("mlp")
    shell = shell.to_empty(device="npu")
    shell.load_state_dict(model.state_dict())
    assert torch.equal(shell(x.npu()).cpu(), model(x))
    shell.load_state_dict({k: v.npu() for k, v in model.state_dict().items()}, assign=True)
    assert all(p.is_npu for p in shell.parameters())


# PyTorch's GRU transposes in place at its end; make_fx reads that tensor's sizes on the wrong side.
@pytest.mark.parametrize(
    "name, mode",
    [(n, m) for m in ("real", "fake", "symbolic") for n in MODELS if (n, m) != ("gru", "symbolic")],
)
def test_make_fx(name, mode):
    model, x = make(name)
    model, x = model.npu().eval(), x.npu()
    with torch.no_grad():
        graph = make_fx(model, tracing_mode=mode, _allow_non_fake_inputs=True)(x)
        torch.testing.assert_close(graph(x), model(x))


def test_flop_counter():
    from torch.utils.flop_counter import FlopCounterMode

    counts = {}
    for device in ("cpu", "npu"):
        model, x = make("conv")
        with FlopCounterMode(display=False) as counter:
            model.to(device)(x.to(device)).sum().backward()
        counts[device] = counter.get_total_flops()
    assert counts["npu"] == counts["cpu"] > 0


def test_fused_attention_under_the_mode():
    with FakeTensorMode():
        q = torch.empty(2, 4, 16, 8, device="npu", dtype=torch.half, requires_grad=True)
        out = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        out.sum().backward()
        assert out.shape == q.shape and q.grad.dtype == torch.half


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3), (2, 0, 1, 3)])
def test_fused_attention_promises_its_strides(order):
    """A compiled program views results as the promise allows."""
    back = [order.index(i) for i in range(4)]
    shape = torch.Size([[2, 4, 6, 8][i] for i in order])
    q = torch.randn(shape, device="npu").permute(back)
    want = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    mode = FakeTensorMode()
    fake = mode.from_tensor(q)
    with mode:
        out = torch.nn.functional.scaled_dot_product_attention(fake, fake, fake)
    assert (out.shape, out.stride()) == (want.shape, want.stride())


def test_properties_under_the_mode():
    with FakeTensorMode():
        assert torch.npu.get_device_properties(0).total_memory > 0
        assert torch.npu.current_device() == 0 and torch.npu.is_available()


def test_backward_before_the_device_was_used(run_python):
    # Autograd's threads of the device start with it.
    run_python("""
import torch, torch_npu
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    x = torch.empty(3, 4, device="npu", requires_grad=True)
    x.sin().sum().backward()
    assert x.grad.shape == x.shape and x.grad.device == torch.device("npu:0")
    torch.empty(3, device="cpu")
""")
    run_python("""
import torch, torch_npu
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    torch.empty(3, 4, requires_grad=True).sin().sum().backward()
assert not torch.npu.is_initialized()
""")


@pytest.mark.parametrize("bias", [True, False])
def test_the_fused_gru_cell_has_shapes(bias):
    # What the real cell gives, and what its fake gives for the same sizes.
    cell = torch.ops.aten._thnn_fused_gru_cell
    back = torch.ops.aten._thnn_fused_gru_cell_backward
    gates, hx = torch.randn(3, 12, device="npu"), torch.randn(3, 4, device="npu")
    biases = [torch.randn(12, device="npu")] * 2 if bias else [None] * 2
    mode = FakeTensorMode(shape_env=ShapeEnv())
    hy, saved = cell(gates, gates, hx, *biases)
    real = [hy, saved, *back(hy, saved, bias)]
    faked = [b if b is None else mode.from_tensor(b) for b in biases]
    with mode:
        g, h = mode.from_tensor(gates), mode.from_tensor(hx)
        hy, saved = cell(g, g, h, *faked)
        fake = [hy, saved, *back(hy, saved, bias)]
    for want, got in zip(real, fake, strict=True):
        assert (want is None) == (got is None)
        if want is not None:
            assert (got.shape, got.dtype, got.device) == (want.shape, want.dtype, want.device)
