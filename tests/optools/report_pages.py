# SPDX-License-Identifier: Apache-2.0
"""What tests of op-tools report and of reproducers share: captures to show, pages taken apart."""

import html.parser
import json
import os

import op_tools
import torch
from op_tools import _C
from op_tools.core.capture_format import head
from torch import nn

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & ' \" `"


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


def writer_capture(folder, count, op=lambda i: "aten::mm", text="", tensors=True):
    """A made-up capture."""
    os.makedirs(folder)
    writer = _C.CaptureWriter(folder, head(content="full", devices="cpu"))
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
