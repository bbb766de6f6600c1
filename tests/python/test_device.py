# SPDX-License-Identifier: Apache-2.0
"""Devices: count, the current one per thread, properties, bad input, visibility."""

import threading

import pytest
import torch
import torch_npu  # noqa: F401
from child import run_child
from programs import names, program, variables

pytestmark = pytest.mark.modes


def test_current_device_starts_at_zero_in_each_thread():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.npu.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]
    assert torch.npu.current_device() == 0


@pytest.mark.parametrize("name", names(__file__))
def test_program(name):
    run_child(program(__file__, name), **variables(__file__, name))


@pytest.mark.parametrize("bad", [100, 63])
def test_bad_index_is_an_error_that_says_so(bad):
    text = r"Invalid device ID.*Check whether the device ID is valid"
    with pytest.raises(RuntimeError, match=text):
        torch.npu.set_device(bad)
    with pytest.raises(RuntimeError, match=text):
        torch.empty(2, device=f"npu:{bad}")
    with pytest.raises(RuntimeError, match=text):
        torch.accelerator.set_device_index(bad)
    assert torch.npu.current_device() == 0
    assert torch.ones(2, device="npu").sum().item() == 2


def test_bad_index_error_has_the_code_line():
    with pytest.raises(RuntimeError, match=r"ERR00001 PTA invalid parameter"):
        torch.npu.set_device(torch.npu.device_count() + 1)


def test_accelerator_agrees():
    assert torch.accelerator.current_accelerator().type == "npu"
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == torch.npu.device_count()
    assert torch.accelerator.current_device_index() == torch.npu.current_device()
    capability = torch.accelerator.get_device_capability()
    assert torch.float32 in capability["supported_dtypes"]
    torch.accelerator.synchronize()


@pytest.mark.parametrize(
    "visible, count",
    [
        (None, 8),
        ("0,1", 2),
        ("2,5,7", 3),
        ("2,5,3", 2),  # must ascend
        ("1,1", 1),
        ("3 4", 1),  # reading ends at the first other character
        ("0,x", 1),
        ("-1", 0),
        ("6,7,8", 2),  # 8 is not there
        (",4,", 1),
    ],
)
def test_visible_devices(visible, count):
    env = {"NPU_HOST_DEVICES": "8"}
    if visible is not None:
        env["ASCEND_RT_VISIBLE_DEVICES"] = visible
    out = run_child("import torch, torch_npu; print(torch.npu.device_count())", **env)
    assert int(out) == count


def test_visible_devices_may_change_until_first_use():
    run_child(
        """
        import os, torch, torch_npu
        assert torch.npu.device_count() == 8
        os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "1,2"
        assert torch.npu.device_count() == 2
        torch.empty(1, device="npu:1")
        os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "1"
        assert torch.npu.device_count() == 2
        """,
        NPU_HOST_DEVICES="8",
    )


def test_no_visible_device_is_an_error_at_first_use():
    run_child(
        """
        import torch, torch_npu
        assert not torch.npu.is_available()
        try:
            torch.empty(1, device="npu")
        except RuntimeError as e:
            assert "ASCEND_RT_VISIBLE_DEVICES" in str(e), e
        else:
            raise SystemExit("no error")
        """,
        ASCEND_RT_VISIBLE_DEVICES="-1",
    )


def test_driver_failure_waits_for_first_use():
    out = run_child(
        program(__file__, "_driver_failure_waits_for_first_use"),
        NPU_DRIVER="nonsense",
    )
    assert out == "raised\nraised\n"


def test_import_is_silent_and_opens_nothing():
    process_output = run_child(
        """
        import torch, torch_npu
        assert not torch.npu.is_initialized()
        assert torch.npu.device_count() >= 1
        assert not torch.npu.is_initialized()
        torch.empty(1, device="npu")
        assert torch.npu.is_initialized()
        """
    )
    assert process_output == ""


@pytest.mark.parametrize("index", [128, 255, 256, 2**20])
def test_an_index_beyond_eight_bits_does_not_wrap(index):
    with pytest.raises(RuntimeError, match="Invalid device ID"):
        torch.npu.set_device(index)
    assert torch.npu.current_device() == 0
