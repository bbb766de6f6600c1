# SPDX-License-Identifier: Apache-2.0
"""Loss curves of compiled models of 15 families, from configurations, with dropout.

Held bit for bit to PyTorch's own `aot_eager`, which calls the operators of the same graphs one by
one, and closely to eager mode, whose autograd adds gradients up in another order. `make test` takes
three models; OPENNPU_TEST_FULL=1 all, 20 steps each.
"""

import copy
import os
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torchair

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "optools" / "clean"))
from clean_models import MODELS

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
STEPS = 20 if FULL else 3
NAMES = list(MODELS) if FULL else ["gpt2", "vit", "resnet"]


def curve(model, loss, run):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.npu.manual_seed(7)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss(run, torch.device("npu"))
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


@pytest.mark.parametrize("name", NAMES)
def test_loss_curves(name):
    torch.manual_seed(0)
    made, loss = MODELS[name](0.1)
    eager = made.npu().train()
    compiled, traced = copy.deepcopy(eager), copy.deepcopy(eager)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = curve(eager, loss, eager)
        run = torch.compile(compiled, backend=torchair.get_npu_backend())
        got = curve(compiled, loss, run)
        assert got == pytest.approx(wanted, rel=1e-4)
        if FULL:
            torch._dynamo.reset()
            run = torch.compile(traced, backend="aot_eager")
            assert got == curve(traced, loss, run)
            for a, b in zip(compiled.parameters(), traced.parameters(), strict=True):
                assert torch.equal(a, b)


def test_decoding_with_a_cache_of_fixed_size():
    """The cache is an argument that the graph writes; one recording serves all positions."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).npu().eval()

    def decode(run):
        cache = transformers.StaticCache(config=config, max_cache_len=16)
        token, tokens = torch.tensor([[3]], device="npu"), []
        for position in range(8):
            where = torch.tensor([position], device="npu")
            out = run(
                input_ids=token, past_key_values=cache, cache_position=where, use_cache=True,
                position_ids=where[None],
            )  # fmt: skip
            token = out.logits[:, -1:].argmax(-1)
            tokens.append((token.item(), out.logits.clone()))
        return tokens

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # While it is compiled this model makes its masks in another way.
        wanted = decode(torch.compile(model, backend="eager"))
        torch._dynamo.reset()
        got = decode(torch.compile(model, backend=torchair.get_npu_backend()))
    for (a, x), (b, y) in zip(got, wanted, strict=True):
        assert a == b and torch.equal(x, y)
