# SPDX-License-Identifier: Apache-2.0
"""op-tools report in a browser: it opens, sorts, filters, and runs nothing of a capture."""

import os
import re
import shutil
import subprocess

import pytest
from op_tools.cli import main
from op_tools.core import results
from optools_helpers import output
from report_pages import NASTY, Page, column, read, writer_capture

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.usefixtures("on_cpu")


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
