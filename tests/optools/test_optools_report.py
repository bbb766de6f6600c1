# SPDX-License-Identifier: Apache-2.0
"""op-tools report: the data is all there, nothing of a capture becomes code, a browser shows it."""

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys

import interpreter
import op_tools
import pytest
import torch
from op_tools import _C, captures
from op_tools.captures import judging, reproducer
from op_tools.cli import main
from op_tools.core import capture_format, results
from op_tools.report.histograms import counts
from optools_helpers import kernel, output, wrong_gelu
from torch import nn

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & ' \" `"
pytestmark = pytest.mark.usefixtures("on_cpu")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Page(html.parser.HTMLParser):
    """What a browser would make of the file, as far as it matters here."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.blocks, self.inside = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.inside = tag in ("script", "style")
        if self.inside:
            self.blocks.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, text):
        if self.inside:
            tag, attrs, held = self.blocks[-1]
            self.blocks[-1] = (tag, attrs, held + text)

    @property
    def data(self):
        (held,) = [text for _, attrs, text in self.blocks if attrs.get("id") == "data"]
        return json.loads(held)


def column(data, name):
    return [data["texts"][n] for n in data["calls"][name]]


def step_capture(steps=2, foreach=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=foreach)
    x = torch.randn(3, 8)
    tool = op_tools.OpCapture()
    with tool:
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    return tool.folder


@pytest.fixture
def bad_gelu():
    with kernel("gelu", wrong_gelu, "cpu"):
        yield


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


def writer_capture(folder, count, op=lambda i: "aten::mm", text="", tensors=True):
    """A made-up capture."""
    os.makedirs(folder)
    writer = _C.CaptureWriter(folder, capture_format.head(content="full", devices="cpu"))
    schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    names = {}
    modules = [f"blocks.{i}.mlp{text}" for i in range(24)]
    for i, name in enumerate(modules, 1):
        writer.define("module", i, name, "")
        writer.define("site", i, f"train{text}.py:{10 + i} forward", "")
    a = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    clock = 1000
    for i in range(count):
        name = op(i)
        if name not in names:
            names[name] = len(names) + 1
            writer.define("op", names[name], name, schema)
        took = 1000 + (i * 7919) % 90_000
        given = [a * (i % 50 + 1), a] if tensors else []
        writer.add({
            "number": i + 1, "op": names[name], "module": i % 24 + 1, "site": i % 24 + 1,
            "phase": i % 20 // 12, "step": i * 4 // count, "thread": 1 + i % 20 // 12, "start": clock,
            "end": clock + took, "args": given, "out": [given[0] @ given[1]] if given else [],
        })  # fmt: skip
        clock += took + 500
    writer.close()
    return folder


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
    # One of another capture is none of this one's, though it is of the same call.
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


def test_a_reproducer_stands_alone(capsys, bad_gelu):
    folder = step_capture(1)
    output(capsys, "report", folder, "--judge", "--reproducers", "1", "-o", "page.html")
    (name,) = os.listdir("reproducers")
    script = os.path.join("reproducers", name, "reproduce.py")
    assert "op_tools" not in read(script)
    run = interpreter.run([script, "cpu"])
    assert run.returncode == 0, run.stderr
    # Here the kernel is right: what was captured is not what it gives.
    far = [float(re.search(r"at most (\S+) from", line)[1]) for line in run.stdout.splitlines()]
    assert far[0] < 1e-6 < 1e-5 < far[1]


def test_a_reproducer_of_numbers_python_has_no_word_for(capsys):
    """inf, nan and complex numbers of them, in a script that runs."""
    inf, nan = float("inf"), float("nan")
    tool = op_tools.OpCapture()
    with tool:
        for value in (complex(inf, nan), complex(-0.0, -inf), complex(1, 2), nan, -inf):
            torch.zeros(3, dtype=torch.complex64).fill_(value)
    records = [r for r in captures.open(tool.folder) if r.op == "aten::fill_.Scalar"]
    assert len(records) == 5
    for record in records:
        path = reproducer.write(record, f"made{record.number}")
        scope = {"__name__": "__main__", "__file__": path}
        sys_argv, sys.argv = sys.argv, [path]
        try:
            exec(compile(read(path), path, "exec"), scope)
        finally:
            sys.argv = sys_argv
        (got, *_) = scope["got"]
        expected = record.outputs[0].load()
        assert torch.equal(torch.view_as_real(got).isnan(), torch.view_as_real(expected).isnan())
        assert torch.equal(
            torch.view_as_real(got).nan_to_num(), torch.view_as_real(expected).nan_to_num()
        )


def test_tensors_of_a_reproducer_are_whole_or_not_there(monkeypatch):
    import safetensors.torch

    tool = op_tools.OpCapture()
    with tool:
        torch.ones(3).sin()
    record = next(r for r in captures.open(tool.folder) if r.op == "aten::sin")
    reproducer.write(record, "made")
    with open("made/tensors.safetensors", "rb") as file:
        before = file.read()

    def fails(tensors, path):
        with open(path, "wb") as file:
            file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(safetensors.torch, "save_file", fails)
    with pytest.raises(OSError, match="no space"):
        reproducer.write(record, "made")
    with open("made/tensors.safetensors", "rb") as file:
        assert file.read() == before
    assert sorted(os.listdir("made")) == ["call.json", "reproduce.py", "tensors.safetensors"]


def test_reproducers_of_a_whole_step(capsys):
    folder = step_capture(1, foreach=True)
    written = 0
    for record in captures.open(folder):
        script = reproducer.write(record, f"all/{reproducer.folder_name(record)}")
        written += 1
        compile(read(script), script, "exec")
    assert written > 15
    for op in (
        "aten::addmm",
        "aten::native_layer_norm_backward",
        "aten::_foreach_add_.List",
        "aten::mm",
    ):
        record = next(captures.open(folder).select(op=re.escape(op)))
        script = f"all/{reproducer.folder_name(record)}/reproduce.py"
        run = interpreter.run([script])
        assert run.returncode == 0, run.stderr
        said = [line for line in run.stdout.splitlines() if "captured" in line]
        assert said and all("at most 0 from" in line for line in said), run.stdout


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


# ---- in a browser ------------------------------------------------------------------
@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The report of 10,000 made-up operators, judged."""
    folder = str(tmp_path_factory.mktemp("large") / "capture")
    op = lambda i: f"aten::{('mm', 'add', 'gelu', 'native_layer_norm')[i % 4]}.kind{i % 97}"  # noqa: E731
    writer_capture(folder, 10_000, op)
    rows = []
    for i in range(10_000):
        e = (i * 31 % 997) / 1200
        verdict = "pass"
        if i % 1999 == 7:
            e, verdict = 3.5 + i, "error"
        rows.append({
            "number": i + 1, "op": op(i), "result": "output", "dtype": "float", "verdict": verdict,
            "e": e, "over": 1, "elements": 16, "worst": [1, 2], "got": 1.0, "expected": 2.0,
            "reason": "",
        })  # fmt: skip
    results.save(os.path.join(folder, "compare.json"), "OpAutoCompare", list(rows[0]), rows)
    path = os.path.join(folder, "report.html")
    assert main(["report", folder]) == 1  # there are errors
    return path


@pytest.fixture
def browser(tmp_path):
    if CHROMIUM is None:
        assert not os.environ.get("CI"), "CI has to have chromium (scripts/system_packages.sh)"
        pytest.skip("chromium is not installed")

    def show(path, address="", *more):
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1500,2100"]
        command += ["--virtual-time-budget=5000", *(more or ["--dump-dom"])]
        run = subprocess.run(
            [*command, f"file://{path}{address}"], capture_output=True, text=True, timeout=300
        )
        assert run.returncode == 0, run.stderr
        return run.stdout.replace("<wbr>", "")  # places where a line may end

    return show


def rows_of(dom):
    """Numbers of the calls in the table's part of the page."""
    return [int(n) for n in re.findall(r'<tr data-number="(\d+)"', dom)]


def test_ten_thousand_operators_open(browser, large):
    dom = browser(large)
    opened = re.search(r'data-ready="(\d+)"', dom)
    assert opened
    assert "10000 of 10000 calls" in dom
    shown = rows_of(dom)
    assert shown[:3] == [1, 2, 3] and 10 < len(shown) < 200  # only those in sight
    assert 'aria-rowcount="10001"' in dom
    for words in ("Time by operator", "Worst elements", "aten::mm.kind0", "Step 3"):
        assert words in dom, words
    print(f"open: {opened[1]} ms, {os.path.getsize(large)} bytes")


def test_sorting_and_filtering_by_the_address(browser, large):
    data = Page(read(large)).data
    e = data["calls"]["e"]
    shown = rows_of(browser(large, "#sort=e&filter=mm"))
    wanted = [i for i, op in enumerate(column(data, "op")) if "mm" in op]
    wanted.sort(key=lambda i: (-e[i], i))
    assert shown == [i + 1 for i in wanted[: len(shown)]] and len(shown) > 10
    dom = browser(large, "#verdict=error&sort=took&dir=asc")
    took = data["calls"]["took"]
    bad = [i for i, verdict in enumerate(column(data, "verdict")) if verdict == "error"]
    assert rows_of(dom) == [i + 1 for i in sorted(bad, key=lambda i: took[i])]
    assert f"{len(bad)} of 10000 calls" in dom
    dom = browser(large, "#filter=nothing+is+called+this")
    assert rows_of(dom) == [] and "0 of 10000 calls" in dom


def test_a_call_and_its_details(browser, large):
    dom = browser(large, "#call=8004&theme=dark")
    assert 'data-theme="dark"' in dom
    detail = dom[dom.index('id="detail"') :]
    detail = detail[: detail.index("</aside>")]
    assert "call 8004" in detail and "blocks.11.mlp" in detail and "train.py:22 forward" in detail
    assert detail.count("<svg") == 3 and "[1, 2]" in detail
    assert 8004 in rows_of(dom)  # and its row is in sight


def test_a_browser_runs_nothing_of_a_capture(browser, capsys, tmp_path):
    text = NASTY + ".x" * 50_000  # a module as deep as no model's
    folder = writer_capture("evil", 3, op=lambda i: "aten::mm" + NASTY, text=text)
    results.save(os.path.join(folder, results.THREADS), "threads", ["number", "name"],
                 [{"number": 1, "name": text}])  # fmt: skip
    output(capsys, "report", folder, "-o", "page.html")
    dom = browser(tmp_path / "page.html", "#call=1")
    assert re.search(r'data-ready="\d+"', dom)
    page = Page(dom)
    assert page.tags.count("script") == 2 and "img" not in page.tags


def test_a_picture_is_drawn_in_both_themes(browser, large, tmp_path):
    pictures = []
    for theme in ("light", "dark"):
        path = tmp_path / f"{theme}.png"
        browser(large, f"#theme={theme}&call=8&sort=e", f"--screenshot={path}")
        pictures.append(path.read_bytes())
        assert pictures[-1].startswith(b"\x89PNG") and len(pictures[-1]) > 50_000
    assert pictures[0] != pictures[1]
