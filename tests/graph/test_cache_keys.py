# SPDX-License-Identifier: Apache-2.0
"""cache_compile reuses a graph only for the configuration that it was traced for."""

import dataclasses
import functools
import os
import subprocess
import sys
import types
import warnings

import pytest
import torch
import torchair
from torchair import _trace
from torchair.inference import _key

npu = torch.device("npu")


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@dataclasses.dataclass
class Data:
    scale: float


class Slots:
    __slots__ = ("scale",)

    def __init__(self, scale):
        self.scale = scale


def times(x, scale):
    return x * scale


class Scaled(torch.nn.Module):
    """`held` is what keeps the scale, `read` how forward gets it."""

    def __init__(self, held, read):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.held, self.read = held, read

    def forward(self, x):
        return self.read(self.held, x)


def closure(scale):
    return lambda x: x * scale


WAYS = {
    "dict": (lambda s: {"scale": s}, lambda h, x: x * h["scale"]),
    "nested": (lambda s: {"a": [(1, {"b": s})]}, lambda h, x: x * h["a"][0][1]["b"]),
    "list": (lambda s: [s], lambda h, x: x * h[0]),
    "dataclass": (Data, lambda h, x: x * h.scale),
    "namespace": (lambda s: types.SimpleNamespace(scale=s), lambda h, x: x * h.scale),
    "slots": (Slots, lambda h, x: x * h.scale),
    "partial": (lambda s: functools.partial(times, scale=s), lambda h, x: h(x)),
    "lambda": (closure, lambda h, x: h(x)),
    "default": (lambda s: eval(f"lambda x, s={s}: x * s"), lambda h, x: h(x)),
    "constant": (lambda s: eval(f"lambda x: x * {s}"), lambda h, x: h(x)),
    "activation": (lambda s: (torch.relu, torch.sigmoid)[s > 2], lambda h, x: h(x)),
    "module": (lambda s: torch.nn.LeakyReLU(0.1 * s), lambda h, x: h(-x.abs())),
    "tensor in a list": (
        lambda s: [torch.full((2,), float(s))],
        lambda h, x: x * h[0].to(x.device),
    ),
    "dtype": (lambda s: (torch.float16, torch.float64)[s > 2], lambda h, x: x.to(h)),
    "set": (lambda s: {s}, lambda h, x: x * max(h)),
    "method": (lambda s: Data(s).__eq__, lambda h, x: x * h.__self__.scale),
}


@pytest.mark.parametrize("way", WAYS)
def test_another_value_is_another_key(way):
    make, read = WAYS[way]
    keys = [_key.digest(m, m.forward) for m in (Scaled(make(s), read) for s in (2, 3, 2))]
    assert keys[0] != keys[1] and keys[0] == keys[2]


@pytest.mark.parametrize("way", ["dict", "lambda", "activation"])
def test_a_second_model_computes_with_its_own_value(tmp_path, way):
    make, read = WAYS[way]
    x = torch.randn(3, 2, device=npu)
    for scale in (2, 3, 2):
        model = Scaled(make(scale), read).npu().eval()
        function = torchair.inference.cache_compile(model.forward, cache_dir=tmp_path)
        assert torch.equal(function(x), model(x))
    assert len(os.listdir(tmp_path)) == 2


GLOBAL_SCALE = 2


def reads_a_global(h, x):
    return x * GLOBAL_SCALE


def test_functions_that_forward_calls_are_part_of_the_key(monkeypatch):
    model = Scaled(None, reads_a_global)
    before = _key.digest(model, model.forward)
    monkeypatch.setattr(sys.modules[__name__], "GLOBAL_SCALE", 3)
    changed = _key.digest(model, model.forward)
    monkeypatch.setattr(Scaled, "forward", lambda self, x: x)
    assert len({before, changed, _key.digest(model, model.forward)}) == 3


def test_class_attributes_and_hooks_are_part_of_the_key(monkeypatch):
    model = Scaled(None, None)
    keys = [_key.digest(model, model.forward)]
    monkeypatch.setattr(Scaled, "factor", 3, raising=False)
    keys.append(_key.digest(model, model.forward))
    model.linear.register_forward_hook(lambda m, a, out: out * 2)
    keys.append(_key.digest(model, model.forward))
    assert len(set(keys)) == 3
    other = Scaled(None, None)
    other.linear.register_forward_hook(lambda m, a, out: out * 2)
    assert _key.digest(other, other.forward) == keys[2]


def test_tied_parameters_are_another_key():
    class Two(torch.nn.Module):
        def __init__(self, tied):
            super().__init__()
            self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
            if tied:
                self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    tied, apart = Two(True), Two(False)
    assert _key.digest(tied, tied.forward) != _key.digest(apart, apart.forward)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.nn.LSTM(2, 3, num_layers=2, bidirectional=True),
        lambda: torch.nn.TransformerEncoderLayer(8, 2, 16),
        lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2)),
        lambda: torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)),
    ],
    ids=["lstm", "transformer", "weight_norm", "batch_norm"],
)
def test_modules_of_other_weights_have_the_same_key(make):
    one, two = make(), make()
    assert _key.digest(one, one.forward) == _key.digest(two, two.forward)


def test_parameters_are_not_part_of_the_key():
    one, two = Scaled([1], None), Scaled([1], None)
    assert _key.digest(one, one.forward) == _key.digest(two, two.forward)


@pytest.mark.parametrize(
    "value", [(i for i in range(3)), {object, int}, memoryview(b"1"), iter([1])], ids=lambda v: type(v).__name__
)  # fmt: skip
def test_what_cannot_be_keyed_is_not_kept(tmp_path, value):
    model = Scaled({"it": value}, lambda h, x: x + 1).npu().eval()
    function = torchair.inference.cache_compile(model.forward, cache_dir=tmp_path)
    x = torch.ones(2, device=npu)
    with pytest.warns(UserWarning, match=r"not kept on disk: Scaled\.held\['it'\]"):
        assert torch.equal(function(x), x + 1)
    assert not os.listdir(tmp_path)


def test_loggers_locks_and_cycles_have_a_key():
    import logging
    import threading

    model = Scaled({"log": logging.getLogger("x"), "lock": threading.Lock()}, None)
    model.held["me"] = model.held
    model.__dict__["owner"] = model
    assert _key.digest(model, model.forward)


def test_the_key_is_the_same_in_another_process(tmp_path):
    text = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch, torch_npu, test_cache_keys as t\n"
        "from torchair.inference import _key\n"
        "for name, (make, read) in t.WAYS.items():\n"
        "    m = t.Scaled(make(2), read); print(name, _key.digest(m, m.forward))\n"
    )
    found = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", text, os.path.dirname(__file__)],
            capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1


class Writes(torch.nn.Module):
    def forward(self, x, cache):
        cache.add_(1)
        return x * 2 + cache


def test_an_argument_passed_twice(tmp_path):
    model = Writes().npu()

    def both(function, same):
        x = torch.arange(4.0, device=npu)
        return function(x, x if same else x + 10), x

    for order in ((True, False, True), (False, True)):
        function = torchair.inference.cache_compile(
            model.forward, cache_dir=tmp_path / str(len(order))
        )
        for same in order:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = both(function, same)
            for ours, theirs in zip(got, both(model, same)):
                assert torch.equal(ours, theirs)


def test_overlapping_slices_are_seen(tmp_path):
    function = torchair.inference.cache_compile(Writes().npu().forward, cache_dir=tmp_path)
    whole, wanted = torch.arange(6.0, device=npu), torch.arange(6.0, device=npu)
    function(torch.ones(4, device=npu), torch.ones(4, device=npu))
    with pytest.warns(UserWarning, match="shares memory with"):
        got = function(whole[:4], whole[2:])
    assert torch.equal(got, Writes()(wanted[:4], wanted[2:])) and torch.equal(whole, wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(whole[:3], whole[3:])


def test_autocast_is_part_of_the_key(tmp_path):
    model = torch.nn.Linear(64, 64).npu().eval()
    x = torch.randn(8, 64, device=npu)
    for first in (False, True):
        folder = tmp_path / str(first)
        function = torchair.inference.cache_compile(model.forward, cache_dir=folder)
        for enabled in (first, not first, first):
            with torch.autocast("npu", dtype=torch.bfloat16, enabled=enabled):
                got, wanted = function(x), model(x)
            assert got.dtype == wanted.dtype and torch.equal(got, wanted)
    function = torchair.inference.cache_compile(model.forward, cache_dir=tmp_path / "True")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_trace, "trace", lambda *_: pytest.fail("traced again"))
        with torch.autocast("npu", dtype=torch.bfloat16):
            assert function(x).dtype == torch.bfloat16
        assert function(x).dtype == torch.float32
