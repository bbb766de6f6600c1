# SPDX-License-Identifier: Apache-2.0
"""register_replacement: parts of a graph give way to what a program says, with the same results."""

import pytest
import torch
import torch_npu
import torchair
from torch._inductor.pattern_matcher import joint_fwd_bwd
from torch._subclasses.fake_tensor import FakeTensorMode
from torchair import _patterns

npu = torch.device("npu")
BOTH = pytest.mark.parametrize("package", ["torchair", "npugraph_ex"])


@pytest.fixture(autouse=True)
def nothing_registered():
    yield
    for patterns in _patterns.REGISTERED.values():
        patterns.clear()


def of(package):
    return torchair if package == "torchair" else __import__(package)


def examples(*shapes, dtype=torch.float32, **kwargs):
    with FakeTensorMode():
        return [torch.empty(s, device="npu", dtype=dtype, **kwargs) for s in shapes]


def compiled(function, package="torchair", **kwargs):
    """The function, and a list that gets the operators of each graph."""
    graphs: list = []

    def look(module, *_):
        graphs.append([str(n.target) for n in module.graph.nodes if n.op == "call_function"])

    config = of(package).CompilerConfig()
    config.post_grad_custom_post_pass = look
    backend = of(package).get_npu_backend(compiler_config=config)
    return torch.compile(function, backend=backend, **kwargs), graphs


def add_norm(a, b, gamma):
    x = torch.add(a, b)
    y, _ = torch_npu.npu_rms_norm(x, gamma)
    return y, x


def fused_add_norm(a, b, gamma):
    y, _, x = torch_npu.npu_add_rms_norm(a, b, gamma)
    return y, x


def of_64(match):
    return match.kwargs["a"].meta["val"].shape[-1] == 64


def test_autocast_when_registering_and_when_compiling():
    with torch.autocast("npu", dtype=torch.float16):
        torchair.register_replacement(
            lambda a, b: (a @ b).relu(), lambda a, b: (a @ b).clamp_min(0), examples((2, 3), (3, 4))
        )
    for enabled in (True, False):
        function, graphs = compiled(lambda a, b: (a @ b).relu() + 1)
        a, b = torch.randn(4, 3, device=npu), torch.randn(3, 4, device=npu)
        with torch.autocast("npu", dtype=torch.float16, enabled=enabled):
            got, wanted = function(a, b), (a @ b).relu() + 1
        assert got.dtype == wanted.dtype and torch.equal(got, wanted)
        assert "aten.clamp_min.default" in graphs[0]


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16])
def test_part_of_a_graph_is_replaced_where_the_check_allows_it(package, dtype):
    half = examples((1, 1, 2), (1, 1, 2), (2,), dtype=torch.float16)
    of(package).register_replacement(add_norm, fused_add_norm, half, extra_check=of_64)

    def body(a, b, gamma):
        y, x = add_norm(a * 2, b, gamma)
        return y.abs(), x + 1

    function, graphs = compiled(body, package)
    for size in (64, 32):
        a, b = (torch.randn(2, 3, size, dtype=dtype, device=npu) for _ in range(2))
        gamma = torch.rand(size, dtype=dtype, device=npu)
        for _ in range(3):
            for got, wanted in zip(function(a, b, gamma), body(a, b, gamma)):
                assert torch.equal(got, wanted)
    fused = "npu.npu_add_rms_norm.default"
    assert [fused in graph for graph in graphs] == [True, False]
    assert "npu.npu_rms_norm.default" not in graphs[0]


def test_each_package_has_its_own_replacements():
    inputs = examples((2, 2))
    torchair.register_replacement(lambda x: x.sin(), lambda x: x.cos(), inputs)
    x = torch.ones(2, device=npu)
    assert torch.equal(compiled(torch.sin)[0](x), x.cos())
    assert torch.equal(compiled(torch.sin, "npugraph_ex")[0](x), x.sin())
    assert torch.equal(torch.compile(torch.sin, backend="npugraph_ex")(x), x.sin())
    assert torch.equal(torch.compile(lambda x: x.sin(), backend="npu")(x), x.cos())


def test_the_option_switches_replacements_off():
    torchair.register_replacement(lambda x: x.sin(), lambda x: x.cos(), examples((2, 2)))
    config = torchair.CompilerConfig()
    config.experimental_config.pattern_fusion_pass = False
    backend = torchair.get_npu_backend(compiler_config=config)
    x = torch.ones(2, device=npu)
    assert torch.equal(torch.compile(torch.sin, backend=backend)(x), x.sin())


def test_a_value_that_others_read_keeps_its_part():
    torchair.register_replacement(
        lambda x: x.sin().exp(), lambda x: torch.expm1(x.sin()) + 1, examples((2, 2))
    )
    x = torch.randn(4, device=npu)

    def body(x):
        y = x.sin()
        return y.exp(), y * 2

    function, graphs = compiled(body)
    for got, wanted in zip(function(x), body(x)):
        assert torch.equal(got, wanted)
    assert "aten.expm1.default" not in graphs[0]


def test_dynamic_sizes_match_and_are_replaced():
    torchair.register_replacement(
        lambda a, b: torch.relu(a @ b), lambda a, b: (a @ b).clamp_min(0), examples((2, 3), (3, 4))
    )
    function, graphs = compiled(lambda a, b: torch.relu(a @ b) + 1, dynamic=True)
    for rows in (2, 5, 7, 5):
        a, b = torch.randn(rows, 3, device=npu), torch.randn(3, rows + 9, device=npu)
        assert torch.equal(function(a, b), torch.relu(a @ b) + 1)
    assert len(graphs) == 1 and "aten.clamp_min.default" in graphs[0]


def test_a_replacement_that_gives_its_input_is_copied():
    """Eager gives new memory, which the caller may write, and which later writes do not change."""
    torchair.register_replacement(lambda x: x * 1.0 * 1.0, lambda x: x, examples((2, 2)))

    def body(x):
        y = x * 1.0 * 1.0
        x.add_(1)
        return y

    function, graphs = compiled(body)
    x = torch.zeros(3, 2, device=npu)
    y = function(x)
    assert y.tolist() == [[0, 0]] * 3 and x.tolist() == [[1, 1]] * 3
    y.fill_(7)
    assert x.tolist() == [[1, 1]] * 3
    assert "aten.mul.Tensor" not in graphs[0] and "aten.clone.default" in graphs[0]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "replacement",
    [
        lambda x: torch.sin(x.t().contiguous()).t(),
        lambda x: torch.sin(x.contiguous()),
        lambda x: torch.sin(x),
    ],
)
def test_strides_of_a_replacement_fit_later_views(replacement, dynamic):
    torchair.register_replacement(lambda x: torch.sin(x), replacement, examples((2, 3)))
    for body in (
        lambda x: torch.sin(x).view(-1) * 2,
        lambda x: torch.sin(x.t()).t().view(-1) * 2,
        lambda x: torch.sin(x.t()),
    ):
        function, _ = compiled(body, dynamic=dynamic)
        for rows in (4, 5):
            x = torch.randn(rows, 6, device=npu)
            got, wanted = function(x), body(x)
            assert torch.equal(got, wanted) and got.stride() == wanted.stride()


@pytest.mark.parametrize(
    "replacement, told",
    [
        (lambda x: x.sin().half(), "float16"),
        (lambda x: x.sin()[:1], "expected torch.float32"),
        (lambda x: (x.sin(), x.cos()), "expected 1 results, but got 2"),
        (lambda x: x.sin().cpu(), "on cpu"),
        (
            lambda x: x.sin() + torch.tensor([1.0, 2.0, 3.0], device=x.device),
            "holds a tensor as a constant",
        ),
    ],
)
def test_a_replacement_with_other_results_is_refused(replacement, told):
    torchair.register_replacement(lambda x: x.tan(), replacement, examples((2, 3)))
    with pytest.raises(Exception, match=told) as raised:
        compiled(lambda x: x.tan() + 1)[0](torch.randn(2, 3, device=npu))
    assert "register_replacement" in str(raised.value)


def test_a_search_that_does_not_fit_these_sizes_is_no_match():
    """The pattern holds numbers that other graphs do not have."""

    def search(x):
        a, b = x.split([4, 2], -1)
        return torch.cat([a, b], -1)

    torchair.register_replacement(search, lambda x: x.clone(), examples((3, 6)))
    function, graphs = compiled(lambda x: torch.cat(x.split([2, 1], -1), -1))
    x = torch.randn(2, 3, device=npu)
    assert torch.equal(function(x), x) and "aten.cat.default" in graphs[0]
    function, graphs = compiled(search)
    x = torch.randn(2, 6, device=npu)
    assert torch.equal(function(x), x) and "aten.cat.default" not in graphs[0]


@pytest.mark.parametrize(
    "body",
    [
        lambda a, b: torch.add(a, b, alpha=3).sum(1),
        lambda a, b: (a + b).sum(1, keepdim=True),
        lambda a, b: (a + b).sum(0),
        lambda a, b: (a + b).sum(1, dtype=torch.float64),
        lambda a, b: (a - b).sum(1),
    ],
)
def test_calls_with_other_arguments_are_no_match(body):
    torchair.register_replacement(
        lambda a, b: (a + b).sum(1), lambda a, b: (a + b).sum(1) * 1, examples((2, 3), (2, 3))
    )
    a, b = torch.randn(3, 3, device=npu), torch.randn(3, 3, device=npu)
    function, graphs = compiled(body)
    assert torch.equal(function(a, b), body(a, b)) and "aten.mul.Tensor" not in graphs[0]


def test_keywords_of_the_search_have_to_be_the_same():
    torchair.register_replacement(
        lambda a, b: torch.add(a, b, alpha=3).relu(),
        lambda a, b: (a + 3 * b).relu(),
        examples((2,), (2,)),
    )
    a, b = torch.randn(3, device=npu), torch.randn(3, device=npu)
    for alpha, replaced in ((3, True), (2, False)):
        function, graphs = compiled(lambda a, b, n=alpha: torch.add(a, b, alpha=n).relu())
        torch.testing.assert_close(function(a, b), torch.add(a, b, alpha=alpha).relu())
        assert ("aten.mul.Tensor" in graphs[0]) == replaced


def test_scalars_are_bound_by_name():
    torchair.register_replacement(
        lambda x, factor: torch.sin(x) * factor,
        lambda x, factor: torch.sin(x) * factor + 0 * x,
        examples((2, 3)),
        scalar_workaround={"factor": 2.5},
    )
    x = torch.randn(3, device=npu)
    function, graphs = compiled(lambda x: torch.sin(x) * 4.0)
    assert torch.equal(function(x), torch.sin(x) * 4.0) and "aten.add.Tensor" in graphs[0]


def test_the_same_pattern_twice_is_refused_or_skipped():
    torchair.register_replacement(lambda x: x.sin(), lambda x: x.cos(), examples((2, 2)))
    with pytest.raises(RuntimeError, match="Duplicate pattern"):
        torchair.register_replacement(lambda x: x.sin(), lambda x: x.exp(), examples((2, 2)))
    torchair.register_replacement(
        lambda x: x.sin(), lambda x: x.exp(), examples((2, 2)), skip_duplicates=True
    )
    x = torch.ones(2, device=npu)
    assert torch.equal(compiled(torch.sin)[0](x), x.cos())


@pytest.mark.parametrize(
    "given, error, told",
    [
        ((3, torch.cos, [1]), TypeError, "search_fn: expected a function, but got int"),
        ((torch.sin, None, [1]), TypeError, "replace_fn"),
        ((lambda x: x, lambda x: x, torch.ones(1)), TypeError, "expected a list of inputs"),
        ((lambda x, y: x, lambda x: x, [1]), ValueError, "takes x, y, but example_inputs holds 1"),
    ],
)
def test_what_cannot_be_registered(given, error, told):
    with pytest.raises(error, match=told):
        torchair.register_replacement(*given)


def test_training_gives_the_gradients_of_eager():
    inputs = examples((4, 8), (4, 8), (8,))
    torchair.register_replacement(add_norm, fused_add_norm, inputs)

    def body(a, b, gamma):
        y, x = add_norm(a, b, gamma)
        return (y * x.sin()).sum()

    results = []
    for function in (body, compiled(body)[0]):
        torch.manual_seed(0)
        leaves = [torch.randn(s, device=npu, requires_grad=True) for s in ((4, 8), (4, 8), (8,))]
        function(*leaves).backward()
        results.append([t.grad for t in leaves])
    for got, wanted in zip(*results):
        torch.testing.assert_close(got, wanted)


def test_a_joint_pattern_replaces_forward_and_backward():
    torchair.register_replacement(
        lambda x: torch.tanh(x) * 3,
        lambda x: torch.tanh(x) * 3 + 0 * torch.sigmoid(x),
        examples((2, 3), requires_grad=True),
        trace_fn=joint_fwd_bwd,
    )
    function, graphs = compiled(lambda x: (torch.tanh(x) * 3).exp().sum())
    x = torch.randn(4, 5, device=npu, requires_grad=True)
    function(x).backward()
    wanted = x.detach().clone().requires_grad_()
    (torch.tanh(wanted) * 3).exp().sum().backward()
    torch.testing.assert_close(x.grad, wanted.grad)
    assert any("aten.sigmoid.default" in graph for graph in graphs)


def test_cached_functions_are_replaced_too(tmp_path):
    class Model(torch.nn.Module):
        def run(self, a, b, gamma):
            return add_norm(a, b, gamma)

    model = Model()
    inputs = examples((1, 1, 2), (1, 1, 2), (2,))
    seen = []

    def note(match):
        seen.append(match)
        return True

    torchair.register_replacement(add_norm, fused_add_norm, inputs, extra_check=note)
    a, b = (torch.randn(3, 16, device=npu) for _ in range(2))
    gamma = torch.rand(16, device=npu)
    for process in (1, 2):  # the second finds the file
        function = torchair.inference.cache_compile(model.run, cache_dir=tmp_path)
        for got, wanted in zip(function(a, b, gamma), add_norm(a, b, gamma)):
            assert torch.equal(got, wanted)
        assert len(seen) == process
