# SPDX-License-Identifier: Apache-2.0
"""op-tools report: the data is all there, nothing of a capture becomes code, bad input is told."""

import json
import os
import re
import shutil

import op_tools
import pytest
import torch
from op_tools import captures
from op_tools.captures import judging, reproducer
from op_tools.cli import main
from op_tools.core import results
from op_tools.report.histograms import counts
from optools_helpers import output
from report_pages import NASTY, Page, column, read, step_capture, writer_capture
from torch import nn

pytestmark = pytest.mark.usefixtures("on_cpu")


# ---- the data ----------------------------------------------------------------------
def test_every_call_is_in_the_file(capsys):
    folder = step_capture()
    code, text = output(capsys, "report", folder)
    assert code == 0 and "calls, not judged" in text.out
    path = os.path.join(folder, "report.html")
    data = Page(read(path)).data
    records = list(captures.open(folder))
    assert data["calls"]["number"] == [r.number for r in records]
    for name in ("op", "phase", "module", "site"):
        assert column(data, name) == [getattr(r, name) for r in records]
    assert data["calls"]["step"] == [r.step for r in records]
    for took, record in zip(data["calls"]["took"], records, strict=True):
        assert took == pytest.approx((record.end_ns - record.start_ns) / 1e3, rel=1e-4)
    gelu = column(data, "op").index("aten::gelu")
    assert column(data, "module")[gelu] == "1"
    places = [data["texts"][place] for place, _, _ in data["tensors"][str(gelu)]]
    assert places == ["args[0]", "outputs[0]"]
    assert data["problems"] == [] and data["about"]["folder"] == folder
    assert not [name for name in os.listdir(folder) if name.endswith("part")]


def test_nothing_is_asked_of_anybody(capsys):
    folder = step_capture(1)
    output(capsys, "report", folder, "-o", "page.html")
    page = Page(read("page.html"))
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("src", "href", "action", "data"):
            assert value.startswith(("#", "./")), (tag, name, value)
    style = next(text for tag, _, text in page.blocks if tag == "style")
    assert "url(" not in style and "@import" not in style
    code = page.blocks[-1][2]
    known = "http://www.w3.org/2000/svg"  # a name, not an address
    assert re.findall(r"\w+://[^\s\"'`]+", code) == [known]
    assert not re.search(r"innerHTML|outerHTML|document\.write|\beval\b|fetch\(|XMLHttp", code)
    policy = next(v for t, n, v in page.attributes if n == "content" and "default-src" in v)
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_texts_of_a_capture_stay_texts(capsys):
    folder = writer_capture("evil", 3, op=lambda i: "aten::mm" + NASTY, text=NASTY)
    os.rename(folder, "evil & <b>")
    code, _ = output(capsys, "report", "evil & <b>", "-o", "page.html")
    assert code == 0
    whole = read("page.html")
    assert "<script>alert" not in whole and "<img" not in whole
    page = Page(whole)
    assert page.tags.count("script") == 2
    assert column(page.data, "op") == ["aten::mm" + NASTY] * 3
    assert column(page.data, "module")[0].endswith(NASTY)


def test_links_are_paths_and_nothing_else(capsys, bad_gelu):
    folder = step_capture(1)
    record = next(captures.open(folder).select(op="aten::gelu"))
    odd = os.path.join(folder, "javascript:alert(1)", 'a"b c#d')
    reproducer.write(record, odd)
    code, _ = output(capsys, "report", folder)
    assert code == 0
    links = Page(read(os.path.join(folder, "report.html"))).data["links"]
    assert links == {str(record.number): "./javascript%3Aalert%281%29/a%22b%20c%23d"}
    # A reproducer of another capture is left out, although it is of the same call.
    about = os.path.join(odd, "call.json")
    held = json.loads(read(about))
    with open(about, "w") as file:
        json.dump({**held, "capture": "0.5"}, file)
    output(capsys, "report", folder)
    assert Page(read(os.path.join(folder, "report.html"))).data["links"] == {}


# ---- verdicts ----------------------------------------------------------------------
def test_judge_finds_the_wrong_kernel(capsys, bad_gelu):
    folder = step_capture(1)
    code, text = output(
        capsys, "report", folder, "--judge", "--reproducers", "2", "-o", "page.html"
    )
    assert code == 1 and "1 error" in text.out and "1 reproducer," in text.out
    data = Page(read("page.html")).data
    verdicts = dict(zip(data["calls"]["number"], column(data, "verdict"), strict=True))
    record = next(captures.open(folder).select(op="aten::gelu"))
    assert [n for n, verdict in verdicts.items() if verdict == "error"] == [record.number]
    assert set(verdicts.values()) == {"pass", "error", "skip"}
    row = data["calls"]["number"].index(record.number)
    assert data["calls"]["e"][row] > 1000
    (result,) = data["results"][str(row)]
    assert result[0] == "output" and result[6] == [0, 3]  # its worst element
    assert result[7] == pytest.approx(1.01 * result[8], rel=1e-5)
    skipped = sum(count for _, _, count in data["skips"])
    assert skipped == sum(verdict == "skip" for verdict in verdicts.values()) > 0
    assert all(why for _, why, _ in data["skips"])


class Mixed(nn.Module):
    """Operators of many kinds."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.lstm = nn.LSTM(16, 8, batch_first=True)
        self.conv = nn.Sequential(nn.Conv1d(8, 4, 3), nn.BatchNorm1d(4), nn.SiLU())

    def forward(self, ids):
        hidden, _ = self.lstm(self.block(self.words(ids)))
        return self.conv(hidden.transpose(1, 2)).flatten(1)


@pytest.mark.parametrize("bfloat16", [False, True])
def test_verdicts_on_a_capture_are_those_of_the_run(bfloat16):
    torch.manual_seed(1)
    model = Mixed()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(11, (3, 7))
    capture, compare = op_tools.OpCapture(), op_tools.OpAutoCompare()
    with compare, capture:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits = model(ids)
        nn.functional.cross_entropy(logits.float(), torch.tensor([0, 5, 9])).backward()
        optimizer.step()
    live = {}
    for row in compare.rows():
        live.setdefault(row["number"], {})[row["result"]] = (row["verdict"], row["e"])
    both = 0
    for record in captures.open(capture.folder):
        found = judging.judge(record)
        assert found["verdict"] in ("pass", "skip"), (record.op, found["reason"])
        mine = {row["result"]: (row["verdict"], row["e"]) for row in found["results"]}
        told = live.get(record.number, {})
        if record.rng is None:  # samples are drawn anew
            for name in mine.keys() & told.keys():
                assert mine[name] == pytest.approx(told[name], nan_ok=True), (record.op, name)
                both += 1
    assert both > 100


def test_results_of_the_tools_are_taken(capsys, bad_gelu):
    x = torch.randn(64)
    capture, timing, compare = (
        op_tools.OpCapture(),
        op_tools.OpTimeMeasure(),
        op_tools.OpAutoCompare(),
    )
    with capture, timing, compare:
        torch.nn.functional.gelu(x).exp()
    timing.save_results(capture.folder)
    compare.save_results(capture.folder)
    code, text = output(capsys, "report", capture.folder, "-o", "page.html")
    assert code == 1 and "1 error" in text.out and "1 pass" in text.out
    data = Page(read("page.html")).data
    took = {s.number: s.took_ns / 1e3 for s in timing.samples()}
    for number, shown in zip(data["calls"]["number"], data["calls"]["took"], strict=True):
        assert shown == pytest.approx(took[number], rel=1e-4)
    assert data["calls"]["e"][0] == pytest.approx(compare.rows()[0]["e"], rel=1e-4)
    # Without a capture they are the report.
    os.makedirs("alone")
    timing.save_results("alone")
    compare.save_results("alone")
    code, text = output(capsys, "report", "alone")
    assert code == 1 and "2 calls" in text.out


def test_exponents_are_counted():
    x = torch.tensor([0.0, 1.0, 1.5, -2.0, 3.99, float("nan"), float("inf"), 2.0**-20])
    low, bins, zeros, nans, infinities, looked, everything = counts(x)
    assert low == -20 and bins[0] == 1 and bins[20] == 2 and bins[21] == 2 and sum(bins) == 5
    assert (zeros, nans, infinities, looked, everything) == (1, 1, 1, 8, 8)
    low, bins, *_ = counts(torch.tensor([2.0**-500, 1.0], dtype=torch.float64))
    assert low == -95 and bins[0] == 1 and bins[-1] == 1
    assert counts(torch.tensor([1 + 1j], dtype=torch.complex64))[1] == [2]
    assert counts(torch.zeros(3, dtype=torch.bfloat16))[1:3] == [[], 3]


# ---- bad input ---------------------------------------------------------------------
def test_bad_folders(capsys, tmp_path):
    os.makedirs("empty")
    os.makedirs("foreign")
    with open("foreign/records.oplog", "w") as file:
        file.write("no log at all")
    os.makedirs("twice/a")
    shutil.copytree(step_capture(1), "twice/a/one")
    shutil.copytree("twice/a/one", "twice/a/two")
    for folder, said in (
        ("nowhere", "is no folder"),
        ("empty", "no capture at or below empty"),
        ("foreign", "is no record log of op_tools"),
        ("twice", "holds 2 captures"),
    ):
        code, text = output(capsys, "report", folder, "-o", "page.html")
        assert code == 2 and said in text.err, text.err
        assert "Traceback" not in text.err
    assert not os.path.exists("page.html")
    code, text = output(capsys, "report", "twice/a/one", "-o", "no/such/page.html")
    assert code == 2 and "there is no folder" in text.err
    for flag in ("--values", "--reproducers"):
        with pytest.raises(SystemExit, match="2"):
            main(["report", "twice/a/one", flag, "-1"])
        assert f"{flag}: '-1': expected 0 or a whole number" in capsys.readouterr().err


def test_a_damaged_capture_is_shown_as_far_as_it_goes(capsys):
    folder = step_capture(1)
    whole = len(captures.open(folder))
    log = os.path.join(folder, "records.oplog")
    with open(log, "rb") as file:
        held = file.read()
    with open(log, "wb") as file:
        file.write(held[: len(held) * 2 // 3])
    os.remove(os.path.join(folder, "pack-00000.safetensors"))
    code, text = output(capsys, "report", folder, "--judge", "-o", "page.html")
    assert code == 1 and "byte " in text.err and "is missing" in text.err
    data = Page(read("page.html")).data
    assert 0 < len(data["calls"]["number"]) < whole
    assert any("not finished" in problem for problem in data["problems"])
    assert any("is missing" in why for _, why, _ in data["skips"])


def test_foreign_results_are_a_problem_and_no_end(capsys):
    folder = step_capture(1)
    for held, said in (
        ("{", "is no JSON"),
        ("[1]", "holds no results of OpTimeMeasure"),
        (json.dumps({"format": results.FORMAT, "what": "OpTimeMeasure", "version": 9}), "version 9"),
        (
            json.dumps({
                "format": results.FORMAT, "what": "OpTimeMeasure", "version": 1,
                "columns": ["number"], "rows": [[1, 2]],
            }),
            "row 0 has not 1 fields",
        ),
    ):  # fmt: skip
        with open(os.path.join(folder, "time.json"), "w") as file:
            file.write(held)
        code, text = output(capsys, "report", folder, "-o", "page.html")
        assert code == 1 and said in text.err, text.err
    assert len(Page(read("page.html")).data["calls"]["number"]) == len(captures.open(folder))


@pytest.mark.parametrize("kind", ["compare", "time"])
@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("number", [1], "a list for its `number`, which is a whole number"),
        ("number", {"a": 1}, "a map for its `number`"),
        ("number", "1", "a text for its `number`"),
        ("op", ["aten::sin"], "a list for its `op`, which is a text"),
        ("phase", 3, "a number for its `phase`"),
        ("step", 1.5, "a number for its `step`"),
        ("verdict", {}, "a map for its `verdict`"),
        ("e", "large", "a text for its `e`, which is a number"),
        ("e", 10**400, "a number for its `e`"),
        ("took_ns", [], "a list for its `took_ns`"),
        ("start_ns", True, "a truth value for its `start_ns`"),
    ],
)
def test_rows_of_the_wrong_types(capsys, kind, column, value, said):
    """With a capture beside them and without one."""
    what = {"compare": "OpAutoCompare", "time": "OpTimeMeasure"}[kind]
    good = {"number": 1, "op": "aten::sin", "phase": "forward", "step": 0, "verdict": "pass"}
    good.update(e=0.5, took_ns=7, start_ns=1)
    held = {"format": results.FORMAT, "version": results.VERSION, "what": what}
    held.update(
        columns=list(good), rows=[list(good.values()), list({**good, column: value}.values())]
    )
    held.update(skips={"no": "list"}, dropped="many")
    os.mkdir("alone")
    for folder in (step_capture(1), "alone"):
        with open(os.path.join(folder, f"{kind}.json"), "w") as file:
            json.dump(held, file)
        code, text = output(capsys, "report", folder, "-o", "page.html")
        assert code == 1 and f"row 1 has {said}" in text.err, text.err
        assert "1 row not used" in text.err
        assert "`skips` is a map" in text.err and "`dropped` is a text" in text.err
    assert Page(read("page.html")).data["calls"]["number"] == [1]


def test_no_file_is_left_half_written(monkeypatch):
    with open("page.html", "w") as file:
        file.write("before")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        results.write_whole("page.html", "after")
    assert os.listdir(".") == ["page.html"] and read("page.html") == "before"
