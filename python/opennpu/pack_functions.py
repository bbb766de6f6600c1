# SPDX-License-Identifier: Apache-2.0
"""Which functions of a pack's YAML no source of the project has: found without compiling or importing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

CPP = (".cpp", ".cc", ".cxx", ".cu", ".h", ".hpp")
NOT_SOURCES = ("build", "dist", ".git", ".venv")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def missing(project, rows: list[dict]) -> list[str]:
    """A line for each operator without a function: file:line, operator, the missing function and its file."""
    if project.kind == "python":
        return list(_missing_python(project, rows))
    return list(_missing_cpp(project, rows))


def _missing_python(project, rows: list[dict]) -> Iterator[str]:
    file = project.folder / project.name / "functions.py"
    place = f"{project.name}/functions.py"
    if not file.is_file():
        yield f"{place}: this file is not there; it holds the functions that {project.yaml.name} lists"
        return
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        yield f"{place}:{getattr(error, 'lineno', 1)}: {error}"
        return
    names = _names(tree)
    if names is None:
        return  # `from x import *`: not known before it runs
    for row in rows:
        if row["function"] not in names:
            yield (
                f"{project.yaml.name}:{row['line']}: {row['overload']}: no function "
                f"'{row['function']}' in {place}"
            )


def _names(tree: ast.Module) -> set[str] | None:
    """The names a module defines at its top, also inside if, try and with; None if unknown."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if alias.name == "*":
                    return None
                found.add((alias.asname or alias.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def _missing_cpp(project, rows: list[dict]) -> Iterator[str]:
    text = _COMMENT.sub(" ", "\n".join(_sources(project.folder)))
    if re.search(r"#\s*define[^\n]*(\\\n[^\n]*)*##", text):
        return  # names that macros put together are not known before they are compiled
    for row in rows:
        name = row["function"]
        if project.kind == "stable":
            bare = row["overload"].partition("::")[2]
            there = re.search(rf'\bimplement\s*\([^;]*"{re.escape(bare)}"', text)
            said = f'no pack.implement("…", "{bare}", …)'
        else:
            there = re.search(rf"\bNPUNativeFunctions::\s*{re.escape(name)}\s*\(", text)
            said = f"no function NPUNativeFunctions::{name}"
        if there is None:
            yield f"{project.yaml.name}:{row['line']}: {row['overload']}: {said} in the sources"


def _sources(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.suffix in CPP and not set(inside[:-1]) & set(NOT_SOURCES) and path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")
