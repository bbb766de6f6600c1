# SPDX-License-Identifier: Apache-2.0
"""The generator, called in this process: YAML text in, a pack or the problems out."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))

from aten_torch import load_torch, packaged_yaml  # noqa: E402
from aten_yaml import load_pack  # noqa: E402
from kinds_model import load_kinds  # noqa: E402
from yaml_reader import YamlError  # noqa: E402

HEAD = "backend: NPU\ncpp_namespace: at_npu::native\n"


@pytest.fixture(scope="session")
def torch_ops():
    return load_torch(packaged_yaml())


@pytest.fixture(scope="session")
def kinds():
    return load_kinds(ROOT / "ops/kinds.yaml")


@pytest.fixture
def load(tmp_path, torch_ops, kinds):
    """load(text, …): one file for each text, with the two lines that every file begins with."""

    def run(*texts: str, head: str = HEAD):
        files = []
        for number, text in enumerate(texts):
            files.append(tmp_path / f"pack{number}.yaml")
            files[-1].write_text(head + text, encoding="utf-8")
        return load_pack(files, torch_ops, kinds)

    return run


@pytest.fixture
def refused(load, tmp_path):
    """The problems of such files, as 'pack0.yaml:3: …', one a line."""

    def run(*texts: str, head: str = HEAD) -> list[str]:
        with pytest.raises(YamlError) as caught:
            load(*texts, head=head)
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return run
