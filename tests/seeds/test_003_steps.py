# SPDX-License-Identifier: Apache-2.0
"""seeds/003: a test for every numbered step of the API guide. STEPS names them; those without another home are here."""

import importlib.metadata
import interpreter
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchgen

ROOT = Path(__file__).resolve().parents[2]
YAML = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"

# Section of the guide -> step -> file::test that shows it.
STEPS = {
    "算子开发流程": {
        "1 TBE算子开发": "tests/packs/test_guide_pack.py::test_computes_right",
        "2 API适配": "tests/packs/test_guide_pack.py::test_computes_right",
    },
    "表1": {
        "1 环境准备": "tests/seeds/test_003_steps.py::test_tools_that_the_guide_needs",
        "2 API速查": "tests/seeds/test_003_steps.py::test_which_operators_are_supported",
        "3 获取PyTorch源码": "tests/seeds/test_003_steps.py::test_native_functions_yaml_is_there",
        "4 注册API开发": "tests/seeds/test_003_yaml.py::test_line",
        "5 API适配插件开发": "tests/packs/test_guide_pack.py::test_computes_right",
        "6 编译和安装": "tests/packs/test_projects.py::test_the_guides_build_command",
        "7 API功能验证": "tests/seeds/test_003_add.py::test_as_printed",
    },
    "注册API开发方法": {
        "1 打开native_functions.yaml": "tests/seeds/test_003_steps.py::test_native_functions_yaml_is_there",
        "2 确定需要派发函数": "tests/seeds/test_003_yaml.py::test_line",
    },
    "注册API开发示例": {
        "1 打开": "tests/seeds/test_003_steps.py::test_native_functions_yaml_is_there",
        "2 搜索相关函数": "tests/seeds/test_003_steps.py::test_the_five_functions_of_add",
        "3 确定func描述": "tests/seeds/test_003_steps.py::test_the_five_functions_of_add",
    },
    "适配插件实现": {
        "1 注册API": "tests/seeds/test_003_yaml.py::test_whole_file",
        "2 创建适配插件文件": "tests/packs/test_guide_pack.py::test_the_printed_functions_are_the_guides",
        "3 引入依赖头文件": "tests/packs/test_guide_pack.py::test_computes_right",
        "4 定义API适配主体函数": "tests/seeds/test_003_yaml.py::test_signatures_are_those_that_the_pack_compiles",
        "5 分别实现适配主体函数": "tests/packs/test_guide_pack.py::test_computes_right",
    },
    "适配插件示例": {
        "1 注册API": "tests/seeds/test_003_yaml.py::test_list_without_dashes",
        "2 创建": "tests/packs/test_guide_pack.py::test_the_printed_functions_are_the_guides",
        "3 头文件": "tests/packs/test_guide_pack.py::test_computes_right",
        "4 定义": "tests/packs/test_guide_pack.py::test_the_printed_functions_are_the_guides",
        "5.1 add": "tests/packs/test_guide_pack.py::test_computes_right",
        "5.2 add_": "tests/packs/test_guide_pack.py::test_computes_right",
        "5.3 add_out": "tests/packs/test_guide_pack.py::test_computes_right",
    },
    "编译PyTorch插件": {
        "1 进入工作目录": "tests/packs/test_projects.py::test_the_guides_build_command",
        "2 依赖库安装": "tests/seeds/test_003_steps.py::test_requirements",
        "3 bash ci/build.sh": "tests/packs/test_projects.py::test_the_guides_build_command",
    },
    "安装PyTorch插件": {
        "pip3 install --upgrade": "tests/packs/test_projects.py::test_the_guides_build_command",
        "pip3 list | grep torch_npu": "tests/seeds/test_003_steps.py::test_pip_lists_the_plugin",
    },
    "API功能验证": {
        "1 设置环境变量": "tests/seeds/test_003_add.py::test_with_the_variables_of_a_toolkit",
        "2 编写测试脚本": "tests/seeds/test_003_steps.py::test_create_common_tensor",
        "3 执行测试用例脚本": "tests/seeds/test_003_add.py::test_as_printed",
    },
    "FAQ 如何查看测试的运行日志": {
        "1 环境变量": "tests/packs/test_why.py::test_logs_go_to_the_screen",
        "2 重定向到文件": "tests/seeds/test_003_steps.py::test_logs_into_a_file",
    },
    "FAQ 自定义算子无法调用到": {
        "1 环境变量": "tests/packs/test_why.py::test_packs_that_are_switched_off",
        "2 检查yaml": "tests/packs/test_projects.py::test_check_names_file_line_and_nearest",
        "3.1 修改适配实现": "tests/packs/test_guide_pack.py::test_computes_right",
        "3.2 测试": "tests/packs/test_why.py::test_the_guides_test_calls_the_pack",
        "3.3 增加日志打印": "tests/packs/test_why.py::test_logs_go_to_the_screen",
        "3.4 custom优先于built-in，解析失败则跳过": "tests/packs/test_broken.py::test_is_left_out",
        "3.5 调度到了新开发的API": "tests/packs/test_why.py::test_calls_are_counted",
    },
    "FAQ 是否被正确调用": {
        "1-6 在安装的源码中增加日志": "tests/packs/test_projects.py::test_a_print_in_an_installed_function",
    },
    "FAQ ld returned 1": {
        "处理方法": "tests/packs/test_projects.py::test_build_errors_are_recognised",
        "实例": "tests/packs/test_projects.py::test_the_guides_build_error",
    },
    "FAQ call of overload": {
        "1-2": "tests/packs/test_projects.py::test_build_errors_are_recognised",
        "实例": "tests/packs/test_projects.py::test_an_int_is_an_attribute",
    },
    "CMake安装方法": {"1-5": "tests/seeds/test_003_steps.py::test_tools_that_the_guide_needs"},
    "导出 TBE 方式一": {"1-3": "tests/onnx/test_guide.py::test_operator_by_registered_symbolic"},
    "导出 TBE 方式二": {"1-4": "tests/onnx/test_guide.py::test_operator_by_function_with_symbolic"},
    "导出 C++": {
        "1 load_inline": "tests/seeds/test_003_steps.py::test_load_inline_as_printed",
        "2-4": "tests/onnx/test_guide.py::test_custom_operator_of_cpp",
    },
    "导出 纯Python": {"1-3": "tests/onnx/test_guide.py::test_pure_python_function"},
}  # fmt: skip


@pytest.mark.parametrize("place", sorted({p for steps in STEPS.values() for p in steps.values()}))
def test_every_step_has_a_test(place):
    file, _, name = place.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.M), place


def test_tools_that_the_guide_needs():
    for tool, least in (("cmake", (3, 12)), ("gcc", (7, 3)), ("git", (1, 8))):
        assert shutil.which(tool), tool
        said = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
        found = tuple(map(int, re.search(r"(\d+)\.(\d+)", said).groups()))
        assert found >= least, (tool, found)


def test_pip_lists_the_plugin():
    """pip3 list | grep torch_npu, without the seconds that pip takes."""
    names = {d.metadata["Name"].replace("-", "_") for d in importlib.metadata.distributions()}
    assert {"torch_npu", "opennpu"} <= names


def test_which_operators_are_supported(capsys):
    """The guide's two lists: operators of the processor, and adapted API; and what is in neither."""
    from opennpu import cli

    assert cli.main(["ops", "add.Tensor"]) == 0
    row = next(x for x in capsys.readouterr().out.splitlines() if "aten::add.Tensor" in x)
    assert "binary" in row and "f32" in row, row
    assert cli.main(["ops", "--custom", "npu_roi_align"]) == 0
    assert "npu_roi_align" in capsys.readouterr().out
    assert cli.main(["ops", "no_such_operator"]) == 2
    assert "no_such_operator" in capsys.readouterr().err


def test_native_functions_yaml_is_there():
    assert YAML.is_file() and "\n- func: add.Tensor(" in YAML.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["add.Tensor", "add.Scalar", "add_.Tensor", "add_.Scalar", "add.out"]
)
def test_the_five_functions_of_add(name):
    """As the guide lists them; Scalar's alpha is what PyTorch has now."""
    (line,) = re.findall(
        rf"^- func: ({re.escape(name)}\(.*)$", YAML.read_text(encoding="utf-8"), re.M
    )
    schema = torch._C.parse_schema("aten::" + line)
    assert [a.name for a in schema.arguments][:3] == ["self", "other", "alpha"]


def test_requirements():
    """pip3 install -r requirements.txt, here: all of it is installed."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "-r", ROOT / "requirements.txt"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Would install" not in done.stdout and "scikit-build-core" in done.stdout


@pytest.mark.parametrize("number", [0, 3, 29])
def test_create_common_tensor(number):
    import numpy as np
    import torch_npu
    from torch_npu.testing.common_utils import create_common_tensor

    before = torch.npu.config.allow_internal_format
    torch.npu.config.allow_internal_format = True
    try:
        cpu, npu = create_common_tensor([np.float32, number, [5, 256]], 0, 100)
        assert (cpu.device.type, npu.device.type) == ("cpu", "npu")
        assert torch.equal(cpu, npu.cpu()) and cpu.min() >= 0 and cpu.max() <= 100
        assert torch_npu.get_npu_format(npu) == number
    finally:
        torch.npu.config.allow_internal_format = before


def test_logs_into_a_file(tmp_path):
    code = "import torch, torch_npu; torch.ones(2).npu().exp()"
    done = interpreter.run(
        ["-c", code], cwd=tmp_path, timeout=120,
        env={**os.environ, "SLOG_PRINT_TO_STDOUT": "1", "ASCEND_GLOBAL_LOG_LEVEL": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"INFO.*driver", done.stdout, re.I), done.stdout


@pytest.mark.skipif(
    os.environ.get("OPENNPU_TEST_FULL") != "1", reason="compiles torch/script.h: a minute"
)
def test_load_inline_as_printed(tmp_path):
    code = '''
import torch, torch_npu
import torch.utils.cpp_extension
op_source = """
#include <torch/script.h>
torch::Tensor custom_add(torch::Tensor self, torch::Tensor other) { return self + other; }
static auto registry = torch::RegisterOperators("custom_namespace::custom_add",&custom_add);
"""
torch.utils.cpp_extension.load_inline(name="custom_add", cpp_sources=op_source, is_python_module=False, verbose=False)
x = torch.ones(2).npu()
assert torch.ops.custom_namespace.custom_add(x, x).tolist() == [2, 2]
'''
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600,
        env={**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
