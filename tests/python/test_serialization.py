# SPDX-License-Identifier: Apache-2.0
"""torch.save and torch.load, deepcopy and pickle of npu tensors."""

import copy
import io
import pickle

import pytest
import torch

pytestmark = pytest.mark.modes


def saved(obj) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_round_trip_keeps_device_and_values(dtype):
    x = torch.arange(12).to(dtype).npu().view(3, 4)
    back = torch.load(saved(x))
    assert back.device == x.device and back.dtype == dtype
    assert torch.equal(back.cpu(), x.cpu())


@pytest.mark.parametrize(
    "where", ["cpu", torch.device("cpu"), {"npu:0": "cpu"}, lambda s, _: s.cpu()]
)
def test_npu_to_cpu(where):
    back = torch.load(saved(torch.arange(5, device="npu")), map_location=where)
    assert back.device.type == "cpu" and back.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("where", ["npu", "npu:0", torch.device("npu:0"), {"cpu": "npu:0"}])
def test_cpu_to_npu(where):
    back = torch.load(saved(torch.arange(5)), map_location=where)
    assert back.device == torch.device("npu:0") and back.tolist() == [0, 1, 2, 3, 4]


def test_views_share_after_loading():
    x = torch.zeros(4, device="npu")
    first, second = torch.load(saved([x, x.view(2, 2)]))
    first[3] = 9
    assert second[1, 1].item() == 9


def test_checkpoint_of_a_missing_device(run_python, tmp_path):
    run_python(
        "import torch, torch_npu; torch.save(torch.ones(2, device='npu:3'), 'x.pt')",
        NPU_HOST_DEVICES="4",
    )
    if torch.npu.device_count() < 4:
        with pytest.raises(RuntimeError, match="map_location"):
            torch.load(tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", map_location="npu:0").tolist() == [1, 1]
    assert torch.load(tmp_path / "x.pt", map_location="cpu").tolist() == [1, 1]


def test_state_dicts():
    model = torch.nn.Linear(3, 2).npu()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3, device="npu")).sum().backward()
    optimizer.step()
    loaded = torch.load(saved({"model": model.state_dict(), "optim": optimizer.state_dict()}))
    other = torch.nn.Linear(3, 2).npu()
    other.load_state_dict(loaded["model"])
    fresh = torch.optim.AdamW(other.parameters())
    fresh.load_state_dict(loaded["optim"])
    assert torch.equal(other.weight, model.weight)
    assert fresh.state[other.weight]["exp_avg"].is_npu


def test_deepcopy_and_pickle():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).npu()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin[0].weight.is_npu and torch.equal(twin[0].weight, model[0].weight)
        assert twin[0].weight.data_ptr() != model[0].weight.data_ptr()
    x = torch.arange(3.0, device="npu", requires_grad=True)
    assert copy.deepcopy(x).requires_grad
    assert pickle.loads(pickle.dumps(x)).device == x.device


def test_deepcopy_keeps_sharing():
    x = torch.zeros(3, device="npu")
    a, b = copy.deepcopy((x, x[1:]))
    a[2] = 5
    assert b[1].item() == 5


def test_storage():
    s = torch.arange(4, dtype=torch.uint8).untyped_storage()
    on_npu = s.npu()
    assert on_npu.is_npu and on_npu.device == torch.device("npu:0")
    assert on_npu.npu(0) is on_npu
    assert on_npu.cpu().tolist() == [0, 1, 2, 3]
    on_npu.resize_(8)
    assert on_npu.nbytes() == 8 and on_npu.cpu().tolist()[:4] == [0, 1, 2, 3]
    typed = torch.ones(3).storage().npu()
    assert typed.is_npu and list(typed.cpu()) == [1, 1, 1]


def test_packed_sequence():
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert packed.npu().is_npu and packed.npu().cpu().data.sum() == 5
