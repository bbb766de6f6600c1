# SPDX-License-Identifier: Apache-2.0
"""Puts the cuda driver into a wheel of its own, opennpu-cuda, which installs it beside the other drivers. Works offline.

python scripts/cuda_wheel.py build/core/drivers/libnpu_cuda.so dist
"""

import base64
import hashlib
import platform
import re
import sys
import zipfile
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent


def digest(content: bytes) -> str:
    made = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return "sha256=" + made.rstrip(b"=").decode()


def tag_of(library: bytes) -> str:
    """Where it loads: the newest glibc whose names it asks for, and the machine it was compiled on."""
    asked = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library)]
    return f"py3-none-manylinux_2_{max(asked, default=17)}_{platform.machine()}"


def build(library: Path, folder: Path) -> Path:
    """The wheel's path."""
    if not library.is_file():
        sys.exit(f"{library} is not there: make cuda compiles it")
    tag = tag_of(library.read_bytes())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    info = f"opennpu_cuda-{version}.dist-info"
    files = {
        "torch_npu/drivers/libnpu_cuda.so": library.read_bytes(),
        f"{info}/METADATA": (
            "Metadata-Version: 2.1\n"
            "Name: opennpu-cuda\n"
            f"Version: {version}\n"
            "Summary: NVIDIA GPUs as npu devices: the cuda driver of OpenNPU\n"
            "License: Apache-2.0\n"
            f"Requires-Python: {project['requires-python']}\n"
            f"Requires-Dist: opennpu=={version}\n"
        ).encode(),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: opennpu\nRoot-Is-Purelib: false\nTag: {tag}\n"
        ).encode(),
        f"{info}/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    rows = [f"{name},{digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"opennpu_cuda-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in files.items():
            # The same files give the same wheel.
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            out.writestr(entry, content)
    return wheel


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(build(Path(sys.argv[1]), Path(sys.argv[2])))
