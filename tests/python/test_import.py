# SPDX-License-Identifier: Apache-2.0
"""Importing: silent, lazy, and clear about what is wrong."""

import os
import shutil
from importlib import metadata
from pathlib import Path

import pytest
import torch_npu
from gpu import loads_by_itself

# Judges what `import torch` and `import torch_npu` do in an interpreter that has loaded neither.
EXACT_INTERPRETER = True
PACKAGE = Path(torch_npu.__file__).parent
SOURCE = Path(__file__).parents[2] / "python"
BY_PIP = any(
    e.value == "torch_npu:_autoload" for e in metadata.entry_points(group="torch.backends")
)


def test_silent(run_python):
    done = run_python("import torch_npu")
    assert (done.stdout, done.stderr) == ("", "")


def test_opens_nothing(run_python):
    run_python(
        "import torch, torch_npu\n"
        "assert torch.npu.is_available() and torch.npu.device_count() >= 1\n"
        "torch.npu.get_device_name(); torch.npu.get_soc_version(); torch.manual_seed(3)\n"
        "assert not torch.npu.is_initialized()\n"
        "torch.zeros(1, device='npu')\n"
        "assert torch.npu.is_initialized()"
    )


def test_needs_no_numpy(run_python):
    """torch's wheel brings none."""
    run_python(
        "import sys; sys.modules['numpy'] = None\n"
        "import torch, torch_npu; assert (torch.ones(2).npu() + 1).tolist() == [2, 2]"
    )


@loads_by_itself
@pytest.mark.skipif(not BY_PIP, reason="`cmake --install` gives no entry points: pip install it")
def test_autoload(run_python):
    run_python("import torch; assert torch.ones(2, device='npu').sum().item() == 2")


@pytest.mark.skipif(not BY_PIP, reason="`cmake --install` gives no entry points: pip install it")
def test_autoload_can_be_switched_off(run_python):
    run_python("import torch; assert not hasattr(torch, 'npu')", TORCH_DEVICE_BACKEND_AUTOLOAD="0")


# What `import torch` does with an entry point, here also without one installed.
AUTOLOAD = """
import os, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
{before}
def _import_device_backends():
    from importlib.metadata import EntryPoint
    EntryPoint("torch_npu", "torch_npu:_autoload", "torch.backends").load()()
_import_device_backends()
{after}
"""


def test_autoload_registers(run_python):
    run_python(
        AUTOLOAD.format(
            before="torch.version.cuda = torch.version.hip = None",
            after="assert torch.zeros(1, device='npu').is_npu",
        )
    )


def test_autoload_leaves_a_cuda_build_alone(run_python):
    done = run_python(
        AUTOLOAD.format(
            before="torch.version.cuda = '12.6'",
            after="assert not hasattr(torch, 'npu') and 'torch_npu' not in sys.modules\n"
            "import torch_npu\n"
            "assert torch.zeros(1, device='npu').is_npu",
        )
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_autoload_says_in_a_line_that_this_is_another_torch(run_python):
    done = run_python(
        AUTOLOAD.format(
            before="torch.version.cuda = torch.version.hip = None; torch.__version__ = '1.0.0'",
            after="assert not hasattr(torch, 'npu')\n"
            "try:\n  import torch_npu\n"
            "except ImportError as e:\n  assert 'found torch 1.0.0' in str(e)\n"
            "else:\n  raise SystemExit('imported')",
        )
    )
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("torch_npu: built for torch") and "without npu" in line


def test_built_for_another_torch(run_python):
    done = run_python(
        "import torch; torch.__version__ = '2.5.1'; import torch_npu",
        check=False,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: torch_npu: built for torch 2.")
    assert "found torch 2.5.1" in last


def test_from_the_source_folder(run_python, tmp_path):
    shutil.copytree(SOURCE / "torch_npu", tmp_path / "torch_npu")
    done = run_python("import torch_npu", check=False, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: torch_npu: imported from the source folder")


@loads_by_itself
@pytest.mark.skipif(not BY_PIP, reason="`cmake --install` gives no entry points: pip install it")
def test_torch_from_the_source_folder(run_python, tmp_path):
    """PyTorch's own words, later, are that it expects one of cpu, cuda, ..."""
    shutil.copytree(SOURCE / "torch_npu", tmp_path / "torch_npu")
    done = run_python("import torch; assert torch.ones(2).sum() == 2")
    [line] = done.stderr.splitlines()
    assert line.startswith("torch_npu: imported from the source folder")
    assert "start Python from another folder" in line and line.endswith("without npu.")


def test_a_driver_that_fails_is_told_at_first_use(run_python):
    done = run_python(
        "import torch, torch_npu\n"
        "assert torch.npu.is_available() is False and torch.npu.device_count() == 0\n"
        "assert torch.ones(2).sum() == 2\n"
        "torch.zeros(1, device='npu')",
        check=False,
        NPU_DRIVER="nonsense",
    )
    assert done.returncode == 1
    last = [line for line in done.stderr.splitlines() if "nonsense" in line][-1]
    assert last.startswith("RuntimeError: npu: driver 'nonsense'")


def test_installed_package_is_whole():
    assert (PACKAGE / "__init__.py").exists()
    assert torch_npu.__version__.endswith("+opennpu")
    assert os.path.isdir(PACKAGE / "lib")


def test_compat_distribution():
    try:
        version = metadata.version("torch_npu")
    except metadata.PackageNotFoundError:
        pytest.skip("compat/ is not installed here")
    assert version.split(".")[:1] == torch_npu.__version__.split(".")[:1]


def test_uncaught_error_carries_a_code(run_python):
    done = run_python("import torch, torch_npu\ntorch.zeros(1).npu()\n1 / 0", check=False)
    assert "ZeroDivisionError" in done.stderr
    assert "ERR99999 UNKNOWN applicaiton exception" in done.stderr.splitlines()[-1]


def test_uncaught_error_of_a_cpu_program_stays_as_it_is(run_python):
    done = run_python("import torch, torch_npu\n1 / 0", check=False)
    assert "ERR99999" not in done.stderr


def test_compact_errors(run_python):
    code = "import torch, torch_npu\ntorch.zeros(1).npu()\n1 / 0"
    done = run_python(code, check=False, TORCH_NPU_COMPACT_ERROR_OUTPUT="1")
    assert "ERR99999" not in done.stderr
