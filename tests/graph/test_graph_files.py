# SPDX-License-Identifier: Apache-2.0
"""Readers of graph files, given files of an attacker: refused, and nothing that they name is run,
imported, opened or written."""

import contextlib
import copy
import json
import os
import random
import shutil
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torchair
from torchair import _export, _trace
from torchair._file_rules import BadFile
from torchair.inference import _cache

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
npu = torch.device("npu")
watch = {"on": False, "harm": []}


def _listen(event, arguments):
    """What Python is about to do with modules, processes and files, while `watch` is on."""
    if not watch["on"]:
        return
    writes = (
        event == "open"
        and isinstance(arguments[2], int)
        and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    )
    processes = event.startswith(("os.", "subprocess.", "socket.")) and event != "os.listdir"
    if event == "import" or writes or processes:
        watch["harm"].append((event, arguments[0]))


@pytest.fixture(scope="module", autouse=True)
def listening():
    sys.addaudithook(_listen)


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@contextlib.contextmanager
def harmless():
    watch.update(on=True, harm=[])
    try:
        yield
    finally:
        watch["on"] = False
    assert not watch["harm"]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x, extra=None):
        y = self.linear(x).to(torch.float64) + torch.tensor([1.0, 2.0, 3.0], device=x.device)
        return {"y": torch.cat([y, y], 1), "rows": x.shape[0], "x": x}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """An export with everything the format has: weights, constants, dtypes, sizes, a defaultdict."""
    folder = tmp_path_factory.mktemp("export")
    with torch.no_grad():
        path = torchair.dynamo_export(
            torch.ones(2, 3, device=npu), model=Model().npu(), export_path=folder, dynamic=True
        )
    _export.load(path)(torch.ones(2, 3, device=npu))  # what is imported once is imported now
    return path


@pytest.fixture
def changed(exported, tmp_path):
    """A copy of the export whose JSON a function has changed."""

    def make(change):
        with open(exported) as file:
            data = json.load(file)
        shutil.copy(exported.replace(".json", ".weights"), tmp_path)
        data = change(data) or data
        path = tmp_path / "export.json"
        path.write_text(json.dumps(data))
        return str(path)

    return make


def call_of(data):
    return next(row for row in data["graph"]["nodes"] if row["op"] == "call_function")


@pytest.mark.parametrize(
    "target",
    [
        "load_library::__self__.import_module",
        "aten::__class__.mro",
        "aten::from_file.default",
        "aten::_print.default",
        "inductor::_reinterpret_tensor.default",
        "symm_mem::get_remote_tensors.default",
        "npu::_host_function.default",
        "npu::__init_subclass__.default",
        "atb::_dir.append",
        "builtins.exec",
        "operator.attrgetter",
        "aten::add.Tensor.__call__",
        "aten::add.no_such_overload",
        "aten::add.",
        "",
        7,
        None,
        ["aten::add.Tensor"],
    ],
)
def test_targets_come_from_the_list_of_operators(changed, target):
    path = changed(lambda data: call_of(data).update(target=target))
    with harmless(), pytest.raises(BadFile):
        _export.load(path)


WORD = "x=__import__('antigravity') or 1, y"


def keyword_of_source(data):
    call_of(data)["kwargs"] = {"dict": {WORD: 1}}


def placeholder_of_source(data):
    data["graph"]["nodes"][0]["target"] = "x, y=__import__('antigravity')"


def keyword_as_name(data):
    data["graph"]["nodes"][0]["target"] = "lambda"


def attribute_of_a_class(data):
    data["graph"]["nodes"].insert(
        0, {"name": "a", "op": "get_attr", "target": "__class__", "args": {"tuple": []}}
    )


def number_for_a_dtype(data):
    for row in data["graph"]["nodes"]:
        if "dtype" in row.get("kwargs", {}).get("dict", {}):
            row["kwargs"]["dict"]["dtype"] = 10_000
            return
    raise AssertionError("no call with a dtype")


def two_outputs(data):
    data["graph"]["nodes"].append(copy.deepcopy(data["graph"]["nodes"][-1]))


def output_of_a_constant(data):
    data["graph"]["nodes"][-1]["args"] = {"tuple": [["text"]]}


def tree(kind, context, children=()):
    return json.dumps([1, {"type": kind, "context": context, "children_spec": list(children)}])


def factory(data, module="antigravity", name="geohash"):
    context = {
        "default_factory_module": module,
        "default_factory_name": name,
        "dict_context": [],
    }
    data["out_spec"] = tree("collections.defaultdict", context)


def factory_of_builtins(data):
    factory(data, "builtins", "exec")


def enum(data):
    text = '[{"__enum__": true, "fqn": "antigravity:geohash", "name": "x"}]'
    data["out_spec"] = tree("builtins.dict", text, [json.loads(data["out_spec"])[1]])


def enum_escaped(data):
    text = '[{"\\u005f_enum__": true, "fqn": "antigravity:geohash", "name": "x"}]'
    data["in_spec"] = tree("builtins.dict", text, [json.loads(data["out_spec"])[1]])


def unknown_container(data):
    data["in_spec"] = tree("antigravity.Class", "null")


def deep_tree(data):
    data["in_spec"] = '[1, {"type": "builtins.list", "context": "null", "children_spec": [' * 3000


def weights_absolute(data):
    data["weights"]["file"] = "/etc/hostname"


def weights_above(data):
    data["weights"]["file"] = "../export.weights"


def weights_empty(data):
    data["weights"]["file"] = ""


def weights_absent(data):
    del data["weights"]


def weights_with_nul(data):
    data["weights"]["file"] = "a\0b"


def index_negative(data):
    for place in data["weights"]["index"].values():
        place[0] = -8


def index_too_large(data):
    for place in data["weights"]["index"].values():
        place[1] = 2**70


def shape_of_another_size(data):
    next(i for i in data["inputs"] if i["name"])["shape"] = [2**62, 2**62]


def dtype_of_another_module(data):
    data["inputs"][0]["dtype"] = "torch.os"


def result_out_of_range(data):
    data["results"][0] = {"result": 99}


def result_of_a_negative_input(data):
    data["results"][0] = {"input": -1}


def leaf_twice(data):
    data["leaves"] = [{"input": 0} for _ in data["leaves"]]


def no_object(data):
    return [1, 2]


ATTACKS = [
    keyword_of_source, placeholder_of_source, keyword_as_name, attribute_of_a_class, number_for_a_dtype,
    two_outputs, output_of_a_constant, factory, factory_of_builtins, enum, enum_escaped,
    unknown_container, deep_tree, weights_absolute, weights_above, weights_empty, weights_absent,
    weights_with_nul, index_negative, index_too_large, shape_of_another_size, dtype_of_another_module,
    result_out_of_range, result_of_a_negative_input, leaf_twice, no_object,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
def test_an_attack_is_refused(changed, attack):
    path = changed(attack)
    with harmless(), pytest.raises(BadFile, match=r"export\.json: "):
        _export.load(path)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_weights_are_a_regular_file(changed, tmp_path, kind):
    path = changed(lambda data: None)
    weights = tmp_path / "export.weights"
    os.rename(weights, tmp_path / "elsewhere")
    if kind == "link":
        weights.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(weights)
    else:
        weights.mkdir()
    with pytest.raises(BadFile, match="weights"):
        _export.load(path)


def test_text_that_is_no_json_is_refused(tmp_path):
    for text in ("", "{", "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass"), b"\xff\xfe"):
        path = tmp_path / "x.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(BadFile):
            _export.load(path)


def cached(model, folder):
    return torchair.inference.cache_compile(model.forward, cache_dir=folder)


@pytest.fixture(scope="module")
def cache_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with torch.no_grad():
        cached(Model().npu().eval(), folder)(torch.ones(2, 3, device=npu))
    (path,) = (os.path.join(r, f) for r, _, files in os.walk(folder) for f in files)
    return path


def changed_cache(path, folder, attack):
    """A copy with a digest that fits."""
    trace = _cache._read(path)
    trace = attack(trace) or trace
    _cache._write(str(folder / "compiled_module"), trace)
    return str(folder / "compiled_module")


def unlisted_operator(data):
    call_of(data).update(target="load_library::__self__.import_module")


@pytest.mark.parametrize(
    "attack",
    [
        a
        for a in (unlisted_operator, *ATTACKS)
        if not a.__name__.startswith(("weights", "index", "shape"))
    ],
    ids=lambda f: f.__name__,
)
def test_a_cache_with_a_right_digest_is_refused_too(cache_file, tmp_path, attack):
    path = changed_cache(cache_file, tmp_path, attack)
    with harmless(), pytest.raises(BadFile):
        _trace.from_json(_cache._read(path))


def test_an_attacked_cache_is_made_anew(cache_file):
    model, x = Model().npu().eval(), torch.ones(2, 3, device=npu)
    trace = _cache._read(cache_file)
    unlisted_operator(trace)
    _cache._remove(cache_file)
    _cache._write(cache_file, trace)
    folder = os.path.dirname(os.path.dirname(os.path.dirname(cache_file)))
    with pytest.warns(UserWarning, match="is not used: there is no operator 'load_library::"):
        assert torch.equal(cached(model, folder)(x)["y"], model(x)["y"])
    assert _trace.from_json(_cache._read(cache_file)).results


@pytest.mark.parametrize("name", ["danger", "__class__", "linear.__dict__.weight", "linear.no", ""])
def test_a_parameter_name_runs_no_property(cache_file, tmp_path, name):
    class Property(Model):
        @property
        def danger(self):
            raise AssertionError("it was run")

    def rename(data):
        next(i for i in data["inputs"] if i["name"])["name"] = name

    made = _trace.from_json(_cache._read(changed_cache(cache_file, tmp_path, rename)))
    bound = _trace.Bound(made, Property().npu(), lambda graph, fakes: pytest.fail("compiled"))
    with pytest.raises(_trace.Mismatch):
        bound((torch.ones(2, 3, device=npu),), {})


# ---- random changes ----------------------------------------------------------------
EVIL = [
    None, True, -1, 2**64, 1.5, "", "os", "__class__", "../x", "/etc/passwd", "torch.os", [], {}, [[]],
    {"node": "x"}, {"node": []}, {"tuple": 3}, {"dict": []}, {"dict": {WORD: 1}}, {"float": "x"},
    {"device": "antigravity"}, {"device": 5}, {"dtype": "os"}, {"slice": [1]}, {"complex": ["a", 1]},
    {"dtype": ["float32"]}, "aten::from_file", "load_library::__self__.import_module", "lambda", "a\nb",
]  # fmt: skip


def places(value):
    """Every (container, key) of a JSON value."""
    if isinstance(value, dict):
        rows = list(value.items())
    elif isinstance(value, list):
        rows = list(enumerate(value))
    else:
        return
    for key, held in rows:
        yield value, key
        yield from places(held)


def spoiled(data, draw):
    data = copy.deepcopy(data)
    for _ in range(draw.choice([1, 1, 2, 3])):
        rows = list(places(data))
        container, key = draw.choice(rows)
        how = draw.randrange(4)
        if how == 0:
            container[key] = copy.deepcopy(draw.choice(EVIL))
        elif how == 1:
            other, from_key = draw.choice(rows)
            container[key] = copy.deepcopy(other[from_key])
        elif how == 2 and isinstance(container, dict):
            container[draw.choice([WORD, "antigravity", "", "kwargs", "name"])] = container.pop(key)
        elif isinstance(container[key], str):
            text = container[key]
            at = draw.randrange(len(text) + 1)
            container[key] = (
                text[:at] + draw.choice(["\\", '"', ".", "::", "9", "__"]) + text[at + 1 :]
            )
        else:
            del container[key]
    return data


def test_a_changed_file_is_read_or_refused(exported, tmp_path):
    """Both readers share everything but the weights and the digest. None raises anything else."""
    with open(exported) as file:
        data = json.load(file)
    shutil.copy(exported.replace(".json", ".weights"), tmp_path)
    draw, path, refused, total = (
        random.Random(0),
        tmp_path / "export.json",
        0,
        20_000 if FULL else 200,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(total):
            bad = spoiled(data, draw)
            path.write_text(json.dumps(bad))
            with harmless():
                try:
                    _export.load(path)
                except BadFile:
                    refused += 1
            if isinstance(bad, dict):
                bad.pop("weights", None)
            with harmless(), contextlib.suppress(BadFile):
                _trace.from_json(bad)
    assert total // 2 < refused < total  # some changes do no harm


def test_a_spoiled_cache_file_is_read_or_refused(cache_file, tmp_path):
    """Bytes: what a full disk or another program leaves."""
    path = changed_cache(cache_file, tmp_path, lambda data: None)
    whole, draw = Path(path).read_bytes(), random.Random(1)
    for _ in range(5_000 if FULL else 100):
        part = bytearray(whole)
        at = draw.randrange(len(part))
        new = bytes(draw.choices(range(256), k=draw.choice([0, 1, 3])))
        part[at : at + draw.choice([0, 1, 5, 4000])] = new
        with open(path, "wb") as file:
            file.write(part)
        with harmless(), contextlib.suppress(BadFile):
            _trace.from_json(_cache._read(path))
