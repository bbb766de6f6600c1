# SPDX-License-Identifier: Apache-2.0
"""accelerate, peft, trl, sentence-transformers, torchmetrics, diffusers: each as its users run it, beside the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_npu  # noqa: F401
from gpu import chosen_first

transformers = pytest.importorskip("transformers", reason="pip install transformers")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import tiny_models  # noqa: E402

os.environ["HF_HUB_OFFLINE"] = "1"


def needed(name):
    return pytest.importorskip(name, reason=f"pip install {name.replace('_', '-')}")


def run_accelerate(tmp_path, way, precision, processes):
    out = tmp_path / f"{way}-{precision}.json"
    launch = ["-m", "accelerate.commands.launch", "--num_processes", str(processes)]
    script = [str(HERE / "accelerate_run.py"), way, precision, str(out)]
    done = subprocess.run(
        [sys.executable, *(launch if processes > 1 else []), *script],
        env={**os.environ, "NPU_HOST_DEVICES": str(processes), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return json.loads(out.read_text())


@pytest.mark.full
@pytest.mark.library(
    "accelerate",
    "accelerate launch with two processes: DDP and FSDP2, float32 and bf16, save_state and load_state",
)
def test_accelerate_launch(tmp_path):
    needed("accelerate")
    wanted = run_accelerate(tmp_path, "cpu", "no", 1)["losses"]
    for way, precision, rtol in [("ddp", "no", 1e-5), ("ddp", "bf16", 2e-2), ("fsdp2", "no", 1e-5)]:
        found = run_accelerate(tmp_path, way, precision, 2)
        assert "NPU" in found["kind"] or way == "fsdp2"
        torch.testing.assert_close(found["losses"], wanted, rtol=rtol, atol=rtol)


@pytest.mark.library(
    "accelerate", "Accelerator on one npu: prepare, backward, clip, no / bf16 / fp16"
)
def test_accelerator():
    from_state = needed("accelerate").state
    from accelerate import Accelerator

    def train(cpu, precision):
        from_state.AcceleratorState._reset_state(True)
        accelerator = Accelerator(cpu=cpu, mixed_precision=precision)
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(torch.randn(32, 8), batch_size=8)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        losses = []
        for x in loader:
            assert x.device.type == ("cpu" if cpu else "npu")
            optimizer.zero_grad()
            loss = model(x).float().square().mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        return losses

    wanted = train(True, "no")
    torch.testing.assert_close(train(False, "no"), wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(train(False, "bf16"), wanted, rtol=2e-2, atol=1e-2)
    torch.testing.assert_close(train(False, "fp16"), wanted, rtol=2e-2, atol=1e-2)
    from_state.AcceleratorState._reset_state(True)


@chosen_first
@pytest.mark.library(
    "peft", "LoRA and DoRA: losses, save_pretrained, from_pretrained, merge_and_unload"
)
@pytest.mark.parametrize("dora", [False, True])
def test_adapters(dora, tmp_path):
    peft = needed("peft")

    def train(device):
        model, batch = tiny_models.build("llama")
        torch.manual_seed(1)
        config = peft.LoraConfig(
            r=4, target_modules=["q_proj", "v_proj"], use_dora=dora, task_type="CAUSAL_LM"
        )
        model = peft.get_peft_model(model, config)
        return tiny_models.train(model, batch, device), model

    (wanted, _), (found, model) = train("cpu"), train("npu")
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    model.save_pretrained(tmp_path)
    base, batch = tiny_models.build("llama")
    again = peft.PeftModel.from_pretrained(base.npu(), tmp_path)
    ids = batch["input_ids"].npu()
    logits = model.eval()(ids).logits
    torch.testing.assert_close(again.eval()(ids).logits, logits)
    torch.testing.assert_close(model.merge_and_unload()(ids).logits, logits, rtol=1e-4, atol=1e-4)


def words_of(tmp_path):
    """A tokenizer of ten words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "<eos>", "a", "b", "c", "cat", "dog", "the", "runs"]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", eos_token="<eos>"
    )


@pytest.mark.full
@pytest.mark.library("trl", "SFTTrainer and DPOTrainer")
@pytest.mark.parametrize("way", ["SFT", "DPO"])
def test_trl(way, tmp_path):
    trl, datasets = needed("trl"), needed("datasets")
    words = words_of(tmp_path)
    model, _ = tiny_models.build("llama")
    model.save_pretrained(tmp_path / "model")
    rows = {
        "SFT": {"text": ["the cat runs", "a dog", "b c the dog runs", "the dog"] * 4},
        "DPO": {
            "prompt": ["the", "a"] * 8,
            "chosen": [" cat runs", " dog"] * 8,
            "rejected": [" b", " c c"] * 8,
        },
    }[way]

    def train(cpu):
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
        arguments = getattr(trl, f"{way}Config")(
            str(tmp_path / "out"), max_steps=4, per_device_train_batch_size=4, logging_steps=1, use_cpu=cpu,
            report_to=[], disable_tqdm=True, bf16=False, seed=1, save_strategy="no", learning_rate=1e-3,
        )  # fmt: skip
        trainer = getattr(trl, f"{way}Trainer")(
            model,
            args=arguments,
            train_dataset=datasets.Dataset.from_dict(rows),
            processing_class=words,
        )
        trainer.train()
        assert cpu or trainer.model.device.type == "npu"
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    wanted, found = train(True), train(False)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=2e-4)
    assert found[-1] < found[0]


@pytest.mark.full
@pytest.mark.library("sentence-transformers", "encode on the device it finds")
def test_sentences(tmp_path):
    sentences = needed("sentence_transformers")
    from sentence_transformers.models import Pooling, Transformer

    model, _ = tiny_models.build("bert")
    model.bert.save_pretrained(tmp_path)
    words_of(tmp_path).save_pretrained(tmp_path)
    text = ["a cat", "b dog c", "the dog runs"]
    found = sentences.SentenceTransformer(modules=[Transformer(str(tmp_path)), Pooling(32)])
    assert found.device.type == "npu"
    cpu = sentences.SentenceTransformer(
        modules=[Transformer(str(tmp_path)), Pooling(32)], device="cpu"
    )
    torch.testing.assert_close(
        torch.from_numpy(found.encode(text)),
        torch.from_numpy(cpu.encode(text)),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.library("torchmetrics", "classification and regression metrics, updated on npu")
def test_metrics():
    metrics = needed("torchmetrics")
    torch.manual_seed(0)
    scores, classes = torch.randn(40, 5).softmax(-1), torch.randint(5, (40,))
    for name in (
        "Accuracy",
        "F1Score",
        "ConfusionMatrix",
        "AUROC",
        "AveragePrecision",
        "CohenKappa",
    ):
        metric = getattr(metrics, name)(task="multiclass", num_classes=5)
        wanted = metric(scores, classes)
        metric.reset()
        found = metric.to("npu")(scores.npu(), classes.npu())
        assert found.is_npu
        torch.testing.assert_close(found.cpu(), wanted)
    for name in ("MeanSquaredError", "PearsonCorrCoef", "R2Score"):
        metric = getattr(metrics, name)()
        wanted = metric(scores[:, 0], scores[:, 1])
        metric.reset()
        torch.testing.assert_close(
            metric.to("npu")(scores[:, 0].npu(), scores[:, 1].npu()).cpu(), wanted
        )


@pytest.mark.full
@pytest.mark.library(
    "diffusers", "DDPMPipeline and StableDiffusionPipeline from configuration, model offload"
)
def test_pictures():
    diffusers = needed("diffusers")

    def unconditional(device):
        torch.manual_seed(0)
        net = diffusers.UNet2DModel(
            sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16),
            down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=4, attention_head_dim=8,
        )  # fmt: skip
        made = diffusers.DDPMPipeline(net, diffusers.DDPMScheduler(num_train_timesteps=10))
        if device == "offload":
            made.enable_model_cpu_offload(device="npu")
        else:
            made.to(device)
        return picture(made, num_inference_steps=4)

    def picture(pipeline, **options):
        pipeline.set_progress_bar_config(disable=True)
        drawn = pipeline(generator=torch.Generator().manual_seed(0), output_type="np", **options)
        return torch.from_numpy(drawn.images)

    def stable(device):
        torch.manual_seed(0)
        net = diffusers.UNet2DConditionModel(
            sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 16),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=32, norm_num_groups=4,
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=8,
        )  # fmt: skip
        vae = diffusers.AutoencoderKL(
            block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2, latent_channels=4,
            up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, sample_size=16,
        )  # fmt: skip
        text = transformers.CLIPTextModel(transformers.CLIPTextConfig(**tiny_models.DECODER))
        made = diffusers.StableDiffusionPipeline(
            vae,
            text,
            None,
            net,
            diffusers.DDIMScheduler(),
            None,
            None,
            requires_safety_checker=False,
        ).to(device)
        words = torch.randn(1, 7, 32, generator=torch.Generator().manual_seed(3)).to(device)
        return picture(
            made, prompt_embeds=words, negative_prompt_embeds=torch.zeros_like(words),
            num_inference_steps=3, height=16, width=16,
        )  # fmt: skip

    torch.testing.assert_close(unconditional("npu"), unconditional("cpu"), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(unconditional("offload"), unconditional("cpu"), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(stable("npu"), stable("cpu"), rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.library("timm", "a ResNet and a vision transformer (needs torchvision)")
def test_timm():
    pytest.importorskip("torchvision", reason="timm needs torchvision")
    timm = needed("timm")
    x = torch.randn(2, 3, 64, 64)
    for name in ("resnet10t", "vit_tiny_patch16_224"):
        options = {"img_size": 64} if "vit" in name else {}
        model = timm.create_model(name, pretrained=False, num_classes=4, **options).eval()
        wanted = model(x)
        torch.testing.assert_close(model.npu()(x.npu()).cpu(), wanted, rtol=1e-4, atol=1e-4)
