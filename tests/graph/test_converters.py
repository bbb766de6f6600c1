# SPDX-License-Identifier: Apache-2.0
"""Converters written with torchair.ge's names, and the smaller names of TorchAir that compute."""

import json
import logging
from pathlib import Path

import pytest
import torch
import torch_npu
import torchair
from torchair import _compiler, _converters
from torchair.ge import Cast, Clone, Const, DataType, Format, Tensor, TensorSpec, attr, custom_op

npu = torch.device("npu")
LIBRARY = torch.library.Library("graph_tests_converters", "FRAGMENT")


def define(schema: str, kernel) -> torch._ops.OpOverload:
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    for key in ("CPU", "PrivateUse1", "Meta"):
        LIBRARY.impl(name, kernel, key)
    return getattr(torch.ops.graph_tests_converters, name).default


OP = define("twice(Tensor x, Tensor y) -> Tensor", lambda x, y: x * 2 + y)
PAIR = define("pair(Tensor x) -> (Tensor, Tensor)", lambda x: (x + 1, x * 2))


@pytest.fixture
def converter():
    """Registers a converter for one test."""
    registered = []

    def register(op, function):
        registered.append(op)
        torchair.register_fx_node_ge_converter(op)(function)

    yield register
    for op in registered:
        _converters.unregister(op)


def compiled(function):
    graphs: list = []
    config = torchair.CompilerConfig()
    config.post_grad_custom_post_pass = lambda module, *_: graphs.append(
        [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
    )
    backend = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(function, backend=backend), graphs


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32])
def test_a_converter_sees_dtype_and_rank_as_documented(converter, dtype):
    seen = []

    def convert(x: Tensor, y: Tensor, meta_outputs: TensorSpec = None):
        seen.append((x.dtype == DataType.DT_FLOAT16, x.rank, y.index, meta_outputs.rank))
        assert isinstance(x, Tensor) and meta_outputs.size == [2, 3] and not isinstance(3, Tensor)
        if x.dtype == DataType.DT_FLOAT16:
            return Cast(Cast(x, dst_type=DataType.DT_FLOAT) * 2 + y, dst_type=meta_outputs.dtype)
        return Clone(x, dependencies=[y]) * Const(2, dtype=x.dtype, node_name="two") + y

    converter(OP, convert)
    x = torch.arange(6, device=npu).reshape(2, 3).to(dtype)
    function, graphs = compiled(lambda x: OP(x, x + 1) - 1)
    assert torch.equal(function(x), x * 3)
    assert seen[0] == (dtype is torch.float16, 2, 1, 2)
    assert not any("graph_tests_converters" in target for target in graphs[0])


@pytest.mark.parametrize("value", [[1.5, -2.0, 3.0], [1, 2, 3], True, 2.5, [[1.0], [2.0]]])
def test_constants_of_any_form_go_into_the_graph(converter, value):
    converter(OP, lambda x, y: x * 2 + y + Cast(Const(value).sum(), dst_type=x.dtype))
    x = torch.randn(2, 3, device=npu)
    wanted = x * 2 + x + torch.tensor(value).float().sum().item()
    function, _ = compiled(lambda x: OP(x, x))
    for _ in range(3):
        torch.testing.assert_close(function(x), wanted)


def test_types_of_constants():
    assert Const(1).dtype == torch.int64 and Const(1.0).dtype == torch.float32
    assert Const([True]).dtype == torch.bool and Const([1, 2], DataType.DT_INT8).dtype == torch.int8
    assert Cast(1.9, dst_type=DataType.DT_INT64).item() == 1 and Const([]).shape == (0,)
    assert Const(3).device.type == "npu" and Const(3).rank == 0
    assert Format.FORMAT_FRACTAL_NZ.value == 29 and int(DataType.DT_BF16) == 27
    assert DataType.DT_BF16 == torch.bfloat16 != DataType.DT_FLOAT and DataType.DT_FLOAT == 0
    assert torch.int8 == DataType.DT_INT8 and torch.int8 != DataType.DT_INT16
    for wrong in (DataType.DT_STRING, 777, "float"):
        with pytest.raises(ValueError, match="ge: "):
            Const(1, dtype=wrong)
    with pytest.raises(TypeError, match="dependencies"):
        Clone(Const(1), dependencies=[3])
    with pytest.raises(TypeError, match=r"use ge\.Const"):
        Tensor()


def test_several_results_and_lists_of_them(converter):
    made = define("parts(Tensor x, int n) -> Tensor[]", lambda x, n: [x * i for i in range(n)])
    mixed = define("mixed(Tensor x) -> (Tensor, Tensor[])", lambda x: (x, [x + 1, x + 2]))
    x = torch.arange(3.0, device=npu)
    rest, first = made(x, 3), mixed(x)[0]
    got = custom_op("Parts", inputs={"x": x}, attrs={"n": attr.Int(3)}, outputs=[("y", 3)])
    assert [t.tolist() for t in got] == [t.tolist() for t in rest]
    one, many = custom_op("Mixed", inputs={"x": x}, outputs=["y", ("z", 2)], node_name="m")
    assert torch.equal(one, first) and len(many) == 2
    with pytest.raises(ValueError, match="outputs names 4"):
        custom_op("Mixed", x, outputs=["y", ("z", 3)])
    converter(PAIR, lambda x: (x + 1, custom_op("Mul", x, Const(2, x.dtype))))
    function, graphs = compiled(lambda x: PAIR(x)[0] * PAIR(x)[1])
    assert torch.equal(function(x), (x + 1) * (x * 2)) and len(graphs[0]) <= 6


@pytest.mark.parametrize(
    "function, told",
    [
        (lambda x, y: (x * 2 + y).half(), "float16"),
        (lambda x, y: (x * 2 + y).sum(0), r"expected torch.float32\[2, 3\]"),
        (lambda x, y: (x, y), "expected 1 results, but got 2"),
    ],
)
def test_a_converter_with_other_results_is_refused(converter, function, told):
    converter(OP, function)
    x = torch.randn(2, 3, device=npu)
    with pytest.raises(Exception, match=told) as raised:
        compiled(lambda x: OP(x, x))[0](x)
    assert "the converter of graph_tests_converters.twice.default" in str(raised.value)


def test_attributes_of_types():
    assert attr.DataType(DataType.DT_FLOAT16).value is torch.float16
    assert attr.ListDataType([DataType.DT_INT8, torch.int64]).value == [torch.int8, torch.int64]
    for wrong in ([3], torch.int8):
        with pytest.raises(TypeError, match="does not fit"):
            attr.ListDataType(wrong)


def test_module_paths_of_converters(converter):
    from torchair._ge_concrete_graph import ge_apis as ge
    from torchair._ge_concrete_graph.fx2ge_converter import declare_supported
    from torchair._ge_concrete_graph.supported_declaration import F32, Support, T
    from torchair._ge_concrete_graph.utils import dtype_promote

    @declare_supported([Support(F32(2, 2, value_range=(0, 1)), T([1, 2], dtype=torch.int32))])
    @torchair._ge_concrete_graph.fx2ge_converter.register_fx_node_ge_converter(OP)
    def convert(x: Tensor, y: Tensor, meta_outputs: TensorSpec = None):
        x, y, two = dtype_promote(x, y, 2, target_dtype=meta_outputs.dtype)
        return ge.Add(ge.Mul(x, two), ge.Sigmoid(y))

    try:
        x = torch.randn(3, device=npu)
        torch.testing.assert_close(compiled(lambda x: OP(x, x))[0](x), x * 2 + x.sigmoid())
    finally:
        _converters.unregister(OP)
    assert convert.supported_cases[0].args[0].dims == (2, 2)
    with pytest.raises(ValueError, match="no operator called no_such"):
        ge.NoSuch(1)


# ---- names that compute ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["npu_fused_infer_attention_score", "..._v2"])
def test_attention_with_lengths_in_tensors(name):
    first = "npu_fused_infer_attention_score"
    name = name.replace("...", first)
    query, keys = ("actual_seq_lengths", "actual_seq_lengths_kv")
    heads, scale = "num_heads", "scale"
    if name != first:
        query, keys = "actual_seq_qlen", "actual_seq_kvlen"
        heads, scale = "num_query_heads", "softmax_scale"
    q, k, v = (torch.randn(2, 2, n, 16, device=npu, dtype=torch.float16) for n in (4, 8, 8))
    common = {heads: 2, scale: 0.25, "input_layout": "BNSD"}

    def body(q, k, v, one, other):
        return getattr(torchair.ops, name)(q, k, v, **{query: one, keys: other}, **common)[0] + 1

    function = torch.compile(body, backend=torchair.get_npu_backend(), fullgraph=True)
    for lengths in ([3, 5], [8, 1], [3, 5]):  # a replay reads them again
        one, other = torch.tensor([4, 2], device=npu), torch.tensor(lengths, device=npu)
        wanted = (
            getattr(torch_npu, name)(q, k, v, **{query: [4, 2], keys: lengths}, **common)[0] + 1
        )
        assert torch.equal(function(q, k, v, one, other), wanted)
        assert torch.equal(body(q, k, v, one, other), wanted)
    with pytest.raises((TypeError, RuntimeError), match=keys):
        body(q, k, v, None, [3, 5])


def test_tensors_over_addresses():
    cache = torch.arange(24.0, device=npu).reshape(2, 12)
    one, two = torchair.llm_datadist.create_npu_tensors(
        [3, 4], torch.float32, [cache[0].data_ptr(), cache[1].data_ptr()]
    )
    assert one.device == cache.device and one.is_contiguous()
    assert torch.equal(one, cache[0].view(3, 4)) and torch.equal(two + 0, cache[1].view(3, 4))
    two.mul_(2)
    assert cache[1, 3].item() == 30 and one.sum().item() == cache[0].sum().item()
    function = torch.compile(lambda t: t.add_(1).sum(), backend="npu")
    assert [function(one).item() for _ in range(3)] == [66 + 12 * i for i in (1, 2, 3)]
    assert cache[0, 0].item() == 3
    for given, told in (
        (([-1], torch.int8, [8]), "shape"),
        (([1], torch.int8, [0]), "addresses"),
        (([1], torch.float32, [cache.data_ptr() + 1]), "not a multiple of 4"),
        (([1], torch.float32, cache.data_ptr()), "addresses"),
    ):
        with pytest.raises(ValueError, match=told):
            torchair.llm_datadist.create_npu_tensors(*given)
    with pytest.raises(TypeError, match="dtype"):
        torchair.llm_datadist.create_npu_tensors([1], "float", [8])


def test_internal_formats_keep_results():
    from torch_npu.contrib.module import LinearA8W8Quant

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(16, 5)
    ).half().npu()  # fmt: skip
    x = torch.randn(2, 3, 4, 4, device=npu, dtype=torch.float16)
    wanted = model(x)
    torchair.use_internal_format_weight(model)
    assert torch.equal(model(x), wanted)
    assert torch.equal(torch.compile(model, backend="npu")(x), wanted)
    quantised = LinearA8W8Quant(16, 4, bias=False).npu()
    quantised.weight.data = torch.randint(-8, 8, (4, 16), dtype=torch.int8, device=npu)
    quantised.scale.data = torch.rand(4, device=npu)
    x = torch.randint(-8, 8, (3, 16), dtype=torch.int8, device=npu)
    wanted = quantised(x)
    torchair.use_internal_format_weight(quantised)
    assert quantised.scale.dtype == torch.int64 and torch.equal(quantised(x), wanted)
    with pytest.raises(RuntimeError, match=r"0\.weight is on cpu.*model\.npu"):
        torchair.use_internal_format_weight(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    weight = torch.randn(4, 4, device=npu)
    assert torch.equal(torchair.npu_format_cast_via_cpu(weight, 29), weight)


def test_what_npu_print_shows(capsys):
    show = torchair.ops.npu_print
    show("x:", torch.arange(10, device=npu))
    show("x:", torch.arange(10, device=npu), tensor_detail=True)
    show(torch.arange(8.0, device=npu).reshape(4, 2) / 4, 7, True, summarize_size=1)
    show(torch.tensor(2.5), torch.tensor([True]), torch.arange(6), summarize_size=3)
    assert capsys.readouterr().out.splitlines() == [
        "x: [0 1 2 ... 7 8 9]",
        "x: tensor([0 1 2 ... 7 8 9], shape=[10], dtype=torch.int64)",
        "[[0 0.25]",
        " ...",
        " [1.5 1.75]] 7 True",
        "2.5 [True] [0 1 2 3 4 5]",
    ]
    with pytest.raises(ValueError, match="tensor_detail"):
        show(torch.ones(1), tensor_detail="yes")


def test_streams_and_scopes_of_documents(caplog):
    _compiler.named.clear()

    def body(x, y):
        with torchair.scope.npu_stream_switch("1", enable_inner_parallel=False):
            torchair.scope.npu_wait_tensor(x, y)
            z = torch.mm(x, y)
            record = torchair.ops.record()
            torchair.ops.npu_record_tagged_stream(z, "1")
        torchair.ops.wait([record, z])
        with torchair.scope.op_never_timeout(), torchair.scope.super_kernel(None):
            with torchair.scope.profiler_trace("a", "both"), torchair.scope.limit_core_num(4, 0):
                return z + 1, torchair.scope.npu_wait_tensor(x, z) * 2

    x, y = torch.randn(3, 3, device=npu), torch.randn(3, 3, device=npu)
    function = torch.compile(body, backend="npu", fullgraph=True)
    with caplog.at_level(logging.DEBUG, logger="torchair"):
        for got, wanted in zip(function(x, y), body(x, y)):
            assert torch.equal(got, wanted)
    told = [line.split()[0] for line in caplog.messages if "has no effect on this engine" in line]
    assert sorted(told) == [
        "torchair.ops.npu_record_tagged_stream", "torchair.ops.record", "torchair.ops.wait",
        "torchair.scope.limit_core_num", "torchair.scope.npu_stream_switch",
        "torchair.scope.op_never_timeout", "torchair.scope.profiler_trace",
        "torchair.scope.super_kernel",
    ]  # fmt: skip
    for wrong in (
        lambda: torchair.scope.profiler_trace("a", "middle"),
        lambda: torchair.scope.npu_stream_switch("1", enable_inner_parallel="yes"),
        lambda: torchair.ops.npu_record_tagged_stream(x, 3),
        lambda: torchair.ops.wait([None]),
    ):
        with pytest.raises(ValueError):
            wrong()


# ---- tools ---------------------------------------------------------------------------------


def task(stream, number, name, blocks=0, kind="KERNEL_AIVEC", scheme=1, **args):
    told = {"Task Id": number, "Task Type": kind, "numBlocks": blocks, "schemMode": scheme, **args}
    return {"ph": "X", "tid": stream, "name": name, "ts": 10.0 * number, "dur": 4.5, "args": told}


def two_streams(ordered: bool):
    """Two collectives of 40 and 16 cores; in order: the second stream waits for the first."""
    return [
        task("stream1", 1, "aiv_all_gather", 40),
        task("stream1", 2, "EVENT_RECORD_7", kind="EVENT"),
        task("stream2", 1, "EVENT_WAIT_7" if ordered else "MatMul", kind="EVENT"),
        task("stream2", 2, "MoeDistributeDispatchV2", 16, kind="KERNEL_MIX_AIV"),
        task("stream2", 3, "Add", 48),
    ]


@pytest.mark.parametrize(
    "package", ["torchair.tools.gegraph_check", "npugraph_ex.tools.aclgraph_check"]
)
def test_deadlocks_are_found_where_no_wait_stands_between(package, tmp_path, capsys):
    import importlib

    check = importlib.import_module(f"{package}.deadlock_check").deadlock_check
    filtered = importlib.import_module(f"{package}.filter_operators").filter_comm_ops
    path = tmp_path / "graph_1.json"
    path.write_text(json.dumps(two_streams(ordered=True)))
    check(path, None, 48)
    assert capsys.readouterr().out == "[RESULT] No deadlock risks detected.\n"
    assert not (tmp_path / "graph_1_deadlock_check.json").exists()
    path.write_text(json.dumps(two_streams(ordered=False)))
    check(path, None, 56)
    assert "No deadlock" in capsys.readouterr().out
    check(path, None, 48)
    assert (
        "CONFLICT: [stream1 TaskId=1] aiv_all_gather (40 AIVEC)  <->  "
        "[stream2 TaskId=2] MoeDistributeDispatchV2 (16 AIVEC)  sum=56 > 48"
    ) in capsys.readouterr().out
    marked = json.loads((tmp_path / "graph_1_deadlock_check.json").read_text())
    assert [t["name"].startswith("dead_lock_") for t in marked] == [True, False, False, True, False]
    kept = json.loads(Path(filtered(path, tmp_path / "kept.json")).read_text())
    assert [t["name"] for t in kept] == [
        "aiv_all_gather", "EVENT_RECORD_7", "MoeDistributeDispatchV2"
    ]  # fmt: skip


def test_merged_streams_run_one_after_the_other(tmp_path, capsys):
    from torchair.tools.gegraph_check.deadlock_check import deadlock_check

    start = task("stream1", 3, "STREAM_ACTIVE", kind="STREAM_ACTIVE", **{"Active Stream Id": 2})
    later = [task("stream2", 4, "aiv_reduce", 40)]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps([task("stream1", 1, "aiv_all_gather", 40), start, *later]))
    deadlock_check(path, None, 48)
    out = capsys.readouterr().out
    assert "stream2 -> stream1" in out and "No deadlock" in out
    path.write_text("{}")
    with pytest.raises(ValueError, match="expected a Chrome trace"):
        deadlock_check(path, None, 48)


def test_an_aligned_trace_shows_waits_until_their_records(tmp_path):
    from npugraph_ex.tools.aclgraph_check.align_trace import align_trace_json

    path = tmp_path / "graph.json"
    path.write_text(json.dumps(two_streams(ordered=True)))
    aligned = json.loads(Path(align_trace_json(path, None)).read_text())
    tasks = {t["name"]: t for t in aligned if t["ph"] == "X"}
    ends = {name: t["ts"] + t["dur"] for name, t in tasks.items()}
    assert ends["EVENT_WAIT_7"] == pytest.approx(ends["EVENT_RECORD_7"])
    assert tasks["MoeDistributeDispatchV2"]["ts"] == pytest.approx(ends["EVENT_WAIT_7"] + 0.2)
    assert [t["ph"] for t in aligned if t["name"] == "PAIR_7"] == ["s", "f"]
    circle = [
        task("stream1", 1, "EVENT_WAIT_1", kind="E"), task("stream1", 2, "EVENT_RECORD_2", kind="E"),
        task("stream2", 1, "EVENT_WAIT_2", kind="E"), task("stream2", 2, "EVENT_RECORD_1", kind="E"),
    ]  # fmt: skip
    path.write_text(json.dumps(circle))
    with pytest.raises(ValueError, match="wait for each other"):
        align_trace_json(path, None)
