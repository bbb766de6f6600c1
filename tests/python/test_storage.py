# SPDX-License-Identifier: Apache-2.0
"""Operators on storages: set_, resize_, and what stands on them."""

import copy
import gc

import pytest
import torch
from programs import program

pytestmark = pytest.mark.modes


def test_resize_keeps_what_fits_and_views_survive():
    x = torch.arange(6.0, device="npu")
    view = x[2:4]
    x.resize_(100)
    assert x[:6].tolist() == list(range(6))
    x[2] = 50
    assert view[0].item() == 50
    assert x.untyped_storage().nbytes() == 400


def test_resize_to_equal_sizes_is_a_no_op():
    x = torch.zeros(3, 2, device="npu").t()
    pointer = x.data_ptr()
    x.resize_(2, 3)
    assert x.stride() == (1, 2) and x.data_ptr() == pointer


def test_resize_honours_the_memory_format():
    x = torch.empty(0, device="npu").resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_out_keeps_strides():
    a = torch.randn(3, 4)
    out = torch.empty(4, 3, device="npu").t()
    torch.add(a.npu(), 1, out=out)
    assert out.stride() == (1, 3) and out.cpu().equal(a + 1)


def test_storage_resize_to_nothing_and_back():
    # FSDP frees and restores parameters this way.
    x = torch.arange(4.0, device="npu")
    storage = x.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(16)
    x.copy_(torch.ones(4))
    assert x.tolist() == [1] * 4


def test_shrinking_keeps_the_front():
    storage = torch.arange(8, dtype=torch.uint8, device="npu").untyped_storage()
    storage.resize_(3)
    assert storage.cpu().tolist() == [0, 1, 2]


def test_memory_that_is_not_ours_is_not_resized():
    x = torch.from_numpy(__import__("numpy").zeros(3))
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(30)
    y = torch.arange(3.0, device="npu")
    assert y.untyped_storage().resizable()


def test_set_takes_over_a_storage():
    source = torch.arange(6.0, device="npu")
    x = torch.empty(0, device="npu").set_(source)
    assert x.is_set_to(source)
    x = torch.empty(0, device="npu").set_(source.untyped_storage())
    assert x.tolist() == list(range(6))
    x = torch.empty(0, device="npu").set_(source.untyped_storage(), 1, (2, 2), (1, 2))
    assert x.tolist() == [[1, 3], [2, 4]] and not x.is_set_to(source)
    x.set_()
    assert x.numel() == 0 and x.device.type == "npu"
    assert source.tolist() == list(range(6))


def test_set_grows_a_storage_that_is_too_small():
    x = torch.arange(3.0, device="npu")
    y = torch.empty(0, device="npu").set_(x.untyped_storage(), 0, (10,), (1,))
    assert y[:3].tolist() == [0, 1, 2] and x.untyped_storage().nbytes() == 40


def test_set_refuses_bad_input():
    x = torch.zeros(3, device="npu")
    with pytest.raises(RuntimeError, match="device"):
        x.set_(torch.zeros(3).untyped_storage())
    with pytest.raises(RuntimeError, match="offset"):
        x.set_(x.untyped_storage(), -1, (1,), (1,))
    with pytest.raises(RuntimeError, match="unequal size length"):
        x.set_(x.untyped_storage(), 0, (1,), (1, 1))
    assert x.tolist() == [0, 0, 0]


def test_deepcopy_shares_what_was_shared():
    a = torch.arange(4.0, device="npu")
    b, c = copy.deepcopy([a, a[1:3]])
    assert b.device == a.device and b.tolist() == a.tolist()
    c.fill_(9)
    assert b.tolist() == [0, 9, 9, 3] and a.tolist() == [0, 1, 2, 3]


def test_data_of_a_parameter_can_move_device():
    # Needs _has_compatible_shallow_copy_type.
    p = torch.nn.Parameter(torch.ones(3))
    p.data = p.data.npu()
    assert p.device.type == "npu"
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = [id(p) for p in model.parameters()]
    model.npu()
    assert [id(p) for p in model.parameters()] == before
    assert model[0].weight is model[1].weight
    model(torch.ones(1, 3, device="npu")).sum().backward()
    old = model[0].weight.detach().clone()
    optimizer.step()
    assert not model[1].weight.equal(old)


def test_memory_of_a_recorded_stream_is_free_again_when_the_stream_is_done():
    gc.collect()
    before = torch.npu.memory_allocated()
    x = torch.ones(1000, device="npu")
    side = torch.npu.Stream()
    x.record_stream(side)
    torch.empty(0, device="npu").record_stream(side)  # has no memory to hold back
    del x
    torch.npu.synchronize()
    torch.empty(10, device="npu")  # looks at what streams have passed
    assert torch.npu.memory_allocated() == before


def test_is_set_to_compares_layout():
    x = torch.zeros(4, 4, device="npu")
    assert x.is_set_to(x.view(4, 4)) and not x.is_set_to(x.t())
    assert not x.is_set_to(x.clone())


RESIZE = program(__file__, "_resize")


def test_resize_is_ordered_and_stays_on_its_device(run_python):
    run_python(RESIZE, NPU_HOST_DEVICES="2", NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US="2000")
    run_python(RESIZE, NPU_HOST_DEVICES="2", NPU_HOST_PROTECT="1")
