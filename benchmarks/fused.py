# SPDX-License-Identifier: Apache-2.0
"""What graph mode's passes make of models: frames that became programs, forward and backward.

    NPU_HOST_KERNELS=all python -m benchmarks.fused

All operators are frames there, as on a device with kernels of its own. The dumps of NPU_GRAPH_DUMP show which.
"""

import gc

import torch
import torch_npu  # noqa: F401
import torchair
from torchair import _compiler

COUNTERS = ("row_fused", "row_programs", "fused", "programs")


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=2, n_head=4, n_embd=128, vocab_size=512, n_positions=64,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    )  # fmt: skip
    return language(GPT2LMHeadModel(config))


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=2, hidden_size=128, intermediate_size=256, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=512, max_position_embeddings=64, use_cache=False,
    )  # fmt: skip
    return language(LlamaForCausalLM(config))


def language(model):
    model = model.npu()
    tokens = torch.randint(0, 512, (2, 64)).npu()
    return model, lambda run: run(input_ids=tokens, labels=tokens).loss


def resnet():
    from benchmarks.models import ResNet

    model = ResNet(width=16).npu()
    images = torch.randn(4, 3, 32, 32).npu()
    labels = torch.randint(0, 10, (4,)).npu()
    return model, lambda run: torch.nn.functional.cross_entropy(run(images), labels)


def count(make):
    """Counters of the graphs of two training steps: (forward, backward)."""
    torch._dynamo.reset()
    gc.collect()
    _compiler.runners.clear()
    torch.manual_seed(0)
    model, loss_of = make()
    run = torch.compile(model, backend=torchair.get_npu_backend())
    rows = {}
    for way in ("forward", "backward"):
        for _ in range(2):
            model.zero_grad()
            loss = loss_of(run)
            if way == "backward":
                loss.backward()
        counts = [each.replayer.counts() for each in list(_compiler.runners)]
        rows[way] = {name: sum(each[name] for each in counts) for name in COUNTERS}
    both = rows["backward"]
    rows["backward"] = {name: both[name] - rows["forward"][name] for name in COUNTERS}
    return rows


def main():
    print("model   way       frames in row programs  row programs  frames in programs  programs")
    for make in (gpt2, llama, resnet):
        for way, row in count(make).items():
            print(
                f"{make.__name__:7} {way:9}"
                f"{row['row_fused']:23} {row['row_programs']:13} {row['fused']:19} {row['programs']:9}"
            )


if __name__ == "__main__":
    main()
