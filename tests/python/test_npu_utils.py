# SPDX-License-Identifier: Apache-2.0
"""torch_npu.utils: combined tensors, counters of operations, saving, cores, the environment."""

import os
import re
import threading

import interpreter
import pytest
import torch
import torch_npu
from child import run_child
from torch.utils.flop_counter import FlopCounterMode
from torch_npu.utils import (
    get_part_combined_tensor,
    is_combined_tensor_valid,
    npu_combine_tensors,
    save_async,
)
from torch_npu.utils.affinity import _reset_thread_affinity, _set_thread_affinity
from torch_npu.utils.flops_count import FlopsCounter, _FlopsCounter


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_combine_tensors(dtype):
    tensors = [torch.randn(shape, dtype=dtype).npu() for shape in ((2, 2, 2), (4, 4), (3,))]
    values = [t.clone() for t in tensors]
    whole = npu_combine_tensors(tensors)
    assert whole.is_contiguous() and whole.numel() == 8 + 16 + 3
    address = whole.data_ptr()
    for tensor, value in zip(tensors, values, strict=True):
        assert tensor.data_ptr() == address and torch.equal(tensor, value)
        address += tensor.numel() * tensor.element_size()
    whole += 2
    for tensor, value in zip(tensors, values, strict=True):
        assert torch.equal(tensor, value + 2)
    assert torch.equal(get_part_combined_tensor(whole, 8, 16).view(4, 4), tensors[1])
    assert is_combined_tensor_valid(whole, tensors)
    assert not is_combined_tensor_valid(whole, [*tensors, None])
    assert not is_combined_tensor_valid(whole, tensors[:2])
    assert not is_combined_tensor_valid(whole, [t.clone() for t in tensors])


def test_combine_tensors_bad_input():
    assert npu_combine_tensors([]) is None and is_combined_tensor_valid(None, [])
    with pytest.raises(RuntimeError, match="expected npu tensors"):
        npu_combine_tensors([torch.ones(2)])
    with pytest.raises(RuntimeError, match="one dtype and device"):
        npu_combine_tensors([torch.ones(2, device="npu"), torch.ones(2, device="npu").half()])
    whole = npu_combine_tensors([torch.ones(4, device="npu")])
    with pytest.raises(RuntimeError, match="are not in a combined tensor"):
        get_part_combined_tensor(whole, 2, 4)
    with pytest.raises(RuntimeError, match="are not in a contiguous tensor"):
        torch_npu.npu_change_data_ptr(torch.ones(3, device="npu"), whole, 2)


def test_combine_parameters_stay_trainable():
    layer = torch.nn.Linear(3, 3).npu()
    whole = npu_combine_tensors(list(layer.parameters()))
    layer(torch.ones(1, 3, device="npu")).sum().backward()
    assert layer.weight.grad.shape == (3, 3) and whole.requires_grad is False


def programs():
    attention = torch.nn.functional.scaled_dot_product_attention
    q = torch.randn(2, 4, 16, 8)
    conv = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, groups=1)
    back = torch.nn.ConvTranspose2d(3, 8, 3, stride=2)
    image = torch.randn(2, 3, 9, 9)
    return {
        "linear": (torch.nn.Linear(16, 32), (torch.randn(4, 16),)),
        "linear3d": (torch.nn.Linear(16, 32, bias=False), (torch.randn(2, 4, 16),)),
        "bmm": (torch.bmm, (torch.randn(3, 4, 5), torch.randn(3, 5, 6))),
        "baddbmm": (torch.baddbmm, (torch.zeros(1), torch.randn(3, 4, 5), torch.randn(3, 5, 6))),
        "conv": (conv, (image,)),
        "transposed": (back, (image,)),
        "attention": (attention, (q, torch.randn(2, 4, 10, 8), torch.randn(2, 4, 10, 8))),
    }


@pytest.mark.parametrize("name", programs())
def test_flops_counter(name):
    torch.manual_seed(0)
    function, inputs = programs()[name]
    inputs = tuple(x.clone().requires_grad_() for x in inputs)
    with FlopCounterMode(display=False) as mode:
        function(*inputs).sum().backward()
    wanted = mode.get_total_flops()  # PyTorch's own, on the CPU
    if name == "attention":  # the CPU's kernel is not in its list: two products and five
        wanted = 7 * 2 * 2 * 4 * 16 * 10 * 8
    moved = function.npu() if isinstance(function, torch.nn.Module) else function
    counter = _FlopsCounter()
    counter.start()
    try:
        moved(*(x.detach().npu().requires_grad_() for x in inputs)).sum().backward()
        assert counter.get_flops() == [wanted, wanted]
    finally:
        counter.stop()


def test_flops_counter_pauses_and_sees_threads():
    x = torch.ones(4, 4, device="npu")
    with pytest.warns(FutureWarning, match="will be deprecated"):
        counter = FlopsCounter()
    counter.start()
    try:
        thread = threading.Thread(target=lambda: x @ x)
        thread.start()
        thread.join()
        counter.pause()
        x @ x
        counter.resume()
        assert counter.get_flops() == [128, 256]
    finally:
        counter.stop()
    x @ x
    assert counter.get_flops() == [128, 256]


def test_save_async(tmp_path):
    x = torch.arange(5.0, device="npu")
    path = tmp_path / "x.pt"
    thread = save_async({"x": x, "view": x[1:3], "n": 3}, path)
    x.zero_()
    thread.join(60)
    assert thread.error is None and os.listdir(tmp_path) == ["x.pt"]
    loaded = torch.load(path)
    assert loaded["x"].device == x.device and loaded["x"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    loaded["x"][1] = 7
    assert loaded["view"][0].item() == 7 and loaded["n"] == 3
    with open(tmp_path / "open.pt", "wb") as file:
        save_async([1, 2], file).join(60)
    assert torch.load(tmp_path / "open.pt") == [1, 2]
    with pytest.raises(RuntimeError, match="does not exist"):
        save_async(x, tmp_path / "no" / "x.pt")


def test_thread_affinity():
    mine = os.sched_getaffinity(0)
    core = min(mine)
    try:
        _set_thread_affinity([core, core])
        assert os.sched_getaffinity(0) == {core}
        _set_thread_affinity(None)
        assert os.sched_getaffinity(0) == mine
        _set_thread_affinity([[core, core], [core, core]])
        _reset_thread_affinity()
        assert os.sched_getaffinity(0) == mine
    finally:
        os.sched_setaffinity(0, mine)
    for bad in ([1, 2, 3], [], [-1, 5], [5, 2], ["0", "1"], [[0]], 3):
        with pytest.raises(ValueError, match="Invalid core range"):
            _set_thread_affinity(bad)
    with pytest.raises(ValueError, match="set_thread_affinity"):
        _set_thread_affinity([100000, 100000])


def test_collect_env(monkeypatch, tmp_path, capsys):
    from torch_npu.utils import collect_env

    info = collect_env.get_env_info()
    assert info.torch_version == torch.__version__
    assert info.torch_npu_version == torch_npu.__version__
    text = collect_env.pretty_str(info)
    assert f"PyTorch version: {torch.__version__}" in text
    # As programs read it: the first character is the major version, the third the minor one.
    assert re.fullmatch(r"\d\.\d\.\d", collect_env.get_cann_version())
    assert f"CANN:\n{collect_env.get_cann_version()}\nDriver: host " in text
    monkeypatch.setattr(collect_env, "TORCH_NPU_AVAILABLE", False)
    assert collect_env.get_torch_npu_version() == "N/A"
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(RuntimeError, match="Invalid path is a soft chain"):
        collect_env.check_directory_path_readable(str(tmp_path / "link"))
    with pytest.raises(RuntimeError, match="The path does not exist"):
        collect_env.check_path_owner_consistent("/non/existent/path")
    monkeypatch.setattr(collect_env.site, "getsitepackages", list)
    assert collect_env.get_torch_npu_install_path() == ""


def test_cpp_extension():
    from torch_npu.utils.cpp_extension import NpuExtension

    made = NpuExtension("mine", ["mine.cpp"], libraries=["m"])
    assert {"m", "c10", "torch", "torch_npu", "torch_python"} <= set(made.libraries)
    assert os.path.exists(os.path.join(made.library_dirs[0], "libtorch_npu.so"))


def test_private_names_that_programs_use():
    from torch_npu import _C
    from torch_npu.npu.utils import _is_gte_cann_version, get_cann_version

    made = _C._empty_strided_npu((2, 3), (1, 2), torch.float16)
    assert made.device.type == "npu" and made.stride() == (1, 2) and made.dtype == torch.float16
    assert _C._npu_getOption("ALLOW_INTERNAL_FORMAT") in (b"enable", b"disable")
    assert _C._npu_getOption("ACL_PRECISION_MODE") in (
        b"must_keep_origin_dtype",
        b"allow_fp32_to_fp16",
    )
    assert _C._npu_getOption("no such option") is None
    before = _C._npu_getOption("ALLOW_CONV_HF32")
    _C._npu_setOption({"ALLOW_CONV_HF32": "disable"})
    assert _C._npu_getOption("ALLOW_CONV_HF32") == b"disable" and not torch.npu.conv.allow_hf32
    _C._npu_setOption({"ALLOW_CONV_HF32": before.decode()})
    assert get_cann_version() == _C._get_cann_version("CANN") == get_cann_version("RUNTIME")
    assert re.fullmatch(r"\d+\.\d+\.\d+", get_cann_version())
    assert get_cann_version("DRIVER") == ""
    with pytest.warns(UserWarning, match="module CAN is invalid"):
        assert get_cann_version("CAN") == ""
    assert _C._npu_get_soc_version() == torch_npu.npu.utils.get_soc_version()
    assert _is_gte_cann_version("8.1.RC1") and _is_gte_cann_version("9.0.0", "RUNTIME")
    newer = int(get_cann_version().partition(".")[0]) + 1
    for later in (f"{newer}.0.0", f"{newer}.0.T10", f"{newer}.0.RC1.alpha001"):
        assert not _is_gte_cann_version(later), later
    with pytest.raises(RuntimeError, match=r"(?s)is less than .*ERR00003"):
        _is_gte_cann_version("8.0.RC1")
    with pytest.raises(RuntimeError, match="the module is DRIVER"):
        _is_gte_cann_version("8.1.RC1", "DRIVER")


def test_no_other_chip_has_a_cann_version():
    code = """
        import torch_npu
        from torch_npu.npu.utils import _is_gte_cann_version, get_cann_version
        assert get_cann_version() == "" and _is_gte_cann_version("99.0.0")
        assert not torch_npu.npu.is_initialized()
    """
    run_child(code, NPU_DEVICE_NAME="Other 1")


@pytest.mark.parametrize(
    "mode, warns", [("0", False), ("1", False), ("2", False), ("999", True), ("x", True)]
)
def test_op_init_mode_is_checked_at_the_first_use(mode, warns):
    said = "Get env ACL_OP_INIT_MODE not in [0, 1, 2]"
    done = interpreter.run(
        [
            "-c",
            "import torch_npu, sys; print('used', file=sys.stderr); torch_npu.npu.set_device(0)",
        ],
        env={**os.environ, "ACL_OP_INIT_MODE": mode},
    )
    assert done.returncode == 0, done.stderr
    before, _, after = done.stderr.partition("used")
    assert said not in before and after.count(said) == warns, done.stderr
