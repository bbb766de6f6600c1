# SPDX-License-Identifier: Apache-2.0
"""torchair.inference.cache_compile and torchair.dynamo_export: graphs in files."""

import json
import os
import warnings

import pytest
import torch
import torchair
from torchair import _export, _trace
from torchair._graph_json import BadFile

npu = torch.device("npu")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(4))
        self.table = torch.arange(4.0)  # neither parameter nor buffer
        self.scale = 2

    def forward(self, x, cache=None, plain=True):
        self.calls.add_(1)
        if cache is not None:
            cache[:, 0] = x.sum(1)
        y = self.linear(x) * self.scale + self.calls + self.table.to(x.device)
        return {"y": y, "x": x, "rows": x.shape[0], "view": y.view(-1)}


@pytest.fixture
def model():
    return Model().npu().eval()


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def cached(model, folder, **kwargs):
    return torchair.inference.cache_compile(model.forward, cache_dir=folder, **kwargs)


def file_of(folder):
    (found,) = [os.path.join(root, f) for root, _, files in os.walk(folder) for f in files]
    return found


def check(function, eager, rows):
    x, cache = torch.randn(rows, 4, device=npu), torch.zeros(rows, 2, device=npu)
    same = cache.clone()
    got, wanted = function(x, cache=cache), eager(x, cache=same)
    assert got["x"] is x and got["rows"] == rows and torch.equal(cache, same)
    assert torch.equal(got["y"], wanted["y"]) and torch.equal(got["view"], wanted["view"])
    assert got["view"].data_ptr() == got["y"].data_ptr()


def test_a_second_process_traces_nothing(model, tmp_path, monkeypatch):
    function, eager = cached(Model().npu().eval(), tmp_path), Model().npu().eval()
    for rows in (3, 5, 3):
        check(function, eager, rows)
    path = file_of(tmp_path)
    assert os.stat(path).st_mode & 0o777 == 0o600 and path.endswith("forward/compiled_module")
    assert path.split(os.sep)[-3].startswith("Model_dynamic_")

    monkeypatch.setattr(_trace, "trace", lambda *_: pytest.fail("traced again"))
    other = Model().npu().eval()
    other.linear.weight.data.mul_(3)  # parameters are the module's own
    other.table = other.table + 5
    twin = Model().npu().eval()
    twin.load_state_dict(other.state_dict())
    twin.table = other.table
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = cached(other, tmp_path)
        for rows in (7, 2):
            check(again, twin, rows)
    assert "aten" in torchair.inference.readable_cache(path, print_output=False)


def test_what_a_trace_takes_as_given_is_part_of_the_name(model, tmp_path):
    check(cached(model, tmp_path), Model().npu().eval(), 3)
    changed, eager = Model().npu().eval(), Model().npu().eval()
    changed.scale = eager.scale = 5
    check(cached(changed, tmp_path), eager, 3)
    static = cached(Model().npu().eval(), tmp_path, dynamic=False)
    check(static, Model().npu().eval(), 3)


def test_a_call_that_does_not_fit_is_traced_again(model, tmp_path):
    function = cached(model, tmp_path, dynamic=False)
    x = torch.randn(3, 4, device=npu)
    function(x)
    for call in (
        lambda f: f(x[:2]),
        lambda f: f(x, plain=False),
        lambda f: f(x[:, :].t()[:, :3].t()),
    ):
        with pytest.warns(UserWarning, match="traced again"):
            got = call(function)
        model.calls.sub_(1)
        assert torch.equal(got["y"], call(model)["y"])


def damage(path, how):
    with open(path) as file:
        text = file.read()
    data = json.loads(text)
    if how == "cut":
        text = text[: len(text) // 2]
    elif how == "empty":
        text = ""
    elif how == "list":
        text = "[]"
    elif how == "version":
        data["cache_version"] = "0"
        text = json.dumps(data)
    elif how == "tampered":
        text = text.replace("aten::add.Tensor", "aten::sub.Tensor")
    with open(path, "w") as file:
        file.write(text)
    if how == "mode":
        os.chmod(path, 0o644)
    elif how == "link":
        os.rename(path, path + ".real")
        os.symlink(path + ".real", path)


@pytest.mark.parametrize("how", ["cut", "empty", "list", "version", "tampered", "mode", "link"])
def test_a_bad_file_is_refused_and_made_anew(model, tmp_path, how):
    check(cached(model, tmp_path), Model().npu().eval(), 3)
    path = file_of(tmp_path)
    damage(path, how)
    with pytest.warns(UserWarning, match="is not used: "):
        check(cached(Model().npu().eval(), tmp_path), Model().npu().eval(), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(cached(Model().npu().eval(), tmp_path), Model().npu().eval(), 3)


def test_a_file_of_another_user_is_refused(model, tmp_path, monkeypatch):
    check(cached(model, tmp_path), Model().npu().eval(), 3)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(UserWarning, match="belongs to another user"):
        check(cached(Model().npu().eval(), tmp_path), Model().npu().eval(), 3)


def test_what_is_not_cached(model, tmp_path):
    with pytest.raises(ValueError, match=r"method of a torch\.nn\.Module"):
        torchair.inference.cache_compile(lambda x: x)
    with pytest.raises(ValueError, match="expected what torchair"):
        cached(model, tmp_path, backend="npu")
    config = torchair.CompilerConfig()
    config.debug.run_eagerly = True
    with pytest.raises(ValueError, match="differ; pass one"):
        cached(model, tmp_path, config=config, backend=torchair.get_npu_backend())
    with torch.enable_grad(), pytest.raises(RuntimeError, match=r"under torch\.no_grad"):
        cached(model, tmp_path)(torch.ones(2, 4, device=npu))

    class Drops(torch.nn.Module):
        def forward(self, x):
            return torch.dropout(x, 0.5, True)

    with pytest.raises(RuntimeError, match="draws random numbers"):
        cached(Drops(), tmp_path)(torch.ones(2, device=npu))
    assert not any(files for _, _, files in os.walk(tmp_path))


def test_an_exported_model(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).npu().eval()
    x = torch.randn(2, 3, device=npu)
    path = torchair.dynamo_export(
        x, model=model, export_path=tmp_path / "out", export_name="net", dynamic=True
    )
    assert sorted(os.listdir(tmp_path / "out")) == ["net.json", "net.txt", "net.weights"]
    assert "aten" in (tmp_path / "out" / "net.txt").read_text()
    loaded = _export.load(path)
    for rows in (2, 6):
        x = torch.randn(rows, 3, device=npu)
        assert torch.equal(loaded(x), model(x))
    weights = tmp_path / "out" / "net.weights"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(BadFile, match="too short"):
        _export.load(path)


@pytest.mark.parametrize(
    "kwargs, error, text",
    [
        ({"export_name": "net.air"}, ValueError, "are not written here"),
        ({"export_name": "../net"}, ValueError, "no plain file name"),
        ({"model": 3}, TypeError, "expected a module"),
        ({"config": {}}, TypeError, "expected a CompilerConfig"),
    ],
)
def test_exports_that_are_refused(tmp_path, kwargs, error, text):
    given = {"model": torch.nn.Linear(2, 2).npu(), "export_path": tmp_path / "out", **kwargs}
    with pytest.raises(error, match=text):
        torchair.dynamo_export(torch.ones(1, 2, device=npu), **given)
    os.symlink(tmp_path, tmp_path / "link")
    with pytest.raises(RuntimeError, match="symbolic link"):
        torchair.dynamo_export(
            torch.ones(1, 2, device=npu), model=torch.nn.ReLU(), export_path=tmp_path / "link"
        )
