# SPDX-License-Identifier: Apache-2.0
"""The Transformers library finds the device by itself."""

import pytest
import torch

transformers = pytest.importorskip("transformers")


def test_detection():
    assert transformers.utils.is_torch_npu_available()


def test_model_from_config():
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertModel(config).eval()
    ids = torch.arange(8)[None]
    with torch.no_grad():
        expected = model(ids).last_hidden_state
        got = model.npu()(ids.npu()).last_hidden_state
    assert got.is_npu and torch.allclose(got.cpu(), expected, atol=1e-5)


def test_trainer_arguments_choose_the_device(tmp_path):
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), report_to=[])
    assert arguments.device.type == "npu"
