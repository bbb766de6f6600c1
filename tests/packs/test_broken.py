# SPDX-License-Identifier: Apache-2.0
"""A broken pack is skipped whole, with one message that says file and line; what is built in goes on."""

import json
import os
import re
import subprocess

import pytest

GOES_ON = """
import torch, torch_npu
from torch_npu import _packs
x = torch.ones(3).npu()
assert (x + x).tolist() == [2, 2, 2]
assert not hasattr(torch.ops.guide_ops, "calls"), "nothing of the pack is registered"
assert "input_dtype" in str(torch.ops.npu.npu_dtype_cast.default._schema)
(pack,) = _packs.ALL
assert pack.state != "loaded"
"""


def edit(file: str, old: str, new: str):
    def change(folder):
        text = (folder / file).read_text(encoding="utf-8")
        assert old in text
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")

    return change


def about(**values):
    def change(folder):
        file = folder / "opennpu_pack.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return change


# A library that is no pack, one of another version, and two that end the process.
SOURCES = {
    "no entry": "int other(void) { return 0; }",
    "other interface": """
struct pack { unsigned size, abi; const char *name, *torch; void (*add)(void*); };
static void add(void* all) { (void)all; }
static struct pack it = { sizeof(it), 99, "guide_ops", "2.13.0", add };
const struct pack* npu_torch_pack_entry(void) { return &it; }""",
    "other torch": """
struct pack { unsigned size, abi; const char *name, *torch; void (*add)(void*); };
static void add(void* all) { (void)all; }
static struct pack it = { sizeof(it), 1, "guide_ops", "1.8.1", add };
const struct pack* npu_torch_pack_entry(void) { return &it; }""",
    "crash": "__attribute__((constructor)) static void start(void) { *(volatile int*)0 = 0; }",
    "abort": "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }",
}


def library(source: str):
    def change(folder):
        target = folder / "lib/libguide_ops.so"
        target.unlink()
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)],
            input=SOURCES[source], text=True, check=True,
        )  # fmt: skip

    return change


def cut(folder):
    file = folder / "lib/libguide_ops.so"
    file.write_bytes(file.read_bytes()[:5000])


BROKEN = {
    "slip in the YAML": (
        edit("ops.yaml", "- add.Scalar\n", "- add.Scaler\n"),
        r"/guide_ops/ops\.yaml:7: key 'supported': 'add\.Scaler': .*did you mean 'add\.Scalar'\?",
    ),
    "YAML that is none": (edit("ops.yaml", "custom:", "custom: ["), r"/ops\.yaml:\d+: not YAML"),
    "operator added since": (
        edit("ops.yaml", "  - add.out\n", "  - add.out\n  - mul.out\n"),
        r"/ops\.yaml:\d+: aten::mul\.out was added after the pack was built",
    ),
    "damaged manifest": (
        edit("opennpu_pack.json", '"kind"', "kind"),
        r"/opennpu_pack\.json:\d+: cannot be read",
    ),
    "other torch": (about(torch="1.8"), r"built for torch 1\.8, this is torch 2\."),
    "other interface": (about(interface=0), r"built for version 0 of the pack interface"),
    "library of another torch": (library("other torch"), r"built for torch 1\.8\.1, this is torch"),
    "library of another interface": (library("other interface"), r"built for version 99"),
    "library without entry": (library("no entry"), r"npu_torch_pack_entry"),
    "library cut short": (cut, r"libguide_ops\.so"),
    "library missing": (lambda f: (f / "lib/libguide_ops.so").unlink(), r"libguide_ops\.so"),
    "crash at load": (library("crash"), r"libguide_ops\.so: loading it ended a trial process with SIGSEGV"),
    "abort at load": (library("abort"), r"ended a trial process with SIGABRT"),
    "Python that raises": (
        edit("__init__.py", "import torch\n", "import torch\nraise KeyError('x')\n"),
        r"/guide_ops/__init__\.py:5: KeyError: 'x'",
    ),
}  # fmt: skip


# Each costs two processes that import torch; the rest runs in make test-full.
SAMPLE = ("slip in the YAML", "damaged manifest", "other torch", "library of another interface",
          "crash at load", "Python that raises")  # fmt: skip
CHOSEN = BROKEN if os.environ.get("OPENNPU_TEST_FULL") == "1" else SAMPLE


@pytest.mark.parametrize("name", CHOSEN)
def test_is_left_out(name, site_of):
    change, text = BROKEN[name]
    done = site_of(change).run(GOES_ON)
    assert done.returncode == 0, done.stderr
    (line,) = [row for row in done.stderr.splitlines() if "left out" in row]
    assert re.search(r"npu: operator pack 'guide_ops' is left out: ", line), line
    assert re.search(text, line), line


def test_the_verdict_is_kept_until_a_file_changes(site_of):
    site = site_of(edit("ops.yaml", "- add.Scalar\n", "- add.Scaler\n"))
    code = """
import torch_npu
from torch_npu import _packs
tries = []
real = _packs._try_in_child
_packs._try_in_child = lambda pack: tries.append(pack.name) or real(pack)
_packs.ALL.clear()
_packs.load_all()
print("tries", len(tries), _packs.ALL[0].state == "loaded")
"""
    assert "tries 1" not in site.run("import torch_npu").stdout
    assert "tries 0 False" in site.run(code).stdout, "kept from the first run"
    edit("ops.yaml", "- add.Scaler\n", "- add.Scalar\n")(site.folder / "guide_ops")
    done = site.run("import torch_npu; from torch_npu import _packs; print(_packs.ALL[0].state)")
    assert "loaded" in done.stdout, done.stderr
    assert site.run("import torch_npu; from torch_npu import _packs; print(_packs.ALL)",
                    NPU_PACKS="0").stdout.strip() == "[]"  # fmt: skip
