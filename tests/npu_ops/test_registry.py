# SPDX-License-Identifier: Apache-2.0
"""Every operator of Ascend's resolves; those without an implementation say so."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_npu

ROOT = Path(__file__).resolve().parents[2]
NPU = torch_npu._C._custom_operators("npu")
# Made by hand in src/aten/formats, or Python functions.
OTHERS = {
    "npu_format_cast", "npu_format_cast_", "get_npu_format", "get_storage_size", "empty_with_format",
    "unsafe_empty_with_format", "npu_change_data_ptr",
}  # fmt: skip


def test_there_are_as_many_as_on_ascend():
    assert len(NPU) + len(OTHERS) == 409
    assert not OTHERS & set(NPU)
    assert sum(bool(row[0]) for row in NPU.values()) >= 220


@pytest.mark.parametrize("name", [*sorted(NPU), *sorted(OTHERS - {"npu_change_data_ptr"})])
def test_names_resolve(name):
    packet = getattr(torch.ops.npu, name)
    assert packet.overloads()
    shown = getattr(torch_npu, name)
    if name in NPU:
        assert shown is packet
        assert NPU[name][1] in shown.__doc__
        assert ("Not implemented" in shown.__doc__) == (not NPU[name][0])


def test_every_schema_is_registered():
    assert set(torch.ops.npu.npu_slice.overloads()) == {"default", "out"}
    assert torch.ops.npu.npu_max.overloads() == ["dim"]
    schema = str(torch.ops.npu.npu_rms_norm.default._schema)
    assert (
        schema
        == "npu::npu_rms_norm(Tensor input, Tensor gamma, float epsilon=9.9999999999999995e-07) -> (Tensor, Tensor)"
    )


def test_not_implemented_is_refused():
    name = "npu_matmul_compress_dequant"
    module, _, nearest, reason = NPU[name]
    assert not module and nearest and "private compressed stream" in reason
    before = torch.ones(2, 3)
    with pytest.raises(NotImplementedError) as caught:
        torch_npu.npu_matmul_compress_dequant(*[before] * 5)
    text = str(caught.value)
    assert f"npu::{name} is known but not implemented: {reason}." in text
    assert f"torch_npu.{nearest}" in text
    assert f"opennpu explain npu::{name}" in text and "ERR01007" in text


# Those that public documents do not define; the reference names no others.
REFUSED = {
    "npu_matmul_compress_dequant", "npu_hans_encode", "npu_hans_decode", "_npu_silent_check",
    "_npu_silent_check_v2", "_npu_silent_check_v3", "obfuscation_initialize",
    "obfuscation_calculate", "obfuscation_finalize", "attention_worker_scheduler",
    "attention_worker_scheduler_", "ffn_worker_scheduler", "ffn_worker_scheduler_",
    "npu_attention_to_ffn", "npu_ffn_to_attention", "npu_attention_worker_combine",
    "npu_ffn_worker_batching",
}  # fmt: skip


def test_only_those_without_public_definition_are_refused():
    assert {name for name, row in NPU.items() if row[3]} == REFUSED
    for name in REFUSED:
        nearest = NPU[name][2]
        assert not nearest or NPU[nearest][0], f"{name} names {nearest}, which is not implemented"


def test_unknown_names_are_unknown():
    with pytest.raises(AttributeError):
        torch.ops.npu.npu_no_such_operator  # noqa: B018
    assert not hasattr(torch_npu, "npu_no_such_operator")


def test_import_defines_nothing():
    code = (
        "import torch, torch_npu; n = [x for x in torch._C._dispatch_get_all_op_names() if x.startswith('npu::npu_rms')];"
        "import sys; assert not n and 'torch_npu.ops' not in sys.modules, n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_readmes_count_the_operators():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/npu_operators.py")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_explain(capsys):
    from opennpu import cli

    for name, said in (
        ("npu_rms_norm", "torch_npu.ops.norm"),
        ("npu_sim_exponential_", "Draws from the device's generator."),
        ("atb::npu_fused_add_topk_div", "enable_expert_mapping are refused."),
        ("npu::npu_hans_encode", "compressed stream is not published"),
    ):
        assert cli.main(["explain", name, "--lang", "en"]) in (0, None)
        assert said in capsys.readouterr().out


def test_list(capsys):
    import json

    from opennpu import cli

    assert cli.main(["ops", "--custom", "--json"]) in (0, None)
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 399 and sum(row["implemented"] for row in rows) >= 220
    for row in rows:
        assert bool(row["oracles"]) == row["implemented"], row["name"]
        assert all((ROOT / file).is_file() for file in row["oracles"])
    rms = next(row for row in rows if row["name"] == "npu_rms_norm")
    assert {"f16", "bf16", "f32"} <= set(rms["tested_dtypes"]) and rms["gradient"]


def test_list_of_tests_is_current():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/tested_npu_operators.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
