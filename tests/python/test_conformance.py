# SPDX-License-Identifier: Apache-2.0
"""`opennpu conformance`: the kit that vendors run, and that it notices what is wrong."""

import json
import os
import subprocess
import sys

from faulty import ROOT, faulty_environment
from opennpu import conformance


def run(*arguments, **env):
    command = [sys.executable, "-m", "opennpu", "conformance", *arguments]
    variables = {**os.environ, "NPU_HOST_MEMORY": "256M", **env}
    return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=ROOT)


def report(*arguments, **env):
    ran = run(*arguments, "--json", **env)
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def test_one_kind_of_the_host_driver_passes():
    code, found = report("--driver", "host", "--kind", "gemm")
    assert code == 0, found
    (kind,) = found["kinds"]
    assert kind["state"] == "passes" and kind["cases"] > 10 and kind["worst"] <= 1


def test_a_driver_that_computes_nothing_fails_every_kind():
    code, found = report("--driver", "null", NPU_NULL_ACCEPT="1")
    assert code == 1
    states = {k["name"]: k["state"] for k in found["kinds"]}
    assert "passes" not in states.values(), states
    for kind in ("copy", "binary", "gemm", "conv", "softmax", "gather", "unique", "optimizer"):
        assert states[kind] == "fails", kind


def test_a_driver_without_kinds_is_told_what_to_write():
    ran = run("--driver", "null")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    total = len(report("--driver", "null")[1]["kinds"])
    assert f"missing: {total} of {total} kinds" in ran.stdout
    lines = ran.stdout.split("kernels to write next")[1].splitlines()[1:]
    assert "write  copy, before the others" in lines[0]
    shares = [float(line.split()[2]) for line in lines if line.endswith("%")]
    assert len(shares) == 10 and shares == sorted(shares, reverse=True) and shares[0] > 5


def test_the_advice_ranks_by_time_not_by_models():
    kinds = [
        {"name": name, "state": state}
        for name, state in (("fill", "missing"), ("gemm", "missing"), ("roll", "fails"))
    ]
    shares = {
        "fill": {"time": 0.01, "models": ["a", "b", "c"]},
        "gemm": {"time": 0.6, "models": ["a"]},
    }
    found = conformance.next_kinds(kinds, {"models": ["a", "b", "c"], "kinds": shares})
    assert [k["name"] for k in found] == ["roll", "gemm", "fill"]


def test_a_driver_that_crashes_names_its_test():
    faulty = faulty_environment()
    ran = run(
        "--driver", faulty.pop("NPU_DRIVER"), "--kind", "gemm",
        **faulty, NPU_FAULTY_WRONG="segv=gemm",
    )  # fmt: skip
    assert ran.returncode == 2 and "was ended by the driver" in ran.stderr
    assert "in test kind.gemm, case gemm.gemm" in ran.stderr and "seed" in ran.stderr


def test_skipped_tests_are_not_what_a_crash_report_begins_with():
    printed = (
        "a_test.cpp:20: Skipped\nnot declared: capture/1\n\nb_test.cpp:7: Failure\nwhat it found\n"
    )
    assert conformance.without_skips(printed) == "b_test.cpp:7: Failure\nwhat it found"


def test_a_kind_that_is_not_tested_says_why(capsys):
    kind = {"name": "program", "declared": True, "state": "not tested", "codes": 1, "of_codes": 1}
    kind |= {
        "cases": 0,
        "worst": 0.0,
        "first_failure": "",
        "why_declined": "tested by group program",
    }
    conformance.show({"driver": "acme", "groups": [], "kinds": [kind], "next": [], "models": 9})
    assert "  tested by group program\n" in capsys.readouterr().out


def test_a_seed_repeats_one_case():
    code, found = report("--driver", "null", "--kind", "gemm", "--seed", "123", NPU_NULL_ACCEPT="1")
    assert code == 1 and "seed 123" in found["kinds"][0]["first_failure"]


def test_wrong_arguments():
    ran = run("--driver", "host", "--kind", "no_such_kind")
    assert ran.returncode == 2 and "there is no kind 'no_such_kind'" in ran.stderr
    ran = run("--driver", "/nowhere/libnpu_x.so")
    assert ran.returncode == 2 and "cannot open driver" in ran.stderr


def test_a_failed_test_is_named_with_what_it_found():
    faulty = faulty_environment()
    ran = run(
        "--driver", faulty.pop("NPU_DRIVER"),
        **faulty, NPU_FAULTY_WRONG="no_wait", NPU_FAULTY_DECLINE="1", NPU_HOST_ASYNC="1",
    )  # fmt: skip
    assert ran.returncode == 1
    assert "failed: stream.WaitEventWaitsForALateStream" in ran.stdout
    assert "ran before the event's own stream" in ran.stdout


def test_a_driver_that_never_answers_is_given_up():
    faulty = faulty_environment()
    ran = run(
        "--driver", faulty.pop("NPU_DRIVER"), "--kind", "roll", "--seconds", "1",
        **faulty, NPU_FAULTY_WRONG="hang=roll",
    )  # fmt: skip
    assert ran.returncode == 2 and "the driver does not answer" in ran.stderr
    assert "does not finish test kind.roll, case roll" in ran.stderr
