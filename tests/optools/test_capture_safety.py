# SPDX-License-Identifier: Apache-2.0
"""Nothing out of a capture or a folder of ditorch's runs code, opens files or leads elsewhere."""

import os
import sys

import op_tools
import pytest
import torch
from op_tools import captures, run_op_from_data
from op_tools.captures import judging, reproducer
from op_tools.cli import main
from op_tools.core import allowed_functions
from op_tools.ditorch_compat import ditorch_folders
from op_tools.save_op_args import write_args
from record_logs import write_log

FROM_FILE = (
    "aten::from_file(str filename, bool? shared=None, int? size=0, *, ScalarType? dtype=None, "
    "Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
)


pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.mark.parametrize(
    "name",
    [
        "load_library::__call__",
        "load_library::__call__.__call__",
        "import_module::__call__.__call__",
        "_dir::append.__call__",
        "aten::__getattr__.__call__",
        "aten::from_file",
        "aten::from_file.out",
        "aten::save",  # TorchScript's: no operator of the dispatcher
        "aten::open",
        "prim::load",
        "aten::_print",
        "debugprims::load_tensor",
        "inductor::_alloc_from_pool",
        "profiler::_record_function_enter",
        "aten::add.no_such_overload",
        "torch.ops.aten.from_file.default",
        "torch.ops.load_library.__call__.__call__",
        "torch.ops.load_library",
        "::",
        "",
    ],
)
def test_operators_that_no_file_may_ask_for(name):
    with pytest.raises(captures.CaptureError):
        captures.resolve(name)


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.exec",
        "torch.load",
        "torch.save",
        "torch.from_file",
        "torch.os.system",
        "torch.hub.load",
        "torch.ops.load_library.__call__",
        "torch.classes.load_library",
        "torch.__setattr__",
        "torch.__class__",
        "torch.__init__",
        "torch.__reduce_ex__",
        "torch.Tensor.__reduce_ex__",
        "torch.Tensor.__setstate__",
        "torch.Tensor.__class__",
        "torch.Tensor.__init_subclass__",
        "torch.Tensor.share_memory_",
        "torch.Tensor.apply_",
        "torch.Tensor.register_hook",
        "torch.Tensor.module_load",
        "torch.Tensor.data_ptr",
        "torch.nn.init.Callable",
        "torch.nn.init.warnings.warn",
        "torch.nn.functional.importlib.import_module",
        "torch._C._nn.__loader__",
        "torch._C._nn.__init__",
        "torch._C._import_frozen",
        "torch.utils.cpp_extension.load",
    ],
)
def test_python_names_that_no_file_may_ask_for(name):
    with pytest.raises(captures.CaptureError):
        allowed_functions.resolve(name)


def test_what_computes_is_found():
    x = torch.tensor([1.0, -2.0])
    for name, args in {
        "aten::add.Tensor": (x, x),
        "aten::gelu": (x,),
        "torch.ops.aten.gelu.default": (x,),
        "torch.ops.aten.add.Tensor": (x, x),
        "torch.add": (x, x),
        "torch.zeros": (2,),
        "torch.Tensor.__getitem__": (x, 0),
        "torch.Tensor.__rsub__": (x, 1),
        "torch.Tensor.add_": (x.clone(), 1),
        "torch.nn.functional.linear": (x, x),
        "torch.nn.init.zeros_": (x.clone(),),
        "torch._C._nn.gelu": (x,),
        "torch._foreach_add": ([x], 1),
        "torch.linalg.norm": (x,),
        "torch.fft.fft": (x,),
    }.items():
        allowed_functions.resolve(name)(*args)


def test_a_library_loaded_later_is_found():
    library = torch.library.Library("safety_late", "DEF")
    with pytest.raises(captures.CaptureError, match="no operator"):
        captures.resolve("safety_late::twice")
    library.define("twice(Tensor x) -> Tensor")
    library.define("keep(Tensor x, str filename) -> Tensor")
    library.impl("twice", lambda x: 2 * x, "CPU")
    try:
        assert captures.resolve("safety_late::twice")(torch.ones(1)).item() == 2
        with pytest.raises(captures.CaptureError, match="reads or writes files"):
            captures.resolve("safety_late::keep")
    finally:
        library._destroy()


def from_file_capture():
    return write_log(
        "evil",
        (2, ["op", 1, "aten::from_file", FROM_FILE]),
        (4, {"number": 1, "op": 1, "args": ["harmed", True, 4], "out": []}),
    )


def test_a_capture_that_names_a_file(capsys):
    folder = from_file_capture()
    assert main(["replay", folder, "--device", "cpu"]) == 1
    assert "reads or writes files" in capsys.readouterr().out
    assert run_op_from_data.main([folder, "--run_times", "1", "--device", "cpu"]) == 1
    (record,) = captures.open(folder)
    assert judging.judge(record)["verdict"] == "skip"
    with pytest.raises(captures.CaptureError, match="reads or writes files"):
        reproducer.write(record, "reproducer")
    assert main(["report", folder, "--judge"]) == 0
    assert not os.path.exists("harmed") and not os.path.exists("reproducer")


def test_a_folder_that_names_an_attribute(capsys):
    write_args("bad/1/input", "torch.__setattr__", "1/input", ("harmed", 1), {})
    assert run_op_from_data.main(["bad", "--run_times", "1"]) == 1
    assert "torch.__setattr__ is no function" in capsys.readouterr().out
    assert main(["replay", "bad"]) == 1
    assert not hasattr(torch, "harmed")


def test_an_allowed_package_is_no_way_to_another(tmp_path, monkeypatch):
    (tmp_path / "allowed_package.py").write_text(
        "import os\nfrom os import system\n\ndef twice(x):\n    return 2 * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert allowed_functions.resolve("allowed_package.twice", ["allowed_package"])(2) == 4
    for name in ("os.system", "system", "os.path.join", "twice.__globals__.clear", "nothing"):
        with pytest.raises(captures.CaptureError):
            allowed_functions.resolve(f"allowed_package.{name}", ["allowed_package"])
    with pytest.raises(captures.CaptureError, match="--allow allowed_package"):
        allowed_functions.resolve("allowed_package.twice")
    sys.modules.pop("allowed_package")


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "torch.add/../../outside", ".."])
def test_export_stays_in_its_folder(name, capsys):
    folder = write_log(
        "named", (2, ["op", 1, name, ""]), (4, {"number": 1, "op": 1, "args": [1], "out": [2]})
    )
    assert main(["export", folder, "to/here"]) == 1
    assert "its name is neither an operator" in capsys.readouterr().err
    assert not os.path.exists("to") and not os.path.exists("outside")


def test_a_number_that_is_a_path(capsys):
    folder = write_log(
        "numbered",
        (2, ["op", 1, "torch.add", ""]),
        (4, {"number": "../../../outside", "op": 1, "args": [1], "out": [2]}),
        (4, {"number": 2, "op": 1, "args": [1], "out": [2]}),
    )
    found = captures.open(folder)
    assert [record.number for record in found] == [2]
    (problem,) = found.problems
    assert captures.LOG in problem and "`number` is str" in problem
    assert main(["export", folder, "to"]) == 1
    assert os.listdir("to/torch.add") == ["2"]


def test_code_in_any_file_of_a_folder_is_refused(capsys):
    class Evil:
        def __reduce__(self):
            return os.system, ("touch harmed",)

    for what in ("input", "output", "grad_inputs", "grad_outputs"):
        write_args(f"{what}/input", "torch.add", "x", (torch.ones(1), torch.ones(1)), {})
        torch.save({"name": "torch.add", "args": (Evil(),), "kwargs": {}}, f"{what}/{what}.pth")
        assert run_op_from_data.main([what, "--run_times", "1", "--device", "cpu"]) == (
            1 if what == "input" else 0
        )
        assert "holds more than plain data" in capsys.readouterr().out
    assert not os.path.exists("harmed")


def test_a_device_of_another_plugin_in_a_folder(monkeypatch):
    torch.save({"name": "torch.add", "args": (torch.device("meta"),), "kwargs": {}}, "a.pth")
    with open("a.pth", "rb") as file:
        content = file.read()
    os.mkdir("case")
    with open("case/input.pth", "wb") as file:
        file.write(content.replace(b"meta", b"moon"))
    with pytest.raises(ditorch_folders.CaseError, match="a device that this PyTorch does not have"):
        ditorch_folders.load("case")


def test_the_plain_capture_of_today_still_resolves():
    tool = op_tools.OpCapture()
    with tool:
        (torch.ones(3, requires_grad=True) * 2).sum().backward()
    records = list(captures.open(tool.folder))
    assert {"aten::mul.Tensor", "aten::sum"} <= {record.op for record in records}
    for record in records:
        assert callable(captures.resolve(record.op))
