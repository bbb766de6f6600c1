# SPDX-License-Identifier: Apache-2.0
"""torch.use_deterministic_algorithms: honoured, and never by another rung in silence."""

import pytest
import torch
from faulty import faulty_environment
from programs import program


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def scattered(device):
    """Sums whose terms collide: another order of them would show in the last bits."""
    g = torch.Generator().manual_seed(2)
    source = (torch.randn(20000, generator=g) * 1e3).to(device)
    index = torch.randint(7, (20000,), generator=g).to(device)
    out = torch.zeros(7, device=device)
    return [
        out.scatter_add(0, index, source),
        out.index_add(0, index, source),
        out.index_put((index,), source, accumulate=True),
        torch.zeros(7, device=device).put_(index, source, accumulate=True),
        torch.nn.functional.embedding(index, torch.ones(7, 1, device=device)).sum(0),
    ]


def test_colliding_sums_repeat(deterministic):
    before = torch.get_num_threads()
    try:
        first = [t.cpu() for t in scattered("npu")]
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert all(a.equal(b.cpu()) for a, b in zip(first, scattered("npu"), strict=True))
    finally:
        torch.set_num_threads(before)


def test_alerts_as_on_the_cpu(deterministic):
    """What has no deterministic kernel on the CPU has none on rung 4."""

    def outcome(device):
        found = []
        for call in (
            lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bicubic"),
            lambda x: torch.nn.functional.adaptive_max_pool2d(x, 2),
            lambda x: torch.nn.functional.max_unpool2d(x, x.long().abs(), 2),
            lambda x: x.kthvalue(1),
            lambda x: x.cumsum(0),
            lambda x: torch.nn.functional.ctc_loss(
                x[0, :4].log_softmax(2), torch.ones(4, 2).long().to(device), (4,) * 4, (2,) * 4
            ),
        ):
            x = torch.arange(256.0).reshape(1, 4, 8, 8).to(device).requires_grad_()
            try:
                result = call(x)
                result = result[0] if isinstance(result, tuple) else result
                result.sum().backward()
                found.append("works")
            except Exception as error:
                found.append(f"{type(error).__name__}: {str(error).splitlines()[0][:60]}")
        return found

    assert outcome("npu") == outcome("cpu")


BY_CHANCE = program(__file__, "_by_chance")


def test_a_driver_without_deterministic_kernels_is_an_error_or_a_warning(run_python):
    variables = {**faulty_environment(), "NPU_FAULTY_BY_CHANCE": "1"}
    out = run_python(BY_CHANCE, **variables).stdout
    assert "raised" in out and "does not have a deterministic implementation" in out, out
    assert "warned True [3.0, 3.0, 3.0, 3.0]" in out, out
