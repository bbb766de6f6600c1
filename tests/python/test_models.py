# SPDX-License-Identifier: Apache-2.0
"""Whole models: the loss curve of 20 steps on npu is the CPU's, bit for bit.

Dropout is 0 and weights are made on the CPU, so the only difference is where kernels run; on the
host device rung 4 runs PyTorch's own.
"""

import json
from pathlib import Path

import pytest
import torch
import torch_npu  # noqa: F401
from child import run_child
from ladder import OWN_ROUNDING

from benchmarks import models

STEPS = 20
# CPU trains LSTM and GRU through oneDNN's layer kernel, npu cell by cell: another order of sums.
CELL_BY_CELL = {"lstm": 2e-4, "gru": 2e-4}


def curve(name: str, device: str, foreach: bool | None = None) -> list[float]:
    step = models.build(name).to(device)
    step.optimizer = torch.optim.AdamW(step.model.parameters(), lr=1e-3, foreach=foreach)
    return [step().item() for _ in range(STEPS)]


@pytest.mark.modes
@pytest.mark.parametrize("name", ["mlp", "gpt-tiny", "resnet-narrow"])
def test_loss_curve_is_bitwise_the_cpus(name: str) -> None:
    npu, cpu = (curve(name, device, foreach=False) for device in ("npu", "cpu"))
    if OWN_ROUNDING:
        torch.testing.assert_close(torch.tensor(npu), torch.tensor(cpu), rtol=1e-2, atol=1e-3)
    else:
        assert npu == cpu


@pytest.mark.parametrize("name", ["mlp", "gpt-tiny"])
def test_the_optimizer_of_lists_gives_the_same_curve(name: str) -> None:
    # Square roots are correctly rounded here; the CPU's vector library is one ulp off at times.
    npu, cpu = (torch.tensor(curve(name, device)) for device in ("npu", "cpu"))
    torch.testing.assert_close(npu, cpu, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", list(CELL_BY_CELL))
def test_recurrent_loss_curve(name: str) -> None:
    torch.testing.assert_close(
        torch.tensor(curve(name, "npu")),
        torch.tensor(curve(name, "cpu")),
        rtol=CELL_BY_CELL[name],
        atol=CELL_BY_CELL[name],
    )


def test_loss_falls() -> None:
    losses = curve("gpt-tiny", "npu")
    assert losses[-1] < losses[0] - 0.5


def transformers_curve(kind: str, device: str) -> list[float]:
    transformers = pytest.importorskip("transformers", reason="the Transformers library is absent")
    torch.manual_seed(3)
    if kind == "bert":
        config = transformers.BertConfig(
            vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=128, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        model = transformers.BertForMaskedLM(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, intermediate_size=128, attention_dropout=0.0,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    model = model.to(device).train()
    tokens = torch.randint(96, (2, 24), generator=torch.Generator().manual_seed(4)).to(device)
    mask = torch.ones_like(tokens)
    mask[0, 20:] = 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, attention_mask=mask, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


KINDS = ["bert", "llama"]


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_library_models(kind: str) -> None:
    assert transformers_curve(kind, "npu") == transformers_curve(kind, "cpu")


# The host driver's own kernels sum in another order than PyTorch's.
OWN_KERNELS = """
import json, sys
sys.path[:0] = {paths!r}
from test_models import curve, transformers_curve
print(json.dumps({call}))
"""


def curve_with_own_kernels(call: str) -> list[float]:
    here = Path(__file__).resolve().parent
    code = OWN_KERNELS.format(paths=[str(here), str(here.parents[1])], call=call)
    return json.loads(run_child(code, timeout=1200, NPU_HOST_KERNELS="all").splitlines()[-1])


def assert_same_training(got: list[float], want: list[float]) -> None:
    torch.testing.assert_close(torch.tensor(got), torch.tensor(want), rtol=2e-3, atol=2e-3)
    assert got[-1] < got[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_transformers_library_models_with_all_kernels(kind: str) -> None:
    got = curve_with_own_kernels(f"transformers_curve({kind!r}, 'npu')")
    assert_same_training(got, transformers_curve(kind, "cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "gpt-tiny", "resnet-narrow", *CELL_BY_CELL])
def test_models_with_all_kernels(name: str) -> None:
    assert_same_training(curve_with_own_kernels(f"curve({name!r}, 'npu')"), curve(name, "cpu"))
