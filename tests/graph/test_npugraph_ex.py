# SPDX-License-Identifier: Apache-2.0
"""npugraph_ex: the flat options, bare graphs, and the paths that programs reach it by."""

import copy
import pickle

import npugraph_ex
import pytest
import torch
import torchair
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx.experimental.proxy_tensor import make_fx
from torchair import _modes

npu = torch.device("npu")


def test_a_backend_of_a_program_compiles_bare_graphs():
    def compiler(module, inputs):
        return torch.npu.npugraph_ex.compile_fx(module, inputs, {"clone_input": False})

    def backend(module, inputs):
        return aot_module_simplified(module, inputs, fw_compiler=compiler)

    def body(x, y):
        x.add_(y)
        return x * 2, (x @ y).relu()

    function = torch.compile(body, backend=backend, fullgraph=True)
    for n in (2, 3, 2):
        x, y = torch.randn(n, n, device=npu), torch.randn(n, n, device=npu)
        same = x.clone()
        with torch.no_grad():
            for got, wanted in zip(function(x, y), body(same, y)):
                assert torch.equal(got, wanted) and torch.equal(x, same)


@pytest.mark.parametrize("package", [torchair, npugraph_ex])
def test_a_compiled_graph_is_called_with_its_inputs(package):
    x = torch.randn(3, 4, device=npu)
    for body in (lambda x: x.sin() + 1, lambda x: (x.sin(), x.cos())):
        module = make_fx(body)(x)
        compiler = package.get_compiler()
        for _ in range(3):
            got, wanted = compiler(module, [x])(x), body(x)
            assert type(got) is type(wanted) or isinstance(got, (list, tuple))
            pairs = zip(got, wanted) if isinstance(wanted, tuple) else [(got, wanted)]
            assert all(torch.equal(a, b) for a, b in pairs)
    assert torch.equal(npugraph_ex.compile_fx(make_fx(torch.exp)(x))(x), x.exp())


@pytest.mark.parametrize("name", _modes.OPTIONS)
def test_each_option_is_the_one_of_the_tree(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config, tree = npugraph_ex.CompilerConfig(), torchair.CompilerConfig()
    target, opposite = _modes.OPTIONS[name]
    group, last = _modes.leaf(tree, target)
    default = getattr(group, last).raw
    option = getattr(config, name)
    assert option.raw == ((not default) if opposite else default)
    good = {
        bool: lambda: not option.raw, int: lambda: option.raw + 1, str: lambda: None,
    }.get(type(option.raw), lambda: None)()  # fmt: skip
    if good is not None:
        setattr(config, name, good)
        group, last = _modes.leaf(config.tree(), target)
        assert getattr(group, last).raw == ((not good) if opposite else good)
        assert config != npugraph_ex.CompilerConfig() and config == copy.deepcopy(config)
        assert pickle.loads(pickle.dumps(config)) == config
    assert config.tree().mode.value == "npugraph_ex"


def test_options_are_checked_and_stay_with_their_compilation():
    x = torch.randn(3, device=npu)
    calls = []
    options = {"post_grad_custom_post_pass": lambda *_: calls.append(1), "capture_limit": 2}
    function = torch.compile(lambda x: x.sin() + 1, backend="npugraph_ex", options=options)
    assert torch.equal(function(x), x.sin() + 1) and calls == [1]
    other = torch.compile(lambda x: x.cos() + 1, backend="npugraph_ex")
    assert torch.equal(other(x), x.cos() + 1) and calls == [1]
    for wrong, told in (
        ({"fast": 1}, "no option 'fast', all options are"),
        ({"capture_error_mode": "strict"}, "not among the allowed values"),
        ({"capture_limit": 0}, "not in the range"),
    ):
        with pytest.raises(Exception, match=told):
            torch.compile(lambda x: x + 2, backend="npugraph_ex", options=wrong)(x)
    with pytest.raises(TypeError, match=r"npugraph_ex\.CompilerConfig, but got torchair"):
        npugraph_ex.get_npu_backend(compiler_config=torchair.CompilerConfig())
    with pytest.raises(TypeError, match="expected a CompilerConfig"):
        torchair.get_compiler(npugraph_ex.CompilerConfig())


def test_what_vllm_ascend_sets():
    from npugraph_ex.configs.compiler_config import _process_kwargs_options

    config = npugraph_ex.CompilerConfig()
    options = {
        "force_eager": True, "inplace_pass": False, "clone_input": False, "clone_output": False,
        "static_kernel_compile": True, "_vllm_aclnn_static_kernel_sym_range": [1, 2, 8],
    }  # fmt: skip
    _process_kwargs_options(config, {"options": options})
    assert config.force_eager.value == "1" and not config.inplace_pass
    tree = config.tree()
    assert tree.debug.run_eagerly and tree.debug.aclgraph.disable_reinplace_inplaceable_ops_pass
    assert tree.experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range.raw == [
        1,
        2,
        8,
    ]
    backend = npugraph_ex.get_npu_backend(compiler_config=config)
    assert backend.keywords["compiler_config"] is config
    x = torch.randn(3, device=npu)
    assert torch.equal(torch.compile(lambda x: x * 2 + 1, backend=backend)(x), x * 2 + 1)


def test_forced_recapture_records_nothing(counts):
    options = {"force_recapture": True}
    function = torch.compile(lambda x: (x * 2).sin(), backend="npugraph_ex", options=options)
    for n in (3, 3, 4):
        x = torch.randn(n, device=npu)
        assert torch.equal(function(x), (x * 2).sin())
    assert counts("recorded") == counts("replayed") == 0


def test_training_and_decompositions():
    table = {torch.ops.aten.silu.default: lambda x: x * x.sigmoid()}
    graphs = []
    config = npugraph_ex.CompilerConfig()
    config.post_grad_custom_post_pass = lambda module, *_: graphs.append(
        [str(n.target) for n in module.graph.nodes]
    )
    backend = npugraph_ex.get_npu_backend(compiler_config=config, custom_decompositions=table)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.SiLU()).npu()
    x = torch.randn(2, 3, device=npu)
    got = torch.compile(model, backend=backend)(x)
    torch.testing.assert_close(got, model(x))
    got.sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for mine, wanted in zip(grads, model.parameters()):
        torch.testing.assert_close(mine, wanted.grad)
    assert "aten.silu.default" not in graphs[0] and "aten.sigmoid.default" in graphs[0]
