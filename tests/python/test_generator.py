# SPDX-License-Identifier: Apache-2.0
"""Generators: seeds, the 16-byte state, forking it, one per device."""

import struct
import threading

import pytest
import torch
import torch_npu  # noqa: F401
from child import run_child
from programs import program

pytestmark = pytest.mark.modes


def draw(**kw):
    return torch.rand(16, device="npu", **kw).tolist()


def test_manual_seed_repeats():
    torch.manual_seed(7)
    first, second = draw(), draw()
    assert first != second
    torch.manual_seed(7)
    assert [draw(), draw()] == [first, second]
    torch.npu.manual_seed_all(7)
    assert draw() == first
    assert torch.npu.initial_seed() == 7


def test_state_is_seed_and_offset():
    torch.npu.manual_seed(11)
    state = torch.npu.get_rng_state()
    assert (state.device.type, state.dtype, state.numel()) == ("cpu", torch.uint8, 16)
    assert struct.unpack("QQ", bytes(state.tolist())) == (11, 0)
    first = draw()
    seed, offset = struct.unpack("QQ", bytes(torch.npu.get_rng_state().tolist()))
    assert seed == 11 and offset > 0 and offset % 4 == 0
    torch.npu.set_rng_state(state)
    assert draw() == first


def test_eight_byte_state_is_a_seed():
    generator = torch.Generator("npu")
    generator.set_state(torch.tensor(list(struct.pack("Q", 99)), dtype=torch.uint8))
    assert generator.initial_seed() == 99
    assert struct.unpack("QQ", bytes(generator.get_state().tolist())) == (99, 0)


@pytest.mark.parametrize("size", [0, 7, 15, 17, 5056])
def test_state_of_another_size_is_refused(size):
    generator = torch.Generator("npu")
    before = generator.get_state()
    with pytest.raises(RuntimeError, match="wrong size"):
        generator.set_state(torch.zeros(size, dtype=torch.uint8))
    assert torch.equal(generator.get_state(), before)


def test_offset_must_be_a_multiple_of_four():
    generator = torch.Generator("npu")
    with pytest.raises(RuntimeError, match="multiple of 4"):
        generator.set_state(torch.tensor(list(struct.pack("QQ", 1, 6)), dtype=torch.uint8))


def test_own_generator_is_independent_of_the_default_one():
    torch.manual_seed(3)
    default = draw()
    generator = torch.Generator("npu").manual_seed(3)
    torch.manual_seed(3)
    assert draw(generator=generator) == default
    assert draw() == default


def test_clone_state_and_graphsafe_state():
    generator = torch.Generator("npu").manual_seed(5)
    draw(generator=generator)
    twin = generator.clone_state()
    other = torch.Generator("npu")
    other.graphsafe_set_state(generator.graphsafe_get_state())
    expected = draw(generator=generator)
    assert draw(generator=twin) == expected
    assert draw(generator=other) == expected


def test_fork_rng_restores():
    torch.manual_seed(1)
    draw()
    before = torch.npu.get_rng_state()
    with torch.random.fork_rng(device_type="npu"):
        torch.manual_seed(2)
        draw()
    assert torch.equal(torch.npu.get_rng_state(), before)


def test_seed_is_fresh():
    generator = torch.Generator("npu")
    assert generator.seed() != generator.seed()


def test_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device="npu", generator=torch.Generator("cpu"))
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device="cpu", generator=torch.Generator("npu"))


def test_generators_per_device():
    run_child(
        program(__file__, "_generators_per_device"),
        NPU_HOST_DEVICES="2",
    )


def test_threads_never_draw_the_same_numbers():
    torch.manual_seed(0)
    drawn = []

    def work():
        for _ in range(20):
            drawn.append(tuple(torch.rand(64, device="npu").tolist()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == len(drawn) == 80
