# SPDX-License-Identifier: Apache-2.0
"""NumPy and DLPack, and the legacy tensor types."""

import numpy as np
import pytest
import torch


def test_numpy_refuses_as_cuda_does():
    x = torch.ones(2, device="npu")
    for convert in (lambda: x.numpy(), lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=r"can't convert npu:0 device type tensor to numpy"):
            convert()
    assert x.cpu().numpy().tolist() == [1, 1]
    assert x.numpy(force=True).tolist() == [1, 1]


def test_numpy_to_npu():
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    assert torch.from_numpy(array).npu().tolist() == array.tolist()
    assert torch.tensor(array, device="npu").dtype == torch.float64
    assert torch.as_tensor(array, device="npu").is_npu


def test_dlpack_device():
    x = torch.zeros(2, device="npu")
    kind, index = x.__dlpack_device__()
    assert kind == 12 and index == 0
    assert torch.zeros(2).__dlpack_device__()[0] == 1


@pytest.mark.parametrize("shape", [(4,), (2, 3), ()])
def test_dlpack_round_trip(shape):
    x = torch.arange(torch.Size(shape).numel(), device="npu").reshape(shape).float()
    for back in (
        torch.from_dlpack(x),
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)),
    ):
        assert back.device == x.device and torch.equal(back, x)
        assert back.data_ptr() == x.data_ptr()


def test_dlpack_lives_on_when_the_tensor_goes():
    x = torch.arange(1000.0, device="npu")
    back = torch.from_dlpack(x)
    del x
    torch.ones(1000, device="npu")
    assert back.sum().item() == 499500


def test_dlpack_to_another_device():
    x = torch.arange(3, device="npu")
    assert torch.from_dlpack(x, device="cpu").tolist() == [0, 1, 2]
    assert torch.from_dlpack(torch.arange(3), device="npu").is_npu


def test_typed_tensors():
    x = torch.npu.FloatTensor([1, 2])
    assert x.is_npu and x.dtype == torch.float32 and x.tolist() == [1, 2]
    assert torch.npu.LongTensor(2, 3).shape == (2, 3)
    assert torch.npu.HalfTensor().numel() == 0
    assert isinstance(x, torch.npu.FloatTensor)
    assert not isinstance(x, torch.npu.HalfTensor)
    assert not isinstance(torch.zeros(1), torch.npu.FloatTensor)


def test_type_of_a_tensor():
    x = torch.zeros(2, device="npu")
    assert x.type() == "torch.npu.FloatTensor"
    assert torch.ones(2).type("torch.npu.HalfTensor").dtype == torch.float16
    moved = torch.ones(2).type(torch.npu.DoubleTensor)
    assert moved.is_npu and moved.dtype == torch.float64
    assert x.type(torch.LongTensor).device.type == "cpu"


def test_typed_storages():
    s = torch.npu.FloatStorage(4)
    assert s.is_npu and s.dtype == torch.float32 and len(s) == 4
    assert isinstance(torch.zeros(2, device="npu").storage(), torch.npu.FloatStorage)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bool, torch.int8])
def test_printing(dtype):
    text = repr(torch.ones(2, device="npu", dtype=dtype))
    assert "device='npu:0'" in text
