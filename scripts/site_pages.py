# SPDX-License-Identifier: Apache-2.0
"""Makes MkDocs read the pages of docs/ as GitHub shows them (a hook of mkdocs.yml).

The home page is the README. A page without a Chinese version is shown in English on the Chinese site. Links that leave
docs/ lead to a copy of the file in the site, under tree/. A long table is made here: `<!-- table: NAME -->` stands for
what `table(language)` of scripts/NAME.py returns.
"""

from __future__ import annotations

import importlib
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(```+)(\w+) (\S+)$")
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s#:]+)(#[^)\s]*)?\)")
OTHER_LANGUAGE = re.compile(r" ?\[(?:中文|中文说明|English)\]\([^)]+\)")
TABLE = re.compile(r"^<!-- table: (\w+) -->$", re.M)
TAB = re.compile(r"^<!-- tab: (.*) -->$")
NOT_TRANSLATED = "!!! note\n    本页还没有中文版，以下是英文原文。\n\n"


def is_chinese(config) -> bool:
    return config.theme["language"] == "zh"


def _in_site(path: str) -> str:
    """The name in the site of a file of the repository."""
    if path in ("README.md", "README.zh-CN.md"):
        return "index.md"
    for folder in ("docs/zh-CN/", "docs/"):
        if path.startswith(folder):
            return path.removeprefix(folder)
    return f"tree/{path}"


def _on_disk(name: str, chinese: bool) -> str:
    """The file of the repository that a page of the site is made from."""
    if name == "index.md":
        return "README.zh-CN.md" if chinese else "README.md"
    if name.startswith("tree/"):
        return name.removeprefix("tree/")
    translated = f"docs/zh-CN/{name}"
    return translated if chinese and (ROOT / translated).exists() else f"docs/{name}"


def _targets(path: str) -> set[str]:
    """Files of the repository that a page links to."""
    text = OTHER_LANGUAGE.sub("", (ROOT / path).read_text(encoding="utf-8"))
    found = (
        posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        for _, target, _ in LINK.findall(text)
    )
    return {target for target in found if (ROOT / target).is_file()}


def on_files(files: Files, config) -> Files:
    chinese = is_chinese(config)
    names = {name.name for name in (ROOT / "docs").glob("*.md")} | {"index.md", "pictures/site.css"}
    names |= {"tree/CONTRIBUTING.md", "tree/CHANGELOG.md"}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name.endswith(".md"):
            new = {_in_site(target) for target in _targets(_on_disk(name, chinese))} - names
            names |= new
            waiting += new
    kept = [file for file in files if file.src_dir != config.docs_dir]
    made = [
        File.generated(config, name, abs_src_path=str(ROOT / _on_disk(name, chinese)))
        for name in sorted(names)
    ]
    return Files([*kept, *made])


def _tables(text: str, chinese: bool) -> str:
    sys.path.append(str(ROOT / "scripts"))
    try:
        return TABLE.sub(
            lambda m: importlib.import_module(m[1]).table("zh" if chinese else "en"), text
        )
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def _title(path: str) -> str:
    """The first heading of a page: what its links are called in place of a file's name."""
    text = (ROOT / path).read_text(encoding="utf-8")
    heading = re.search(r"^# (.+)$", text, re.M)
    return heading[1].replace("`", "") if heading else posixpath.basename(path)


def _links(text: str, path: str, name: str, chinese: bool) -> str:
    """Links between files of the repository as links between pages; a folder is no page."""
    untranslated = chinese and "zh-CN" not in path

    def page(match: re.Match) -> str:
        label, target, anchor = match.groups()
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if (ROOT / found).is_dir():
            return label[1:-1]
        if not (ROOT / found).exists():
            return match[0]
        if untranslated and (ROOT / "docs/zh-CN" / _in_site(found)).exists():
            anchor = ""  # its headings are Chinese there
        if label.endswith(".md]"):
            label = f"[{_title(_on_disk(_in_site(found), chinese))}]"
        return f"{label}({posixpath.relpath(_in_site(found), posixpath.dirname(name) or '.')}{anchor or ''})"

    return LINK.sub(page, text)


def _blocks(text: str) -> str:
    """Names of files over fences, tabs, and the indentation and blank lines that lists and tables need."""
    lines: list[str] = []
    fence, shift, tab = "", 0, ""
    for line in text.splitlines():
        if fence:
            lines.append(" " * shift + line)
            if line.strip() == fence:
                fence = ""
                lines.append("")
            continue
        if found := TAB.match(line):
            tab = found[1]
            continue
        in_list = re.match(r" {2,3}(?=\S)", line)
        shift = 4 - len(in_list[0]) if in_list else 0
        if opened := re.match(r" *(```+)", line):
            fence = opened[1]
            if tab:
                lines += [f'=== "{tab}"', ""]
                shift, tab = 4, ""
            line = FENCE.sub(r'\1\2 title="\3"', line)
        elif lines and lines[-1] and _begins(line, lines[-1]):
            lines.append("")
        lines.append(" " * shift + line)
    return "\n".join(lines) + "\n"


def _begins(line: str, before: str) -> bool:
    """Whether a line begins a list or a table; neither may follow text without a blank line."""
    item = r"([-*]|\d+\.) "
    begins_list = re.match(item, line) and not re.match(item + "|  ", before)
    return bool(begins_list) or (line.startswith("|") and not before.startswith("|"))


def _join_chinese(text: str) -> str:
    """A line break between two Chinese characters would show as a space."""
    parts = re.split(r"(?m)(^ *```.*?^ *```$)", text, flags=re.S)
    wide = "[\u3000-\u9fff\uff00-\uffef]"
    parts[::2] = [re.sub(rf"(?<={wide})\n *(?={wide})", "", part) for part in parts[::2]]
    return "".join(parts)


def on_page_markdown(markdown: str, page, config, files) -> str:
    name = page.file.src_uri
    path = _on_disk(name, is_chinese(config))
    text = _links(OTHER_LANGUAGE.sub("", markdown), path, name, is_chinese(config))
    text = _blocks(_tables(text, is_chinese(config)))
    if is_chinese(config) and not re.search("[\u4e00-\u9fff]", text[:500]):
        text = NOT_TRANSLATED + text
    return _join_chinese(text)


def on_page_context(context, page, config, nav):
    """The header's link to the same page in the other language (site_theme/partials/alternate.html)."""
    up = "../" * page.url.count("/")
    if is_chinese(config):
        context["other_language"] = {"name": "English", "code": "en", "link": f"{up}../{page.url}"}
    else:
        context["other_language"] = {"name": "中文", "code": "zh", "link": f"{up}zh-CN/{page.url}"}
    return context
