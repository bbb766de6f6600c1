# SPDX-License-Identifier: Apache-2.0
"""Copies and files of compiled models: a model that is loaded compiles itself again."""

import copy
import io
import pickle

import pytest
import torch
import torchair


def backends():
    config = torchair.CompilerConfig()
    config.mode = "npugraph_ex"
    config.debug.aclgraph.static_capture_size_limit = 3
    return ["npu", "npugraph_ex", torchair.get_npu_backend(compiler_config=config)]


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("make", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), saved])
@pytest.mark.parametrize("which", range(3))
def test_a_copy_is_a_model_of_its_own(which, make):
    model, x = torch.nn.Linear(4, 4).npu(), torch.randn(2, 4, device="npu")
    compiled = torch.compile(model, backend=backends()[which])
    before = compiled(x)
    other = make(compiled)
    assert torch.equal(other(x), before)
    with torch.no_grad():
        model.weight.add_(1)
    assert torch.equal(other(x), before) and torch.equal(compiled(x), model(x))
    assert not torch.equal(compiled(x), before)


def test_a_configuration_comes_back_as_it_was():
    config = torchair.CompilerConfig()
    config.debug.aclgraph.static_capture_size_limit = 3
    config.debug.fx_summary.type = "csv"
    again = pickle.loads(pickle.dumps(config))
    assert again == config and again != torchair.CompilerConfig()
    again.debug.aclgraph.static_capture_size_limit = 4
    assert config.debug.aclgraph.static_capture_size_limit.raw == 3
    with pytest.raises(ValueError, match="allowed values"):
        again.mode = "fast"
