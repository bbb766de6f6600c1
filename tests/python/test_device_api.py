# SPDX-License-Identifier: Apache-2.0
"""torch.npu's device functions, and the many ways to name a device."""

import pytest
import torch
from programs import program


def test_properties():
    p = torch.npu.get_device_properties(0)
    assert repr(p).startswith(f"_NPUDeviceProperties(name='{p.name}', total_memory=")
    assert p.total_memory > 0 and p.cube_core_num >= 1
    assert len(str(p.uuid)) == 36 and len(p.uuid.bytes) == 16
    assert p.major is None and p.warp_size is None


def test_name_can_be_chosen(run_python):
    run_python(
        "import torch, torch_npu\n"
        "assert torch.npu.get_device_name() == 'Ascend910B1'\n"
        "assert torch.npu.get_device_properties().name == 'Ascend910B1'\n"
        "assert torch.npu.get_soc_version() == 220",
        NPU_DEVICE_NAME="Ascend910B1",
    )


def test_soc_version_of_another_device():
    assert torch.npu.get_soc_version() in (-1, *range(220, 261))


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_a_cpu_device_is_refused(device):
    with pytest.raises(ValueError, match="Expected a npu device, but got: cpu"):
        torch.npu.set_device(device)


@pytest.mark.parametrize("device", [True, 1.5, [0]])
def test_what_is_no_device_is_refused(device):
    with pytest.raises(TypeError, match="Expected a npu device, but got:"):
        torch.npu.set_device(device)


def test_wrong_index():
    bad = torch.npu.device_count() + 1
    for call in (torch.npu.set_device, torch.npu.get_device_name, torch.npu.synchronize):
        with pytest.raises(
            RuntimeError, match=r"(?s)Invalid device ID.*Check whether the device ID"
        ):
            call(bad)
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.npu.can_device_access_peer(bad, 0)
    with pytest.raises(AssertionError, match="Invalid peer device id"):
        torch.npu.can_device_access_peer(0, bad)
    for call in (torch.npu.memory_allocated, torch.npu.reset_peak_memory_stats):
        with pytest.raises(RuntimeError, match=r"(?s)Invalid device argument .*ERR00001"):
            torch.npu.init()
            call(bad)


def test_bad_arguments():
    for bad, error in ((-1, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="set_op_timeout_ms"):
            torch.npu.set_op_timeout_ms(bad)
    torch.npu.set_op_timeout_ms(0)
    for call in (torch.npu.get_device_limit, torch.npu.set_device_limit):
        with pytest.raises(ValueError, match="specified index or an integer"):
            call(None)
    assert torch.npu.get_device_limit(0)["cube_core_num"] > 0


def test_get_device_index():
    assert torch.npu._get_device_index("npu:0") == 0
    with pytest.raises(RuntimeError, match="Invalid device string"):
        torch.npu._get_device_index("npu0", optional=True)
    with pytest.raises(ValueError, match="Expected a npu device"):
        torch.npu._get_device_index(torch.device("cpu"), optional=True)


def test_no_peer_of_itself():
    assert torch.npu.can_device_access_peer(0, 0) is False


def test_capability(monkeypatch):
    monkeypatch.delenv("TORCH_NPU_DEVICE_CAPABILITY", raising=False)
    with pytest.warns(UserWarning, match="get_device_capability"):
        assert torch.npu.get_device_capability() is None
    monkeypatch.setenv("TORCH_NPU_DEVICE_CAPABILITY", "8.9")
    assert torch.npu.get_device_capability() == (8, 9)
    for bad in ("eight", "8.a", "8", "8.0.1"):
        monkeypatch.setenv("TORCH_NPU_DEVICE_CAPABILITY", bad)
        with pytest.warns(UserWarning, match="is not of the form major.minor"):
            assert torch.npu.get_device_capability() is None


def test_memory_info():
    free, total = torch.npu.mem_get_info()
    assert 0 < free <= total == torch.npu.get_device_properties().total_memory


@pytest.mark.modes
@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.npu(),
        lambda x: x.npu(0),
        lambda x: x.npu("npu:0"),
        lambda x: x.to("npu"),
        lambda x: x.to("npu:0"),
        lambda x: x.to(0),
        lambda x: x.to(torch.device(0)),
        lambda x: x.to(device=torch.device("npu", 0)),
        lambda x: x.npu(torch.device("npu")),
    ],
)
def test_ways_to_name_a_device(move):
    moved = move(torch.arange(3))
    assert moved.is_npu and moved.device == torch.device("npu", 0)
    assert moved.tolist() == [0, 1, 2]


def test_integer_devices():
    assert torch.device(0) == torch.device("npu:0")
    assert torch.zeros(2, device=0).device == torch.device("npu:0")
    assert torch.nn.Linear(2, 2).to(0).weight.is_npu


def test_default_device():
    torch.set_default_device("npu")
    try:
        assert torch.zeros(2).is_npu
        assert torch.get_default_device() == torch.device("npu:0")
        with torch.device("cpu"):
            assert torch.zeros(2).device.type == "cpu"
    finally:
        torch.set_default_device(None)
    with torch.device("npu"):
        assert torch.randn(2).is_npu


def test_device_context():
    with torch.npu.device(0) as entered:
        assert entered.idx == 0
        assert torch.npu.current_device() == 0
    with torch.npu.device(None), torch.npu.device(-1):
        assert torch.npu.current_device() == 0
    with torch.npu.device_of(torch.zeros(1)):
        assert torch.npu.current_device() == 0


def test_several_devices(run_python):
    run_python(
        program(__file__, "_several_devices"),
        NPU_HOST_DEVICES="3",
    )


def test_visible_devices(run_python):
    run_python(
        "import torch, torch_npu; assert torch.npu.device_count() == 2",
        NPU_HOST_DEVICES="4",
        ASCEND_RT_VISIBLE_DEVICES="1,3",
    )


def test_accelerator_api():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("npu")
    assert torch.accelerator.device_count() == torch.npu.device_count()
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream() == torch.npu.current_stream()
    assert torch.get_device_module("npu") is torch.npu
    x = torch.zeros(1000, device="npu")
    assert torch.accelerator.memory_allocated() == torch.npu.memory_allocated() >= x.nbytes
    torch.accelerator.empty_cache()


def test_core_limits():
    cores = torch.npu.get_device_properties().cube_core_num
    stream = torch.npu.Stream()
    assert torch.npu.get_stream_limit(stream)["cube_core_num"] == cores
    torch.npu.set_stream_limit(stream, 1, 1)
    assert torch.npu.get_stream_limit(stream) == {"cube_core_num": 1, "vector_core_num": 1}
    torch.npu.reset_stream_limit(stream)
    assert torch.npu.get_stream_limit(stream)["cube_core_num"] == cores
    with pytest.raises(ValueError, match="cube_num=0"):
        torch.npu.set_stream_limit(stream, 0)


def test_device_limit_is_set_once(run_python):
    run_python(
        "import torch, torch_npu\n"
        "torch.npu.set_device_limit(0, 1, 1)\n"
        "assert torch.npu.get_device_limit(0) == {'cube_core_num': 1, 'vector_core_num': 1}\n"
        "try: torch.npu.set_device_limit(0, 1, 1)\n"
        "except RuntimeError as e: assert 'already set' in str(e)\n"
        "else: raise SystemExit('set twice')"
    )
