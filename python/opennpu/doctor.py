# SPDX-License-Identifier: Apache-2.0
"""`opennpu doctor`: is this installation whole, and if not, what to do."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

VARIABLES = (
    "NPU_", "ASCEND_", "TORCH_NPU_", "PYTORCH_NPU_", "SLOG_", "TORCH_DEVICE_BACKEND_AUTOLOAD",
)  # fmt: skip


# Variables of other libraries: Transformers, Ascend's fault detection.
OF_LIBRARIES = ("NPU_FA2_SPARSE_MODE", "NPU_ASD_ENABLE", "NPU_ASD_CONFIG")


class Finding(Exception):
    """Something is wrong: what, and what to do."""

    def __init__(self, what: str, do: str) -> None:
        super().__init__(what)
        self.do = do


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same as one JSON object")
    parser.set_defaults(run=run)


def check_torch() -> str:
    try:
        import torch
    except ImportError as error:
        raise Finding(f"PyTorch does not import: {error}", "pip install torch==2.13.0") from error
    return f"{torch.__version__} ({'GPU build' if torch.version.cuda else 'CPU build'})"


def check_plugin() -> str:
    try:
        import torch_npu
    except ImportError as error:
        raise Finding(str(error), "reinstall opennpu for this torch: make build") from error
    return f"torch_npu {torch_npu.__version__} at {os.path.dirname(torch_npu.__file__)}"


def check_autoload() -> str:
    import torch

    if torch.version.cuda or torch.version.hip:
        return "off: in a GPU build of torch the plugin loads on `import torch_npu` only"
    names = [e.value for e in metadata.entry_points(group="torch.backends")]
    if not any(name.startswith("torch_npu:") for name in names):
        raise Finding("no entry point torch.backends -> torch_npu", "pip install the opennpu wheel")
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        return "off by TORCH_DEVICE_BACKEND_AUTOLOAD"
    code = "import torch; print(hasattr(torch, 'npu'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.stdout.strip() != "True":
        raise Finding(
            "`import torch` alone gives no torch.npu", f"see: {done.stderr.strip()[-300:]}"
        )
    return "`import torch` alone gives torch.npu"


def check_driver() -> str:
    import torch_npu

    info = torch_npu._C._driver_info()
    if info.get("failure"):
        wrong_value = "Allowed:" in info["failure"]  # of one of the driver's variables
        advice = "give the variable one of the allowed values, or unset it"
        raise Finding(
            info["failure"],
            advice if wrong_value else "set NPU_DRIVER=host, or repair the driver that it names",
        )
    chosen = f"auto: {info['reason']}" if info["reason"] else "named by NPU_DRIVER"
    return (
        f"{info['name']} {info['version']} by {info['vendor']}, contract {info['abi']}, "
        f"{info['path']} ({chosen})"
    )


def check_devices() -> str:
    import torch
    import torch_npu

    count = torch.npu.device_count()
    if count == 0:
        raise _no_device(torch_npu._C._driver_info()["name"])
    rows = []
    for i in range(count):
        free, total = torch.npu.mem_get_info(i)
        name = torch.npu.get_device_name(i)
        rows.append(f"npu:{i} {name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    return "; ".join(rows)


def _no_device(driver: str) -> Finding:
    visible = os.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    if visible is not None:
        return Finding(
            f"ASCEND_RT_VISIBLE_DEVICES={visible!r} leaves none of driver {driver}'s devices",
            "unset it, or name devices that exist, such as 0",
        )
    if _in_container():
        return Finding(
            f"driver {driver} finds no device, and this is a container",
            "start the container with the device's files (docker run --device=/dev/NAME ...) and the "
            "driver's folders, or set NPU_DRIVER=host",
        )
    return Finding(f"driver {driver} finds no device", "set NPU_DRIVER=host, or check the hardware")


def _in_container() -> bool:
    marks = ("/.dockerenv", "/run/.containerenv")
    if any(os.path.exists(mark) for mark in marks):
        return True
    try:
        groups = Path("/proc/1/cgroup").read_text(encoding="utf-8")
    except OSError:
        return False
    return any(word in groups for word in ("docker", "kubepods", "containerd", "lxc"))


def check_profile() -> str:
    import torch_npu

    return torch_npu._C._profile_info()


def check_halves() -> str:
    import torch_npu

    return "; ".join(
        f"{dtype} multiplied {'in float32' if wide else 'as it is'} ({why})"
        for dtype, (wide, why) in torch_npu._C._half_products().items()
    )


def check_variables() -> str:
    found = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(VARIABLES)]
    return ", ".join(found) or "none set"


def known_variables() -> list[str]:
    """From the page that is made from the plugin's table, which is installed with it."""
    import torch_npu

    page = Path(torch_npu.__file__).parent / "data" / "environment.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    return re.findall(r"^\| `(\w+)`", text, re.MULTILINE)


def unknown_variables() -> list[str]:
    """A line for each unknown NPU_ variable, with the nearest known name."""
    known = known_variables()
    if not known:
        return ["the list of known ones is not installed: make build"]
    lines = []
    for name in sorted(os.environ):
        if not name.startswith("NPU_") or name in known or name in OF_LIBRARIES:
            continue
        near = difflib.get_close_matches(name, known, 1)
        lines.append(
            f"{name} is not a variable of this package"
            + (f"; did you mean {near[0]}?" if near else "; docs/environment.md lists them")
        )
    return lines


def check_operator() -> str:
    import torch

    x = torch.arange(6.0, device="npu").reshape(2, 3)
    if not torch.equal((x @ x.T).cpu(), x.cpu() @ x.cpu().T):
        raise Finding("a 2x3 matmul on npu:0 differs from the CPU's", "please report this")
    w = torch.ones(3, device="npu", requires_grad=True)
    (x * w).sum().backward()
    if w.grad.tolist() != [3.0, 5.0, 7.0]:
        raise Finding("a gradient on npu:0 is wrong", "please report this")
    return "matmul and a backward on npu:0 agree with the CPU"


def checks() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "torch", check_torch
    yield "plugin", check_plugin
    yield "autoload", check_autoload
    yield "driver", check_driver
    yield "devices", check_devices
    yield "profile", check_profile
    yield "halves", check_halves
    yield "variables", check_variables
    yield "operator", check_operator


def examine() -> Iterator[dict]:
    """What each check found, until one fails."""
    for name, check in checks():
        try:
            yield {"name": name, "ok": True, "text": check()}
            if name == "variables":
                for line in unknown_variables():
                    yield {"name": name, "ok": True, "warning": True, "text": line}
        except Finding as finding:
            yield {"name": name, "ok": False, "text": str(finding), "do": finding.do}
            return
        except Exception as error:
            yield {
                "name": name,
                "ok": False,
                "text": f"{type(error).__name__}: {error}",
                "do": "the message above says what is wrong; README.md lists the set-up",
            }
            return


def run(options: argparse.Namespace) -> int:
    found = []
    for row in examine():
        found.append(row)
        if not options.json:
            show(row)
    whole = all(row["ok"] for row in found)
    if options.json:
        print(json.dumps({"ok": whole, "checks": found}, indent=2))
    elif whole:
        print("OK")
    return 0 if whole else 1


def show(row: dict) -> None:
    mark = "" if row["ok"] else "FAILED: "
    mark = "WARNING: " if row.get("warning") else mark
    print(f"{row['name']:10} {mark}{row['text']}")
    if "do" in row:
        print(f"           do: {row['do']}")
