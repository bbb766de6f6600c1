# SPDX-License-Identifier: Apache-2.0
"""check_includes.py [--all | FILE...]: compiles C++ files of src/ and optools/src/ one by one, syntax only, without
precompiled headers.

An include that the joined units of make build or the precompiled headers hide is an error here. Without names: the files
that differ from origin/main. Needs the build folders of make build. JOBS=n compiles so many at a time.
"""

import itertools
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = "optools/src"


def words_that_matter(words):
    """What a file is compiled with, but for optimisation and precompiled headers."""
    return [
        word
        for before, word in itertools.pairwise(words)
        if word == "-isystem" or before == "-isystem" or word.startswith(("-D", "-I", "-std"))
    ]


def commands(pattern):
    for folder in ROOT.glob(pattern):
        path = folder / "compile_commands.json"
        if path.is_file():
            for entry in json.loads(path.read_text(encoding="utf-8")):
                words = shlex.split(entry["command"])
                # Relative folders are those of the build folder.
                yield (
                    words[words.index("-o") + 1],
                    [
                        f"-I{Path(entry['directory'], word[2:])}" if word.startswith("-I") else word
                        for word in words_that_matter(words)
                    ],
                )
            return


def flags_of_folders():
    """{"src/aten": flags}; all of optools/src has the same."""
    found = {
        "/".join(output.split("/")[:2]): flags for output, flags in commands("build/cp3*-linux_*")
    }
    for _, flags in commands("build/optools-cp3*-linux_*"):
        found[TOOLS] = flags
    return found


def listed(command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()


def folder_of(name):
    return TOOLS if name.startswith(TOOLS) else "/".join(Path(name).parts[:2])


def compiled(name, flags):
    own = flags.get(folder_of(name))
    if own is None:
        return False, f"{name}: not a file of src/ or optools/src/ that make build compiles\n"
    done = subprocess.run(
        ["g++", *own, "-fsyntax-only", name], cwd=ROOT, capture_output=True, text=True
    )
    said = f"{'ok' if done.returncode == 0 else 'FAILED'}  {name}\n"
    return done.returncode == 0, done.stderr + said


def main(names):
    flags = flags_of_folders()
    if not flags:
        print("There is no build folder: run make build first.", file=sys.stderr)
        return 1
    if names == ["--all"]:
        # Those of a folder that make build does not compile (tests) are compiled file by file anyway.
        names = [
            name
            for name in listed(["git", "ls-files", "src/*.cpp", "optools/src/*.cpp"])
            if folder_of(name) in flags and not name.endswith("_test.cpp")
        ]
    elif not names:
        names = listed(
            "git diff --name-only --diff-filter=d origin/main -- src/*.cpp optools/src/*.cpp".split()
        )
    failed = 0
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "1"))) as pool:
        for good, said in pool.map(lambda name: compiled(name, flags), names):
            print(said, end="", flush=True)
            failed += not good
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
