# SPDX-License-Identifier: Apache-2.0
"""Operator packs: found by their entry point, tried in a child process first, loaded whole or not at all.

A pack is a package with the file opennpu_pack.json that `opennpu pack build` made. A pack that has not been
seen before is read, loaded and registered in a child process, since a broken library can end the process that
loads it; the verdict is kept until one of the pack's files changes. A pack that is left out gives one warning,
with file and line where there is one, and everything built in goes on.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import torch

GROUP = "opennpu.packs"
MANIFEST = "opennpu_pack.json"
INTERFACE = 1
TRIAL_SECONDS = 120


@dataclasses.dataclass
class Pack:
    name: str
    folder: Path
    manifest: dict
    state: str = "found"  # loaded, or why it is left out

    @property
    def library(self) -> Path | None:
        file = self.manifest.get("library")
        return self.folder / file if file else None

    @property
    def yaml(self) -> Path:
        return self.folder / self.manifest.get("yaml", "ops.yaml")


ALL: list[Pack] = []
_kept: list = []  # torch.library's registrations


class Broken(Exception):
    """Why a pack is left out."""


def found() -> list[tuple[str, str, Path]]:
    """(name, module, folder) of every pack installed, in order of names.

    The folder is where the distribution was installed: a project of the same name in the working folder, which
    Python's path may begin with, is not it.
    """
    points = importlib.metadata.entry_points(group=GROUP)
    return sorted({(p.name, p.value, Path(p.dist.locate_file(p.value))) for p in points})


def read(name: str, module: str, folder: Path) -> Pack:
    if not (folder / "__init__.py").is_file():
        raise Broken(f"its package {folder} is not there. Install it again")
    file = folder / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(manifest, dict) or not isinstance(manifest.get("operators"), list):
            raise ValueError("no list of operators")
    except (OSError, ValueError) as error:
        line = getattr(error, "lineno", 1)
        raise Broken(
            f"{file}:{line}: cannot be read: {error}. Build it with opennpu pack build"
        ) from None
    manifest["module"] = module
    return Pack(name, folder, manifest)


def check_name(pack: Pack) -> None:
    twin = next((p for p in ALL if p.name == pack.name), None)
    if twin is not None:
        raise Broken(
            f"{pack.folder}: {twin.folder} is a pack of the same name. Uninstall one of them"
        )


def check_versions(pack: Pack) -> None:
    interface = pack.manifest.get("interface")
    if interface != INTERFACE:
        raise Broken(
            f"built for version {interface} of the pack interface, this opennpu has version {INTERFACE}. "
            "Build it again with opennpu pack build"
        )
    built = pack.manifest.get("torch")
    here = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    if pack.manifest.get("kind") == "cpp" and built != here:
        raise Broken(
            f"built for torch {built}, this is torch {torch.__version__}. "
            "Build it again with opennpu pack build"
        )


# ---- the trial -----------------------------------------------------------------------


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "opennpu" / "packs.json"


def _fingerprint(pack: Pack) -> str:
    """Of the files whose change asks for another trial; of torch and the plugin as well."""
    files = [pack.folder / MANIFEST, pack.yaml, *sorted(pack.folder.rglob("*.py"))]
    files += [pack.library] if pack.library else []
    files.append(Path(__file__).parent / "lib" / "libtorch_npu.so")
    marks = [torch.__version__, sys.version]
    for file in files:
        try:
            about = file.stat()
            marks.append(f"{file}:{about.st_size}:{about.st_mtime_ns}")
        except OSError:
            marks.append(f"{file}:none")
    return "|".join(marks)


def _verdicts() -> dict:
    try:
        read = json.loads(_cache().read_text(encoding="utf-8"))
        return read if isinstance(read, dict) else {}
    except (OSError, ValueError):
        return {}


def _remember(pack: Pack, mark: str, verdict: str) -> None:
    verdicts = {**_verdicts(), str(pack.folder): {"mark": mark, "verdict": verdict}}
    try:
        _cache().parent.mkdir(parents=True, exist_ok=True)
        scratch = _cache().with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(verdicts), encoding="utf-8")
        scratch.replace(_cache())
    except OSError:
        pass  # then it is tried again next time


def _try_in_child(pack: Pack) -> str:
    """Empty when a child process loaded it; else why not."""
    environment = {**os.environ, "NPU_PACKS": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    command = [
        sys.executable, "-m", "torch_npu._pack_trial", pack.name, pack.manifest["module"], str(pack.folder),
    ]  # fmt: skip
    try:
        # -m puts the working folder first on Python's path.
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TRIAL_SECONDS,
            cwd=pack.folder.parent,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"loading it took more than {TRIAL_SECONDS} s in a trial"
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return f"{pack.library or pack.folder}: loading it ended a trial process with {name}"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return lines[-1].removeprefix("left out: ") if lines else "a trial process failed"
    return ""


def tried(pack: Pack) -> None:
    mark = _fingerprint(pack)
    before = _verdicts().get(str(pack.folder), {})
    verdict = before.get("verdict") if before.get("mark") == mark else None
    if verdict is None:
        verdict = _try_in_child(pack)
        _remember(pack, mark, verdict)
    if verdict:
        raise Broken(verdict)


# ---- loading -------------------------------------------------------------------------


def load(pack: Pack) -> None:
    """Registers everything of a pack in this process."""
    from torch_npu import _C, _custom_ops

    kind = pack.manifest.get("kind")
    if kind == "cpp":
        try:
            _C._load_pack(str(pack.library))
        except ValueError as error:
            raise Broken(_with_folder(pack, str(error))) from None
    elif kind == "stable":
        _load_stable(pack)
    if pack.manifest.get("kernels"):
        _C._add_pack_file(str(pack.library))
    registration = None
    if kind == "python":
        from torch_npu._python_packs import Registration

        registration = Registration(pack)
        _kept.append(registration)
    try:
        module = _import(pack)
        if registration is not None:
            registration.implement(importlib.import_module(f"{module.__name__}.functions"))
    except Broken:
        raise
    except Exception as error:
        if registration is not None:
            registration.undo()
        raise Broken(f"{_place(error, pack)}: {type(error).__name__}: {error}") from None
    _custom_ops.add_methods(pack.manifest.get("methods", ()))


def _import(pack: Pack):
    """The package as it was installed, also where Python's path leads to another of its name first."""
    name = pack.manifest["module"]
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, pack.folder / "__init__.py", submodule_search_locations=[str(pack.folder)]
        )
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _load_stable(pack: Pack) -> None:
    import ctypes

    library = ctypes.CDLL(str(pack.library))
    add = library.npu_stable_pack_add
    add.restype = ctypes.c_char_p
    why = add()
    if why:
        raise Broken(_with_folder(pack, why.decode(errors="replace")))


def _with_folder(pack: Pack, text: str) -> str:
    """Lines of the YAML are named without their folder in the library."""
    name = pack.yaml.name
    return text.replace(f" {name}:", f" {pack.yaml}:") if f" {name}:" in text else text


def _place(error: BaseException, pack: Pack) -> str:
    """file:line of the pack's own code that raised."""
    trace, place = error.__traceback__, str(pack.folder)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(str(pack.folder)):
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
    return place


def switched_off() -> bool:
    return os.environ.get("NPU_PACKS") == "0"


def overloads() -> set[str]:
    """The operators that loaded packs compute, those of PyTorch that they replace included."""
    packs = (pack for pack in ALL if pack.state == "loaded")
    return {row["overload"] for pack in packs for row in pack.manifest["operators"]}


def onnx_translations() -> dict:
    """What packs give the Dynamo exporter: {overload: function}, of TRANSLATIONS in each pack's onnx.py.

    Imported here, at the first export, since onnxscript may not be installed.
    """
    found = {}
    for pack in ALL:
        if pack.state != "loaded" or not (pack.folder / "onnx.py").is_file():
            continue
        module = importlib.import_module(f"{pack.manifest['module']}.onnx")
        for name, translate in getattr(module, "TRANSLATIONS", {}).items():
            namespace, _, rest = name.partition("::")
            bare, _, overload = rest.partition(".")
            try:
                target = getattr(
                    getattr(getattr(torch.ops, namespace), bare), overload or "default"
                )
            except AttributeError:
                raise ValueError(
                    f"{module.__file__}: TRANSLATIONS: {name!r} is no operator. Write it as ops.yaml does, "
                    "such as my_ops::scaled_add or my_ops::scaled_add.out"
                ) from None
            found[target] = translate
    return found


def why_none() -> str:
    """Why ALL is empty."""
    if switched_off():
        return "NPU_PACKS=0: no pack is loaded. Unset it"
    return "no operator pack is installed in this environment"


def load_all() -> None:
    """Called once, when torch_npu is imported."""
    from torch_npu import _C

    _C._set_definer(lambda name: getattr(torch.ops.npu, name, None))
    if switched_off():
        return
    for name, module, folder in found():
        pack = Pack(name, folder, {"operators": []})
        try:
            check_name(pack)
            pack = read(name, module, folder)
            check_versions(pack)
            tried(pack)
            load(pack)
            pack.state = "loaded"
        except Broken as why:
            pack.state = str(why)
            text = f"npu: operator pack '{name}' is left out: {why}."
            warnings.warn_explicit(text, UserWarning, "torch_npu", 0)  # one line, no source
        ALL.append(pack)
