# SPDX-License-Identifier: Apache-2.0
"""Every reader of the tools on files changed at random: an answer or an error of ours within 5 s, and
nothing run or written elsewhere. 250 files in `make test`, 10,000 with OPENNPU_TEST_FULL=1.

The tools read record logs, packs, .pth and .pt files, JSON and lists of names; CSV they only write.
"""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import zipfile
from pathlib import Path

import op_tools
import pytest
import torch
from op_tools import captures
from op_tools.captures import reproducer
from op_tools.cli import import_command, main
from op_tools.core import results
from op_tools.ditorch_compat import ditorch_folders
from op_tools.module_tools import CompLayerAcc, compare_accuracy
from op_tools.save_op_args import write_args
from record_logs import frames_of, write_payloads

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
FILES = {"log bytes": 1500, "log payloads": 3000, "pack": 500, "pth bytes": 1000, "pickle": 2000}
FILES |= {"json": 1500, "dump": 500}
assert sum(FILES.values()) == 10_000
SECONDS = 5
ODD_BYTES = b"\x00\x01\x7f\x80\xff\xc1\xdc\xdd\xdf\xc9\xd3OPFR.("
ODD_JSON = [
    "null",
    "-1",
    "1e400",
    "9" * 400,
    '"\\ud800"',
    '"\\u001b[2J"',
    "[]",
    "{}",
    "true",
    "NaN",
]
ODD_JSON += ["[" * 300 + "]" * 300, '"' + "../" * 5 + '"', '{"a": [[1]]}', "1.5", '""']

pytestmark = pytest.mark.usefixtures("on_cpu")


class Hang(BaseException):
    """No `except Exception` swallows it."""


@contextlib.contextmanager
def limited():
    """So much processor time, which does not depend on who else is here; much more of the clock's."""

    def late(number, stack):
        raise Hang(f"signal {number}")

    before = [signal.signal(number, late) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 20 * SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before):
            signal.signal(number, handler)


WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect")
CHANGES = "os.mkdir os.remove os.rename os.rmdir os.symlink os.link os.truncate os.chmod".split()
watch = {"inside": None, "harm": []}


def _listen(event, arguments):
    """What Python is about to do, while `watch` has a folder that it may do it in."""
    inside = watch["inside"]
    if inside is None:
        return
    if event in RUNS:
        watch["harm"].append((event, arguments))
    paths = ()
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
        paths = arguments[:1]
    elif event in CHANGES:
        paths = [path for path in arguments[:2] if isinstance(path, (str, bytes))]
    for path in paths:
        if isinstance(path, int) or "__pycache__" in os.fsdecode(path):
            continue
        there = os.path.realpath(os.fsdecode(path))
        if not there.startswith(inside) and there != os.devnull:
            watch["harm"].append((event, there))


@pytest.fixture(scope="module")
def listening():
    sys.addaudithook(_listen)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """Whole files of every kind, made by the tools themselves."""
    place = tmp_path_factory.mktemp("seeds")
    before, device = os.getcwd(), os.environ.get("OP_TOOLS_DEVICE")
    os.chdir(place)
    os.environ["OP_TOOLS_DEVICE"] = "cpu"
    try:
        _make_seeds()
    finally:
        os.chdir(before)
        os.environ.pop("OP_TOOLS_DEVICE")
        if device is not None:
            os.environ["OP_TOOLS_DEVICE"] = device
    return place


def _make_seeds():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU())
    capture, compare, timing = (
        op_tools.OpCapture(),
        op_tools.OpAutoCompare(),
        op_tools.OpTimeMeasure(),
    )
    with contextlib.redirect_stdout(io.StringIO()):
        with capture, compare, timing:
            model(torch.ones(2, 4)).square().sum().backward()
            torch.ones(3).to(torch.complex64).expand(2, 3).conj().sum()
        compare.save_results(capture.folder)
        timing.save_results(capture.folder)
        for data in ("expected", "real"):
            dump = CompLayerAcc(model, data == "expected", data_path="dump")
            dump.insert_hook()
            model(torch.ones(2, 4)).sum().backward()
            dump.remove_hook()
    shutil.move(capture.folder, "capture")
    record = next(r for r in captures.open("capture") if r.op == "aten::addmm")
    reproducer.write(record, "capture/reproducers/one")
    values = ([1, 2.5, None, "a"], {"k": (True, slice(1, 2))}, torch.float32, {1, 2}, 3 + 4j)
    for what in ("input", "output", "grad_inputs", "grad_outputs"):
        write_args(
            f"case/7/{what}", "torch.add", "1", (torch.ones(2, 3).t(), *values), {"alpha": 2}
        )


# ---- changes -----------------------------------------------------------------------
def changed(choose, held, tokens=()):
    """Bytes with a few changes."""
    held = bytearray(held)
    for _ in range(choose.choice([1, 1, 1, 2, 4, 16])):
        at, size = choose.randrange(len(held) + 1), choose.choice([1, 1, 2, 4, 8, 40])
        how = choose.randrange(7)
        if how == 0 and held:
            held[at % len(held)] ^= 1 << choose.randrange(8)
        elif how == 1 and held:
            held[at % len(held)] = choose.choice(ODD_BYTES)
        elif how == 2:
            held[at : at + size] = b""
        elif how == 3:
            held[at:at] = choose.randbytes(size)
        elif how == 4:
            other = choose.randrange(len(held) + 1)
            held[at:at] = held[other : other + size]
        elif how == 5:
            held[at : at + size] = (choose.getrandbits(64)).to_bytes(8, "big")[:size]
        elif choose.random() < 0.1:
            del held[at:]
        elif tokens:
            held[at : at + size] = choose.choice(tokens).encode()
    return bytes(held)


def change_log_bytes(choose, folder):
    path = folder / "capture" / captures.LOG
    path.write_bytes(changed(choose, path.read_bytes()))


def change_log_payloads(choose, folder):
    """Under right checksums, so that what is in the frames is looked at."""
    payloads = frames_of(folder / "capture")
    for _ in range(choose.choice([1, 1, 3])):
        at = choose.randrange(len(payloads))
        kind, payload = payloads[at]
        payloads[at] = (kind, changed(choose, payload))
    write_payloads(folder / "capture", payloads)


def change_pack(choose, folder):
    path = choose.choice(sorted((folder / "capture").glob("pack-*")))
    path.write_bytes(changed(choose, path.read_bytes()))


def change_pth(choose, folder):
    path = choose.choice(sorted((folder / "case" / "7").glob("*.pth")))
    path.write_bytes(changed(choose, path.read_bytes()))


PICKLED = [
    "cbuiltins\nrange\n",
    "cbuiltins\nset\n",
    "cos\nsystem\n",
    "ctorch\nload\n",
    "K\x05",
    "(",
    "t",
]
PICKLED += [
    "R",
    "l",
    "a",
    "}",
    "h\x01",
    "\x8a\x0a" + "\x7f" * 10,
    "X\x02\x00\x00\x00ab",
    "q\x01",
    "0",
    ".",
]


def change_pickle(choose, folder):
    """The program in it, in a whole archive."""
    path = choose.choice(sorted((folder / "case" / "7").glob("*.pth")))
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, held in parts.items():
            if name.endswith("data.pkl"):
                held = changed(choose, held, PICKLED)
            archive.writestr(name, held)


def change_json(choose, folder):
    names = ["capture/compare.json", "capture/time.json", "capture/reproducers/one/call.json"]
    path = folder / choose.choice(names)
    text = path.read_text()
    if choose.random() < 0.4:
        path.write_bytes(changed(choose, text.encode(), ODD_JSON))
        return
    held = json.loads(text)
    marks = {}
    for _ in range(choose.choice([1, 2, 5])):  # a value becomes another one of JSON's
        at, key = held, choose.choice(list(held))
        while isinstance(at[key], (dict, list)) and at[key] and choose.random() < 0.8:
            at = at[key]
            key = choose.choice(list(at) if isinstance(at, dict) else range(len(at)))
        mark = f"@{len(marks)}@"
        at[key], marks[f'"{mark}"'] = mark, choose.choice(ODD_JSON)
    text = json.dumps(held)
    for mark, other in marks.items():
        text = text.replace(mark, other)
    path.write_text(text)


def change_dump(choose, folder):
    path = choose.choice([p for p in sorted((folder / "dump").rglob("*")) if p.is_file()])
    path.write_bytes(changed(choose, path.read_bytes()))
    if choose.random() < 0.2:
        path.rename(
            path.with_name(path.stem + choose.choice(["..x", "..", "..9" * 30]) + path.suffix)
        )


# ---- readers -----------------------------------------------------------------------
def read_capture(choose, folder):
    path = str(folder / "capture")
    with contextlib.suppress(captures.CaptureError):
        found = captures.open(path)
        for record in found:
            record.signature()
            for read in (record.load, record.load_outputs, record.load_arguments):
                with contextlib.suppress(captures.CaptureError):
                    read()
    numbers = [str(choose.randrange(1, 60)), "--values"]
    commands = [["ls"], ["ls", "--json"], ["ls", "--ops"], ["show", *numbers], ["report"]]
    commands += [["diff", path], ["export", str(folder / "to")]]
    command = choose.choice(commands)
    assert main([command[0], path, *command[1:]]) in (0, 1, 2)


def read_report(choose, folder):
    for name, what in ((results.COMPARE, "OpAutoCompare"), (results.TIME, "OpTimeMeasure")):
        with contextlib.suppress(results.ResultsError):
            results.load(str(folder / "capture" / name), what)
    assert main(["report", str(folder / "capture"), "--values", "0"]) in (0, 1, 2)


def read_case(choose, folder):
    """As `op-tools import` does in its worker."""
    with contextlib.suppress(ditorch_folders.CaseError):
        ditorch_folders.load(str(folder / "case" / "7"))
    (folder / "made").mkdir()
    settings = {"folder": str(folder / "made"), "memory": 1 << 30}
    with import_command.work(settings) as answer:
        answer({"case": str(folder / "case" / "7")}, None)
        answer({"case": None}, None)
    assert main(["show", str(folder / "made"), "1", "--values"]) in (0, 1, 2)


def read_dump(choose, folder):
    compare_accuracy(str(folder / "dump"))


KINDS = {
    "log bytes": (change_log_bytes, read_capture, "capture"),
    "log payloads": (change_log_payloads, read_capture, "capture"),
    "pack": (change_pack, read_capture, "capture"),
    "pth bytes": (change_pth, read_case, "case"),
    "pickle": (change_pickle, read_case, "case"),
    "json": (change_json, read_report, "capture"),
    "dump": (change_dump, read_dump, "dump"),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_changed_at_random(kind, seeds, listening, tmp_path):
    change, read, part = KINDS[kind]
    count = FILES[kind] if FULL else FILES[kind] // 40
    folder = tmp_path / "inside"
    for seed in range(count):
        choose = random.Random(f"{kind} {seed}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seeds / part, folder / part)
        change(choose, folder)
        said = io.StringIO()
        watch["inside"], watch["harm"] = f"{os.path.realpath(folder)}{os.sep}", []
        try:
            with limited(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                read(choose, folder)
        except BaseException as error:
            raise AssertionError(f"{kind}, seed {seed}: {type(error).__name__}: {error}") from error
        finally:
            watch["inside"] = None
        assert not watch["harm"], (kind, seed, watch["harm"])
        assert "Traceback" not in said.getvalue(), (kind, seed, said.getvalue())
    assert Path(folder).is_dir()
