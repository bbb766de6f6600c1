# SPDX-License-Identifier: Apache-2.0
"""backend.explain, strict compile, converters, dumps, `opennpu graph-report`."""

import json
import os
import subprocess
import sys

import pytest
import torch
import torchair
from torch import nn
from torchair import _converters, _verdicts


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
    assert main(["graph-report", str(tmp_path / "none.py")]) == 2
    script.write_text("print(1)")
    assert main(["graph-report", str(script)]) == 2
