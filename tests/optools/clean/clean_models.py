# SPDX-License-Identifier: Apache-2.0
"""Small models of many families, from configurations: each gives (module, function of its loss)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from torch import nn
from torch.nn import functional as F

from benchmarks import models

Made = tuple[nn.Module, Callable[[nn.Module, torch.device], torch.Tensor]]
VOCABULARY, LENGTH = 64, 12
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {**SMALL, "vocab_size": VOCABULARY, "intermediate_size": 48, "max_position_embeddings": 32}


def _ids(device: torch.device, length: int = LENGTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(4, VOCABULARY, (2, length), generator=generator).to(device)


def _numbers(device: torch.device, model: nn.Module, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(6)
    dtype = next(model.parameters()).dtype
    return torch.randn(shape, generator=generator).to(dtype).to(device)


def _words(kind: type, config: object) -> Made:
    """Predicts its own words."""

    def loss(model: nn.Module, device: torch.device) -> torch.Tensor:
        return model(input_ids=_ids(device), labels=_ids(device)).loss

    return kind(config), loss


def llama(p: float) -> Made:
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=2, attention_dropout=p)
    return _words(transformers.LlamaForCausalLM, config)


def qwen(p: float) -> Made:
    config = transformers.Qwen2Config(**TEXT, num_key_value_heads=1, attention_dropout=p)
    return _words(transformers.Qwen2ForCausalLM, config)


def gpt2(p: float) -> Made:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4,
        resid_pdrop=p, embd_pdrop=p, attn_pdrop=p,
    )  # fmt: skip
    return _words(transformers.GPT2LMHeadModel, config)


def mixtral(p: float) -> Made:
    config = transformers.MixtralConfig(
        **TEXT, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
        attention_dropout=p, output_router_logits=True, experts_implementation="eager",
    )  # fmt: skip
    return _words(transformers.MixtralForCausalLM, config)


def bert(p: float) -> Made:
    config = transformers.BertConfig(**TEXT, hidden_dropout_prob=p, attention_probs_dropout_prob=p)
    return _words(transformers.BertForMaskedLM, config)


def t5(p: float) -> Made:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        dropout_rate=p, decoder_start_token_id=0,
    )  # fmt: skip
    return _words(transformers.T5ForConditionalGeneration, config)


def bart(p: float) -> Made:
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))
    }
    config = transformers.BartConfig(
        vocab_size=VOCABULARY, d_model=32, max_position_embeddings=32, **sides,
        dropout=p, attention_dropout=p, activation_dropout=p,
    )  # fmt: skip
    return _words(transformers.BartForConditionalGeneration, config)


def vit(p: float) -> Made:
    config = transformers.ViTConfig(
        **SMALL, intermediate_size=48, image_size=16, patch_size=4, num_labels=5,
        hidden_dropout_prob=p, attention_probs_dropout_prob=p,
    )  # fmt: skip

    def loss(model: nn.Module, device: torch.device) -> torch.Tensor:
        images = _numbers(device, model, 2, 3, 16, 16)
        return model(images, labels=torch.tensor([1, 3], device=device)).loss

    return transformers.ViTForImageClassification(config), loss


def convnext(p: float) -> Made:
    config = transformers.ConvNextConfig(
        hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, image_size=16, patch_size=2,
        drop_path_rate=p, num_labels=5,
    )  # fmt: skip

    def loss(model: nn.Module, device: torch.device) -> torch.Tensor:
        images = _numbers(device, model, 2, 3, 16, 16)
        return model(images, labels=torch.tensor([1, 3], device=device)).loss

    return transformers.ConvNextForImageClassification(config), loss


def whisper(p: float) -> Made:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=1, decoder_layers=1, num_mel_bins=8,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_source_positions=16, max_target_positions=16,
        dropout=p, attention_dropout=p, activation_dropout=p, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=3,
    )  # fmt: skip

    def loss(model: nn.Module, device: torch.device) -> torch.Tensor:
        sound = _numbers(device, model, 2, 8, 32)
        return model(input_features=sound, labels=_ids(device, 8)).loss

    return transformers.WhisperForConditionalGeneration(config), loss


def wav2vec(p: float) -> Made:
    config = transformers.Wav2Vec2Config(
        **SMALL, vocab_size=VOCABULARY, intermediate_size=48, conv_dim=(16, 16), conv_stride=(4, 2),
        conv_kernel=(8, 3), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2,
        hidden_dropout=p, attention_dropout=p, activation_dropout=p, feat_proj_dropout=p,
        layerdrop=0.0, mask_time_prob=0.0, num_feat_extract_layers=2, ctc_loss_reduction="mean",
    )  # fmt: skip

    def loss(model: nn.Module, device: torch.device) -> torch.Tensor:
        sound = _numbers(device, model, 2, 320)
        return model(sound, labels=_ids(device, 4)).loss

    return transformers.Wav2Vec2ForCTC(config), loss


def mamba(p: float) -> Made:
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, state_size=4, time_step_rank=2
    )
    return _words(transformers.MambaForCausalLM, config)


class _Conv(nn.Module):
    def __init__(self, inside: int, outside: int, p: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inside), nn.GroupNorm(4, outside)
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1)
        self.time, self.skip = nn.Linear(16, outside), nn.Conv2d(inside, outside, 1)
        self.dropout = nn.Dropout(p)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(self.dropout(F.silu(self.norm2(y))))


class UNet(nn.Module):
    """Predicts the noise that was added to an image."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16))
        self.begin, self.end = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.down, self.middle, self.up = _Conv(8, 16, p), _Conv(16, 16, p), _Conv(32, 8, p)
        self.shrink = nn.Conv2d(16, 16, 3, 2, 1)
        self.attention = nn.MultiheadAttention(16, 4, p, batch_first=True)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        angles = steps[:, None] * torch.exp(-torch.arange(8, device=x.device) / 2)
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype))
        before = self.down(self.begin(x), time)
        y = self.middle(self.shrink(before), time)
        tokens = self.norm(y).flatten(2).transpose(1, 2)
        found = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        y = y + found.transpose(1, 2).reshape(y.shape)
        y = F.interpolate(y, scale_factor=2, mode="nearest")
        return self.end(self.up(torch.cat([y, before], 1), time))


def unet(p: float) -> Made:
    def loss(model: nn.Module, device: torch.device) -> torch.Tensor:
        noise = _numbers(device, model, 2, 3, 8, 8)
        image = torch.linspace(-1, 1, noise.numel(), device=device).view(noise.shape)
        steps = torch.tensor([3.0, 40.0], device=device)
        return F.mse_loss(model((image.to(noise.dtype) + noise) * 0.7, steps), noise)

    return UNet(p), loss


def _bench(name: str) -> Made:
    step = models.build(name).to("cpu")

    def loss(model: nn.Module, device: torch.device) -> torch.Tensor:
        dtype = next(model.parameters()).dtype
        batch = [t.to(device) for t in step.batch]
        batch = [t.to(dtype) if t.is_floating_point() else t for t in batch]
        return step.case.loss(model, *batch)

    return step.model, loss


def resnet(p: float) -> Made:
    return _bench("resnet-narrow")


def lstm(p: float) -> Made:
    return _bench("lstm")


MODELS = {
    make.__name__: make
    for make in (
        llama, qwen, gpt2, mixtral, bert, t5, bart, vit, convnext, whisper, wav2vec, mamba,
        unet, resnet, lstm,
    )
}  # fmt: skip
