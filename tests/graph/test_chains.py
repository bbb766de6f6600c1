# SPDX-License-Identifier: Apache-2.0
"""Pass chains on real graphs: neighbouring elementwise frames are one program, and no bit changes.

With every kernel of the host driver its own (NPU_HOST_KERNELS=all) all operators are frames, so that
most tests run there, in a process of its own, against the same graphs with the pass switched off.
"""

import pytest
import torch
import torchair
import versions
from faulty import discrete_environment, faulty_environment
from programs import names, program, variables
from torchair import _compiler

HEAD = program(__file__, "_head")


@pytest.fixture(params=["host", "discrete"])
def with_all_kernels(run_python, request):
    variables = {"NPU_HOST_KERNELS": "all", "NPU_PROFILE": "none"}
    if request.param == "discrete":
        variables |= discrete_environment()
    return lambda code, **more: run_python(HEAD + code, **{**variables, **more})


@pytest.mark.parametrize("name", names(__file__))
def test_program(with_all_kernels, name):
    with_all_kernels(program(__file__, name), **variables(__file__, name))


def test_gpt_and_its_optimizer(with_all_kernels, counts):
    """A training step; gradients are compared through what the optimizer makes of them."""
    with_all_kernels(program(__file__, "_gpt_and_its_optimizer"))


def residual(x, weight):
    for _ in range(2):
        x = torch.relu(torch.nn.functional.conv2d(x, weight, padding=1) + x)
    return x


def optimized(steps: int):
    torch._dynamo.reset()
    torch.manual_seed(5)
    parameters = [torch.nn.Parameter(torch.randn(n, 3).npu()) for n in (4000, 7, 1)]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1)
    step = torch.compile(optimizer.step, backend=torchair.get_npu_backend())
    for i in range(steps):
        for k, p in enumerate(parameters):
            seed = torch.Generator().manual_seed(9 * i + k)
            p.grad = torch.randn(p.shape, generator=seed).npu()
        step()
    return [*parameters, *(v for p in parameters for v in optimizer.state[p].values())], step


def test_by_default_the_optimizer_and_a_residual_net_have_programs(counts, monkeypatch):
    """Kernels as they are chosen by default: PyTorch's own between the programs."""
    torch.manual_seed(1)
    x, weight = torch.randn(2, 4, 64, 64).npu(), torch.randn(4, 4, 3, 3).npu()

    def run():
        state, alive = optimized(5)
        net = torch.compile(residual, backend=torchair.get_npu_backend())
        return [*state, *(net(x, weight) for _ in range(3))], (alive, net)

    on, _alive = run()
    # AdamW's moments with the fill of its factor (Dynamo traces less of it before torch 2.13); two of
    # add and relu.
    adamw = 5 + 3 if versions.dynamo_traces_adamw_as_eager() else 3 + 3
    assert counts("programs") >= 3 and counts("fused") >= adamw + 4
    memory = counts("arena_bytes")
    monkeypatch.setenv("NPU_GRAPH_OFF", "chains")
    torch._dynamo.reset()
    _compiler.runners.clear()
    off, _alive = run()
    assert counts("programs") == 0 and counts("arena_bytes") > memory
    assert all(map(torch.equal, on, off))
    assert torch.equal(on[-1], residual(x, weight))


def test_a_driver_without_the_kind_keeps_the_frames(with_all_kernels):
    with_all_kernels(
        """
def make(backend):
    x = torch.randn(9).npu()
    function = torch.compile(lambda x: (x + 1) * x - 2, backend=backend)
    return lambda: (function(x),)
on, made, _ = run(make, off=False)
assert made == 0
assert torch.equal(on[0], on[-1])
""",
        NPU_DISABLE_KIND="program,multi_program",
    )


def test_a_program_that_is_declined_or_fails_in_a_replay(with_all_kernels):
    """Declined: its operations run one by one. Failing: an error with all names; nothing is lost."""
    with_all_kernels(
        program(__file__, "_a_program_that_is_declined_or_fails_in_a_replay"),
        **faulty_environment(),
    )
