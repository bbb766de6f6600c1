# SPDX-License-Identifier: Apache-2.0
"""The HTML file: a page, a style sheet, a script and the data, put together.

Nothing out of a capture becomes markup. The data is JSON in a block that is not run, with every
`<`, `>` and `&` in it spelled as an escape; the script makes texts of it, never elements. The
page's own policy forbids it to load or run anything else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from urllib.parse import quote

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = (
    "words.js", "data.js", "charts.js", "timeline.js", "table.js", "modules.js", "lists.js", "detail.js",
    "conclusion.js", "main.js",
)  # fmt: skip


def _read(name: str) -> str:
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def as_json(data: object) -> str:
    """JSON that may stand in a script element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def link(path: str) -> str:
    """A relative path as an address: nothing in it can be taken for a scheme or a host."""
    return "./" + quote(path.replace(os.sep, "/").encode("utf-8", "surrogateescape"))


def _source(text: str) -> str:
    """The policy's word for exactly this script or style sheet."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def render(data: dict) -> str:
    """The whole file."""
    style = _read("page.css")
    script = '"use strict";\n' + "\n".join(_read(name) for name in SCRIPTS)
    shown = {**data, "links": {n: link(path) for n, path in data["links"].items()}}
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _read("page.html")
    # In one pass over the page's own text: what is put in is not looked at again.
    parts = {"@policy@": policy, "@style@": style, "@data@": as_json(shown), "@script@": script}
    out = []
    for mark, text in parts.items():
        before, found, page = page.partition(mark)
        assert found, mark
        out += [before, text]
    return "".join([*out, page])
