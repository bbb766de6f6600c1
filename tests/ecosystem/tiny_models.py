# SPDX-License-Identifier: Apache-2.0
"""Tiny models of Transformers, made from their configurations, with a batch for each."""

from __future__ import annotations

import torch
import transformers as tf

DECODER = dict(
    vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
GROUPED = dict(DECODER, num_key_value_heads=2)
EXPERTS = dict(GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
ENCODER = dict(
    vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
IMAGE = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16,
    patch_size=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip

# name -> (configuration, its arguments, class, kind of batch)
MODELS = {
    "gpt2": ("GPT2Config", dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64,
             resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2),
             "GPT2LMHeadModel", "text"),
    "llama": ("LlamaConfig", GROUPED, "LlamaForCausalLM", "text"),
    "mistral": ("MistralConfig", dict(GROUPED, sliding_window=8), "MistralForCausalLM", "text"),
    "qwen2": ("Qwen2Config", GROUPED, "Qwen2ForCausalLM", "text"),
    "qwen3": ("Qwen3Config", dict(GROUPED, head_dim=8), "Qwen3ForCausalLM", "text"),
    "gemma2": ("Gemma2Config", dict(GROUPED, head_dim=8, sliding_window=8), "Gemma2ForCausalLM", "text"),
    "phi3": ("Phi3Config", GROUPED, "Phi3ForCausalLM", "text"),
    "opt": ("OPTConfig", dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            ffn_dim=64, max_position_embeddings=64, word_embed_proj_dim=32, dropout=0.0), "OPTForCausalLM", "text"),
    "bloom": ("BloomConfig", dict(vocab_size=64, hidden_size=32, n_layer=2, n_head=4), "BloomForCausalLM", "text"),
    "mixtral": ("MixtralConfig", dict(GROUPED, num_local_experts=4, num_experts_per_tok=2),
                "MixtralForCausalLM", "text"),
    "qwen3_moe": ("Qwen3MoeConfig", dict(EXPERTS, head_dim=8), "Qwen3MoeForCausalLM", "text"),
    "deepseek_v3": ("DeepseekV3Config", dict(DECODER, num_key_value_heads=4, n_routed_experts=4, n_shared_experts=1,
                    num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=32, q_lora_rank=16,
                    kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, first_k_dense_replace=1),
                    "DeepseekV3ForCausalLM", "text"),
    "bert": ("BertConfig", ENCODER, "BertForMaskedLM", "text"),
    "roberta": ("RobertaConfig", dict(ENCODER, pad_token_id=1), "RobertaForMaskedLM", "text"),
    "t5": ("T5Config", dict(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
           decoder_start_token_id=0), "T5ForConditionalGeneration", "text"),
    "bart": ("BartConfig", dict(vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64,
             decoder_ffn_dim=64, encoder_attention_heads=4, decoder_attention_heads=4, dropout=0.0,
             max_position_embeddings=64, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2,
             forced_eos_token_id=2), "BartForConditionalGeneration", "text"),
    "vit": ("ViTConfig", IMAGE, "ViTForImageClassification", "image"),
    "whisper": ("WhisperConfig", dict(vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2,
                encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
                num_mel_bins=8, max_source_positions=16, max_target_positions=32, pad_token_id=0, bos_token_id=1,
                eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None,
                dropout=0.0), "WhisperForConditionalGeneration", "sound"),
    "clip": ("CLIPConfig", dict(text_config=dict(DECODER, projection_dim=16),
             vision_config=dict(IMAGE, projection_dim=16), projection_dim=16), "CLIPModel", "both"),
}  # fmt: skip


def build(name: str, attention: str | None = None, **changes):
    config, arguments, kind, batch = MODELS[name]
    torch.manual_seed(0)
    made = getattr(tf, config)(**{**arguments, **changes})
    if attention is not None:
        made._attn_implementation = attention
    return getattr(tf, kind)(made), BATCHES[batch](made)


def _text(config, rows=4, length=12):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 64, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, -3:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}


def _pixels():
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(2))


def _image(config):
    return {"pixel_values": _pixels(), "labels": torch.tensor([0, 1, 0, 1])}


def _sound(config):
    sound = torch.randn(4, 8, 32, generator=torch.Generator().manual_seed(2))
    return {"input_features": sound, "labels": _text(config)["labels"]}


def _both(config):
    text = _text(config)
    del text["labels"]
    return {**text, "pixel_values": _pixels(), "return_loss": True}


BATCHES = {"text": _text, "image": _image, "sound": _sound, "both": _both}


def train(
    model, batch, device: str, steps: int = 5, dtype: torch.dtype | None = None
) -> list[float]:
    """Losses; `dtype` is autocast's."""
    model = model.to(device).train()
    batch = {k: v.to(device) if torch.is_tensor(v) else v for k, v in batch.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, dtype, enabled=dtype is not None):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
