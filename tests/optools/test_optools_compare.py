# SPDX-License-Identifier: Apache-2.0
"""OpAutoCompare: what it judges, what it skips and why, what it prints and how it ends."""

import csv
import gc
import glob
import os
import textwrap
import threading
import weakref

import interpreter
import op_tools
import pytest
import torch
from op_tools import _C
from optools_devices import KEYS
from optools_helpers import TOOLS, acted, kernel
from torch.multiprocessing.reductions import StorageWeakRef


@pytest.fixture
def tool():
    return op_tools.OpAutoCompare()


def verdicts(tool):
    """{operator: verdicts that occurred}"""
    names = ("pass", "skip", "warn", "overflow", "error")
    return {row["op"]: {n for n in names if row[n]} for row in tool.table()}


def test_forward_backward_and_optimizer_are_judged(device, tool, capsys):
    layer = torch.nn.Linear(8, 4).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    x = torch.randn(3, 8, device=device)
    with tool:
        layer(x).square().sum().backward()
        optimizer.step()
    phases = {row["phase"] for row in tool.rows()}
    assert phases == {"forward", "backward", "optimizer"}
    assert tool.findings() == []
    out = capsys.readouterr().out
    assert "aten::addmm" in out and " 0 error" in out


def test_rows_carry_call_site_and_module(device, tool):
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).to(device)
    x = torch.randn(3, 8, device=device)
    with tool:
        model(x)
    row = next(row for row in tool.rows() if row["op"] == "aten::addmm")
    assert row["module"] == "0" and row["site"] != 0


def test_what_an_in_place_operator_read_is_what_it_was_before(device, tool):
    x = torch.randn(100, device=device)
    with tool:
        x.mul_(3).add_(x).exp_()
        torch.add(x, x, out=x)
    assert tool.findings() == []
    assert verdicts(tool)["aten::add.out"] == {"pass"}


def test_later_writes_do_not_disturb_the_reference(device, tool):
    tool.threads = 1
    x = torch.randn(300, 300, device=device)
    with tool:
        for _ in range(10):
            y = x @ x
            x.copy_(y.tanh())
    assert tool.findings() == []


def test_uninitialised_memory_is_skipped_and_says_so(device, tool):
    with tool:
        torch.empty(5, device=device)
    assert tool.table()[0]["skip"] == 1
    assert "contents mean nothing" in tool.skips()[0][1]


# Operators: the device's kernel of that name, or of its parts.
DRAWS = {
    "uniform_": lambda x: x.uniform_(),
    "normal_": lambda x: x.normal_(),
    "rand uniform_": lambda x: torch.rand(2000, device=x.device),
    "randint.low random_.from": lambda x: torch.randint(1, 9, (2000,), device=x.device),
    "randperm randperm.generator_out": lambda x: torch.randperm(500, device=x.device),
    "bernoulli_.float": lambda x: x.bernoulli_(0.3),
    "exponential_": lambda x: x.exponential_(),
    "native_dropout bernoulli_.float": lambda x: torch.nn.functional.dropout(x, 0.4),
    "multinomial": lambda x: torch.multinomial(torch.ones(50, device=x.device), 20),
}


@pytest.mark.parametrize("names", DRAWS)
def test_random_operators_by_their_distribution(device, tool, names):
    x = torch.ones(2000, device=device)
    with tool:
        DRAWS[names](x)
    assert tool.findings() == []
    judged = {row["op"] for row in tool.table() if row["pass"]}
    assert judged & {f"aten::{name}" for name in names.split()}, (judged, tool.skips())


def test_the_users_random_numbers_are_untouched(device, tool):
    torch.manual_seed(3)
    plain = torch.rand(10, device=device), torch.rand(10)
    torch.manual_seed(3)
    with tool:
        first = torch.rand(10, device=device)
    assert torch.equal(first.cpu(), plain[0].cpu()) and torch.equal(torch.rand(10), plain[1])


def test_ties_are_free(device, tool):
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0]], device=device)
    with tool:
        x.max(dim=1)
        x.topk(2)
        x.sort(descending=True)
        x.argmax(1)
        torch.nn.functional.max_pool2d(x[None, None], 2, return_indices=True)
    assert tool.findings() == []


def test_views_are_compared_by_geometry(device, tool):
    x = torch.randn(4, 6, device=device)
    with tool:
        x.t(), x[1:3, ::2], x.view(2, 12), x.unfold(0, 2, 1), x.expand(3, 4, 6), x.split(2, 1)
    assert tool.findings() == [] and not tool.skips()


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.randn(4, 5, dtype=torch.complex64, device=d),
        lambda d: torch.randint(-9, 9, (4, 5), device=d),
        lambda d: torch.randn(0, 5, device=d),
        lambda d: torch.randn(4, 5, device=d).bfloat16(),
        lambda d: torch.randn(4, 5, device=d).half(),
        lambda d: torch.randn(4, 5, device=d).double(),
        lambda d: torch.randn(5, 4, device=d).t(),
        lambda d: torch.randn(5, device=d).expand(4, 5),
        lambda d: torch.randn(8, 10, device=d)[::2, ::2],
        lambda d: torch.randn(30, device=d).as_strided((4, 5), (2, 3)),
    ],
    ids="complex int empty bf16 half double turned expanded gaps overlapping".split(),
)
def test_any_dtype_and_layout(device, tool, make):
    x = make(device)
    with tool:
        x + x, x * 2, x.sum(), torch.cat([x, x]), x == x, x.clone(), x.reshape(-1)
    assert tool.findings() == []
    assert len(tool.rows()) > 4


def test_scalars_and_type_promotion(device, tool):
    half = torch.randn(6, device=device).half()
    with tool:
        half + 0.1, half * torch.tensor(3.5), half > 0.1, half + torch.randn(6, device=device)
        torch.arange(10, device=device), torch.full((3,), 0.1, device=device)
        torch.where(half > 0, half, 0.5), half.float().pow(2.7), half.sum(dtype=torch.float32)
    # The cpu's kernel rounds the number to half first: a warning where the sum cancels.
    assert (tool.errors() if device == "cpu" else tool.findings()) == []


def test_foreach_and_multi_output(device, tool):
    xs = [torch.randn(n, device=device) for n in (3, 40, 7)]
    with tool:
        torch._foreach_add_(xs, xs, alpha=0.5)
        torch._foreach_sqrt(torch._foreach_abs(xs))
        xs[1].chunk(4)[2].unbind()
        torch.nn.functional.layer_norm(xs[1], (40,))
    assert tool.findings() == []


def test_overflow_is_a_verdict_of_its_own(device, tool, capsys):
    x = torch.full((4,), 60000.0, device=device).half()
    with tool:
        x + x
    (finding,) = tool.findings()
    assert finding["verdict"] == "overflow" and "beyond the range" in finding["reason"]
    assert "1 overflow" in capsys.readouterr().out


def test_sparse_tensors_are_skipped(device, tool):
    x = torch.eye(3).to_sparse()
    if device == "npu":
        x = x.to(device)
    with tool:
        torch.sparse.sum(x)
        torch.ones(3, device=device) + 1
    assert tool.findings() == [] and not tool._last.failure
    assert "aten::add.Tensor" in verdicts(tool)


def test_lists_select(device, tool, monkeypatch):
    monkeypatch.setenv("OP_AUTOCOMPARE_LIST", "aten::add,aten::mul")
    monkeypatch.setenv("OP_AUTOCOMPARE_DISABLE_LIST", "aten::mul")
    x = torch.ones(3, device=device)
    with tool:
        x + 1, x * 2, x - 1
    assert set(verdicts(tool)) == {"aten::add.Tensor"}


def test_first_of_each_kind_and_one_in_n(device, tool):
    tool.every = 10
    x, wide = torch.ones(3, device=device), torch.ones(300, device=device)
    with tool:
        for _ in range(21):
            x + 1
        wide + 1
    (row,) = tool.table()
    assert row["pass"] == 4 and row["skip"] == 18  # the first, two of twenty, and the wide one
    assert "not its turn" in tool.skips()[0][1]


def test_a_small_queue_loses_nothing(device, tool):
    tool.queue_megabytes = 1
    x = torch.randn(400, 400, device=device)
    with tool:
        for _ in range(30):
            x @ x
    assert sum(row["pass"] for row in tool.table() if row["op"] == "aten::mm") == 30


def test_threads_and_backward_under_a_full_queue(device, tool):
    tool.queue_megabytes = 1

    def work():
        w = torch.randn(200, 200, device=device, requires_grad=True)
        for _ in range(5):
            (w @ w).tanh().sum().backward()

    with tool:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert tool.findings() == []
    assert sum(row["pass"] for row in tool.table() if row["op"] == "aten::mm") == 60


def test_python_kernels_and_a_full_queue_do_not_deadlock(device, tool):
    """The reference needs the GIL which the program holds while it waits for room."""
    library = torch.library.Library("op_tools_compare_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    for key in KEYS.values():
        library.impl("twice", lambda x: x * 2, key)
    tool.queue_megabytes = 1
    x = torch.randn(400, 400, device=device)
    try:
        with tool:
            for _ in range(20):
                torch.ops.op_tools_compare_test.twice(x)
        assert tool.findings() == []
        assert verdicts(tool)["op_tools_compare_test::twice"] == {"pass"}
    finally:
        library._destroy()


def test_a_forked_child_starts_anew(tool, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    x = torch.randn(200, 200)
    with tool:
        for _ in range(20):
            x @ x
        child = os.fork()
        if child == 0:
            mine = op_tools.OpAutoCompare()
            mine.report = lambda: None
            with mine:
                torch.ones(8192) + 1
            os._exit(0 if [row["verdict"] for row in mine.rows()] == ["pass"] * 2 else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sum(row["pass"] for row in tool.table() if row["op"] == "aten::mm") == 20


def test_csv_in_ditorchs_columns(device, tool):
    x = torch.randn(4, device=device)
    with tool:
        x.exp()
    (path,) = glob.glob("op_tools_results/op_autocompare_result/op_autocompare_info_pid*.csv")
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == (
        "forward_id,name,allclose,cosine_similarity,max_abs_diff,max_relative_diff,"
        "atol,rtol,error_info"
    ).split(",")
    assert rows[0]["name"] == "aten::exp" and rows[0]["allclose"] == "True"
    assert float(rows[0]["atol"]) == 1e-5


def test_tolerances_by_operator_and_dtype(device, tool, monkeypatch):
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE", "1e-1,1e-1")
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "1e-2,1e-3")
    monkeypatch.setenv("EXP_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "1e-12,1e-12")
    x = torch.randn(64, device=device)
    with tool:
        x.exp(), x + x, x.to(torch.complex64) + 1
    limits = {row["op"]: (row["atol"], row["rtol"]) for row in tool.rows()}
    assert limits["aten::exp"] == (1e-12, 1e-12)
    close = {row["op"]: row["allclose"] for row in tool.rows() if row["dtype"] == "Float"}
    assert close["aten::exp"] is False and close["aten::add.Tensor"] is True
    assert tool.errors() == []  # E decides, not these


def test_malformed_settings_are_named(tool, monkeypatch):
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "much")
    with pytest.raises(ValueError, match="AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32"):
        tool.start()
    monkeypatch.delenv("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32")
    monkeypatch.setenv("OP_AUTOCOMPARE_EVERY", "0")
    with pytest.raises(ValueError, match="OP_AUTOCOMPARE_EVERY"):
        tool.start()


def test_no_tensor_of_the_program_is_kept_alive(device, tool):
    with tool:
        x = torch.randn(1000, device=device)
        y = x + 1
        storages = [StorageWeakRef(t.untyped_storage()) for t in (x, y)]
        tensors = [weakref.ref(t) for t in (x, y)]
        del y, x
        gc.collect()
        assert [tensor() for tensor in tensors] == [None, None]
        tool.wait()  # it may read them until they are judged
        assert all(storage.expired() for storage in storages)
    assert {"aten::add.Tensor"} <= acted(tool)


def test_ditorchs_lines(device, tool, monkeypatch, capsys):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    x = torch.randn(3, 4, device=device, requires_grad=True)
    with tool:
        torch.nn.functional.linear(x, x).sum().backward()
    out = capsys.readouterr().out
    assert "autocompare    torch.nn.functional.linear forward_id: " in out
    assert "cosine_similarity" in out
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch-2024-08")
    with tool:
        torch.nn.functional.linear(x, x).sum().backward()
    lines = capsys.readouterr().out.splitlines()
    wanted = f"OpAutoCompareHook: {'torch.nn.functional.linear':<50} allclose: True    max_diff: "
    assert any(line.startswith(wanted) for line in lines)
    assert any("torch.nn.functional.linear (ins[0].grad)" in line for line in lines)


def wrong_exp(x):
    return x.double().exp().mul(1.001).to(x.dtype) if x.dtype != torch.float64 else x.expm1() + 1


@pytest.fixture
def bad_exp(device):
    with kernel("exp", wrong_exp, device):
        yield


def test_raise_on_error(device, tool, bad_exp):
    tool.raise_on_error = True
    with pytest.raises(op_tools.CompareError, match=r"1 call with wrong results.*aten::exp"):
        with tool:
            torch.randn(5, device=device).exp()
    assert len(tool.errors()) == 1 and _C.idle()


def test_an_error_line_says_where(device, tool, bad_exp, capsys):
    with tool:
        torch.ones(5, device=device).exp()
    line = next(x for x in capsys.readouterr().out.splitlines() if "error aten::exp" in x)
    assert "times what rounding allows" in line and os.path.basename(__file__) in line
    assert "reference 2.71828" in line


SCRIPT = """
    import os
    os.environ["OP_TOOLS_DEVICE"] = "cpu"
    import torch, op_tools
    library = torch.library.Library("aten", "IMPL")
    wrong = lambda x: x + 1 if x.dtype == torch.float32 else (x + x).mul(0.5).sin().asin().expm1() + 1
    if {bad}:
        library.impl("exp", wrong, "CPU", allow_override=True)
    op_tools.OpAutoCompare().start()
    torch.zeros(3).add(0.5).exp()
    print("through")
"""


@pytest.mark.parametrize("bad", [True, False])
def test_exit_code_of_a_program_that_never_stops_the_tool(bad, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(SCRIPT.format(bad=bad)))
    result = interpreter.run(
        [str(script)],
        env={**os.environ, "OP_AUTOCOMPARE_RAISE": "1"},
        cwd=tmp_path,
    )
    assert "through" in result.stdout
    assert result.returncode == (1 if bad else 0), result.stderr
    assert ("wrong results" in result.stderr) == bad


def test_results_are_the_same_with_and_without(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Dropout(0.2))
    model.to(device)
    x = torch.randn(4, 8, device=device)

    def step():
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss, [p.grad for p in model.parameters()]

    cost = op_tools.self_check(op_tools.OpAutoCompare, step)
    assert cost.tensors == 3 and cost.with_tool_ms > 0


@pytest.mark.parametrize("name", TOOLS)
def test_self_check_of_every_tool(device, name, capsys):
    if device == "cuda" and name == "OpFallback":
        pytest.skip("the cpu's kernels round otherwise than the GPU's")
    w = torch.randn(16, 16, device=device, requires_grad=True)

    def step():
        w.grad = None
        loss = (w @ w).tanh().sum()
        loss.backward()
        return loss, w.grad

    op_tools.self_check(getattr(op_tools, name), step)
    assert f"{name}: 2 tensors bit-equal" in capsys.readouterr().out


def test_self_check_finds_a_tool_that_meddles(device):
    class Meddling(op_tools.OpObserve):
        def start(self):
            w.data.add_(1)
            return super().start()

    w = torch.zeros(4, device=device)
    with pytest.raises(
        op_tools.SelfCheckError, match="Meddling changes the results of the program"
    ):
        op_tools.self_check(Meddling, lambda: w + 1)


def test_self_check_needs_a_step_that_repeats():
    seen = torch.zeros(1)
    with pytest.raises(op_tools.SelfCheckError, match="second time"):
        op_tools.self_check(op_tools.OpObserve, lambda: seen.add_(1).clone())
