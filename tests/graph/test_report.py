# SPDX-License-Identifier: Apache-2.0
"""backend.explain, strict compile, converters, dumps, `opennpu graph-report`."""

import html
import json
import os
import re
import subprocess
import sys

import pytest
import torch
import torchair
from torch import nn
from torchair import _converters, _explain, _verdicts


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        x = self.body(x)
        return torch.amax(x, 1) + x.sum(1)


@pytest.fixture(scope="module")
def report():
    return torchair.get_npu_backend().explain(Net().npu())(torch.randn(3, 4, device="npu"))


def test_the_report_says_what_where_and_why(report):
    call = next(c for c in report.calls if c.target == "aten.amax.default")
    assert call.status == "not implemented" and call.reason.startswith("OP201")
    assert call.location.endswith(f"test_report.py:{Net.forward.__code__.co_firstlineno + 2}")
    assert {c.phase for c in report.calls} == {"forward", "backward"} and report.graphs == 2
    linear = next(c for c in report.calls if c.target == "aten.addmm.default")
    assert "body" in linear.module and linear.seconds > 0
    assert 0 < report.coverage() < 1 and 0 < report.coverage("time") <= 1
    names = [name for name, _, _ in report.fix_next()]
    assert "aten.amax.default" in names
    assert "converter" in report.fixes["aten.amax.default"] or "decomp" in report.fixes[names[0]]
    report.assert_coverage(min=0.1)
    with pytest.raises(AssertionError, match=r"coverage by calls.*aten\.amax"):
        report.assert_coverage()
    with pytest.raises(ValueError, match="'calls' or 'time'"):
        report.coverage("flops")


def test_forms_of_the_report(report):
    data = json.loads(report.to_json())
    assert data["schema"] == 1 and data["profile"] == _verdicts.profile()
    assert len(data["calls"]) == len(report.calls) == report.to_csv().count("\r\n") - 1
    assert "| aten.amax.default |" in report.to_markdown()
    assert "优先处理" in report.to_markdown("zh")
    page = report.to_html()
    assert "<script" not in page and "aten.amax.default" in page and "default-src 'none'" in page
    with pytest.raises(ValueError, match="language"):
        report.to_html("fr")


def test_the_page_begins_with_what_to_fix_first(report):
    name = report.fix_next()[0][0]
    page = report.to_html()
    main = page[page.index("<main>") :]
    assert main.index(f"Fix first: {name}") < main.index('class="tiles"') < main.index("<table>")
    conclusion = main[: main.index("</section>")]
    for words in (html.escape(report.fixes[name]), report.unsupported()[0].location):
        assert words and words in conclusion, words
    targets = set(re.findall(r'href="#(\w+)"', page))
    assert targets and targets <= set(re.findall(r'id="(\w+)"', page))
    assert f'<b class="error">{len(report.unsupported())}</b>' in page
    assert f"优先处理：{name}" in report.to_html("zh") and 'lang="zh"' in report.to_html("zh")


def test_the_page_of_a_graph_without_gaps():
    backend = torchair.get_npu_backend()
    report = backend.explain(lambda x: x + 1)(torch.ones(2, device="npu"))
    assert (
        "Everything goes into graphs" in report.to_html()
        and "error" not in report.to_html().split("<main>")[1]
    )
    empty = type(report)("none", 0)
    assert "No graph was compiled" in empty.to_html()


def test_texts_of_a_program_stay_texts_in_the_page(report):
    from torchair import _explain

    nasty = "</td><script>alert(1)</script>\"'&"
    call = _explain.Call(nasty, nasty, nasty, 0, nasty, nasty, nasty, nasty, nasty)
    page = _explain.Report(
        nasty, 1, [call], [_explain.Break(nasty, nasty)], {nasty: nasty}
    ).to_html()
    assert "<script" not in page and html.unescape(page).count("alert(1)") > 5


def test_strict_compile_agrees_with_the_report(report):
    outside = {c.target for c in report.unsupported()}
    strict = torchair.get_npu_backend(strict=True)
    with pytest.raises(Exception, match="strict compile") as caught:
        torch.compile(Net().npu(), backend=strict)(torch.randn(3, 4, device="npu"))
    (name,) = [name for name in outside if "amax" in name]
    assert name in str(caught.value)
    assert torch.compile(lambda x: x.sum(1) + 1, backend=strict)(
        torch.ones(2, 2, device="npu")
    ).tolist() == [3, 3]


def test_a_graph_break_is_in_the_report():
    def body(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    made = torchair.get_npu_backend().explain(body)(torch.ones(2, device="npu"))
    assert made.graphs == 2 and len(made.breaks) == 1 and "graph_break" in made.breaks[0].reason


def test_converters_of_users():
    @torch.library.custom_op("graph_test::thrice", mutates_args=())
    def thrice(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("only the converter computes")

    @thrice.register_fake
    def _(x):
        return torch.empty_like(x)

    op = torch.ops.graph_test.thrice.default
    assert _verdicts.status(op) == _verdicts.NOT_REGISTERED
    try:

        @torchair.register_fx_node_ge_converter(op)
        def convert(x, meta_outputs=None):
            assert meta_outputs.shape == x.shape
            return x * 3

        assert _verdicts.status(op) == _verdicts.SUPPORTED
        function = torch.compile(lambda x: op(x) + 1, backend=torchair.get_npu_backend(strict=True))
        assert function(torch.ones(2, device="npu")).tolist() == [4, 4]
        with pytest.raises(ValueError, match="has a converter already"):
            torchair.register_fx_node_ge_converter(op)(lambda x: x)
        with pytest.raises(TypeError, match="several overloads"):
            torchair.register_fx_node_ge_converter(torch.ops.aten.add)
        with pytest.raises(TypeError, match="holds a tensor"):
            torchair.declare_supported([torchair.Support(torch.ones(1))])
        with pytest.raises(TypeError, match="operator overload"):
            torchair.register_fx_node_ge_converter("aten.add")
    finally:
        _converters.unregister(op)


def test_dumps_and_passes(tmp_path):
    seen = []
    config = torchair.CompilerConfig()
    config.debug.graph_dump.type = "py"
    config.debug.graph_dump.path = str(tmp_path / "dumps")
    config.post_grad_custom_pre_pass = lambda gm, inputs, cfg: seen.append(gm)
    backend = torchair.get_npu_backend(compiler_config=config)
    x = torch.ones(2, 3, device="npu")
    assert torch.compile(lambda x: x.relu() + 1, backend=backend)(x).sum().item() == 12
    names = sorted(os.listdir(tmp_path / "dumps"))
    assert [n.split("_graph_")[0] for n in names] == ["dynamo_optimized", "dynamo_original"]
    done = subprocess.run(
        [sys.executable, tmp_path / "dumps" / names[0]], capture_output=True, text=True
    )
    assert done.returncode == 0 and "[1., 1., 1.]" in done.stdout, done.stderr
    assert len(seen) == 1
    config = torchair.CompilerConfig()
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = str(tmp_path / "data")
    backend = torchair.get_npu_backend(compiler_config=config)
    torch.compile(lambda x: x * 2, backend=backend)(x)
    files = [f for _, _, fs in os.walk(tmp_path / "data") for f in fs]
    assert any(".INPUT.0." in f for f in files) and any(".OUTPUT.0." in f for f in files)


SCRIPT = """
import sys, torch, torch_npu, torchair
print("arguments", sys.argv[1:])
f = torch.compile(lambda x: torch.amax(x, 0) + 1, backend=torchair.get_npu_backend())
f(torch.ones(3, 2, device="npu"))
"""


def test_the_command(tmp_path, capsys):
    from opennpu.cli import main

    script, out = tmp_path / "s.py", tmp_path / "r.json"
    script.write_text(SCRIPT)
    shared = ["graph-report", "--format", "json", "--output", str(out)]
    assert main([*shared, str(script), "a", "--b"]) == 0
    assert "['a', '--b']" in capsys.readouterr().out
    assert json.loads(out.read_text())["coverage"]["calls"] == 0.5
    assert main([*shared, "--min-coverage", "0.9", str(script)]) == 1
    assert (
        "50.0% of the calls go into graphs, --min-coverage asks for 90.0%"
        in capsys.readouterr().err
    )
    # Options may follow the script; what follows -- is the script's.
    assert main([*shared, str(script), "a", "--min-coverage", "0.9", "--b"]) == 1
    assert "['a', '--b']" in capsys.readouterr().out
    assert main([*shared, str(script), "--", "--min-coverage", "0.9"]) == 0
    assert "['--min-coverage', '0.9']" in capsys.readouterr().out
    for wrong in ("90", "nan", "x"):
        with pytest.raises(SystemExit) as end:
            main(["graph-report", str(script), "--min-coverage", wrong])
        assert end.value.code == 2 and "no share from 0 to 1" in capsys.readouterr().err
    assert main(["graph-report", str(tmp_path / "none.py")]) == 2
    script.write_text("print(1)")
    assert main(["graph-report", str(script)]) == 2


def test_a_script_that_prints_or_fails(tmp_path, run_python, capfd):
    """JSON on standard output is nothing but JSON, and a script that fails is no success."""
    from opennpu.cli import main

    script = tmp_path / "s.py"
    script.write_text(SCRIPT + "import os\nos.system('echo from a child')\nraise SystemExit(3)\n")
    assert main(["graph-report", "--format", "json", str(script), "--min-coverage", "0.1"]) == 1
    told = capfd.readouterr()
    assert json.loads(told.out)["coverage"]["calls"] == 0.5
    assert "arguments" in told.err and "from a child" in told.err and "ended with 3" in told.err


@pytest.mark.parametrize(
    "operator", [torch.fmax, torch.logaddexp, torch.special.erfcx, torch.trace]
)
def test_advice_to_decompose_was_tried(operator):
    """Where the report says so, the coverage is whole afterwards; elsewhere it says something else."""
    backend = torchair.get_npu_backend()
    x = torch.rand(3, 3, device="npu") + 0.5
    function = (lambda a: operator(a, a)) if operator in (torch.fmax, torch.logaddexp) else operator
    report = _explain.explain(backend, function)(x)
    for target, fix in report.fixes.items():
        if "custom_decompositions" not in fix:
            assert "register_fx_node_ge_converter" in fix
            continue
        packet, overload = target.removeprefix("aten.").split(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        tables = torch._decomp.get_decompositions([op])
        again = torchair.get_npu_backend(custom_decompositions=tables)
        assert _explain.explain(again, function)(x).coverage() == 1.0, target
    if operator is torch.fmax:
        assert "custom_decompositions" not in report.fixes["aten.fmax.default"]


def test_every_graph_break_has_its_line():
    def broken(x):
        y = x * 2
        print(end="")  # break 1
        y = y + 1
        torch._dynamo.graph_break()  # break 2
        if y.sum() > 0:  # break 3
            y = y - 1
        y.tolist()  # break 4
        return y + 1

    x = torch.ones(4, device="npu")
    found = [b.location for b in torchair.get_npu_backend().explain(broken)(x).breaks]
    with open(__file__) as file:
        wanted = [
            i for i, line in enumerate(file, 1) if "# break " in line and "in line" not in line
        ]
    assert found == [f"test_report.py:{line}" for line in wanted]
    told = torch._dynamo.explain(broken)(x)
    assert [b.user_stack[-1].lineno for b in told.break_reasons] == wanted


def test_graph_report_runs_a_script_as_python_does(tmp_path, monkeypatch, capsys):
    """Modules beside the script are found, whatever the working folder is."""
    from opennpu.cli import main

    (tmp_path / "job").mkdir()
    (tmp_path / "job/beside_the_script.py").write_text("def f(x):\n    return x.relu() + 1\n")
    script = tmp_path / "job/script.py"
    script.write_text(
        "import sys, torch, torch_npu\nfrom beside_the_script import f\nsys.path.pop(0)\n"
        "torch.compile(f, backend='npu')(torch.ones(3).npu())\n"
    )
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    assert main(["graph-report", "job/script.py", "--min-coverage", "0.9"]) == 0
    assert sys.path == path
    capsys.readouterr()
    assert main(["graph-report", "job/script.py", "--output", "none/report.md"]) == 2
    assert f"cannot write into {tmp_path}/none" in capsys.readouterr().err


@pytest.mark.parametrize("language", ["en", "zh"])
def test_dtypes_that_the_chip_refuses_are_listed_apart(language):
    def model(a):
        return (a @ a).erfc() + 1

    a = torch.ones(2, 2, dtype=torch.float64, device="npu")
    report = torchair.get_npu_backend().explain(model)(a)
    found = [(name, dtypes, calls) for name, dtypes, calls, _ in report.dtype_gaps()]
    assert found == [
        ("aten.mm.default", "refused: float64", 1),
        ("aten.erfc.default", "unknown: float64", 1),
    ]
    assert [row["dtypes"] for row in report.as_dict()["dtypes"]] == [row[1] for row in found]
    for text in (report.to_markdown(language), report.to_html(language)):
        assert "refused: float64" in text and "unknown: float64" in text
