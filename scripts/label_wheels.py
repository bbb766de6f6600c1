# SPDX-License-Identifier: Apache-2.0
"""label_wheels.py FOLDER...: names the PyTorch that the wheels of a folder were built with.

Compiled code fits one minor version of PyTorch. Wheels of opennpu and opennpu-tools get it in their version
(0.1.0+torch2.15) and require it, so that wheels for several lie side by side and pip takes the one that fits. The
metadata of torch_npu gets it as its own version (2.15.0+opennpu). Needs the PyTorch that built them.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path


def labelled(metadata: str, name: str, torch_version: str) -> str:
    """A wheel's METADATA with the version and the requirement of this PyTorch."""
    base = torch_version.split("+")[0]
    major, minor = base.split(".")[:2]
    head, mark, body = metadata.partition("\n\n")
    if name == "torch_npu":
        head = re.sub(r"(?m)^Version: .*$", f"Version: {base}+opennpu", head)
    else:
        head = re.sub(r"(?m)^(Version: [^+\n]+).*$", rf"\1+torch{major}.{minor}", head)
        needed = f"Requires-Dist: torch>={major}.{minor},<{major}.{int(minor) + 1}"
        head = re.sub(r"(?m)^Requires-Dist: torch\b.*$", needed, head)
    return head + mark + body


def label(wheel: Path, torch_version: str) -> None:
    name = wheel.name.partition("-")[0]
    with tempfile.TemporaryDirectory() as place:
        tool = [sys.executable, "-m", "wheel"]
        subprocess.run([*tool, "unpack", "-d", place, wheel], check=True, stdout=subprocess.DEVNULL)
        [root] = Path(place).iterdir()
        [info] = root.glob("*.dist-info")
        text = (info / "METADATA").read_text(encoding="utf-8")
        text = labelled(text, name, torch_version)
        (info / "METADATA").write_text(text, encoding="utf-8")
        version = re.search(r"(?m)^Version: (.*)$", text)[1]
        info.rename(root / f"{name}-{version}.dist-info")
        wheel.unlink()
        subprocess.run(
            [*tool, "pack", "-d", wheel.parent, root], check=True, stdout=subprocess.DEVNULL
        )


def main(folders: list[str]) -> None:
    from importlib.metadata import version

    for folder in map(Path, folders):
        for name in ("opennpu", "opennpu_tools", "torch_npu"):
            for wheel in folder.glob(f"{name}-*.whl"):
                label(wheel, version("torch"))


if __name__ == "__main__":
    main(sys.argv[1:])
