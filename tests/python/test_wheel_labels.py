# SPDX-License-Identifier: Apache-2.0
"""Wheels for several PyTorch versions lie side by side; pip takes the one that fits."""

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "label_wheels.py"
TORCH = importlib.metadata.version("torch").split("+")[0]
SERIES = TORCH.rpartition(".")[0]


def write_wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    files = {
        f"{name}.py": "torch = 1\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\nVersion: of the text\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    root = folder / "unpacked"
    (root / info).mkdir(parents=True)
    for path, text in files.items():
        (root / path).write_text(text)
    subprocess.run([sys.executable, "-m", "wheel", "pack", "-d", folder, root], check=True)


@pytest.mark.parametrize(
    ("name", "version", "requirement"),
    [
        ("opennpu", f"0.1.0+torch{SERIES}", f"torch>={SERIES},<2.{int(SERIES.split('.')[1]) + 1}"),
        ("opennpu_tools", f"0.1.0+torch{SERIES}", None),
        ("torch_npu", f"{TORCH}+opennpu", None),
    ],
)
def test_wheels_name_the_torch_they_were_built_with(tmp_path, name, version, requirement):
    write_wheel(tmp_path, name, "0.1.0", "torch>=2.11,<2.16", "torchmetrics>=1")
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True)
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True)  # a second time changes nothing
    [made] = tmp_path.glob("*.whl")
    assert made.name == f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made) as wheel:
        metadata = wheel.read(f"{name}-{version}.dist-info/METADATA").decode()
        assert wheel.read(f"{name}.py") == b"torch = 1\n"
    assert f"\nVersion: {version}\n" in metadata and "\nVersion: of the text\n" in metadata
    assert "Requires-Dist: torchmetrics>=1\n" in metadata
    if requirement:
        assert f"Requires-Dist: {requirement}\n" in metadata
    # Whose record of its files is right.
    subprocess.run([sys.executable, "-m", "wheel", "unpack", "-d", tmp_path, made], check=True)
