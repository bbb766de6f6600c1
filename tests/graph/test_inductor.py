# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model) without a backend: Inductor's code for the CPU twin of a graph.

Held to Inductor on the CPU, losses within 1e-6 and state within 1e-5: equal bits were not checked. Where random
numbers are drawn, to eager mode on npu: both draw the same.
"""

import copy
import os

import pytest
import torch
import torch_npu
from programs import program
from small_models import make
from torch import nn

pytestmark = pytest.mark.modes
FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Generated code is compiled fast and not kept between runs."""
    import torch._inductor.config as config

    with config.patch({"cpp.enable_kernel_profile": False, "compile_threads": 1}):
        yield


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm, self.dropout = nn.LayerNorm(16), dropout

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.out(y.transpose(1, 2).flatten(2))
        return x + nn.functional.dropout(y, self.dropout, self.training)


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(4 * 16, 5),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x)


def models():
    torch.manual_seed(0)
    mlp, x = make("mlp")
    return {
        "mlp": (mlp, x),
        "attention": (Attention(), torch.randn(2, 6, 16)),
        "pictures": (Pictures(), torch.randn(2, 3, 8, 8)),
    }


def curve(model, x, steps: int):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    run, losses = torch.compile(model), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = run(x).sin().square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [t.detach().cpu() for t in (*model.parameters(), *model.buffers())]


# The C++ compiler takes seconds for each: the others come with OPENNPU_TEST_FULL=1.
@pytest.mark.parametrize("name", ["mlp", "attention", "pictures"] if FULL else ["attention"])
def test_trains_as_inductor_on_the_cpu(name):
    model, x = models()[name]
    on_npu = copy.deepcopy(model).npu()
    wanted, state = curve(model, x, 3)
    torch._dynamo.reset()
    losses, got = curve(on_npu, x.npu(), 3)
    assert losses == pytest.approx(wanted, rel=1e-6)
    for a, b in zip(got, state, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch._dynamo.reset()
        y = torch.compile(on_npu.eval())(x.npu())
        assert y.device.type == "npu"
        torch.testing.assert_close(y, on_npu(x.npu()), rtol=1e-5, atol=1e-6)


def test_random_numbers_are_those_of_eager():
    model = Attention(dropout=0.5).npu()
    compiled = torch.compile(model)
    x = torch.randn(2, 6, 16, device="npu")

    def step(run):
        torch.npu.manual_seed(4)
        model.zero_grad()
        y = run(x) + torch.rand(16, device="npu")
        y.square().sum().backward()
        return y, model.out.weight.grad.clone(), torch.rand(2, device="npu")

    for _ in range(2):
        torch.testing.assert_close(step(compiled), step(model), rtol=1e-5, atol=1e-5)


def test_checkpoints_draw_the_same_numbers_again():
    from torch.utils.checkpoint import checkpoint

    layer = nn.Linear(8, 8).npu()

    def block(x):
        return nn.functional.dropout(layer(x), 0.5) * torch.rand(8, device="npu")

    def loss(x):
        return checkpoint(block, x, use_reentrant=False).sin().sum()

    def run(function):
        x = torch.ones(4, 8, device="npu", requires_grad=True)
        layer.zero_grad()
        torch.npu.manual_seed(3)
        out = function(x)
        out.backward()
        return out, x.grad, layer.weight.grad.clone(), torch.rand(3, device="npu")

    torch.testing.assert_close(run(torch.compile(loss)), run(loss), rtol=1e-5, atol=1e-5)


def test_draws_keep_their_order_and_none_is_left_out():
    def body(x):
        a = torch.rand(4, device="npu")
        torch.rand(4, device="npu")
        b = torch.randn(4, device="npu")
        return b * 2 + x, a

    compiled, x = torch.compile(body), torch.ones(4, device="npu")
    torch.npu.manual_seed(1)
    wanted = body(x)
    torch.npu.manual_seed(1)
    got = compiled(x)
    assert all(map(torch.equal, got, wanted))


def test_results_that_are_inputs_views_numbers_or_on_the_host():
    @torch.compile
    def body(x, table):
        table[1:3] += x[:2]
        return x, x.view(2, 2), table.cpu() + 1, x.shape[0] * 2, torch.ones(2, device="npu")

    x, table = torch.arange(4.0, device="npu"), torch.zeros(4, device="npu")
    same, view, host, number, made = body(x, table)
    assert same is x and view.data_ptr() == x.data_ptr() and number == 8
    assert table.tolist() == [0, 0, 1, 0] and made.device.type == "npu"
    assert host.device.type == "cpu" and host.tolist() == [1, 1, 2, 1]


def test_sizes_that_change():
    compiled = torch.compile(lambda x: torch.softmax(x @ x.T, -1).sum(0), dynamic=True)
    for n in (3, 5, 9):
        x = torch.randn(n, 4, device="npu")
        torch.testing.assert_close(compiled(x), torch.softmax(x @ x.T, -1).sum(0))


def test_operators_of_the_device_alone_stay_there():
    @torch.library.custom_op("graph_tests::on_npu_only", mutates_args=(), device_types="npu")
    def on_npu_only(x: torch.Tensor) -> torch.Tensor:
        assert x.device.type == "npu"
        return x * 2

    on_npu_only.register_fake(lambda x: torch.empty_like(x))
    x = torch.ones(3, device="npu")
    assert torch.compile(lambda x: on_npu_only(x + 1) - 1)(x).tolist() == [3, 3, 3]


def test_an_error_in_a_graph_leaves_the_device_usable():
    @torch.library.custom_op("graph_tests::raises", mutates_args=())
    def raises(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 5:
            raise ValueError("too much")
        return x.clone()

    raises.register_fake(lambda x: torch.empty_like(x))
    compiled = torch.compile(lambda x: raises(x + 1) * 2)
    x = torch.ones(2, device="npu")
    assert compiled(x).tolist() == [4, 4]
    with pytest.raises(ValueError, match="too much"):
        compiled(x * 9)
    assert compiled(x).tolist() == [4, 4]


CHECK = """
import torch, torch_npu, warnings
warnings.filterwarnings("error", message="torch.compile:")
torch._inductor.config.compile_threads = 1
def body(x, w):
    for _ in range(3):
        x = torch.tanh(x @ w) + torch.rand(4, device="npu")
    return x
compiled = torch.compile(body)
x, w = torch.randn(3, 4, device="npu"), torch.randn(4, 4, device="npu")
for _ in range(5):
    torch.npu.manual_seed(2); a = body(x * 2, w)
    torch.npu.manual_seed(2); b = compiled(x * 2, w)
    torch.testing.assert_close(a, b)
print("fine")
"""


MODES = {
    "protect": {"NPU_HOST_PROTECT": "1", "NPU_HOST_ASYNC": "1", "NPU_HOST_DELAY_US": "50"},
    "async": {"NPU_HOST_ASYNC": "1", "NPU_HOST_DELAY_US": "50"},
}


@pytest.mark.parametrize("variables", list(MODES.values())[: 2 if FULL else 1])
def test_other_modes_of_the_driver(run_python, variables):
    assert "fine" in run_python(CHECK, **variables).stdout


def test_a_device_the_host_cannot_read_uses_our_backend(run_python):
    code = CHECK.replace('filterwarnings("error"', 'filterwarnings("always"')
    done = run_python(code, NPU_HOST_ACCESS="none")
    assert "fine" in done.stdout
    assert done.stderr.count("Backend 'npu' is used") == 1


def test_ahead_of_time_is_refused_in_one_line():
    model = nn.Linear(2, 2).npu()
    program = torch.export.export(model, (torch.ones(1, 2, device="npu"),))
    with pytest.raises(RuntimeError, match="Move the model to the CPU"):
        torch._inductor.aoti_compile_and_package(program)
    assert torch_npu


VERDICTS = program(__file__, "_verdicts")


def test_what_falls_back_is_what_falls_back_in_eager_mode(run_python):
    """Inductor takes fmax apart, and calls the CPU's attention: the verdict is about neither."""
    run_python(VERDICTS, NPU_FALLBACK="silent")
