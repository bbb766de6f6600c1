# SPDX-License-Identifier: Apache-2.0
"""Names of anonymous namespaces are unique within a folder, or the folders that src/*/CMakeLists.txt joins: make build
compiles them as one file (cmake/unity.cmake)."""

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "optools/src",
    "src/aten",
    "src/compose",
    "src/dist",
    "src/driver",
    "src/graph",
    "src/profiler",
    "src/python",
    "src/runtime",
)
NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n\\]|\\.)*',
    re.S | re.M,
)
TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:struct|class|enum class|enum|union)\s+(\w+)", re.S)
FUNCTION = re.compile(r"(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*(?:const|noexcept|->.*)?\s*$", re.S)
VARIABLE = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\])*\s*(?:=.*)?$", re.S)


def declarations(text):
    """(name, what has to differ for two of that name to go together) of anonymous namespaces."""
    scopes, statement = [], ""
    for char in NOT_CODE.sub(lambda m: '""' if m[0][0] == '"' else " ", text):
        if char not in "{};":
            statement += char
            continue
        words, statement = " ".join(statement.split()), ""
        inside = "anonymous" in scopes and "code" not in scopes
        if char == "}":
            if scopes:
                scopes.pop()
            continue
        if char == "{":
            if re.fullmatch(r"(inline )?namespace( [\w:]+)?", words):
                scopes.append("anonymous" if words == "namespace" else "named")
                continue
            scopes.append("code")
        if inside and words:
            yield from declared(words)


def declared(words):
    if alias := re.match(r"(?:using|namespace) (\w+) =", words):
        yield alias[1], words  # said twice alike is allowed
    elif kind := TYPE.match(words):
        yield kind[1], None
    elif variable := re.match(r"[^()=]*?(\w+)\s*(?:\[[^\]]*\])*\s*=", words):
        yield variable[1], None
    elif (function := FUNCTION.search(words)) and not re.match(
        r"(if|for|while|TORCH_\w+)$", function[1]
    ):
        types = re.sub(r"\b(?:const|typename)\b|\w+\s*(?:=[^,]*)?(?=,|$)|\s", "", function[2])
        yield function[1], f"{types} {words.startswith('template')}"
    elif words.startswith(("using ", "TORCH_", "static_assert", "return")):
        pass
    elif found := VARIABLE.search(words):
        yield found[1], None


def joined():
    """{folder: the first one of those it is compiled with}"""
    found = {}
    for lists in ROOT.glob("src/*/CMakeLists.txt"):
        for call in re.findall(r"npu_unity\(\w+ JOIN([^)]*)\)", lists.read_text(encoding="utf-8")):
            for names in re.findall(r'"([^"]*)"', call):
                folders = [lists.parent / name for name in names.split()]
                found |= dict.fromkeys(folders, folders[0])
    return found


def complaints():
    folders = defaultdict(lambda: defaultdict(dict))
    unit_of = joined()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.cpp")):
            if path.stem.endswith("_test"):
                continue
            for name, apart in declarations(path.read_text(encoding="utf-8")):
                folders[unit_of.get(path.parent, path.parent)][name].setdefault(path, set()).add(
                    apart
                )
    for folder, names in folders.items():
        for name, files in names.items():
            seen = [apart for parts in files.values() for apart in parts]
            aliases = all(apart and apart.startswith(("using", "namespace")) for apart in seen)
            clash = len(set(seen)) > 1 if aliases else None in seen or len(seen) > len(set(seen))
            if len(files) > 1 and clash:
                where = ", ".join(path.name for path in files)
                yield f"{folder.relative_to(ROOT)}: '{name}' is in {where}: share it in a header, or rename one"


if __name__ == "__main__":
    found = list(complaints())
    print("\n".join(found) or "unity: names are unique in their units")
    sys.exit(1 if found else 0)
