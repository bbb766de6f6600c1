# SPDX-License-Identifier: Apache-2.0
"""torchair.inference.cache_compile and torchair.dynamo_export: graphs in files."""

import dataclasses
import enum
import json
import os
import sys
import warnings
from typing import NamedTuple

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
    with pytest.raises(ValueError, match="expected a backend made by torchair"):
        cached(model, tmp_path, backend="npu")
    config = torchair.CompilerConfig()
    config.debug.run_eagerly = True
    with pytest.raises(ValueError, match="differ; pass one"):
        cached(model, tmp_path, config=config, backend=torchair.get_npu_backend())
    with torch.enable_grad(), pytest.raises(RuntimeError, match=r"under torch\.no_grad"):
        cached(model, tmp_path)(torch.ones(2, 4, device=npu, requires_grad=True))
    with pytest.raises(TypeError, match="unknown arguments fast"):
        cached(model, tmp_path, fast=True)
    assert not any(files for _, _, files in os.walk(tmp_path))


def in_two_processes(make, method, folder, **kwargs):
    """(function that traces, its model), then (function that finds the file, its model)."""
    for process in range(2):
        owner = make()
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            function = torchair.inference.cache_compile(
                getattr(owner, method), cache_dir=folder, **kwargs
            )
            if process:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(_trace, "trace", lambda *_: pytest.fail("traced again"))
                    yield function, owner
            else:
                yield function, owner


def test_parameters_that_require_grad_are_read_without_it(tmp_path):
    x = torch.randn(3, 4, device=npu)
    with torch.enable_grad():
        for function, owner in in_two_processes(
            lambda: torch.nn.Linear(4, 2).npu(), "forward", tmp_path
        ):
            got = function(x)
            assert not got.requires_grad and torch.equal(got, owner(x))
            owner.weight.grad = None
            owner(x).sum().backward()
            assert owner.weight.grad is not None


class Draws(torch.nn.Module):
    def forward(self, x):
        noise = torch.rand(2, device=x.device) + torch.randn_like(x)
        return torch.nn.functional.dropout(x, 0.5) + noise


def test_random_operators_draw_what_eager_draws_next(tmp_path):
    x = torch.ones(3, 2, device=npu)
    for function, owner in in_two_processes(Draws, "forward", tmp_path):
        torch.manual_seed(5)
        got = [function(x) for _ in range(4)]
        torch.manual_seed(5)
        wanted = [owner(x) for _ in range(4)]
        assert all(torch.equal(a, b) for a, b in zip(got, wanted))
        assert len({str(t.tolist()) for t in got}) == 4


@dataclasses.dataclass
class Meta:
    data: torch.Tensor
    is_prompt: bool


class Result(NamedTuple):
    y: torch.Tensor
    meta: Meta


class Box:
    def __init__(self, value):
        self.value = value


class Serves(torch.nn.Module):
    def prompt(self, meta, kv, box):
        kv[0].add_(meta.data)
        box.value.mul_(2)
        y = meta.data * (2 if meta.is_prompt else 3) + kv[0]
        return Result(y, Meta(y + box.value, False)), {"kv": kv}


def test_objects_of_programs_are_arguments_and_results(tmp_path):
    for function, owner in in_two_processes(Serves, "prompt", tmp_path):
        for rows in (2, 3, 2):
            data = torch.randn(rows, 2, device=npu)
            calls = []
            for call in (function, owner.prompt):
                kv, box = [torch.ones(rows, 2, device=npu)], Box(torch.ones(2, device=npu))
                (y, meta), rest = call(Meta(data, True), kv, box=box)
                assert type(meta) is Meta and meta.is_prompt is False
                calls.append((y, meta.data, rest["kv"][0], kv[0], box.value))
                assert rest["kv"][0] is kv[0]
            assert all(torch.equal(a, b) for a, b in zip(*calls))
    with pytest.warns(UserWarning, match="traced again"):
        got = function(Meta(data, False), kv, box)
    kv, box = [kv[0] - data], Box(box.value / 2)
    assert torch.equal(got[0].y, owner.prompt(Meta(data, False), kv, box)[0].y)


class Writes(torch.nn.Module):
    def run(self, k, x):
        old = k * 1
        k.add_(x)
        parts = k.view(-1)[1:], k.t()
        return k, k + 0, *parts, old, x.view(-1)


def test_results_that_show_a_written_argument_show_it(tmp_path):
    for function, owner in in_two_processes(Writes, "run", tmp_path):
        told = []
        for call in (function, owner.run):
            k, x = torch.ones(2, 2, device=npu), torch.full((2, 2), 3.0, device=npu)
            results = call(k, x)
            assert results[0] is k
            before = [t.tolist() for t in results]
            k.zero_()
            x.zero_()
            told.append((before, [t.tolist() for t in results]))
        assert told[0] == told[1]


TABLE = torch.zeros(2)


class Holder:
    def __init__(self):
        self.rows = [torch.zeros(2, device=npu)]


HOLDER = None


class Reads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.caches = {"k": [torch.zeros(2, device=npu)]}
        self.holder = Holder()

    def forward(self, x):
        held = self.caches["k"][0] + self.holder.rows[0] * 10
        return x + held + HOLDER.rows[0] * 100 + TABLE.to(x.device) * 1000


def test_tensors_in_containers_and_globals_are_read_at_every_call(tmp_path, monkeypatch):
    x = torch.zeros(2, device=npu)
    monkeypatch.setattr(sys.modules[__name__], "HOLDER", Holder())
    for function, owner in in_two_processes(Reads, "forward", tmp_path):
        TABLE.zero_()
        HOLDER.rows[0] = torch.zeros(2, device=npu)
        assert function(x).tolist() == [0, 0]
        owner.caches["k"][0].add_(1)  # in place
        owner.holder.rows[0] = torch.full((2,), 2.0, device=npu)  # another tensor
        HOLDER.rows = [torch.full((2,), 3.0, device=npu)]
        TABLE.add_(4)
        assert torch.equal(function(x), owner(x)) and function(x).tolist() == [4321, 4321]
        TABLE.zero_()
        monkeypatch.setattr(sys.modules[__name__], "HOLDER", Holder())


class Hides(torch.nn.Module):
    """Weights that PyTorch does not know as the module's."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.blocks = [torch.nn.Linear(3, 3).npu(), torch.nn.BatchNorm1d(3).npu().eval()]
        self.blocks[1].running_mean.add_(seed)
        scale = torch.full((3,), float(seed), device=npu)
        self.closure = lambda x, shift=scale * 2: x * scale + shift

    def forward(self, x):
        return self.closure(self.blocks[1](self.blocks[0](x)))


def test_weights_in_lists_and_closures_are_the_models_own(tmp_path):
    x = torch.randn(2, 3, device=npu)
    for seed in (1, 2, 1):
        model = Hides(seed)
        function = torchair.inference.cache_compile(model.forward, cache_dir=tmp_path)
        for _ in range(2):
            assert torch.equal(function(x), model(x))
            model.blocks[0].weight.add_(1)
            model.blocks[1].bias = torch.nn.Parameter(torch.rand(3, device=npu))
            model.closure.__defaults__[0].mul_(3)


class Mode(enum.Enum):
    ADD = 1
    MULTIPLY = 2


class Chooses(torch.nn.Module):
    def run(self, x, mode, dtype=torch.float16, device=None):
        y = x + 1 if mode is Mode.ADD else x * 3
        return y.to(dtype), Mode.ADD, dtype, device


def test_enums_and_types_choose_the_trace(tmp_path):
    x = torch.randn(3, device=npu)
    for function, owner in in_two_processes(Chooses, "run", tmp_path):
        got, wanted = function(x, Mode.ADD, device=npu), owner.run(x, Mode.ADD, device=npu)
        assert torch.equal(got[0], wanted[0]) and got[1:] == wanted[1:]
    for call in ((x, Mode.MULTIPLY), (x, Mode.MULTIPLY, torch.float64)):
        with pytest.warns(UserWarning, match="traced again"):
            got = function(*call)
        assert torch.equal(got[0], owner.run(*call)[0])


class ReadsAndWrites(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = [torch.zeros(4, device=npu)]

    def run(self, x):
        x.add_(1)
        return self.rows[0] * 2 + x


def test_a_held_tensor_that_is_also_an_argument(tmp_path):
    for _ in range(2):
        model, eager = ReadsAndWrites(), ReadsAndWrites()
        function = torchair.inference.cache_compile(model.run, cache_dir=tmp_path)
        for _ in range(2):
            with pytest.warns(UserWarning, match="shares memory"):
                assert torch.equal(function(model.rows[0]), eager.run(eager.rows[0]))
        x = torch.ones(4, device=npu)
        assert torch.equal(function(x), eager.run(torch.ones(4, device=npu)))


class MadeEarly(torch.nn.Module):
    """As TorchAir's documents show it: the module makes its cached functions before it is ready."""

    def __init__(self, folder):
        super().__init__()
        self.one = torchair.inference.cache_compile(self.first, cache_dir=folder)
        self.two = torchair.inference.cache_compile(self.second, cache_dir=folder)
        self.scale, self.tables = 1, []

    def first(self, x):
        return x * self.scale + self.tables[0]

    def second(self, x):
        return x - self.scale


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_attributes_set_after_cache_compile_count(tmp_path, order):
    x = torch.ones(2, device=npu)
    for process, scale in enumerate((2, 3, 2, 3)):
        model = MadeEarly(tmp_path)
        model.scale = scale
        model.tables.append(torch.full((2,), 5.0, device=npu))
        for name in order if process < 2 else order[::-1]:
            wanted = {"one": scale + 5, "two": 1 - scale}[name]
            assert getattr(model, name)(x).tolist() == [wanted] * 2
        model.tables[0].add_(1)
        assert model.one(x).tolist() == [scale + 6] * 2
    assert len(os.listdir(tmp_path)) == 4


class Changes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.state, self.count = torch.zeros(2, device=npu), 0

    def tensor(self, x):
        self.state = self.state + x
        return self.state + 1

    def number(self, x):
        self.count = self.count + 1
        return x + 1

    def append(self, x, rows):
        rows.append(x)
        return x + 1

    def attribute(self, x, box):
        box.value = box.value + x
        return x + 1


def test_what_a_graph_would_not_do_again_is_refused(tmp_path):
    x, model = torch.ones(2, device=npu), Changes()

    def call(method, *args):
        function = torchair.inference.cache_compile(getattr(model, method), cache_dir=tmp_path)
        return function(x, *args)

    with pytest.raises(RuntimeError, match="sets state, which a graph does not do again"):
        call("tensor")
    for method, given in (("append", []), ("attribute", Box(x))):
        with pytest.raises(RuntimeError, match="puts other values into an argument"):
            call(method, given)
    with pytest.warns(UserWarning, match="sets count"):
        assert call("number").tolist() == [2, 2]


def test_decompositions_are_part_of_the_trace_and_of_its_name(tmp_path):
    x = torch.randn(3, 4, device=npu)

    class Model(torch.nn.Module):
        def run(self, x):
            return torch.nn.functional.silu(x) * 2

    def thrice(x):
        return x * 3

    def five(x):
        return x * 5

    silu = torch.ops.aten.silu.default
    for table, wanted in (
        ({}, Model().run(x)),
        ({silu: thrice}, x * 3 * 2),
        ({silu: five}, x * 5 * 2),
    ):
        for function, _ in in_two_processes(Model, "run", tmp_path, custom_decompositions=table):
            assert torch.equal(function(x), wanted)
        backend = torchair.get_npu_backend(custom_decompositions=table)
        function = torchair.inference.cache_compile(
            Model().run, cache_dir=tmp_path, backend=backend
        )
        assert torch.equal(function(x), wanted)
    assert len(os.listdir(tmp_path)) == 3


def test_dump_options_with_paths(tmp_path):
    config = torchair.CompilerConfig()
    config.debug.graph_dump.type = "txt"
    config.debug.graph_dump.path = tmp_path / "graphs"
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = tmp_path
    os.mkdir(tmp_path / "graphs")
    x = torch.randn(2, 4, device=npu)
    for function, owner in in_two_processes(
        lambda: torch.nn.Linear(4, 2).npu(), "forward", tmp_path / "cache", config=config
    ):
        assert torch.equal(function(x), owner(x))
    assert len(os.listdir(tmp_path / "graphs")) == 4


@pytest.mark.parametrize("path", ["npugraph_ex", "torch.npu.npugraph_ex"])
def test_npugraph_ex_takes_its_own_options(tmp_path, path):
    import npugraph_ex

    package = npugraph_ex if path == "npugraph_ex" else torch.npu.npugraph_ex
    calls = []
    options = {"post_grad_custom_post_pass": lambda *_: calls.append(1), "clone_input": False}
    model = torch.nn.Linear(4, 2).npu()
    function = package.inference.cache_compile(model.forward, cache_dir=tmp_path, options=options)
    x = torch.randn(3, 4, device=npu)
    assert torch.equal(function(x), model(x)) and calls == [1]
    assert "_aclgraphcache_" in file_of(tmp_path)
    assert "aten" in package.inference.readable_cache(file_of(tmp_path), print_output=False)
    with pytest.raises(ValueError, match="no option 'fast'"):
        package.inference.cache_compile(model.forward, options={"fast": 1})


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
