# SPDX-License-Identifier: Apache-2.0
"""Sections of a report: steps and losses, modules, memory, FLOPs, lanes, two runs, and their looks."""

import html
import itertools
import json
import math
import os
import re

import op_tools
import pytest
import torch
from op_tools import _C
from op_tools.core import results, verdict
from op_tools.report import Options, gather
from op_tools.report import page as page_source
from optools_helpers import kernel
from report_pages import Page, column, read
from test_optools_report_browser import CHROMIUM, browser  # noqa: F401
from torch import nn

pytestmark = pytest.mark.usefixtures("on_cpu")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def train(bad=False):
    """A folder with all there can be for a report, and the losses of its steps."""
    torch.manual_seed(0)
    _C.set_step(7 if bad else 0)  # one of them captured later in its run
    model = nn.Sequential(Block(), Block(), nn.Linear(16, 4))
    # Another learning rate is another number, and the same call.
    optimizer = torch.optim.SGD(model.parameters(), 0.1 if bad else 0.1000001)
    x, losses = torch.randn(5, 16), []

    def wrong(x, approximate="none"):
        y = 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))
        if x.dtype == torch.float32:  # float64 is the reference
            y.view(-1)[3] = math.nan
        return y

    capture, timing, compare = op_tools.OpCapture(), op_tools.OpTimeMeasure(), None
    with capture, timing:
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        loss.detach() + 1  # after the last step
    timing.save_results(capture.folder)
    if bad:
        _C.set_step(7)
        with kernel("gelu", wrong, "cpu"), op_tools.OpAutoCompare() as compare:
            model(x)
        compare.save_results(capture.folder)
    return capture.folder, losses


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("runs"))
    os.environ["OP_TOOLS_DEVICE"] = "cpu"
    try:
        folder, losses = train(bad=True)
        other, other_losses = train()
        yield os.path.abspath(folder), losses, os.path.abspath(other), other_losses
    finally:
        del os.environ["OP_TOOLS_DEVICE"]
        os.chdir(before)


@pytest.fixture(scope="module")
def data(run):
    return gather(run[0], Options(against=run[2]))


def test_two_steps_are_two_and_have_their_losses(run, data):
    labels = [(label, is_step) for _, label, is_step, _, _ in data["steps"]]
    assert labels == [("Step 7", True), ("Step 8", True), ("After step 8", False)]
    assert [loss for *_, loss, _ in data["steps"]] == [*run[1], None]
    made = [call for *_, call in data["steps"]][:2]
    ops = dict(zip(data["calls"]["number"], column(data, "op")))
    assert [ops[number] for number in made] == ["aten::mean"] * 2
    theirs = data["against"]["losses"]
    assert [theirs["7"], theirs["8"]] == run[3]


def test_what_calls_compute_and_move(data):
    calls = data["calls"]
    found = {}
    for i, op in enumerate(column(data, "op")):
        found.setdefault((op, column(data, "signature")[i].split(" -> ")[0]), i)
    first = next(i for (op, said), i in found.items() if op == "aten::addmm" and "[5,16]" in said)
    assert calls["flops"][first] == 2 * 5 * 16 * 32
    assert calls["bytes"][first] == 4 * (32 + 5 * 16 + 16 * 32 + 5 * 32)
    views = [i for i, op in enumerate(column(data, "op")) if op == "aten::t"]
    assert views and all(calls["bytes"][i] == 0 and calls["flops"][i] is None for i in views)


def test_memory_is_counted_from_first_use_to_last(tmp_path):
    x = torch.ones(1000)  # there before, used by the first and the third call
    with op_tools.OpCapture() as tool:
        a = x + 1  # used last by the second
        b = a.mul(2)
        del a
        c = x.sub(b)  # b's last use
        del b
        c.neg_()
        c.sin()
    memory = gather(tool.folder, Options())["memory"]
    assert memory["device"] == "cpu"
    assert [made for _, made, _ in memory["points"]] == [4000, 8000, 8000, 4000, 8000]
    assert [there for _, _, there in memory["points"]] == [4000, 4000, 4000, 0, 0]
    assert memory["peak"] == [12000, 1]


def test_kernels_follow_one_another_on_the_device(tmp_path):
    """A made-up run: three launches, the second while the first still runs."""
    rows = []
    for number, (start, launch, device) in enumerate([(0, 5, 40), (10, 5, 20), (90, 5, 10)], 1):
        rows.append({"number": number, "op": "aten::mm", "phase": "forward", "thread": 3, "step": 0,
                     "start_ns": 1000 * start, "launch_ns": 1000 * launch, "took_ns": 1000 * device,
                     "device_ns": 1000 * device})  # fmt: skip
    path = os.path.join(tmp_path, results.TIME)
    results.save(path, "OpTimeMeasure", list(rows[0]), rows, threads={"3": "loader", "x": "no"})
    data = gather(str(tmp_path), Options())
    assert data["calls"]["device_start"] == [0, 40, 90]
    assert data["calls"]["took"] == [5, 5, 5] and data["calls"]["device"] == [40, 20, 10]
    assert data["threads"] == {3: "loader"} and data["memory"] is None


def test_threads_of_a_capture_have_names(run, data):
    (thread,) = set(data["calls"]["thread"])
    assert data["threads"][thread] == "main"


def test_two_runs_are_matched(run, data):
    other = gather(run[2], Options())
    found = data["against"]
    assert found["folder"] == run[2] and found["only_here"] == found["only_there"] == 0
    assert found["matched"] == len(other["calls"]["number"])
    assert found["took"] == other["calls"]["took"]  # the same calls in the same order
    sums = {op: (calls, total) for op, calls, total, _ in found["operators"]}
    gelu = [i for i, op in enumerate(column(other, "op")) if op == "aten::gelu"]
    assert sums["aten::gelu"][0] == len(gelu) == 4
    assert sums["aten::gelu"][1] == pytest.approx(
        sum(other["calls"]["took"][i] for i in gelu), rel=1e-3
    )
    assert gather(run[0], Options()).get("against") is None


# ---- what a browser makes of it ---------------------------------------------------------
@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert op_tools.cli.main(["report", run[0], "-o", str(path), "--against", run[2]]) == 1
    return path


def part(dom, name):
    """The text and tags of an element with that id, up to the next section."""
    begin = dom.index(f'id="{name}"')
    return dom[begin : dom.index("</section>", begin)]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_sections_of_the_page(browser, page, data):  # noqa: F811
    call = data["calls"]["number"][column(data, "op").index("aten::addmm")]
    dom = browser(page, f"#call={call}")
    assert 'data-sideways=""' in dom, re.search(r'data-sideways="[^"]*"', dom)[0]
    summary = part(dom, "summary")
    assert '<b class="">2</b><span>steps</span>' in summary
    assert "not finite" in summary and "Infinity" not in summary and "NaN" not in summary
    modules = re.findall(r'data-module="([^"]*)"', part(dom, "modules"))
    assert {"0", "0.mlp", "0.mlp.1", "1.norm", "2", "(outside modules)"} <= set(modules)
    assert "not finite" in part(dom, "modules")
    steps = part(dom, "steps")
    assert f"loss {data['steps'][0][3]:.4g}" in steps and "After step 8" in steps
    operators = part(dom, "operators")
    for words in ("FLOP/s", "Bytes/s", "aten::addmm"):
        assert words in operators, words
    against = part(dom, "against-card")
    assert "B / A" in against and "all operators" in against
    assert not re.search(r'id="against-card"[^>]*hidden', dom)
    detail = dom[dom.index('id="detail"') : dom.index("</aside>")]
    assert "FLOP/s" in detail and "Other run" in detail and "main, at" in detail


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_narrow_page_has_no_overlaps(browser, page, data):  # noqa: F811
    number = data["calls"]["number"][column(data, "op").index("aten::addmm")]
    dom = browser(page, f"#call={number}&theme=dark", "--window-size=800,1000", "--dump-dom")
    assert 'data-sideways=""' in dom, re.search(r'data-sideways="[^"]*"', dom)[0]
    pictures = re.findall(r'<svg class="histogram".*?</svg>', dom)
    assert pictures
    for picture in pictures:
        labels = re.findall(r'<text x="([\d.]+)"[^>]*>(2[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)</text>', picture)
        assert "^" not in "".join(words for _, words in labels)
        places = [float(x) for x, _ in labels]
        assert all(b - a >= 26 for a, b in itertools.pairwise(places)), places


def shown(dom, name):
    """The words of a part, without tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", part(dom, name))))


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_begins_with_the_first_wrong_call(browser, page, run, data):  # noqa: F811
    dom = browser(page)
    assert dom.index('id="conclusion"') < dom.index('id="summary"')
    conclusion = shown(dom, "conclusion")
    bad = [i for i, v in enumerate(column(data, "verdict")) if v == "error"]
    number, site = data["calls"]["number"][bad[0]], column(data, "site")[bad[0]]
    for words in (
        f"First wrong call: {number} aten::gelu",
        "1 NaN and 0 infinities where the reference has none",
        "Result output at [0, 3]: NaN, float64 says",
        f"op-tools show {run[0]} {number}",
        "--reproducers 1",
        f"{len(bad)} of",
    ):
        assert words in conclusion, (words, conclusion)
    assert site.replace(" ", "") in conclusion.replace(" ", "")
    assert "call that was captured made them: args[2]: -0.1 and -0.1000001" in conclusion
    # A red number says why it is red, and every tile is a way to what it counts.
    reds = re.findall(r'<button type="button" class="op error" title="([^"]*)"', dom)
    assert reds and all("NaN" in why or "E " in why for why in reds)
    tiles = re.findall(r'<button type="button" class="fact">', part(dom, "summary"))
    assert len(tiles) == part(dom, "summary").count('class="fact"') >= 6


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_in_chinese(browser, page, data):  # noqa: F811
    dom = browser(page, "#lang=zh")
    assert '<html lang="zh"' in dom
    assert "第一个错误的调用" in shown(dom, "conclusion") and "结果从调用" in shown(
        dom, "conclusion"
    )
    # No English word of the page itself is left where there is a Chinese one.
    words_shown = re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", dom, flags=re.S)
    for words in ("Time by operator", "Worst elements", "All steps", "not finite", "Called at"):
        assert words not in words_shown, words
    assert 'data-sideways=""' in dom, re.search(r'data-sideways="[^"]*"', dom)[0]


def test_every_word_of_the_page_has_a_chinese_one():
    folder = os.path.dirname(page_source.__file__)
    words = read(os.path.join(folder, "words.js"))
    known = set(re.findall(r'^  "((?:[^"\\]|\\.)*)":', words, re.M))
    asked = set(
        re.findall(
            r"<(?:h\d|span|p|a)[^>]* data-say>([^<]*)<", read(os.path.join(folder, "page.html"))
        )
    )
    for name in page_source.SCRIPTS:
        asked |= set(re.findall(r'\bsay(?:dWith)?\("([^"]*)"', read(os.path.join(folder, name))))
    assert len(asked) > 60
    assert asked <= known, sorted(asked - known)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("earlier_calls", [0, 10_000_000])
def test_nothing_is_cut_at_420_pixels(browser, page, language, earlier_calls, tmp_path):  # noqa: F811
    """In a frame: a window of a browser is not that narrow."""
    text, data = read(page), Page(read(page)).data
    data["against"]["first"]["number"] += earlier_calls
    for name in ("number", "forward"):
        data["calls"][name] = [n + earlier_calls if n > 0 else n for n in data["calls"][name]]
    (held,) = [block for _, attrs, block in Page(text).blocks if attrs.get("id") == "data"]
    assert text.count(held) == 1
    text = text.replace(held, json.dumps(data).replace("<", "\\u003c"))
    shown_page, frame = tmp_path / "report.html", tmp_path / "frame.html"
    shown_page.write_text(text)
    inside = (
        "const box = document.getElementById('in'); box.onload = () => { const page = box.contentDocument;"
        "const cut = [...page.querySelectorAll('#table td, .fact, th')].filter((n) => n.offsetParent &&"
        "(n.scrollWidth > n.clientWidth + 1 || n.scrollHeight > n.clientHeight + 1));"
        "document.title = `sideways=${page.documentElement.dataset.sideways}; cut=${cut.map((n) => n.textContent)};` }"
    )
    frame.write_text(
        f'<iframe id="in" style="width:420px;height:3000px" src="file://{shown_page}#lang={language}"></iframe>'
        f"<script>{inside}</script>"
    )
    dom = browser(frame, "", "--allow-file-access-from-files", "--dump-dom")
    assert re.search(r"<title>(.*?)</title>", dom)[1] == "sideways=; cut=;"


def test_a_loss_is_shown_without_its_scale(tmp_path):
    model, capture = nn.Linear(4, 1), op_tools.OpCapture()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with capture:
        loss = model(torch.ones(2, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
    (step, *_) = gather(capture.folder, Options())["steps"]
    assert step[3] == pytest.approx(loss.item())


def test_where_results_first_differ(data, run):
    first = data["against"]["first"]
    place = data["calls"]["number"].index(first["number"])
    assert (
        column(data, "op")[place].startswith("aten::add_")
        and column(data, "phase")[place] == "optimizer"
    )
    assert first["inputs"].startswith("args[2]: -0.1 and") and "of the largest" in first["text"]
    same = gather(run[0], Options(against=run[0]))["against"]
    assert same["first"] is None and same["compared"] > 100


def test_a_page_without_another_run(run, tmp_path):
    path = tmp_path / "alone.html"
    assert op_tools.cli.main(["report", run[2], "-o", str(path)]) == 0
    held = Page(read(path)).data
    assert "against" not in held and held["steps"] and json.dumps(held["memory"])


# ---- E of products ----------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_that_passes_shows_its_real_error(dtype):
    """Against E of every element, with the majorant of each, computed here in float64."""
    torch.manual_seed(1)
    a, b = torch.randn(90, 300).to(dtype), torch.randn(300, 70).to(dtype)
    a[::7] *= 1e-3
    compare = op_tools.OpAutoCompare()
    with compare:
        got = a @ b
    (row,) = [row for row in compare.rows() if row["op"] == "aten::mm"]
    wide_a, wide_b = a.double(), b.double()
    truth, majorant = wide_a @ wide_b, wide_a.abs() @ wide_b.abs()
    unit = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}[dtype]
    allowed = 2 * unit * truth.abs() + 2.0**-24 * (
        8 * majorant + 1.5 * math.sqrt(300) * truth.abs()
    )
    real = (got.double() - truth).abs() / allowed
    assert row["verdict"] == "pass"
    assert 0.7 * real.max() <= row["e"] <= 1.001 * real.max()
    assert row["e"] == pytest.approx(float(real[tuple(row["worst"])]), rel=1e-4)


def test_a_nan_is_the_worst_e():
    nan, worse = math.nan, verdict.worse_e
    assert (
        math.isnan(worse(nan, 3.0)) and math.isnan(worse(3.0, nan)) and math.isnan(worse(nan, None))
    )
    assert worse(None, 0.5) == worse(0.5, None) == worse(0.2, 0.5) == worse(0.5, 0.2) == 0.5
    assert worse(math.inf, 1.0) == math.inf and worse(None, None) is None
