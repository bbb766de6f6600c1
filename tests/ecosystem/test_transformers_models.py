# SPDX-License-Identifier: Apache-2.0
"""Architectures of Transformers, tiny and from their configurations: losses, generated tokens, checkpoints."""

import os
import sys
from pathlib import Path

import pytest
import torch
import torch_npu  # noqa: F401

transformers = pytest.importorskip("transformers", reason="pip install transformers")
sys.path.insert(0, str(Path(__file__).resolve().parent))
import tiny_models  # noqa: E402

os.environ["HF_HUB_OFFLINE"] = "1"
FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
NAMES = list(tiny_models.MODELS) if FULL else ["llama", "qwen3_moe", "t5", "vit"]


def losses(name, device, attention=None, dtype=None, prepare=None):
    model, batch = tiny_models.build(name, attention)
    if prepare is not None:
        prepare(model)
    return tiny_models.train(model, batch, device, dtype=dtype)


def close(found, wanted, rtol=1e-5):
    torch.testing.assert_close(found, wanted, rtol=rtol, atol=rtol)
    assert found[-1] < found[0]


@pytest.mark.library(
    "transformers",
    f"{len(tiny_models.MODELS)} architectures trained with eager and sdpa attention, losses as on the CPU",
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", NAMES)
def test_losses(name, attention):
    if name in ("t5", "bloom", "gemma2") and attention == "sdpa":
        attention = None  # what the architecture has
    close(losses(name, "npu", attention), losses(name, "cpu", attention))


@pytest.mark.library("transformers", "llama and qwen3_moe under autocast in bfloat16 and float16")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_autocast(name, dtype):
    found = losses(name, "npu", dtype=dtype)
    close(found, losses(name, "cpu"), 2e-2)
    assert found != losses(name, "npu")  # it was not float32


@pytest.mark.library(
    "transformers", "attn_implementation='flash_attention_2': npu_fusion_attention"
)
def test_flash_attention(monkeypatch):
    from transformers.integrations import npu_flash_attention

    calls = []
    usual = npu_flash_attention.npu_fusion_attention

    def counted(*args, **kwargs):
        calls.append(1)
        return usual(*args, **kwargs)

    monkeypatch.setattr(npu_flash_attention, "npu_fusion_attention", counted)
    for name in ("llama", "mistral"):
        model, batch = tiny_models.build(name, "flash_attention_2")
        found = tiny_models.train(model.bfloat16(), batch, "npu")
        close(found, losses(name, "cpu", "eager"), 1e-2)
    assert calls


@pytest.mark.library("transformers", "mixtral and qwen3_moe with grouped_mm experts")
@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
def test_grouped_experts(name, monkeypatch):
    def grouped(model):
        model.config._experts_implementation = "grouped_mm"

    def one_by_one(model):
        model.config._experts_implementation = "eager"

    close(losses(name, "npu", prepare=grouped), losses(name, "cpu", prepare=one_by_one))


@pytest.mark.library(
    "transformers",
    "generate: greedy, beams, static, offloaded and offloaded static cache, sampling",
)
@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 3}, {"cache_implementation": "static"}, {"cache_implementation": "offloaded"},
     {"cache_implementation": "offloaded_static"}],
    ids=str,
)  # fmt: skip
def test_generate(options):
    model, batch = tiny_models.build("llama")
    ids = batch["input_ids"][:2, :6]
    usual = {"max_new_tokens": 8, "do_sample": False}
    # Transformers offloads to the CPU from an accelerator only.
    plain = {} if "offloaded" in str(options) else options
    wanted = model.eval().generate(ids, **usual, **plain)
    found = model.npu().generate(ids.npu(), **usual, **options)
    assert torch.equal(found.cpu(), wanted)


def test_generate_by_drawing():
    model, batch = tiny_models.build("llama")
    ids = batch["input_ids"][:2, :6].npu()
    model = model.npu()
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(model.generate(ids, do_sample=True, top_k=8, top_p=0.9, max_new_tokens=6))
    assert torch.equal(*drawn) and drawn[0].shape == (2, 12)


@pytest.mark.library(
    "safetensors", "save_pretrained, from_pretrained(device_map='npu:0'), load_file(device='npu:0')"
)
def test_checkpoints(tmp_path):
    from safetensors.torch import load_file

    model, batch = tiny_models.build("llama")
    ids = batch["input_ids"]
    wanted = model.eval()(ids).logits
    model.npu().save_pretrained(tmp_path)
    for place in ("npu:0", "auto"):
        again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map=place)
        assert again.device.type == "npu"
        torch.testing.assert_close(again(ids.npu()).logits.cpu(), wanted)
    [file] = tmp_path.glob("*.safetensors")
    assert all(t.is_npu for t in load_file(file, device="npu:0").values())


@pytest.mark.library(
    "transformers",
    "Trainer: float32, bf16, fp16, adamw_torch_npu_fused, evaluate, checkpoints, going on from one",
)
def test_trainer(tmp_path):
    pytest.importorskip("accelerate", reason="pip install accelerate")

    def train(name, cpu=False, resume=None, **options):
        model, batch = tiny_models.build("gpt2")
        rows = [{key: value[i] for key, value in batch.items()} for i in range(4)] * 4
        arguments = transformers.TrainingArguments(
            str(tmp_path / name), report_to=[], max_steps=4, per_device_train_batch_size=4,
            logging_steps=1, save_steps=2, use_cpu=cpu, disable_tqdm=True, seed=1, **options,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model=model, args=arguments, train_dataset=rows, eval_dataset=rows
        )
        trainer.train(resume_from_checkpoint=resume)
        found = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert cpu or next(model.parameters()).is_npu
        return [*found, trainer.evaluate()["eval_loss"]]

    wanted = train("cpu", cpu=True)
    close(train("plain"), wanted)
    close(train("plain", resume=str(tmp_path / "plain" / "checkpoint-2")), wanted)
    close(train("fused", optim="adamw_torch_npu_fused"), wanted, 1e-4)
    close(train("bf16", bf16=True), wanted, 1e-2)
    close(train("fp16", fp16=True), wanted, 1e-2)
