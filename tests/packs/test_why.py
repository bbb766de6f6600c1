# SPDX-License-Identifier: Apache-2.0
"""The guide's FAQ answered by tools: why is my operator not called, was it called, where are the logs."""

import os
import re
from pathlib import Path

from pack_site import opennpu

TEST_ADD = Path(__file__).parents[1] / "seeds/003_test_add.txt"

CALL = "import torch, torch_npu; x = torch.ones(2).npu(); y = x + x; torch.ops.guide_ops.doubled(x); print(y.tolist())"


def ask(site, name, **variables):
    return opennpu(
        "ops", "--why", name, cwd=site.scratch, PYTHONPATH=str(site.folder),
        XDG_CACHE_HOME=str(site.scratch / "cache"), **variables,
    )  # fmt: skip


def test_an_operator_of_a_pack(guide):
    said = ask(guide, "guide_ops::doubled")
    assert said.returncode == 0, said.stderr
    assert "pack: guide_ops, loaded" in said.stdout
    assert "guide_ops/ops.yaml:21, custom" in said.stdout
    assert "kernel: PrivateUse1, of the pack (ops.yaml:21)" in said.stdout
    assert "profile" not in said.stdout, "the imitated chip knows nothing of this operator"
    said = ask(guide, "aten::add.Tensor").stdout
    assert "kernel: PrivateUse1, of the pack (ops.yaml:6)" in said and "profile: ascend910b" in said
    said = ask(guide, "aten::mul.Tensor").stdout
    assert "pack: none lists it" in said and "built in" in said


def test_a_name_that_nobody_has(guide):
    said = ask(guide, "guide_ops::dubled")
    assert said.returncode == 2
    assert "no pack lists it" in said.stderr and "did you mean guide_ops::doubled?" in said.stderr


def test_a_pack_that_is_left_out(site_of):
    def slip(folder):
        file = folder / "ops.yaml"
        file.write_text(file.read_text().replace("- add.Scalar\n", "- add.Scaler\n"))

    said = ask(site_of(slip), "guide_ops::doubled").stdout
    assert "ops.yaml:7: key 'supported': 'add.Scaler'" in said, said
    assert "no operator of this pack is registered" in said


def test_packs_that_are_switched_off(guide):
    """FAQ: the environment is the first cause to look at."""
    said = ask(guide, "guide_ops::doubled", NPU_PACKS="0")
    assert said.returncode == 2 and "NPU_PACKS=0: no pack is loaded" in said.stderr
    said = opennpu("pack", "list", cwd=guide.scratch, PYTHONPATH=str(guide.folder), NPU_PACKS="0")
    assert "NPU_PACKS=0: no pack is loaded" in said.stdout


def test_the_guides_test_calls_the_pack(guide):
    """FAQ, step 3: test_add.py as printed reaches the pack's add, says so on the screen, and passes."""
    done = guide.run(
        TEST_ADD.read_text(encoding="utf-8"), SLOG_PRINT_TO_STDOUT="1", ASCEND_GLOBAL_LOG_LEVEL="0"
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 1 test" in done.stderr and done.stderr.rstrip().endswith("OK")
    assert done.stdout.count("operator pack: aten::add.Tensor") == 3, "formats 0, 3, 29"


def test_logs_go_to_the_screen(guide):
    """FAQ: SLOG_PRINT_TO_STDOUT=1 ASCEND_GLOBAL_LOG_LEVEL=1, and what was called at level 0."""
    done = guide.run(CALL, SLOG_PRINT_TO_STDOUT="1", ASCEND_GLOBAL_LOG_LEVEL="0")
    assert done.returncode == 0, done.stderr
    assert "operator pack: aten::add.Tensor" in done.stdout
    assert "operator pack: guide_ops::doubled" in done.stdout
    info = guide.run(CALL, SLOG_PRINT_TO_STDOUT="1", ASCEND_GLOBAL_LOG_LEVEL="1")
    assert "1 operators for" in info.stdout, "the driver's kernels of the pack, at level info"
    # The function's own line: ASCEND_LOGI.
    assert re.search(r"INFO.*functions\.cpp:\d+: doubled is given 2 numbers", info.stdout), (
        info.stdout
    )
    assert "operator pack: aten::add.Tensor" not in info.stdout
    quiet = guide.run(CALL, ASCEND_GLOBAL_LOG_LEVEL="3")
    assert quiet.stdout.strip() == "[2.0, 2.0]" and not quiet.stderr.strip()


def test_calls_are_counted(guide):
    done = guide.run(CALL + "; print(sorted(torch_npu._C._pack_calls().items()))")
    assert "[('aten::add.Tensor', 1), ('guide_ops::doubled', 1)]" in done.stdout, done.stderr


def test_ops_lists_the_packs_operators(guide):
    said = opennpu("ops", "*add.Tensor", cwd=guide.scratch, PYTHONPATH=str(guide.folder),
                   XDG_CACHE_HOME=str(guide.scratch / "cache"))  # fmt: skip
    assert "pack:guide_ops" in said.stdout, said.stderr


def test_list(guide):
    said = opennpu("pack", "list", cwd=guide.scratch, PYTHONPATH=str(guide.folder),
                   XDG_CACHE_HOME=str(guide.scratch / "cache"), HOME=os.environ.get("HOME", "/"))  # fmt: skip
    assert "guide_ops: 13 operators" in said.stdout and said.stdout.rstrip().endswith("loaded")
