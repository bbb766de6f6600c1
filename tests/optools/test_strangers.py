# SPDX-License-Identifier: Apache-2.0
"""Captures made to harm who looks at them: no code runs, no file outside is written, no terminal is
painted, and nothing hangs or ends in an exception that is not ours."""

import ast
import contextlib
import io
import os
import pickle
import re
import time
import tokenize
from collections import Counter
from pathlib import Path

import op_tools
import pytest
import torch
from op_tools import captures, run_op_from_data
from op_tools.captures import judging, reproducer
from op_tools.cli import main
from op_tools.ditorch_compat import ditorch_folders
from op_tools.save_op_args import write_args
from optools_helpers import output
from record_logs import Ext, append, frame, tensor, write_log

SIN = ["op", 77, "aten::sin", "aten::sin(Tensor self) -> Tensor"]
# Clears the screen, sets a title, turns the text round, and comes back to the line's beginning.
PAINT = "\x1b[2J\x1b]0;owned\x07\u202e\x9b31mred\r"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

pytestmark = pytest.mark.usefixtures("on_cpu")


def call_of(folder, number):
    return next(record for record in captures.open(folder) if record.number == number)


# ---- scripts -----------------------------------------------------------------------
def harmful_texts():
    """Texts that are code where the script's encoding is not the one it was written for."""
    code = "import os; open('harmed', 'w').close()"
    yield f"coding: utf-7 +AAo-{code}"
    yield f"coding=unicode_escape \\x0a{code}"
    yield f"vim: set fileencoding=raw_unicode_escape : \\u000a{code}"
    yield f"\n{code}\n"
    yield f"\r{code}\r"
    yield f"\u2028{code}\x0c"
    yield f"\x00{code}"


@pytest.mark.parametrize("place", ["module", "site", "verdict", "argument"])
def test_no_text_of_a_capture_is_code_in_the_script(whole, place):
    folder, ref = whole
    for i, text in enumerate(harmful_texts()):
        number, name = 900 + i, f"script{i}"
        defined = [(2, ["op", 78, "aten::gelu", GELU]), (2, ["module", 5 + i, text, ""])]
        defined.append((2, ["site", 5 + i, text, ""]))
        words = text if place == "argument" else "none"
        call = {"number": number, "op": 78, "args": [tensor(ref), words], "out": []}
        call.update({place: 5 + i} if place in ("module", "site") else {})
        append(folder, *defined, (4, call))
        path = reproducer.write(
            call_of(folder, number), name, text if place == "verdict" else "is wrong"
        )
        source = Path(path).read_bytes()
        assert source.isascii() and source.startswith(b"# -*- coding: ascii -*-\n")
        with open(path, "rb") as file:
            assert tokenize.detect_encoding(file.readline)[0] == "ascii"
        names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        assert "open" not in names
        if i == 0 or place == "argument":
            with contextlib.suppress(RuntimeError):
                exec(compile(source, path, "exec"), {"__file__": path})
    assert not os.path.exists("harmed")


GELU = "aten::gelu(Tensor self, *, str approximate='none') -> Tensor"


def test_a_schema_whose_names_are_none(whole):
    """The names of keywords are those of the operator here, not of the file."""
    folder, ref = whole
    schema = GELU.replace("approximate", "lambda")
    append(folder, (2, ["op", 78, "aten::gelu", schema]))
    append(folder, (4, {"number": 900, "op": 78, "args": [tensor(ref), "none"], "out": []}))
    with pytest.raises(captures.CaptureError, match="lambda"):
        reproducer.write(call_of(folder, 900), "script")
    assert not os.path.exists("script")


# ---- links -------------------------------------------------------------------------
@pytest.fixture
def outside(tmp_path_factory):
    """A folder with one file, which has to stay as it is."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "precious").write_text("precious")
    yield folder
    assert sorted(os.listdir(folder)) == ["precious"]
    assert (folder / "precious").read_text() == "precious"


def wrong_capture():
    """A capture with one call that is an error."""
    tool = op_tools.OpCapture()
    with tool:
        torch.arange(6.0).sin()
    sin = next(record for record in captures.open(tool.folder) if record.op == "aten::sin")
    append(tool.folder, (2, SIN))
    call = {"number": 900, "op": 77, "args": [tensor(sin.args[0])], "out": [tensor(sin.args[0])]}
    append(tool.folder, (4, call))
    return tool.folder


REPORT = ["--judge", "--in-process", "--reproducers", "3", "--values", "0"]


@pytest.mark.parametrize("what", ["report.html", "reproducers", "call", "script"])
def test_a_report_is_never_written_through_a_link(what, outside, capsys):
    folder = wrong_capture()
    if what == "report.html":
        os.symlink(outside / "precious", f"{folder}/report.html")
    elif what == "reproducers":
        os.symlink(outside, f"{folder}/reproducers")
    elif what == "call":
        os.mkdir(f"{folder}/reproducers")
        os.symlink(outside, f"{folder}/reproducers/aten-sin-call900")
    else:
        os.makedirs(f"{folder}/reproducers/aten-sin-call900")
        for name in (reproducer.SCRIPT, reproducer.TENSORS, reproducer.CALL):
            link = f"{folder}/reproducers/aten-sin-call900/{name}"
            os.symlink(outside / "precious", link)
    code, text = output(capsys, "report", folder, *REPORT)
    assert code == 1, text
    if what in ("report.html", "script"):  # a plain file took the link's place
        assert not os.path.islink(f"{folder}/report.html")
        assert "1 reproducer" in text.out
        script = f"{folder}/reproducers/aten-sin-call900/{reproducer.SCRIPT}"
        assert not os.path.islink(script) and "torch" in Path(script).read_text()
    else:
        assert "is a link" in Path(folder, "report.html").read_text()


def test_a_pipe_in_the_reports_place_is_no_hang(capsys):
    folder = wrong_capture()
    os.mkfifo(f"{folder}/report.html")
    code, text = output(capsys, "report", folder, *REPORT)
    assert code == 2 and "report.html is no plain file" in text.err


def test_a_link_that_the_user_names_is_followed(capsys, tmp_path):
    folder = wrong_capture()
    (tmp_path / "real.html").write_text("before")
    os.symlink("real.html", "mine.html")
    output(capsys, "report", folder, "-o", "mine.html", "--values", "0")
    assert os.path.islink("mine.html") and "<html" in Path("real.html").read_text()


@pytest.mark.parametrize("name", [captures.LOG, "pack-00000.safetensors"])
def test_a_captures_own_files_are_no_links(whole, name, capsys, tmp_path):
    folder, _ = whole
    os.rename(f"{folder}/{name}", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", f"{folder}/{name}")
    code, text = output(capsys, "replay", folder, "--device", "cpu", "--in-process")
    assert code in (1, 2) and "is a link" in text.out + text.err


@pytest.mark.parametrize("name", [captures.LOG, "input.pth", "compare.json", "call.json"])
def test_pipes_instead_of_files_are_no_hang(whole, name, capsys):
    folder, _ = whole
    if name == captures.LOG:
        folder = "piped"
        os.mkdir(folder)
    os.mkfifo(f"{folder}/{name}")
    Path(f"{folder}/{reproducer.SCRIPT}").write_text("")
    start = time.monotonic()
    for command in (["report", folder], ["import", folder, "--out", "made"], ["ls", folder]):
        assert main(command) in (0, 1, 2)
    assert time.monotonic() - start < 60


def test_reproducers_that_came_with_the_capture_are_told(capsys):
    """The scripts beside a capture are untrusted."""
    folder = wrong_capture()
    reproducer.write(call_of(folder, 900), f"{folder}/theirs", "is wrong")
    output(capsys, "report", folder, "--values", "0")
    text = Path(folder, "report.html").read_text()
    assert "was in the folder before" in text and "read it before you run it" in text


# ---- the terminal ------------------------------------------------------------------
def painted(folder, ref):
    """A capture whose every text paints."""
    names = [(2, [table, 9, PAINT, PAINT]) for table in ("op", "api", "module", "site")]
    call = {"number": 900, "op": 9, "api": 9, "module": 9, "site": 9, "api_call": 1}
    device = {"v": f"moon{PAINT}", "w": PAINT, "l": PAINT}
    call["args"] = [tensor(ref), PAINT, Ext(8, PAINT), Ext(3, PAINT), Ext(1, {**TENSOR, **device})]
    call["kwargs"] = {PAINT: [PAINT, {PAINT: 1}]}
    call["out"] = [tensor(ref, v=PAINT)]
    other = {**call, "number": 901, "raised": PAINT, "out": []}
    unread = {"unread": {PAINT: 3}, "why": PAINT, "refused": 1}
    append(folder, *names, (4, call), (4, other), (6, unread))
    with open(f"{folder}/{captures.LOG}", "ab") as file:
        file.write(frame(2, [PAINT, PAINT, PAINT]))


TENSOR = {"d": "float32", "v": "cpu", "s": [6], "t": [1], "f": 0}


@pytest.mark.parametrize(
    "command",
    [
        ["ls", "@"],
        ["ls", "@", "--json"],
        ["ls", "@", "--ops"],
        ["show", "@", "900", "--values"],
        ["show", "@", "901"],
        ["diff", "@", "@", "--all"],
        ["replay", "@", "--device", "cpu", "--in-process"],
        ["report", "@", "--judge", "--in-process", "--reproducers", "5"],
        ["export", "@", "to"],
    ],
    ids=lambda c: " ".join(c[:1] + c[2:3]),
)
def test_no_escape_sequence_reaches_the_terminal(whole, command, capsys):
    folder, ref = whole
    painted(folder, ref)
    code, text = output(capsys, *[folder if word == "@" else word for word in command])
    assert code in (0, 1), text.err
    assert RAW.findall(text.out + text.err) == []
    if command[0] in ("ls", "show"):
        assert "owned" in text.out  # it is shown, as what it is


def test_names_of_folders_and_files_do_not_paint(capfd):
    there = f"in{PAINT.replace('/', '')}/1"
    write_args(f"{there}/input", PAINT, "1", (torch.ones(1), PAINT), {PAINT: PAINT})
    for command in (
        ["import", there, "--out", "made"],
        ["ls", "made"],
        ["show", "made", "1"],
        ["replay", there, "--device", "cpu", "--in-process"],
        ["ls", f"nothing{PAINT}"],
        ["report", f"nothing{PAINT}"],
    ):
        _, text = output(capfd, *command)
        assert RAW.findall(text.out + text.err) == [], command
    run_op_from_data.main([there, "--run_times", "1", "--device", "cpu", "--in-process"])
    text = capfd.readouterr()
    assert RAW.findall(text.out + text.err) == []


# ---- sizes -------------------------------------------------------------------------
SIZES = [
    {"s": [1 << 50], "t": [0]},
    {"s": [2] * 50, "t": [0] * 50},
    {"s": [3, 1 << 40], "t": [1, 0]},
    {"s": [6, 1 << 20, 1 << 20], "t": [1, 0, 0]},
    {"s": [1] * 4000, "t": [0] * 4000},
    {"s": [1] * 65, "t": [1] * 65},
    {"s": [2] * 40, "t": [1 << i for i in range(40)], "f": 16},
    {"s": [1 << 62, 1 << 62], "t": [0, 0]},
]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda s: f"{len(s['s'])}d-{s['s'][-1]}")
def test_a_few_bytes_that_claim_to_be_many(whole, sizes, capsys):
    folder, ref = whole
    call = {"number": 900, "op": 77, "args": [tensor(ref, **sizes)], "out": [tensor(ref, **sizes)]}
    append(folder, (2, SIN), (4, call))
    start = time.process_time()
    for words in (
        ["show", folder, "900", "--values"],
        ["ls", folder, "--ops"],
        ["diff", folder, folder],
        ["report", folder, *REPORT],
        ["export", folder, "to"],
    ):
        code, text = output(capsys, *words)
        assert code in (0, 1) or (code == 2 and "has no call" in text.err), (words, text.err)
    assert time.process_time() - start < 20


@pytest.mark.parametrize("sizes", [SIZES[0], SIZES[2], SIZES[3]], ids=["1d", "2d", "3d"])
def test_more_than_the_machine_has_is_refused_before_it_is_asked_for(whole, sizes):
    """A system that promises any amount of memory ends the process that uses it."""
    folder, ref = whole
    call = {"number": 900, "op": 77, "args": [tensor(ref, **sizes)], "out": [tensor(ref, **sizes)]}
    append(folder, (2, SIN), (4, call))
    record = call_of(folder, 900)
    for read in (record.load, record.load_arguments, record.load_outputs, record.args[0].load):
        with pytest.raises(captures.CaptureError, match=r"claims to be .* of 24 bytes in the file"):
            read()
    assert "claims to be" in judging.judge(record)["reason"]
    assert record.args[0].laid_out().shape == torch.Size(sizes["s"])


@pytest.mark.parametrize(
    "sizes", [{"s": [1 << 45], "t": [1]}, {"s": [2], "t": [1 << 45]}], ids=["size", "stride"]
)
def test_memory_to_write_into_is_refused_as_well(whole, sizes):
    folder, _ = whole
    blank = {**TENSOR, **sizes, "w": "an out argument"}
    append(folder, (2, SIN), (4, {"number": 900, "op": 77, "args": [Ext(1, blank)], "out": []}))
    with pytest.raises(captures.CaptureError, match="claims to be"):
        call_of(folder, 900).load()


def test_holes_that_repeated_elements_would_excuse(whole):
    """Six elements, said to be 2^50 by repeating, do not make 2^45 zeros between them cheap."""
    folder, ref = whole
    sizes = {"s": [6, 1 << 50], "t": [1 << 45, 0], "f": 16}
    append(
        folder, (2, SIN), (4, {"number": 900, "op": 77, "args": [tensor(ref, **sizes)], "out": []})
    )
    made = call_of(folder, 900).args[0].laid_out()
    assert made[:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_showing_what_is_conjugated_and_repeated(whole, capsys):
    folder, ref = whole
    sizes = {"d": "complex64", "s": [3, 1 << 50], "t": [1, 0], "f": 2}
    append(
        folder, (2, SIN), (4, {"number": 900, "op": 77, "args": [tensor(ref, **sizes)], "out": []})
    )
    code, text = output(capsys, "show", folder, "900", "--values")
    assert code == 0 and "of the 3 elements it repeats" in text.out


def test_an_expanded_tensor_is_still_shown(capsys):
    tool = op_tools.OpCapture()
    with tool:
        torch.tensor([2.0]).expand(3, 5).sin()
    number = next(r.number for r in captures.open(tool.folder) if r.op == "aten::sin")
    code, text = output(capsys, "show", tool.folder, number, "--values")
    assert code == 0 and "min 2, max 2, nan 0, zero 0" in text.out
    assert text.out.count("2., 2., 2., 2., 2.") == 3


def test_heads_of_frames_all_over_a_file_are_no_hang():
    """Each begins a frame that would go on to the file's end: checking them all takes for ever."""
    folder = write_log("heads", (4, {"number": 1, "op": 1, "args": [], "out": []}))
    size = 24 << 20
    head = b"OPFR" + (size // 2).to_bytes(4, "little") + bytes(4) + (4).to_bytes(4, "little")
    with open(f"{folder}/{captures.LOG}", "ab") as file:
        file.write(head * (size // len(head)))
    start = time.process_time()
    found = captures.open(folder)
    assert [record.number for record in found] == [1]
    assert any("the rest is not read" in problem for problem in found.problems)
    assert time.process_time() - start < 5


# ---- import ------------------------------------------------------------------------
class _Call:
    """Pickles as a call of a function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def _cyclic():
    held = [1]
    held.append(held)
    return held


def _deep():
    held = [1]
    for _ in range(150):
        held = [held]
    return held


BAD_VALUES = {
    "integer": (1 << 70, None),
    "negative": (-(1 << 70), None),
    "unsigned": ((1 << 64) - 1, None),
    "surrogate": ("\ud800 alone", None),
    "cyclic": (_cyclic(), "nested"),
    "deep": (_deep(), "nested"),
    "set": (_Call(set, range(10**12)), "range"),
    "counter": (_Call(Counter, range(10**12)), "range"),
    "bytes": (_Call(bytearray, 10**13), None),
    "range": (range(10**12), None),
    "keys": ({(1, 2): 3, None: 4, 1.5: 2}, None),
    "expanded": (torch.ones(1).expand(1 << 50), None),
    "nan key": ({float("nan"): "\udfff"}, None),
}


# Runs as any Python begins: a file that takes for ever to read.
SLOW_READER = """
import time
import op_tools.ditorch_compat.ditorch_folders as folders

load = folders.load
folders.load = lambda path: time.sleep(1000) if "slow" in path else load(path)
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Every bad value in a case of its own between good ones; (the capture, what was said of them)."""
    place = tmp_path_factory.mktemp("imported")
    values = {**{name: value for name, (value, _) in BAD_VALUES.items()}, "slow": 1}
    values["large"] = torch.zeros(128 << 20, dtype=torch.uint8)
    for i, (name, value) in enumerate(values.items()):
        folder = place / "cases" / name.replace(" ", "-") / str(i)
        os.makedirs(folder)
        content = {"name": "torch.add", "args": (torch.ones(2), value), "kwargs": {}}
        torch.save(content, folder / "input.pth")
    write_args(f"{place}/cases/good/99/input", "torch.add", "1", (torch.ones(2), 1), {})
    (place / "sitecustomize.py").write_text(SLOW_READER)
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.setenv("PYTHONPATH", str(place))
        flags = ["--out", f"{place}/made", "--timeout", "5", "--memory", "64"]
        code = main(["import", str(place / "cases"), *flags])
    assert code == 1
    return captures.open(f"{place}/made"), said.getvalue()


def test_import_reads_what_can_be_read(imported):
    found, said = imported
    assert "Traceback" not in said
    assert found.finished and not found.problems
    calls = list(found)
    assert len(calls) > 5
    assert calls[-1].load()[0][0].tolist() == [1, 1] and calls[-1].args[1] == 1
    texts = [call.args[1] for call in calls]
    assert (
        "<an integer of 71 bits>" in map(repr, texts)
        and (1 << 64) - 1 in texts
        and "\\ud800 alone" in texts
    )


def test_what_import_says_of_a_bad_value(imported):
    wanted = {name: said for name, (_, said) in BAD_VALUES.items() if said is not None}
    wanted |= {"slow": "the reader did not end within 5 s", "large": "more memory"}
    lines = imported[1].splitlines()
    for name, said in wanted.items():
        found = [line for line in lines if f"/{name}/" in line]
        assert any(said in line for line in found), (name, found)


def test_a_set_of_strangers_is_no_loop():
    """Also where a folder is read without a worker."""
    os.mkdir("case")
    content = {"name": "torch.add", "args": (_Call(set, range(10**12)),), "kwargs": {}}
    torch.save(content, "case/input.pth")
    start = time.process_time()
    with pytest.raises(ditorch_folders.CaseError):
        ditorch_folders.load("case")
    assert time.process_time() - start < 5
    torch.save({**content, "args": ({1, 2}, frozenset())}, "case/input.pth", pickle_module=pickle)
    with contextlib.suppress(ditorch_folders.CaseError):
        assert ditorch_folders.load("case").args[0] == {1, 2}
