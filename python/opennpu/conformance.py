# SPDX-License-Identifier: Apache-2.0
"""`opennpu driver check`, or `opennpu conformance`: does a driver keep the contract, and what to write next."""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from opennpu.progress import Working

# {kind: share of the models' time}, made by scripts/kind_models.py.
MODELS = Path(__file__).with_name("kind_models.json")
# How the kit ended without a report, by its exit status; it has named the test.
ENDED = {3: "was ended by the driver", 4: "gave up: the driver does not answer"}
MISSING_KIT = (
    "opennpu driver check: this package holds no conformance kit (wheels of `make wheel` do). In a clone "
    "of OpenNPU the kit is built when it is needed:\n"
    "  cd CLONE && opennpu driver check {driver}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--driver", required=True, help="host, null, a name, or the path of a .so")
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", help="test this kind alone")
    parser.add_argument("--cases", type=int, default=3, help="random cases per code and dtype")
    parser.add_argument("--seed", type=int, default=0, help="the one case that a failure named")
    parser.add_argument(
        "--seconds", type=int, default=120, help="give up when one test takes longer"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def package() -> Path | None:
    """The folder of torch_npu; torch is not imported for it."""
    spec = importlib.util.find_spec("torch_npu")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        return Path(folder)
    return None


def source_tree() -> Path | None:
    """The clone of OpenNPU that the working folder is in."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "tests/conformance/main.cpp").exists():
            return folder
    return None


def kit() -> Path | None:
    """The test program: the package's, else the tree's own, built into build/core."""
    folder = package()
    if folder and (folder / "bin/npu_conformance").exists():
        return folder / "bin/npu_conformance"
    tree = source_tree()
    if tree is None:
        return None
    core = tree / "build/core"
    core.mkdir(parents=True, exist_ok=True)
    commands = [["cmake", "--build", "--preset", "core", "--target", "npu_conformance"]]
    if not (core / "build.ninja").exists():
        commands.insert(0, ["cmake", "--preset", "core", f"-DPython3_EXECUTABLE={sys.executable}"])
    with open(core / ".lock", "w") as lock:  # two builds in one folder disturb each other
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in commands:
            with Working("building the conformance kit"):
                done = subprocess.run(
                    command, cwd=tree, capture_output=True, text=True, check=False
                )
            if done.returncode != 0:
                print(done.stdout[-3000:] + done.stderr[-3000:], file=sys.stderr)
                return None
    return tree / "build/core/tests/conformance/npu_conformance"


def without_skips(text: str) -> str:
    """The kit's output without the place and reason of each skipped test."""
    lines = text.strip().splitlines()
    skips = {i for i, line in enumerate(lines) if line.endswith(": Skipped")}
    return "\n".join(
        line for i, line in enumerate(lines) if i not in skips and i - 1 not in skips
    ).strip()


def state_of(kind: dict, failures: dict[str, str]) -> str:
    if not kind["declared"]:
        return "missing"
    if kind["failed"] or kind["name"] in failures:
        return "fails"
    if kind["cases"] == 0 or kind["cases"] == kind["without_oracle"]:
        return "declined" if kind["declined"] else "not tested"
    return "passes"


def next_kinds(kinds: list[dict], models: dict) -> list[dict]:
    """Failing kinds, then missing kinds, by their share of the models' time."""
    wanted = [k for k in kinds if k["state"] in ("missing", "fails")]
    shares = models["kinds"]
    wanted = [{**k, "time_share": shares.get(k["name"], {}).get("time", 0.0)} for k in wanted]
    wanted.sort(key=lambda k: (k["state"] != "fails", -k["time_share"], k["name"]))
    return wanted


def show(found: dict) -> None:
    print(f"driver {found['driver']}\n")
    print(f"{'group':14} {'passed':>7} {'failed':>7} {'not declared':>13} {'skipped':>8}")
    for g in found["groups"]:
        row = f"{g['passed']:7} {g['failed']:7} {g['not_declared']:13} {g['skipped']:8}"
        print(f"{g['name']:14} {row}")
    for g in found["groups"]:
        for each in g["failures"] if g["name"] != "kind" else []:
            print(f"\nfailed: {g['name']}.{each['test']}\n  {' '.join(each['message'].split())}")
    print(f"\n{'kind':24} {'state':10} {'codes':>7} {'cases':>6} {'worst E':>8}")
    for k in found["kinds"]:
        if k["declared"]:
            codes = f"{k['codes']}/{k['of_codes']}"
            print(
                f"{k['name']:24} {k['state']:10} {codes:>7} {k['cases']:6} "
                f"{min(k['worst'], 9999):8.2f}"
            )
            if k["first_failure"] or k["state"] in ("declined", "not tested"):
                print(f"  {k['first_failure'] or k['why_declined'] or 'no case could be drawn'}")
    rest = found["next"]
    print(f"\nmissing: {sum(k['state'] == 'missing' for k in rest)} of {len(found['kinds'])} kinds")
    print(f"kernels to write next, by their share of the time of {found['models']} models")
    if any(k["name"] == "copy" and k["state"] == "missing" for k in rest):
        print(
            "  write  copy, before the others: it makes operands contiguous and casts them for all kernels"
        )
    for k in rest[:10]:
        verb = "repair" if k["state"] == "fails" else "write"
        print(f"  {verb:6} {k['name']:24} {100 * k['time_share']:5.1f} %")
    if not rest:
        print("  nothing: every kind is there")


def run(options: argparse.Namespace) -> int:
    program = kit()
    if program is None:
        path = Path(options.driver)
        driver = str(path.absolute()) if path.suffix == ".so" else options.driver
        print(MISSING_KIT.format(driver=driver), file=sys.stderr)
        return 2
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [str(program), "--driver", options.driver, "--json", str(out)]
        command += ["--cases", str(options.cases), "--seconds", str(options.seconds)]
        command += ["--gtest_brief=1"]
        command += ["--kind", options.kind] if options.kind else []
        command += ["--seed", str(options.seed)] if options.seed else []
        with Working(f"testing driver {options.driver}"):
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if not out.exists():
            text = ran.stderr.strip() or ran.stdout[-2000:]
            how = ENDED.get(ran.returncode, "did not finish")
            before = without_skips(ran.stdout)[-2000:] if ran.stderr.strip() else ""
            print(f"{before}\n{text}\nthe conformance kit {how}".strip(), file=sys.stderr)
            return 2
        found = json.loads(out.read_text(encoding="utf-8"))
    failures = {
        each["test"]: each["message"]
        for group in found["groups"]
        for each in group["failures"]
        if group["name"] == "kind"
    }
    kinds = [
        {
            **k,
            "state": state_of(k, failures),
            "first_failure": k["first_failure"] or " ".join(failures.get(k["name"], "").split()),
        }
        for k in found["kinds"]
    ]
    if options.kind:
        kinds = [k for k in kinds if k["name"] == options.kind]
    found["kinds"], found["models"] = kinds, len(models["models"])
    found["next"] = next_kinds(kinds, models)
    found["passed"] = ran.returncode == 0
    if options.json:
        json.dump(found, sys.stdout, indent=1)
        print()
    else:
        show(found)
    return 0 if found["passed"] else 1
