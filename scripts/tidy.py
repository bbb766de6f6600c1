# SPDX-License-Identifier: Apache-2.0
"""tidy.py [--all | FILE...]: clang-tidy (.clang-tidy) on C++ files of the torch-free half.

Without names: the files that differ from origin/main. Configures preset core where there is no build folder of it; with
nothing to judge it does nothing. JOBS=n judges so many at a time.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "core"
FILE = re.compile(r"(?:src|drivers)/.*\.(?:cpp|h)$")
TEST = re.compile(r"_test\.cpp$")
TIDY = [sys.executable, "-c", "import clang_tidy; clang_tidy.clang_tidy()"]
# gcc's own options mean nothing to clang.
QUIET = [
    "--quiet",
    "--extra-arg=-Wno-unknown-warning-option",
    "--extra-arg=-Wno-unused-command-line-argument",
]


def git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.split()


def changed() -> list[str]:
    base = git("merge-base", "HEAD", "origin/main") or ["HEAD"]
    return [
        name for name in git("diff", "--name-only", "--diff-filter=d", base[0]) if FILE.match(name)
    ]


def compiled() -> set[str]:
    """Files that the torch-free half compiles, of those to judge."""
    if not (BUILD / "compile_commands.json").is_file():
        command = ["cmake", "--preset", "core", f"-DPython3_EXECUTABLE={sys.executable}"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    command = ["cmake", "--build", "--preset", "core", "--target", "npu_kinds"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    entries = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    files = {os.path.relpath(entry["file"], ROOT) for entry in entries}
    return {name for name in files if FILE.match(name) and not TEST.search(name)}


def units_of(names: list[str], known: set[str]) -> set[str]:
    """What to compile to see these files: a header is seen by its own .cpp file, or by one that includes it."""
    found = {name for name in names if name in known}
    for header in (name for name in names if name.endswith(".h")):
        own = header.removesuffix(".h") + ".cpp"
        place = header.partition("/")[2] if header.startswith("src/") else header.rpartition("/")[2]
        users = (
            name for name in sorted(known) if place in (ROOT / name).read_text(encoding="utf-8")
        )
        unit = own if own in known else next(users, None)
        found |= {unit} if unit else set()
    return found


def judged(name: str) -> tuple[bool, str]:
    done = subprocess.run(
        [*TIDY, "-p", str(BUILD), *QUIET, name], cwd=ROOT, capture_output=True, text=True
    )
    said = done.stdout if done.returncode == 0 else done.stdout + done.stderr
    return done.returncode == 0, said


def main(names: list[str]) -> int:
    everything = names == ["--all"]
    names = [] if everything else names or changed()
    if not names and not everything:
        return 0
    known = compiled()
    units = sorted(known if everything else units_of(names, known))
    bad = 0
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "1"))) as pool:
        for good, said in pool.map(judged, units):
            print(said, end="")
            bad += not good
    print(f"clang-tidy: {len(units)} files, {bad} with complaints")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
