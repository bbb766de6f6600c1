# SPDX-License-Identifier: Apache-2.0
"""What ditorch's tools did not see, one test each: reference/ditorch.md 4.3."""

import op_tools
import pytest
import torch
from optools_helpers import in_thread
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def seen(run, phase=None):
    """Operators of a block, with overloads cut off."""
    tool = op_tools.OpObserve()
    with tool:
        run()
    return [r["op"].split(".")[0] for r in tool.records() if phase in (None, r["phase"])]


def told(run, capsys, monkeypatch, form="ditorch"):
    """What ditorch's lines tell of a block."""
    monkeypatch.setenv("OP_TOOLS_VERBOSE", form)
    capsys.readouterr()
    with op_tools.OpObserve():
        run()
    return capsys.readouterr().out


def test_operators_in_other_threads(device, capsys, monkeypatch):
    x = torch.ones(3, device=device)
    assert "aten::sin" in seen(lambda: in_thread(lambda: torch.sin(x)))
    text = told(lambda: in_thread(lambda: torch.sin(x)), capsys, monkeypatch)
    assert "apply OpObserveHook on torch.sin" in text


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return torch.atan(grad)


def test_python_code_of_a_custom_backward(device, capsys, monkeypatch):
    x = torch.ones(3, device=device, requires_grad=True)

    def run():
        Doubled.apply(x).sum().backward()

    assert "aten::atan" in seen(run, "backward")
    assert "apply OpObserveHook on torch.atan" in told(run, capsys, monkeypatch)


def test_recomputation_of_checkpoints(device, capsys, monkeypatch):
    x = torch.ones(3, device=device, requires_grad=True)

    def run():
        checkpoint(torch.tan, x, use_reentrant=False).sum().backward()

    assert seen(run).count("aten::tan") == 2
    text = told(run, capsys, monkeypatch)
    assert sum(line.startswith("torch.tan  ") for line in text.splitlines()) == 2


def test_kernels_of_the_autograd_engine(device):
    x = torch.randn(2, 3, 4, device=device, requires_grad=True)
    w = torch.randn(5, 4, device=device, requires_grad=True)

    def run():
        F.linear(x, w).sum().backward()

    assert seen(run, "backward").count("aten::mm") == 2  # one for each gradient


def test_every_gradient_of_a_composite_call(device, capsys, monkeypatch):
    """For cross_entropy it was the last node's alone."""
    x = torch.randn(4, 5, device=device, requires_grad=True)
    target = torch.tensor([0, 1, 2, 3], device=device)

    def run():
        F.cross_entropy(x, target).backward()

    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch")
    with op_tools.OpCapture():
        run()
    from op_tools.ditorch_compat import ditorch_folders

    (folder,) = (f for f in ditorch_folders.find(".") if "cross_entropy" in f)
    torch.testing.assert_close(ditorch_folders.load(folder).grad_inputs[0], x.grad.cpu())


def test_torchscript(device):
    @torch.jit.script
    def scripted(x):
        for _ in range(2):
            x = torch.atan(x)
        return x

    x = torch.ones(3, device=device)
    with torch.jit.fuser("none"):  # cuda's default makes one kernel of both, undispatched
        scripted(x)
        assert seen(lambda: scripted(x)).count("aten::atan") == 2


def test_compiled_regions(device):
    compiled = torch.compile(lambda x: torch.atan(x) + 1, backend="eager")
    x = torch.ones(3, device=device)
    compiled(x)
    names = seen(lambda: compiled(x))
    assert "aten::atan" in names and "aten::add" in names


def test_callers_in_cpp(device):
    a, b = torch.ones(2, 3, 4, device=device), torch.ones(2, 4, 5, device=device)
    assert "aten::bmm" in seen(lambda: torch.einsum("bij,bjk->bik", a, b))


def test_fused_optimizers_beyond_one_call(device):
    model = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    model(torch.ones(4, 3, device=device)).sum().backward()
    names = seen(optimizer.step, "optimizer")
    assert len(names) > 3 and any(name.startswith("aten::_foreach") for name in names)


def test_collectives_issued_from_cpp(monkeypatch, tmp_path):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    dist = torch.distributed
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
        names = seen(lambda: model(torch.ones(2, 3)).sum().backward())
    finally:
        dist.destroy_process_group()
    assert "c10d::allreduce_" in names


def test_calls_with_keyword_tensors_only(device, capsys, monkeypatch):
    x = torch.ones(3, device=device)

    def run():
        torch.add(input=x, other=x)

    assert seen(run) == ["aten::add"]
    text = told(run, capsys, monkeypatch)
    assert "apply OpObserveHook on torch.add" in text and "inputs other" in text


def test_moving_a_cpu_tensor_to_the_device(accelerator, capsys, monkeypatch):
    host = torch.ones(3)

    def run():
        getattr(host, accelerator)()

    assert seen(run)
    assert f"apply OpObserveHook on torch.Tensor.{accelerator}" in told(run, capsys, monkeypatch)


def test_features_on_tensor_methods(device, capsys):
    x = torch.ones(3, device=device)
    with op_tools.apply_feature("torch.Tensor.add", "dump_op_args"):
        assert x.add(1).cpu().tolist() == [2, 2, 2]
    assert "aten::add.Tensor" in capsys.readouterr().out


def test_features_on_functions_found_elsewhere(device, capsys):
    x, w = torch.ones(2, 3, device=device), torch.ones(4, 3, device=device)
    with op_tools.apply_feature([F.linear], "dump_op_args"):
        F.linear(x, w)
        nn.Linear(3, 4, bias=False).to(device)(x)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "mm" in line)
    assert "forward 2" in line


from torch import add as add_of_torch  # noqa: E402


def test_features_on_names_imported_before(device, capsys):
    x = torch.ones(3, device=device)
    with op_tools.apply_feature("torch.add", "dump_op_args"):
        add_of_torch(x, x)
    assert "aten::add.Tensor" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["stop", "end"])
def test_end_is_there(device, name):
    tool = op_tools.OpObserve()
    tool.start()
    getattr(tool, name)()
    assert not tool.is_running
