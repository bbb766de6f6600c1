# SPDX-License-Identifier: Apache-2.0
"""Halves as accelerators compute them: at most 2 units in the last place from one rounding (ops/wide.yaml)."""

import os

import pytest
import torch
from accelerator import full_name, op_db
from half_judge import judge_operator, new_findings

# OpInfo's operators that call what the list names, and some that are to stay as they are.
NAMES = {
    "addbmm", "addr", "cross", "grid_sampler_2d", "index_reduce", "logit", "logsumexp", "matrix_exp",
    "native_batch_norm", "native_layer_norm", "segment_reduce", "unfold", "_unsafe_masked_index",
    "nn.functional.adaptive_avg_pool2d", "nn.functional.adaptive_avg_pool3d",
    "nn.functional.avg_pool1d", "nn.functional.avg_pool2d", "nn.functional.batch_norm",
    "nn.functional.bilinear", "nn.functional.binary_cross_entropy",
    "nn.functional.binary_cross_entropy_with_logits", "nn.functional.conv1d",
    "nn.functional.conv2d", "nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d", "nn.functional.cross_entropy", "nn.functional.embedding",
    "nn.functional.embedding_bag", "nn.functional.fractional_max_pool3d", "nn.functional.glu",
    "nn.functional.grid_sample", "nn.functional.instance_norm", "nn.functional.interpolate",
    "nn.functional.max_pool3d", "nn.functional.nll_loss", "nn.functional.pad",
    "nn.functional.soft_margin_loss", "nn.functional.softplus", "polygamma", "softmax", "tanh",
}  # fmt: skip
FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
OPS = [op for op in op_db if FULL or op.name in NAMES]
# The CPU rounds a number to the half first; a quotient is rounded before it is truncated; composites round
# between their steps on every device; sums into a tensor would have to cast all of it.
LEFT = {"sub", "sub_", "div", "div_", "_trilinear", "_unsafe_masked_index_put_accumulate"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("op", OPS, ids=full_name)
def test_one_rounding(op, dtype):
    if dtype not in op.dtypes:
        pytest.skip("the CPU has no such kernel")
    found = new_findings()
    judge_operator(op, dtype, "npu", 40 if FULL else 5, found)
    far = {key: row[:2] for key, row in found.items() if key[0] not in LEFT}
    assert not far


def test_the_judge_sees_the_cpus_own():
    """The same samples on the CPU are too far off: the test above can fail."""
    found = new_findings()
    (op,) = [o for o in op_db if o.name == "nn.functional.adaptive_avg_pool3d"]
    judge_operator(op, torch.bfloat16, "cpu", 5, found)
    assert found["_adaptive_avg_pool3d", "bfloat16"][1] > 2.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("n", [50, 70000], ids=["small", "large"])
def test_alpha_keeps_its_digits(dtype, n):
    """-0.7, a learning rate say, is no half; the CPU rounds it first, by another way in the last elements."""
    x, y = torch.linspace(1, 3, n).to(dtype), torch.linspace(5, 1, n).to(dtype)
    for alpha in (-0.7, 3):
        exact = (x.double() + y.double() * alpha).to(dtype)
        a, b = x.npu(), y.npu()
        assert torch.equal(torch.add(a, b, alpha=alpha).cpu(), exact)
        assert torch.equal(torch.sub(a, b, alpha=-alpha).cpu(), exact)
        assert torch.equal(torch._foreach_add([a], [b], alpha=alpha)[0].cpu(), exact)
        assert torch.equal(a.t().add_(b, alpha=alpha).cpu(), exact)


def test_results_keep_the_order_of_dimensions():
    """As the CPU's do, also of a view whose elements overlap."""
    x = torch.linspace(0.1, 0.9, 60).half()
    for strides in ((1, 1, 7), (12, 2, 1), (1, 5, 0), (0, 2, 1)):
        on_cpu, here = (t.as_strided((5, 6, 2), strides) for t in (x, x.npu()))
        assert torch.logit(here).stride() == torch.logit(on_cpu).stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("n", [50, 70000], ids=["small", "large"])
def test_lists_round_an_added_number_as_single_tensors_do(dtype, n):
    """0.7 becomes a half first, in a list too; a factor keeps its digits."""
    x = torch.linspace(1, 3, n).to(dtype)
    half = torch.tensor(0.7, dtype=dtype).double()
    added, taken = (x.double() + half).to(dtype), (x.double() - half).to(dtype)
    y = x.npu()
    assert torch.equal((y + 0.7).cpu(), added) and torch.equal((y - 0.7).cpu(), taken)
    for number in (0.7, [0.7, 0.7], torch.tensor(0.7)):
        got = torch._foreach_add([y, y[:7]], number)
        assert torch.equal(got[0].cpu(), added) and torch.equal(got[1].cpu(), added[:7])
    assert torch.equal(torch._foreach_sub([y], 0.7)[0].cpu(), taken)
    inside = [y.clone()]
    torch._foreach_sub_(inside, [0.7])
    assert torch.equal(inside[0].cpu(), taken)
    assert torch.equal(torch._foreach_mul([y], 0.7)[0].cpu(), (x.double() * 0.7).to(dtype))
