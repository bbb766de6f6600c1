# SPDX-License-Identifier: Apache-2.0
"""The helpers ditorch scripts import: op_tools.utils, save_op_args, pretty_print."""

import json
import math
import os
from collections import UserDict, deque, namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from op_tools import utils
from op_tools.core import containers
from op_tools.ditorch_compat import op_names
from op_tools.pretty_print import dict_data_list_to_table, packect_data_to_dict_list
from op_tools.save_op_args import save_op_args, serialize_args_to_dict


def test_traverse_container_gives_leaves_keys_included():
    x = torch.ones(2)
    assert list(utils.traverse_container({"a": [1, (2.0, "s")], 3: {True}})) == [
        "a",
        1,
        2.0,
        "s",
        3,
        True,
    ]
    assert list(utils.traverse_container(torch.Size([3, 4]))) == [3, 4]
    assert list(utils.traverse_container(torch.float32)) == [torch.float32]
    assert len(list(utils.traverse_container(x.untyped_storage()))) == 8
    values, indices = utils.traverse_container(torch.tensor([2.0, 1.0]).sort())
    assert values.tolist() == [1, 2] and indices.tolist() == [1, 0]


def test_arrays_and_storages_are_values_and_no_containers():
    """A call's arguments are walked often: not byte by byte."""
    storage, array = torch.ones(2).untyped_storage(), np.ones((2, 2))
    assert list(containers.leaves({"a": [storage, (array,)]})) == ["a", storage, array]
    queue = deque([torch.ones(1)])
    assert len(containers.tensors_in(UserDict(a=queue), frozenset({1}))) == 1


def test_compare_result_of_arrays_and_storages():
    a, b = np.ones((2, 2)), np.ones((2, 2))
    b[1, 1] = 3
    assert utils.compare_result("f", a, a.copy())["allclose"]
    found = utils.compare_result("f", [a], [b])
    assert not found["allclose"] and found["max_abs_diff"] == 2
    words = np.array(["a", "b"])
    assert utils.compare_result("f", words, words.copy())["allclose"]
    assert not utils.compare_result("f", words, words[::-1])["allclose"]
    x, y = torch.ones(2), torch.ones(2)
    assert utils.compare_result("f", x.untyped_storage(), y.untyped_storage())["allclose"]
    y[1] = 2
    found = utils.compare_result("f", x.untyped_storage(), y.untyped_storage())
    assert not found["allclose"] and len(found["result_list"]) == 1


def test_names_of_moves():
    assert op_names.moved_to("torch.Tensor.cuda") == "cuda"
    assert op_names.moved_to("torch.Tensor.cpu") == "cpu"
    assert op_names.moved_to("torch.Tensor.add") is None
    assert op_names.moved_to("cpu") is None
    plugin = torch._C._get_privateuse1_backend_name()
    assert op_names.moved_to(f"torch.Tensor.{plugin}") == plugin


def test_is_cpu_op(device):
    here = torch.device(device)
    x = torch.ones(2, device=device)
    host = torch.ones(2)
    assert utils.is_cpu_op(host) == (True, torch.device("cpu"))
    assert utils.is_cpu_op(host, device="cpu")[0]
    for args, kwargs in (
        ((x,), {}),
        (([host, {"k": x}],), {}),
        ((host, device), {}),
        ((host,), {"device": here}),
        ((), {"input": x}),
    ):
        cpu, found = utils.is_cpu_op(*args, **kwargs)
        assert cpu == (device == "cpu") and found.type == device


@pytest.mark.parametrize(
    "name, pattern, matches",
    [
        (None, ".*", False),
        ("torch.add", None, True),
        ("torch.add", "", False),
        ("torch.add", ".*", True),
        ("torch.addc", "torch.add", False),
        ("torch_mlu.fused_l2_norm", "torch_mlu.*", True),
        ("torch.sub", "torch.add, torch.sub", True),
        ("torch.addmm", "torch.add|torch.addmm", True),
        ("torch.sub", r"torch\.(add|sub)", True),
    ],
)
def test_is_opname_match(name, pattern, matches):
    assert utils.is_opname_match(name, pattern) is matches


def test_is_inplace_op_and_is_view_op():
    x = torch.ones(2)
    assert utils.is_inplace_op("torch.add", x, 1, out=x)
    assert not utils.is_inplace_op("torch.add", x, 1, out=torch.ones(2))
    assert utils.is_inplace_op("torch.nn.functional.relu", x, inplace=True)
    for name in ("__setitem__", "to", "contiguous", "add_"):
        assert utils.is_inplace_op(f"torch.Tensor.{name}", x)
    assert not utils.is_inplace_op("torch.Tensor.__add__", x)
    assert not utils.is_inplace_op("torch.add_", x)
    assert utils.is_view_op("torch.Tensor.view") and not utils.is_view_op("torch.Tensor.add")
    assert len(utils.VIEW_OPS) == 37
    assert utils.is_random_number_gen_op("torch.randn")
    assert not utils.is_random_number_gen_op("torch.nn.functional.dropout")


def test_is_inf_or_nan(device):
    bad = torch.tensor([1.0, float("inf")], device=device)
    good = torch.ones(2, device=device)
    assert utils.is_inf_or_nan(bad) is True
    assert utils.is_inf_or_nan([float("-inf"), good, 0]) == [True, False, False]
    assert utils.is_inf_or_nan(good.sort()) == (False, False)
    assert utils.is_inf_or_nan(torch.empty(0, device=device)) is False


def test_get_function_from_string():
    assert utils.get_function_from_string("torch.nn.functional.linear") is (
        torch.nn.functional.linear
    )
    assert utils.get_function_from_string(" torch . add ") is torch.add
    for name in ("", "torch..add"):
        with pytest.raises(ValueError, match="dotted name"):
            utils.get_function_from_string(name)


def test_get_dtype_cast_dict():
    text = "torch.float16->torch.float32 , torch.bfloat16 -> torch.float64"
    assert utils.get_dtype_cast_dict_form_str(text) == {
        torch.float16: torch.float32,
        torch.bfloat16: torch.float64,
    }
    assert utils.get_dtype_cast_dict_form_str(None) == {}


def test_tolerances_and_their_priority(monkeypatch):
    for dtype, tolerance in (
        (torch.float16, 1e-4),
        (torch.bfloat16, 1e-3),
        (torch.float32, 1e-5),
        (torch.float64, 1e-8),
        (torch.int32, 1e-3),
    ):
        assert utils.get_error_tolerance(dtype, "test.op_name") == (tolerance, tolerance)
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE", "2,3")
    assert utils.get_error_tolerance(torch.int32, "test.op_name") == (2, 3)
    assert utils.get_error_tolerance(torch.float32, "test.op_name") == (2, 3)
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "5e-5,6e-5")
    assert utils.get_error_tolerance(torch.float32, "test.op_name") == (5e-5, 6e-5)
    monkeypatch.setenv("OP_NAME_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "30,40")
    assert utils.get_error_tolerance(torch.float32, "test.op_name") == (30, 40)
    assert utils.get_error_tolerance(torch.float32, "test.op_name grad[0]") == (30, 40)
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE", "much")
    with pytest.raises(ValueError, match="AUTOCOMPARE_ERROR_TOLERANCE='much': expected two"):
        utils.get_error_tolerance(torch.int32, "x")


def test_compare_tensors(device):
    a, b = torch.randn(10, 10, device=device), torch.randn(10, 10, device=device)
    same = utils.compare_result("same", a, a)
    assert same["allclose"] is True and same["max_abs_diff"] == same["max_relative_diff"] == 0
    assert same["error_info"] == "" and same["cos_similarity"] == 1
    different = utils.compare_result("two", [a, a], [b, b])
    assert different["allclose"] is False
    assert different["max_abs_diff"] == (a - b).abs().max().item()
    relative = ((a - b).abs() / (a.abs() + 1e-6)).max().item()
    assert abs(different["max_relative_diff"] - relative) < 1e-3 * relative
    assert len(different["result_list"]) == 2
    assert len(different["result_list"][0]["name"]) == 30
    assert different["name"] == "two" and different["atol"] == 1e-5


def test_compare_what_does_not_fit_together():
    shapes = utils.compare_result("x", torch.ones(2), torch.ones(3))
    assert shapes["allclose"] is False and shapes["error_info"].startswith("Inconsistent shape")
    assert math.isnan(shapes["max_abs_diff"])
    lengths = utils.compare_result("x", [1, 2, 3], [[1, 2], 3])
    assert lengths["error_info"].startswith("Inconsistent output length")
    assert lengths["result_list"] == [] and "name" not in lengths
    assert utils.compare_result("x", [1, 2.0], [1, 2])["allclose"] is False
    dtypes = utils.compare_result("x", torch.ones(2).half(), torch.ones(2))
    assert dtypes["allclose"] is True and "Inconsistent dtypes" in dtypes["error_info"]


@pytest.mark.parametrize(
    "a, b, close",
    [
        ([], [], True),
        ({}, [], True),
        (None, None, True),
        ({"1": 1}, {"1": 1}, True),
        ({"1": 2}, {"2": 2}, False),
        ("a", "b", False),
        (float("nan"), float("nan"), True),
        (3, 4, False),
    ],
)
def test_compare_plain_values(a, b, close):
    assert utils.compare_result("x", a, b)["allclose"] is close


def test_compare_numbers_and_booleans():
    numbers = utils.compare_result("x", 3.0, 16.0)
    assert numbers["max_abs_diff"] == 13
    assert numbers["max_relative_diff"] == 13 / (16 + 1e-6)
    booleans = utils.compare_result("x", True, False)
    assert booleans["allclose"] is False and math.isnan(booleans["max_abs_diff"])


def test_ignore_index():
    info = utils.compare_result("x", [1, 5], [1, 6], ignore_index=1)
    assert info["allclose"] is True and len(info["result_list"]) == 1


def test_current_location():
    def outer():
        return utils.current_location(stack_depth=-2)

    assert outer().startswith(f"{__file__}:") and " outer: " in outer()
    here = utils.current_location()
    assert here.startswith(f"{__file__}:") and "test_current_location: here =" in here


def test_print_stack(capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_PRINT_STACK", "1")
    utils.current_location("torch.add")
    assert "test_print_stack" in capsys.readouterr().out


def test_get_option_reads_live_and_writes_nothing(monkeypatch, capsys):
    monkeypatch.delenv("OP_TEST_OPTION", raising=False)
    assert utils.get_option("OP_TEST_OPTION") is None
    assert utils.get_option("OP_TEST_OPTION", "7") == "7"
    assert "OP_TEST_OPTION" not in os.environ
    monkeypatch.setenv("OP_TEST_OPTION", "8")
    assert utils.get_option("OP_TEST_OPTION", "7") == "8"
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    utils.get_option("OP_TEST_OPTION")
    utils.get_option("OP_TEST_OPTION")
    assert capsys.readouterr().out == "option: OP_TEST_OPTION=8\n"


def test_set_option_if_empty(monkeypatch):
    monkeypatch.delenv("OP_TEST_SET", raising=False)
    utils.set_option_if_empty("OP_TEST_SET", "1")
    assert utils.get_option("OP_TEST_SET") == "1" and "OP_TEST_SET" not in os.environ
    monkeypatch.setenv("OP_TEST_SET", "2")
    assert utils.get_option("OP_TEST_SET") == "2"


def test_serialize_and_table(device):
    x = torch.ones(3, 4, device=device, requires_grad=True)
    described = serialize_args_to_dict(x, [x, 2], dim=1)
    first = described["args"][0]
    assert list(first) == ("device dtype numel shape stride requires_grad layout data_ptr".split())
    assert first["dtype"] == "float32" and first["shape"] == "(3, 4)" and first["stride"] == (4, 1)
    assert described["kwargs"] == {"dim": "1"}
    assert "kwargs" not in serialize_args_to_dict(x)
    rows = packect_data_to_dict_list("torch.f", described)
    assert [row["name"] for row in rows] == [
        "torch.f[0]",
        "torch.f [1][0]",
        "torch.f [1][1]",
        "torch.f dim",
    ]
    assert rows[2]["value"] == "2"
    assert packect_data_to_dict_list("f", serialize_args_to_dict(x))[0]["name"] == "f"
    header = dict_data_list_to_table(rows).get_csv_string().splitlines()[0]
    assert header == "name,device,dtype,numel,shape,stride,requires_grad,layout,data_ptr,value"


def test_named_tuples_sparse_and_empty_tensors_are_described(device):
    pair = namedtuple("pair", "a b")(torch.ones(2, device=device), 3)
    assert serialize_args_to_dict(pair)["args"][0][1] == "3"
    sparse = torch.ones(2, 2).to_sparse()
    assert serialize_args_to_dict(sparse)["args"][0]["layout"] == "torch.sparse_coo"
    assert utils.compute_tensor_features(torch.empty(0))[0]["min"] == "-"


def test_save_op_args(device, capsys):
    x = torch.arange(6.0, device=device).view(2, 3)
    save_op_args("torch.add", "1/now/input", x[:, :1], 2, alpha=3)
    path = f"op_tools_results/op_capture_results/torch.add/{os.getpid()}/1/now/input.pth"
    assert f"{path} saved" in capsys.readouterr().out
    content = torch.load(path, weights_only=True)
    assert set(content) == {"name", "args", "kwargs", "identifier"}
    assert content["args"][0].device.type == "cpu" and content["args"][0].tolist() == [[0], [3]]
    assert content["args"][1] == 2 and content["kwargs"] == {"alpha": 3}
    described = json.loads(Path(path + ".json").read_text())
    assert described["op"] == "torch.add" and described["args"][0]["shape"] == "(2, 1)"


def test_save_op_args_of_what_cannot_be_saved(capsys):
    save_op_args("torch.add", "1/input", lambda: 0)
    assert "could not be saved" in capsys.readouterr().out
    left = [f for _, _, files in os.walk("op_tools_results") for f in files]
    assert left == []
