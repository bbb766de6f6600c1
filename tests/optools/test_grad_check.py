# SPDX-License-Identifier: Apache-2.0
"""OpGradCheck names the function and the input whose gradient is wrong, and changes nothing."""

import op_tools
import pytest
import torch
from optools_devices import DEVICES
from torch import nn

DEVICE = DEVICES[0]


class Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * x * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        return 2 * x * scale * grad, (x * x * grad).sum_to_size(scale.shape)


class Wrong(Right):
    """The gradient of scale lacks a factor."""

    @staticmethod
    def forward(ctx, x, scale):
        return Right.forward(ctx, x, scale)

    @staticmethod
    def backward(ctx, grad):
        of_x, of_scale = Right.backward(ctx, grad)
        return of_x, of_scale / 2


class Separate(torch.autograd.Function):
    """With a context of its own, and a gradient of another sign."""

    @staticmethod
    def forward(x, power):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return -ctx.power * x ** (ctx.power - 1) * grad, None


class Rounded(torch.autograd.Function):
    """Right in float64; in float32 it rounds the gradient to bfloat16."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        result = x.cos() * grad
        return result if x.dtype == torch.float64 else result.bfloat16().to(x.dtype)


class Drops(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mask = (torch.rand_like(x) > 0.5).to(x.dtype)
        return x * ctx.mask

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.mask


kept = Wrong.apply  # programs keep it before any tool is there


def leaf(*sizes):
    return torch.randn(*sizes, device=DEVICE, requires_grad=True)


def verdicts(tool):
    return {(each.name.rpartition(".")[2], each.input): each.verdict for each in tool.judged}


def test_the_function_and_the_input_are_named(capsys):
    x, scale = leaf(4, 3), leaf(3)
    with op_tools.OpGradCheck() as tool:
        (Right.apply(x, scale) + kept(x, scale)).sum().backward()
        Separate.apply(leaf(5), 3).sum().backward()
        Rounded.apply(leaf(50)).sum().backward()
        Drops.apply(leaf(50)).sum().backward()
    assert verdicts(tool) == {
        ("Right", "x"): "ok",
        ("Right", "scale"): "ok",
        ("Wrong", "x"): "ok",
        ("Wrong", "scale"): "wrong",
        ("Separate", "x"): "wrong",
        ("Rounded", "x"): "imprecise",
        ("Drops", "all inputs"): "not judged",
    }
    fault = next(each for each in tool.faults if each.name.endswith("Wrong"))
    assert fault.difference == pytest.approx(2 * fault.backward, rel=1e-4)
    assert __file__ in fault.place
    told = capsys.readouterr().out
    assert "OpGradCheck: 3 ok, 2 wrong, 1 imprecise, 1 not judged" in told
    assert "Wrong" in told and "scale" in told and "finite differences" in told


def test_the_program_computes_what_it_computes_without_the_tool():
    def run():
        torch.manual_seed(3)
        x = leaf(6)
        (kept(x, x) + Drops.apply(x)).sum().backward()
        return x.grad, torch.rand(3, device=DEVICE), torch.rand(2)

    plain = run()
    before = {cls: vars(cls)["forward"] for cls in (Right, Wrong, Drops)}
    with op_tools.OpGradCheck():
        watched = run()
    assert all(map(torch.equal, plain, watched))
    assert before == {cls: vars(cls)["forward"] for cls in (Right, Wrong, Drops)}


def test_functions_that_come_later_and_the_number_of_calls():
    x = leaf(3)
    with op_tools.OpGradCheck(calls=2) as tool:

        class Late(Right):
            @staticmethod
            def forward(ctx, x, scale):
                return Right.forward(ctx, x, scale)

        for _ in range(4):
            Late.apply(x, x)
    assert len(tool.judged) == 4 and {each.verdict for each in tool.judged} == {"ok"}


class Block(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.linear = function, nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.function(self.linear(x), self.scale)


def test_whole_modules():
    model = nn.Sequential(Block(Right.apply), Block(kept)).to(DEVICE)
    with op_tools.OpGradCheck(model, modules=r"\d") as tool:
        model(leaf(2, 3)).sum().backward()
    found = {(e.name, e.input): e.verdict for e in tool.judged if e.name in ("0", "1")}
    wrong = {key for key, verdict in found.items() if verdict == "wrong"}
    assert wrong == {("1", "scale")}, found
    assert found["0", "linear.weight"] == "ok" and found["1", "argument 0"] == "ok"


def test_it_can_raise_and_refuses_what_it_cannot_do():
    with pytest.raises(op_tools.GradientError, match="gradient of scale: wrong"):
        with op_tools.OpGradCheck(raises=True):
            kept(leaf(3), leaf(3))
    for arguments, said in (
        ({"modules": "x"}, "give a model and modules"),
        ({"calls": 0}, "must be at least 1"),
        ({"model": nn.Linear(1, 1), "modules": "nothing"}, "no module of the model"),
    ):
        with pytest.raises(ValueError, match=said):
            op_tools.OpGradCheck(**arguments)


SCRIPT = """
import torch
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return {gradient} * grad
x = torch.arange(1.0, 4.0).requires_grad_()
{call}
"""
CALL = "Cube.apply(x).sum().backward()"


@pytest.mark.parametrize(
    ("gradient", "call", "code", "said"),
    [
        ("3 * x**2", CALL, 0, "no gradient is wrong: 1 gradient checked"),
        ("2 * x**2", CALL, 1, "first bad: __main__.Cube, gradient of x: wrong"),
        ("3 * x**2", "(x * x).sum().backward()", 2, "no gradient was checked"),
    ],
    ids=["right", "wrong", "none"],
)
def test_first_bad_checks_the_gradients_of_a_script(
    tmp_path, monkeypatch, capsys, gradient, call, code, said
):
    from op_tools.cli import main

    (tmp_path / "train.py").write_text(SCRIPT.format(gradient=gradient, call=call))
    monkeypatch.chdir(tmp_path)
    assert main(["first-bad", "train.py", "--gradients"]) == code
    told = capsys.readouterr().out
    assert said in told, told
    if code == 1:
        assert "finite differences" in told and "train.py:13" in told
