# SPDX-License-Identifier: Apache-2.0
"""The gate, for programs unlike training steps of common models: no false alarm, and no silence.

`make test` runs them on the accelerator and a sample on the cpu, OPENNPU_TEST_FULL=1 all on both.
"""

import os

import op_tools
import pytest
import torch
from clean_programs import PROGRAMS
from optools_helpers import quiet

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
# What really makes infinities or NaN of finite numbers: RAdam divides by a zero in its first steps,
# and the mean of nothing is NaN.
MAKES = {"optimizers": {"aten::_foreach_div_.ScalarList"}, "nothing_much": {"aten::mean.dim"}}
# Share of the calls that may go unjudged: sparse tensors.
UNJUDGED = {"sparse_matrices": 0.3, "words": 0.1}


def run(name, device):
    torch.manual_seed(0)
    compare, overflow = quiet(op_tools.OpAutoCompare()), quiet(op_tools.OpOverflowCheck())
    compare.every = 1
    with overflow, compare:
        PROGRAMS[name](device)
    return compare, overflow


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_clean_program_gets_no_alarm(accelerator, name):
    if name == "generated":
        pytest.importorskip("transformers")
    compare, overflow = run(name, accelerator)
    assert [(error["op"], error["reason"]) for error in compare.errors()] == []
    first = {event["op"] for event in overflow.events() if event["first_bad"]}
    assert first <= MAKES.get(name, set())
    assert sum(row["pass"] for row in compare.table()) >= 20
    unjudged = compare.unjudged()
    assert unjudged.calls <= UNJUDGED.get(name, 0.05) * unjudged.of, str(unjudged)


# Where nothing is forgiven because the CPU's own kernel errs as much.
SAMPLE = ("spectral", "pictures", "decompositions", "losses")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS if FULL else SAMPLE)
def test_a_clean_program_on_the_cpu(on_cpu, name):
    compare, _ = run(name, "cpu")
    assert [(error["op"], error["reason"]) for error in compare.errors()] == []
