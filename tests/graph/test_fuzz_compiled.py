# SPDX-License-Identifier: Apache-2.0
"""The fuzz test's random programs (views, in-place, out=) as graphs: recorded, replayed, and equal
to the same lines run eagerly, bit for bit; what they wrote into their inputs too.

Traced by make_fx without Dynamo, as they are and functionalised. OPENNPU_FUZZ_EXAMPLES=n runs longer.
"""

import os
import warnings

import pytest
import torch
import torchair

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from test_fuzz import attempt, make, programs, step  # noqa: E402
from test_operators import equal  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
EXAMPLES = int(os.environ.get("OPENNPU_FUZZ_EXAMPLES", "600" if FULL else "40"))


def lines_that_run(program):
    """Those that raise nothing on npu, one after the other."""
    tensors, steps = program
    t = [make(spec, "npu") for spec in tensors]
    return [(line, chosen) for line, chosen in steps if attempt(line, t, chosen) is None]


def function_of(steps):
    def function(*inputs):
        t = list(inputs)
        for line, chosen in steps:
            step(line, t, chosen)
        return t[len(inputs) :]

    return function


def check(program, functional: bool) -> bool:
    steps = lines_that_run(program)
    function = function_of(steps)
    fresh = lambda: [make(spec, "npu") for spec in program[0]]  # noqa: E731
    try:
        traced = torch.func.functionalize(function) if functional else function
        module = make_fx(traced)(*fresh())
    except Exception:
        return False  # not every line can be traced on real tensors
    run = torchair.get_compiler()(module, fresh())
    text = "\n".join(f"{line}    # {chosen}" for line, chosen in steps)
    for turn in range(3):
        eager, given = fresh(), fresh()
        wanted, got = function(*eager), run(list(given))
        assert len(got) == len(wanted)
        for n, (a, b) in enumerate(zip(got, wanted, strict=True)):
            assert equal_up_to_strides(a, b, functional), f"turn {turn}, result {n} of\n{text}"
        for n, (a, b) in enumerate(zip(given, eager, strict=True)):
            assert equal(a, b), f"turn {turn}, input {n} after\n{text}"
    return True


def equal_up_to_strides(a, b, functional: bool) -> bool:
    """Functionalised programs may give a copy where eager mode gives a view."""
    if not functional:
        return equal(a, b)
    a, b = (t.clone(memory_format=torch.contiguous_format) for t in (a, b))
    return equal(a, b)


def test_programs():
    seen = {"all": 0, "traced": 0}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        given_programs(seen)
    assert seen["traced"] > seen["all"] // 2


def given_programs(seen):
    settings_of = settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip

    @settings_of
    @given(programs)
    def each(program):
        seen["all"] += 1
        seen["traced"] += check(program, functional=False)
        check(program, functional=True)

    each()
