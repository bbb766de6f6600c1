# SPDX-License-Identifier: Apache-2.0
"""Every public name of TorchAir and npugraph_ex is there, with the documented parameters."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch
import torch_npu

LINES = [
    line
    for line in (Path(__file__).parent / "torchair_names.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
# Parameters of ours besides the documented ones.
OURS = {
    "get_npu_backend": {"strict"},
    "cache_compile": {"custom_decompositions"},
    "npu_fused_infer_attention_score_v2": {"quant_scale_p"},
}


def parameters(text: str) -> inspect.Signature:
    """`text` as the parameters of a function; `...` as a default is Ellipsis."""
    names: dict = {}
    exec(f"def function({text}): pass", names)
    return inspect.signature(names["function"])


def told(signature: inspect.Signature, leave_out=(), as_in=None) -> list[str]:
    rows = []
    for p in signature.parameters.values():
        if p.name in leave_out:
            continue
        wanted = p if as_in is None else as_in.parameters.get(p.name, p)
        default = ... if wanted.default is ... and p.default is not p.empty else p.default
        rows.append(
            f"{p.kind.description} {p.name}" + ("" if default is p.empty else f"={default!r}")
        )
    # Order does not count among keywords.
    return [r for r in rows if "keyword-only" not in r] + sorted(
        r for r in rows if "keyword-only" in r
    )


@pytest.mark.parametrize("line", LINES)
def test_name_is_there_with_its_parameters(line):
    module, name, text = re.fullmatch(r"([\w.]+):(\w+)(?:\((.*)\))?", line).groups()
    found = getattr(importlib.import_module(module), name)
    if text is not None:
        wanted = parameters(text)
        ours = OURS.get(name, set())
        signature = inspect.signature(found)
        assert told(signature, ours, wanted) == told(wanted)
        for extra in ours & set(signature.parameters):
            assert signature.parameters[extra].default is not inspect.Parameter.empty


def test_missing_and_other_parameters_are_noticed():
    wanted = parameters("a, b=1, *, c=...")
    for same in ("a, b=1, *, c=3", "a, b=1, *, c=None"):
        assert told(parameters(same), as_in=wanted) == told(wanted)
    for other in ("a, b=2, *, c=1", "a, *, c=1", "b=1, *, a, c=1", "a, b=1, *, c", "a, b=1, c=1"):
        assert told(parameters(other), as_in=wanted) != told(wanted)


def test_packages_are_one_under_all_their_paths():
    import npugraph_ex
    import torchair
    from torch_npu.dynamo import npugraph_ex as other
    from torch_npu.dynamo import torchair as other_torchair

    assert other is npugraph_ex and other_torchair is torchair
    assert torch.npu.npugraph_ex.compile_fx is npugraph_ex.compile_fx
    assert torch_npu.npu.npugraph_ex.register_replacement is npugraph_ex.register_replacement
    assert torchair.register_replacement is not npugraph_ex.register_replacement
