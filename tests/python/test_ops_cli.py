# SPDX-License-Identifier: Apache-2.0
"""`opennpu ops`: the list of operators, for the driver and the profile asked for."""

import json
import os
import subprocess

import interpreter
import pytest


def ops(*arguments: str) -> subprocess.CompletedProcess:
    return interpreter.run(
        ["-m", "opennpu", "ops", *arguments],
        env={k: v for k, v in os.environ.items() if not k.startswith("NPU_")},
        timeout=120,
    )


def listed(*arguments: str) -> dict:
    done = ops("--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def host():
    return listed("--driver", "host")


def test_every_row_is_whole(host):
    import torch

    assert host["driver"] == "host"
    names = [row["overload"] for row in host["operators"]]
    assert names == sorted(set(names))
    for row in host["operators"]:
        name, _, overload = row["overload"].partition(".")
        torch._C._get_schema(name, overload)  # raises when there is none
        assert row["rung"] in (1, 2, 3, 4), row
        assert row["how"] in ("kind", "impl", "attempt", "hand"), row
        assert row["calls"], row
        assert bool(row["dtypes"]) == (row["rung"] < 4), row


def test_what_was_seen_runs_on_the_driver(host):
    """ops/seen_host.txt: measured, and remade when operators are added (make seen-operators)."""
    seen = [row for row in host["operators"] if "seen" in row]
    assert host["seen"] == len(seen) >= 700
    for row in seen:
        assert row["rung"] == row["rungs"][0] and set(row["rungs"]) <= {1, 2, 3}, row


def test_rungs_as_seen(host):
    """1: as it was; 2: mended for a driver that asks for it; 3: made of the kinds in `parts`."""
    rows = {row["overload"]: row for row in host["operators"]}
    assert rows["aten::flip"]["rungs"] == [1, 3]
    assert "index_select" in rows["aten::flip"]["parts"]
    on = [row["rungs"] for row in host["operators"] if "rungs" in row]
    assert sum(2 in rungs for rungs in on) >= 50
    assert sum(3 in rungs for rungs in on) >= 20


def test_an_operator_and_its_forms(host):
    rows = {row["overload"]: row for row in host["operators"]}
    for name in ("aten::add.Tensor", "aten::add_.Tensor", "aten::add.out"):
        assert rows[name]["rung"] == 1
        assert rows[name]["calls"] == ["binary.add"]
        assert {"f32", "i64"} <= set(rows[name]["dtypes"])


def test_patterns():
    part = [row["overload"] for row in listed("erfinv")["operators"]]
    assert part == ["aten::erfinv", "aten::erfinv.out", "aten::erfinv_"]
    assert [row["overload"] for row in listed("erfinv*")["operators"]] == part
    assert [row["overload"] for row in listed("aten::erfinv")["operators"]] == part
    assert [row["overload"] for row in listed("erfin[v]")["operators"]] == ["aten::erfinv"]
    none = ops("no_such_operator")
    assert none.returncode == 2 and "no_such_operator" in none.stderr


def test_profile():
    rows = {row["overload"]: row for row in listed("fm*", "--profile", "ascend910b")["operators"]}
    assert rows["aten::fmod.Tensor"]["profile"] == "native"
    assert rows["aten::fmax"]["profile"] == "falls back"
    assert "profile" not in listed("fmax")["operators"][0]


def test_a_driver_without_kernels_leaves_all_to_other_rungs():
    found = listed("erfinv", "--driver", "null")
    assert found["driver"] == "null" and found["operators"]
    assert all("seen" not in row for row in found["operators"])


def test_unknown_driver_is_one_sentence():
    done = ops("--driver", "nonsense")
    assert done.returncode == 1
    assert "'nonsense' was not found" in done.stderr and "Traceback" not in done.stderr


def test_table_for_people():
    done = ops("erfinv")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("aten::erfinv ") and "unary.erfinv" in lines[0]
    assert "rung 1" in lines[0]
    assert lines[-1].startswith("3 overloads, ")
