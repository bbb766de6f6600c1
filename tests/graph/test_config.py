# SPDX-License-Identifier: Apache-2.0
"""CompilerConfig: names, defaults, allowed values and errors are TorchAir's."""

import copy

import pytest
import torch
import torchair
from torchair import CompilerConfig, _modes

# (name, default, accepted, refused); None as accepted: nothing else may be assigned.
LEAVES = [
    ("mode", "max-autotune", "npugraph_ex", "fast"),
    ("post_grad_custom_pre_pass", None, print, 3),
    ("debug.graph_dump.type", None, "py", "png"),
    ("debug.graph_dump.path", None, "somewhere", 3),
    ("debug.data_dump.type", None, "npy", "npz"),
    ("debug.data_dump.filter", None, print, "all"),
    ("debug.fx_summary.type", None, "csv", None),
    ("debug.fx_summary._path", None, "somewhere", 3),
    ("debug.fx_summary.skip_compile", True, False, "no"),
    ("debug.run_eagerly", False, True, 2),
    ("debug.deadlock_check", False, 1, "yes"),
    ("debug.aclgraph.static_capture_size_limit", 64, 1, 0),
    ("debug.aclgraph.clone_input", True, False, "x"),
    ("aoe_config.aoe_mode", None, "2", "1"),
    ("aoe_config.work_path", "./", ".", "/nowhere/at/all"),
    ("dump_config.dump_mode", "all", "input", "some"),
    ("dump_config.dump_step", "", "0|1|2-5", "a|b"),
    ("dump_config.dump_layer", "", "Add_1 Mul", "a;b"),
    ("dump_config.dump_data", "tensor", "stats", "none"),
    ("dump_config.data_dump_stage", "optimized", "original", "first"),
    ("experimental_config.keep_inference_input_mutations", True, False, None),
    ("experimental_config.static_model_ops_lower_limit", None, -1, -2),
    ("experimental_config.jit_compile", "auto", "auto", "on"),
    ("experimental_config.topology_sorting_strategy", "DFS", "StableRDFS", "dfs"),
    ("experimental_config.aclgraph._super_kernel_optimize_options", None, {"a": 1}, [1]),
    ("experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range", None, (1, 2), "1"),
    ("inference_config.dynamic_gears_merge_policy", "zip", "product", "sum"),
    ("ge_config.oo_level", "O3", "O1", "O2"),
    ("ge_config.export_compile_stat", "2", "0", "3"),
    ("ge_config.oo_constant_folding", None, True, None),
]


@pytest.mark.parametrize("name, default, good, bad", LEAVES, ids=[row[0] for row in LEAVES])
def test_leaf(name, default, good, bad, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = CompilerConfig()
    group, last = _modes.leaf(config, name)
    option = getattr(group, last)
    assert option.raw == default and bool(option) == bool(default)
    if isinstance(default, bool):
        assert option.value == ("1" if default else "0")
    elif not callable(good):
        assert option.value == default or option.value == str(default)
    with pytest.raises((ValueError, FileNotFoundError), match=f"{last}|ERR03005"):
        setattr(group, last, bad)
    assert option.raw == default
    setattr(group, last, good)
    assert option.raw is not None and (config != CompilerConfig()) == (good != default)


def test_unknown_names_say_what_there_is():
    config = CompilerConfig()
    with pytest.raises(ValueError, match=r"FxSummaryConfig has no option 'path'.*skip_compile"):
        config.debug.fx_summary.path = "x.csv"
    with pytest.raises(AttributeError, match="CompilerConfig has no option 'debugging'"):
        config.debugging  # noqa: B018
    with pytest.raises(ValueError, match="group of options"):
        config.debug = 3
    with pytest.raises(ValueError, match="ERR03005 GRAPH internal error"):
        config.nothing = 1


def test_equality_copies_and_dictionaries():
    a, b = CompilerConfig(), CompilerConfig()
    assert a == b
    b.debug.run_eagerly = True
    assert a != b and copy.deepcopy(b) == b
    local, process = b.as_dict()
    assert local["debug.run_eagerly"] == "1" and process["ge_config.export_compile_stat"] == "2"
    a.export.export_name = object()  # the export group is not validated


def test_modes_say_what_they_ignore():
    config = CompilerConfig()
    config.debug.aclgraph.clone_input = False
    with pytest.warns(UserWarning, match=r"max-autotune.*debug.aclgraph.clone_input"):
        torchair.get_npu_backend(compiler_config=config)
    config.mode = "reduce-overhead"
    with pytest.warns(DeprecationWarning, match="npugraph_ex"):
        torchair.get_npu_backend(compiler_config=config)
    with pytest.raises(TypeError, match="CompilerConfig"):
        torchair.get_npu_backend(compiler_config={})


def test_options_of_one_compilation_stay_its_own():
    config = CompilerConfig()
    made = _modes.with_options(config, {"inplace_pass": False, "capture_limit": 3})
    assert made.debug.aclgraph.disable_reinplace_inplaceable_ops_pass.raw is True
    assert made.debug.aclgraph.static_capture_size_limit.raw == 3 and config == CompilerConfig()
    with pytest.raises(ValueError, match=r"'speed'.*capture_limit"):
        _modes.with_options(config, {"speed": 1})
    function = torch.compile(lambda x: x + 1, backend="npugraph_ex", options={"force_eager": True})
    assert function(torch.ones(2, device="npu")).tolist() == [2, 2]
    assert torchair.get_npu_backend().keywords["compiler_config"] == CompilerConfig()
