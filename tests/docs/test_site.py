# SPDX-License-Identifier: Apache-2.0
"""The site of `make docs`: it builds without a warning, its links lead somewhere, and it loads nothing from elsewhere."""

import logging
import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("material", reason="mkdocs-material is in requirements-dev.txt")
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]
CONFIGS = {"mkdocs.yml": "", "mkdocs.zh-CN.yml": "zh-CN"}


class Page(HTMLParser):
    """What a page links to and loads, and the places in it that a link can name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.loads, self.places, self.paragraphs = [], [], set(), []
        self.tags = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.places |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get("src") or (tag == "link" and given.get("href")):
            self.loads.append(given.get("src") or given["href"])
        if tag == "p":
            self.paragraphs.append("")
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if tag in self.tags:
            while self.tags.pop() != tag:
                pass

    def handle_data(self, data):
        if "p" in self.tags and "code" not in self.tags:
            self.paragraphs[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of both sites, and what building them warned about."""
    folder, said = tmp_path_factory.mktemp("site"), []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("mkdocs").addHandler(handler)
    try:
        for name, place in CONFIGS.items():
            config = load_config(str(ROOT / name), site_dir=str(folder / place))
            config.plugins.on_startup(command="build", dirty=False)
            build(config)
    finally:
        logging.getLogger("mkdocs").removeHandler(handler)
    return folder, said


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site[0].rglob("*.html") if path.name != "404.html"}


def test_it_builds_without_a_warning(site):
    assert site[1] == []


def test_every_page_is_there_in_both_languages(site, pages):
    names = {path.relative_to(site[0]).as_posix() for path in pages}
    english = {name for name in names if not name.startswith("zh-CN/")}
    written = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    assert written | {"index.html"} <= english
    assert {f"zh-CN/{name}" for name in english} == names - english


def test_links_lead_to_pages_and_places(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path.parent / unquote(parts.path) if parts.path else path
            target = Path(posixpath.normpath(target))
            target = target / "index.html" if target.is_dir() else target
            place = unquote(parts.fragment)
            if not target.exists():
                broken.append(f"{path.relative_to(site[0])} -> {link}")
            elif place and target in pages and place not in pages[target].places:
                broken.append(f"{path.relative_to(site[0])} -> {link}: no such heading")
    assert not broken, "\n".join(sorted(set(broken)))


@pytest.mark.parametrize("place, title", [("", "Ascend's operators"), ("zh-CN/", "昇腾算子")])
def test_long_tables_are_filled_in(site, pages, place, title):
    """They are made from the rows of ops/, and a link without a text of its own has the page's title."""
    names = re.compile(r"- func: '(?:\w+::)?(\w+)[.(]")
    listed = {
        name
        for path in (ROOT / "ops/npu").glob("*.yaml")
        for name in names.findall(path.read_text())
    }
    assert len(listed) > 400
    text = (site[0] / place / "npu-operators.html").read_text()
    assert not [name for name in listed if f"<code>{name}</code>" not in text]
    assert "<code>histc</code>" in (site[0] / place / "accelerator-dtypes.html").read_text()
    assert f'<a href="npu-operators.html">{title}</a>' in (site[0] / place / "api.html").read_text()


def test_nothing_is_loaded_from_elsewhere(pages):
    for page in pages.values():
        assert page.loads and not [load for load in page.loads if urlsplit(load).netloc]


def test_markdown_is_not_left_in_the_text(site, pages):
    """Lists, tables, fences and links that MkDocs did not understand stay as text."""
    signs = ("\n- ", "\n| ", "```", "](", "=== ")
    left = [
        f"{path.relative_to(site[0])}: {text.strip()[:120]!r}"
        for path, page in pages.items()
        for text in page.paragraphs
        if any(sign in text for sign in signs) or re.search(r"(?m)^([-|]|[2-9]\.) ", text)
    ]
    assert not left, "\n".join(left)
