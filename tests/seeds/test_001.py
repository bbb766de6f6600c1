# SPDX-License-Identifier: Apache-2.0
"""seeds/001: the operator report. Its example runs as written; its table is the layout."""

import csv
import io
import os
import re

import pytest
import torch
import torch_npu, torchair
from torch import fx

from torchair import _verdicts, fx_summary


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


HEADER = "目标函数,函数类型,支持状态,调用次数,输入统计,输出统计\r\n"

# The rows of the document's table 2, a line of a cell per <br>.
TABLE = [
    (
        "aten.as_strided.default",
        "aten",
        "36",
        "24次：(float16(12, 1, 512, 64), [12, 1, 512, 64], [64, 196608, 768, 1])\n"
        "12次：(float16(12, 1024, 64), [12, 2, 768, 64], [65536, 16384, 64, 1])",
        "24次：float16(12, 1, 512, 64)\n12次：float16(12, 2, 768, 64)",
    ),
    (
        "aten.native_layer_norm.default",
        "aten",
        "62",
        "62次：(float16(1, s0, 4096), [4096], float16(4096,), float16(4096,), 1e-05)",
        "62次：(float16(1, s0, 4096), float32(1, s0, 1), float32(1, s0, 1))",
    ),
    (
        "aten.add.Tensor",
        "aten",
        "120",
        "60次：(float16(1, s0, 4096), float16(1, s0, 4096))\n"
        "30次：(float16(1, s0, 16384), 1)\n30次：(float16(1, s0, 16384), 1.0)",
        "60次：float16(1, s0, 4096)\n60次：float16(1, s0, 16384)",
    ),
    (
        "<built-in function getitem>",
        "builtin",
        "62",
        "62次：((float16(1, s0, 4096), float32(1, s0, 1), float32(1, s0, 1)), 0)",
        "62次：float16(1, s0, 4096)",
    ),
]


class Sized(torch.Tensor):
    """A tensor that says sizes of its own, symbols included."""

    @staticmethod
    def __new__(cls, dtype, *sizes):
        made = torch.Tensor._make_wrapper_subclass(cls, [1] * len(sizes), dtype=dtype)
        made.named = sizes
        return made

    @property
    def shape(self):
        return self.named

    @classmethod
    def __torch_dispatch__(cls, *_, **__):
        raise NotImplementedError


def documented_graph():
    """Calls as often and with the sizes of the document's table."""
    graph = fx.Graph()
    half, full = torch.float16, torch.float32

    def value(val):
        node = graph.placeholder(f"p{len(graph.nodes)}")
        node.meta["val"] = val
        return node

    def call(target, args, val, times):
        for _ in range(times):
            node = graph.call_function(target, args)
            node.meta["val"] = val
        return node

    aten = torch.ops.aten
    a = value(Sized(half, 12, 1, 512, 64))
    b = value(Sized(half, 12, 1024, 64))
    hidden, wide = value(Sized(half, 1, "s0", 4096)), value(Sized(half, 1, "s0", 16384))
    weight = value(Sized(half, 4096))
    strided = aten.as_strided.default
    call(strided, (a, [12, 1, 512, 64], [64, 196608, 768, 1]), a.meta["val"], 24)
    call(strided, (b, [12, 2, 768, 64], [65536, 16384, 64, 1]), Sized(half, 12, 2, 768, 64), 12)
    stat = Sized(full, 1, "s0", 1)
    result = (hidden.meta["val"], stat, stat)
    arguments = (hidden, [4096], weight, weight, 1e-05)
    norm = call(aten.native_layer_norm.default, arguments, result, 62)
    call(aten.add.Tensor, (hidden, hidden), hidden.meta["val"], 60)
    call(aten.add.Tensor, (wide, 1), wide.meta["val"], 30)
    call(aten.add.Tensor, (wide, 1.0), wide.meta["val"], 30)
    import operator

    call(operator.getitem, (norm, 0), hidden.meta["val"], 62)
    graph.output(None)
    return fx.GraphModule(torch.nn.Module(), graph)


def test_the_table_of_the_document(tmp_path):
    path = fx_summary.write(documented_graph(), path=str(tmp_path / "s.csv"))
    with open(path, "rb") as file:
        data = file.read()
    assert data.startswith(b"\xef\xbb\xbf" + HEADER.encode())
    rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))[1:]
    assert [(r[0], r[1], r[3], r[4], r[5]) for r in rows] == TABLE
    # Byte for byte: what csv's defaults make of these cells, CRLF after each row.
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    assert data == b"\xef\xbb\xbf" + (HEADER + out.getvalue()).encode()
    # The document's statuses are an example; Ascend's converters of today take all four.
    assert [r[2] for r in rows] == ["已支持"] * 4


def test_the_example_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).npu().eval()
    config = torchair.CompilerConfig()
    # 导出图中ATen算子信息和相关配置
    config.debug.fx_summary.type = "csv"
    npu_backend = torchair.get_npu_backend(compiler_config=config)
    opt_model = torch.compile(model, backend=npu_backend)

    x = torch.randn(2, 4, device="npu")
    with torch.no_grad():
        assert torch.equal(opt_model(x), model(x))
    (name,) = os.listdir(tmp_path)
    assert re.fullmatch(r"summary_rank_0_pid_\d+_ts_\d{20}\.csv", name), name
    assert oct(os.stat(name).st_mode & 0o777) == "0o640"
    with open(name, encoding="utf-8-sig", newline="") as file:
        rows = {row[0]: row for row in list(csv.reader(file))[1:]}
    norm = rows["aten.native_layer_norm.default"]
    assert norm[3] == "1" and norm[4].startswith("1次：(float32(2, 4), [4], float32(4,)")
    assert rows["<built-in function getitem>"][1:3] == ["builtin", "已支持"]


def test_a_file_per_graph_and_symbols(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = torchair.CompilerConfig()
    config.debug.fx_summary.type = "csv"
    config.debug.fx_summary.skip_compile = False
    backend = torchair.get_npu_backend(compiler_config=config)
    function = torch.compile(lambda x: x.relu() * 2, backend=backend, dynamic=True)
    x = torch.randn(5, 4, device="npu", requires_grad=True)
    function(x).sum().backward()
    files = sorted(os.listdir(tmp_path))
    assert len(files) == 2  # forward and backward
    with open(files[0], encoding="utf-8-sig", newline="") as file:
        text = file.read()
    assert re.search(r"1次：\(float32\(s\d+, s\d+\), 2\)", text), text


def test_statuses_are_true():
    aten = torch.ops.aten
    of = _verdicts.of
    assert of(aten.add.Tensor) == ("aten", "已支持")
    assert of(aten.mm.default) == ("aten", "部分支持")  # raises RuntimeError for some inputs there
    assert of(aten.amax.default) == ("aten", "未实现")
    assert of(aten.sub.Scalar) == ("aten", "未实现")  # a stub that raises something else
    assert of(torch.ops.npu.npu_prefetch.default) == ("aten", "已支持")  # works, returns nothing
    assert of(torch.ops.quantized.add.default) == ("aten", "未注册")
    assert of(torch.ops.prims.add.default) == ("prims", "已支持")
    assert of(torch.ops.prims.sin.default) == ("prims", "未实现")
    assert of(torch.sym_float)[1] == "已支持"
    assert of(torch.sym_max)[1] == "未知状态，请查看源码"
    assert of(torch.ops.higher_order.run_with_rng_state)[1] == "已支持"
    import math
    import operator

    assert of(operator.getitem) == of(math.floor) == ("builtin", "已支持")


def test_where_it_cannot_be_written(tmp_path, monkeypatch):
    graph = documented_graph()
    with pytest.raises(AssertionError, match=r"\.csv"):
        fx_summary.write(graph, path=str(tmp_path / "s.txt"))
    (tmp_path / "link.csv").symlink_to(tmp_path / "other.csv")
    with pytest.raises(RuntimeError, match="symbolic link"):
        fx_summary.write(graph, path=str(tmp_path / "link.csv"))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(RuntimeError, match="cannot be written"):
        fx_summary.write(graph, path=str(tmp_path / "folder.csv"))


def test_other_modes_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = torchair.CompilerConfig()
    config.mode = "npugraph_ex"
    config.debug.fx_summary.type = "csv"
    function = torch.compile(
        lambda x: x + 1, backend=torchair.get_npu_backend(compiler_config=config)
    )
    assert function(torch.ones(2, device="npu")).tolist() == [2, 2]
    assert os.listdir(tmp_path) == []
