# SPDX-License-Identifier: Apache-2.0
"""check_includes.py [FILE...]: compiles C++ files of src/ one by one, syntax only, without precompiled headers.

An include that the joined units of make build or the precompiled headers hide is an error here. Without names: the files
that differ from origin/main. Needs the build folder of make build.
"""

import itertools
import json
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def flags_of_folders(build):
    """{"src/aten": what its files are compiled with, but for optimisation and precompiled headers}"""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        words = shlex.split(entry["command"])
        output = words[words.index("-o") + 1]
        found["/".join(output.split("/")[:2])] = [
            word
            for before, word in itertools.pairwise(words)
            if word == "-isystem" or before == "-isystem" or word.startswith(("-D", "-I", "-std"))
        ]
    return found


def changed():
    command = "git diff --name-only --diff-filter=d origin/main -- src/*.cpp".split()
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()


def main(names):
    build = next(ROOT.glob("build/cp3*-linux_*"), None)
    if build is None:
        print("There is no build folder: run make build first.", file=sys.stderr)
        return 1
    flags, failed = flags_of_folders(build), 0
    for name in names or changed():
        own = flags.get("/".join(Path(name).parts[:2]))
        if own is None:
            print(f"{name}: not a file of src/ that make build compiles", file=sys.stderr)
            failed += 1
            continue
        done = subprocess.run(["g++", *own, "-fsyntax-only", name], cwd=ROOT)
        failed += done.returncode != 0
        print(f"{'ok' if done.returncode == 0 else 'FAILED'}  {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
