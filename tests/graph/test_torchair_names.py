# SPDX-License-Identifier: Apache-2.0
"""Smaller names of torchair: gears, print, scopes, custom_op, dumps, log lines."""

import json
import logging
import subprocess
import sys

import pytest
import torch
import torchair
from torchair._compiler import EVENT, runners

npu = torch.device("npu")


def compiled(function, config=None, **kwargs):
    return torch.compile(
        function, backend=torchair.get_npu_backend(compiler_config=config), **kwargs
    )


@pytest.fixture
def counts():
    """What the graphs compiled in a test have done."""
    before = set(runners)

    def look(key):
        return sum(r.replayer.counts()[key] for r in set(runners) - before)

    return look


def test_gears_are_recorded_and_other_sizes_are_not(counts):
    function = compiled(lambda x: torch.softmax(x, 0) * 2)
    for n in (2, 4, 2, 4):
        x = torch.randn(n, 3, device=npu)
        torchair.inference.set_dim_gears(x, {0: [2, 4]})
        assert torch.equal(function(x), torch.softmax(x, 0) * 2)
    recorded = counts("recorded")
    for n in (7, 8, 9):
        x = torch.randn(n, 3, device=npu)
        assert torch.equal(function(x), torch.softmax(x, 0) * 2)
    assert counts("recorded") == recorded == 2 and counts("replayed") >= 1


def test_gears_merge():
    from torchair.inference._gears import merged, set_dim_gears

    a, b = torch.zeros(2, 3), torch.zeros(5)
    set_dim_gears(a, {0: [1, 2], 1: [3, 4]})
    set_dim_gears(b, {0: [5, 6]})
    assert merged([a, 7, b], "zip") == [
        {(0, 0): 1, (0, 1): 3, (2, 0): 5},
        {(0, 0): 2, (0, 1): 4, (2, 0): 6},
    ]
    assert len(merged([a, b], "product")) == 8 and merged([b.clone()], "zip") is None
    c = torch.zeros(1)
    set_dim_gears(c, {0: [1, 2, 3]})
    with pytest.raises(AssertionError, match="as many gears"):
        merged([a, c], "zip")
    d = torch.zeros(1, 1)
    set_dim_gears(d, {0: list(range(1, 21)), 1: list(range(1, 21))})
    with pytest.raises(AssertionError, match="400 combinations, at most 100"):
        merged([d], "product")


@pytest.mark.parametrize(
    "gears, text",
    [
        ({}, "expected a dict"),
        ({2: [1, 2]}, "not in the range"),
        ({-1: [1, 2]}, "not in the range"),
        ({0: [1]}, "1 gears"),
        ({0: list(range(1, 102))}, "101 gears"),
        ({0: [0, 1]}, "positive int"),
        ({0: [1, 2.5]}, "positive int"),
        ({0: 3}, "positive int"),
    ],
)
def test_gears_that_are_refused(gears, text):
    with pytest.raises(AssertionError, match=text):
        torchair.inference.set_dim_gears(torch.zeros(2, 2), gears)
    x = torch.zeros(2, 2)
    torchair.inference.set_dim_gears(x, {0: [1, 2]})
    torchair.inference.set_dim_gears(x, {0: [1, 2]})
    with pytest.raises(AssertionError, match="cannot be changed"):
        torchair.inference.set_dim_gears(x, {0: [1, 3]})


def test_print_stays_in_the_graph_and_in_order(capsys):
    def body(x):
        y = x + 1
        torchair.ops.npu_print("y {is}", y, 3)
        z = y * 2
        torchair.ops.npu_print("z", z)
        return z.sum()

    x = torch.ones(2, device=npu, requires_grad=True)
    function = compiled(body, fullgraph=True)
    for _ in range(3):
        function(x).backward()
        lines = capsys.readouterr().out.splitlines()
        assert lines == ["y {is} [2 2] 3", "z [4 4]"]
    assert x.grad.tolist() == [6, 6]
    torchair.ops.npu_print("long", torch.arange(20, device=npu), summarize_size=2)
    torchair.ops.npu_print(torch.arange(20), summarize_size=-1)
    long, whole = capsys.readouterr().out.splitlines()
    assert "..." in long and "..." not in whole
    for wrong in ({"summarize_size": 0}, {"summarize_size": "3"}):
        with pytest.raises(ValueError, match="summarize_size"):
            torchair.ops.npu_print(x, **wrong)
    with pytest.raises(ValueError, match="at least one tensor"):
        torchair.ops.npu_print("nothing")
    with pytest.raises(ValueError, match="but got dict"):
        torchair.ops.npu_print(x, {})


def test_scopes_do_not_break_a_graph():
    def body(x):
        event = torchair.ops.npu_create_tagged_event("a")
        with torchair.scope.npu_stream_switch("1", 3), torchair.scope.super_kernel("s", ""):
            y = x * 2
            torchair.ops.npu_tagged_event_record(event)
        with torchair.scope.limit_core_num(4, 8), torchair.scope.op_never_timeout(True):
            torchair.ops.npu_tagged_event_wait(event)
            y = torchair.ops.npu_wait_tensor(y, x) + 1
        with torchair.scope.data_dump():
            return y - x

    torchair.patch_for_hcom()
    x = torch.ones(3, device=npu)
    assert torch.equal(compiled(body, fullgraph=True)(x), body(x))
    for wrong in (
        lambda: torchair.scope.limit_core_num(0, 1),
        lambda: torchair.scope.npu_stream_switch(3),
        lambda: torchair.scope.op_never_timeout("yes"),
        lambda: torchair.ops.npu_create_tagged_event(""),
        lambda: torchair.ops.wait(torch.ones(1)),
    ):
        with pytest.raises(ValueError):
            wrong()


def test_custom_op_in_a_converter():
    from torchair.ge import attr, custom_op

    library = torch.library.Library("graph_tests_ge", "FRAGMENT")
    library.define("scale_custom(Tensor x, float by, int[] sizes) -> Tensor")
    library.define("wrapper(Tensor x) -> Tensor")
    for key in ("CPU", "PrivateUse1"):
        library.impl("scale_custom", lambda x, by, sizes: x * by, key)
        library.impl("wrapper", lambda x: x * 4, key)
    torch.library.register_fake(
        "graph_tests_ge::scale_custom", lambda x, by, sizes: x.clone(), lib=library
    )
    torch.library.register_fake("graph_tests_ge::wrapper", lambda x: x.clone(), lib=library)
    op = torch.ops.graph_tests_ge.wrapper.default

    @torchair.register_fx_node_ge_converter(op)
    def convert(x, meta_outputs=None):
        return custom_op(
            "ScaleCustom",
            inputs={"x": x},
            attrs={"by": attr.Float(4.0), "sizes": attr.ListInt([1, 2])},
            outputs=["y"],
        )

    try:
        x = torch.ones(3, device=npu)
        assert compiled(lambda x: op(x) + 1)(x).tolist() == [5, 5, 5]
    finally:
        from torchair import _converters

        _converters.unregister(op)
    assert torch.equal(custom_op("Add", x, x), x + x)
    with pytest.raises(ValueError, match="no operator called no_such_thing"):
        custom_op("NoSuchThing", x)
    with pytest.raises(ValueError, match="not both"):
        custom_op("Add", x, inputs={"self": x})
    with pytest.raises(ValueError, match="outputs names 2"):
        custom_op("Add", inputs={"self": x, "other": x}, outputs=["a", "b"])
    for make in (
        lambda: attr.Int("a"),
        lambda: attr.Int(True),
        lambda: attr.ListInt(3),
        lambda: attr.DataType(3),
    ):
        with pytest.raises(TypeError, match="does not fit"):
            make()
    assert attr.ListListInt([[1], (2, 3)]).value == [[1], [2, 3]]


@pytest.mark.parametrize("form", ["txt", "pbtxt", "py", "json"])
def test_dumps_of_graphs(tmp_path, form):
    config = torchair.CompilerConfig()
    config.debug.graph_dump.type = form
    config.debug.graph_dump.path = str(tmp_path)
    compiled(lambda x: torch.relu(x @ x).sum(0), config)(torch.ones(3, 3, device=npu))
    files = sorted(tmp_path.iterdir())
    assert [f.suffix for f in files] == [f".{form}"] * 2
    text = files[0].read_text()
    assert "mm" in text and "relu" in text
    if form == "json":
        from torchair import _graph_json

        module = _graph_json.read(json.loads(text))
        assert module(torch.ones(3, 3, device=npu))[0].tolist() == [9, 9, 9]
    elif form == "py":
        done = subprocess.run([sys.executable, files[0]], capture_output=True, text=True)
        assert done.returncode == 0 and "tensor([0., 0., 0.]" in done.stdout, done.stderr


def test_lines_of_the_log(caplog):
    config = torchair.CompilerConfig()
    config.ge_config.oo_level = "O1"
    assert torchair.logger.level == logging.ERROR  # TorchAir's: nothing below it by default
    with caplog.at_level(logging.DEBUG, logger="torchair"):
        function = compiled(lambda x: x + 1, config)
        for _ in range(2):
            function(torch.ones(2, device=npu))
    lines = [record.getMessage() for record in caplog.records if record.levelno == EVENT]
    assert any("compiled in" in line for line in lines)
    assert sum("ran in" in line for line in lines) == 2
    assert sum("ge_config.oo_level is accepted" in m for m in caplog.messages) <= 1
