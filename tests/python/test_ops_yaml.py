# SPDX-License-Identifier: Apache-2.0
"""ops/aten/*.yaml names every overload that has a kernel of ours, and no other."""

import sys
from pathlib import Path

import pytest
import torch
import torch_npu  # noqa: F401  (registers the kernels)

ROOT = Path(__file__).resolve().parents[2]
KEYS = ("PrivateUse1", "AutogradPrivateUse1")


def registered():
    """Overloads of ATen whose npu kernel is not one of the ladder's: overload -> who registered it."""
    found = {}
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        if not any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in KEYS):
            continue
        for line in torch._C._dispatch_dump(name).splitlines():
            key, _, where = line.partition(": ")
            if key in KEYS and "npu ladder" not in where and "torch/csrc" not in where:
                found[name.removeprefix("aten::")] = where
    return found


@pytest.fixture(scope="module")
def pack():
    sys.path.insert(0, str(ROOT / "codegen"))
    from aten_torch import load_torch, packaged_yaml
    from aten_yaml import load_pack
    from kinds_model import load_kinds

    from aten import files_of

    kinds = load_kinds(ROOT / "ops/kinds.yaml")
    return load_pack(files_of([ROOT / "ops/aten"]), load_torch(packaged_yaml()), kinds)


def test_yaml_and_dispatcher_name_the_same_overloads(pack):
    listed = {str(f.func.name) for o in pack.operators if not o.custom for f in o.functions}
    kernels = registered()
    assert sorted(set(kernels) - listed) == [], "registered, and in no YAML file"
    assert sorted(listed - set(kernels)) == [], "in the YAML, and not registered"


def test_most_are_generated(pack):
    """What is written by hand whole is a fifth at most."""
    total = sum(len(o.functions) for o in pack.operators)
    by_hand = sum(len(o.functions) for o in pack.operators if o.kind is None)
    assert by_hand <= total / 5, (by_hand, total)
