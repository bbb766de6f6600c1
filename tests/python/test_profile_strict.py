# SPDX-License-Identifier: Apache-2.0
"""What works here and raises on the chip: reported, and raised with NPU_PROFILE_STRICT=1."""

import re

import pytest
import torch

USES = {
    "contiguous": "x.contiguous(memory_format=torch.channels_last)",
    "to": "x.to(memory_format=torch.channels_last)",
    "clone": "x.clone(memory_format=torch.channels_last)",
    "empty": "torch.empty(2, 3, 4, 5, device='npu', memory_format=torch.channels_last)",
    "empty_like": "torch.empty_like(x, memory_format=torch.channels_last)",
    "resize": "torch.empty(0, device='npu').resize_(2, 3, 4, 5, memory_format=torch.channels_last)",
    "module": "torch.nn.Conv2d(3, 4, 3).npu().to(memory_format=torch.channels_last)",
    "3d": "x[None].contiguous(memory_format=torch.channels_last_3d)",
}
HEAD = "import torch, torch_npu\nx = torch.randn(2, 3, 4, 5, device='npu')\n"
CODE = r"ERR01007 OPS feature not supported"


@pytest.mark.parametrize("use", list(USES))
def test_works_and_is_reported(use):
    x = torch.randn(2, 3, 4, 5, device="npu")
    torch.npu.reset_fallback_stats()
    eval(USES[use], {"torch": torch, "x": x})
    report = torch.npu.fallback_report()
    wanted = "memory_format=channels_last" + ("_3d" if use == "3d" else "")
    assert "Not on the profile ascend910b: works here, raises there." in report
    assert re.search(rf"^{wanted} +\d+ +\S", report, re.MULTILINE), report
    assert [gap["feature"] for gap in torch.npu.profile_gaps()] == [wanted]


def test_nothing_to_report():
    torch.npu.reset_fallback_stats()
    x = torch.randn(2, 3, 4, 5, device="npu")
    x.contiguous()
    torch.empty_like(x)
    torch.empty(2, 3, device="npu", memory_format=torch.contiguous_format)
    assert torch.npu.profile_gaps() == []
    assert "profile" not in torch.npu.fallback_report()


def test_call_site_and_count():
    torch.npu.reset_fallback_stats()
    x = torch.randn(2, 3, 4, 5, device="npu")
    for _ in range(3):
        x.contiguous(memory_format=torch.channels_last)
    (gap,) = torch.npu.profile_gaps()
    assert gap["calls"] == 3 and "test_profile_strict.py" in gap["call_site"]


def test_strict(run_python):
    code = HEAD + "for use in USES:\n    try:\n        eval(use)\n    except RuntimeError as e:\n"
    code += "        assert type(e) is RuntimeError and 'ERR01007 OPS feature not supported' in str(e), e\n"
    code += "    else:\n        raise SystemExit(use)\n"
    code += "y = torch.randn(2, 3, device='npu') @ torch.randn(3, 2, device='npu')\n"
    code += "assert torch.npu.profile_gaps() == [] and x.contiguous() is x\n"
    run_python(code.replace("USES", repr(list(USES.values()))), NPU_PROFILE_STRICT="1")


def test_strict_text(run_python):
    done = run_python(HEAD + USES["to"], check=False, NPU_PROFILE_STRICT="1")
    assert done.returncode == 1
    assert re.search(
        r"RuntimeError: npu: memory_format=channels_last is not supported on ascend910b, .*\n"
        r"\[ERROR\] .* " + CODE,
        done.stderr,
    ), done.stderr


def test_sparse(run_python):
    sparse = "s = torch.eye(3).to_sparse().npu()\nassert s._nnz() == 3\n"
    product = "torch.sparse.mm(s, torch.ones(3, 3, device='npu'))\n"
    run_python(
        HEAD + sparse + product + "assert any(g['feature'].startswith('sparse aten::') "
        "for g in torch.npu.profile_gaps()), torch.npu.profile_gaps()"
    )
    done = run_python(HEAD + sparse + product, check=False, NPU_PROFILE_STRICT="1")
    assert re.search(
        r"RuntimeError: CAUTION: The operator 'aten::\S+' is not currently supported on the NPU "
        r"backend\.\n\[ERROR\] .* " + CODE,
        done.stderr,
    ), done.stderr


def test_another_profile(run_python, tmp_path):
    code = HEAD + USES["to"] + "\nprint(torch.npu.get_device_name(), torch.npu.profile_gaps())"
    done = run_python(code, NPU_PROFILE="none", NPU_PROFILE_STRICT="1")
    assert "Ascend" not in done.stdout and done.stdout.strip().endswith("[]")
    mine = tmp_path / "mine.txt"
    mine.write_text("@device Chip One\nadd.out\n")
    done = run_python(code, NPU_PROFILE=str(mine), NPU_PROFILE_STRICT="1", NPU_FALLBACK="silent")
    assert done.stdout.strip() == "Chip One []"
    mine.write_text("@devise Chip One\n")
    done = run_python(HEAD + "x + 1", check=False, NPU_PROFILE=str(mine))
    assert "'@devise Chip One' is no line of a profile" in done.stderr


def test_device_name(run_python):
    assert torch.npu.get_device_name() == torch.npu.get_device_properties().name
    show = (
        "import torch, torch_npu\nprint(torch.npu.get_device_name(), torch.npu.get_soc_version())"
    )
    assert run_python(show, NPU_PROFILE="ascend910b").stdout.split() == ["Ascend910B1", "220"]
    done = run_python(show, NPU_DEVICE_NAME="Ascend910_9391")
    assert done.stdout.split() == ["Ascend910_9391", "250"]


def test_bad_flag(run_python):
    done = run_python(HEAD + USES["to"], check=False, NPU_PROFILE_STRICT="maybe")
    assert "NPU_PROFILE_STRICT" in done.stderr and "ERR00003" in done.stderr
