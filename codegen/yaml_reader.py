# SPDX-License-Identifier: Apache-2.0
"""YAML read node by node, so that every complaint knows its file and line."""

from __future__ import annotations

import difflib
from pathlib import Path

import yaml


class YamlError(Exception):
    """All that is wrong with a file, one problem a line."""


def near(word: str, allowed) -> str:
    close = difflib.get_close_matches(word, list(allowed), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class Reader:
    """Walks the YAML nodes and collects what is wrong with them in `problems`."""

    def __init__(self, path: Path):
        self.path = path
        self.text_of_file = ""
        self.problems: list[str] = []

    def compose(self, expected: str):
        """The root node; raises YamlError when there is none."""
        try:
            self.text_of_file = self.path.read_text(encoding="utf-8")
            root = yaml.compose(self.text_of_file, Loader=yaml.SafeLoader)
        except OSError as error:
            raise YamlError(f"{self.path}: cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise YamlError(
                f"{self.path}:1: not UTF-8 text (byte {error.start}): {error.reason}."
            ) from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark else 1
            raise YamlError(
                f"{self.path}:{line}: not YAML: {getattr(error, 'problem', error)}."
            ) from None
        if root is None:
            raise YamlError(f"{self.path}:1: the file is empty. Expected keys: {expected}.")
        return root

    def line(self, node) -> int:
        return node.start_mark.line + 1

    def problem(self, node, text: str) -> None:
        self.problem_at(self.line(node), text)

    def problem_at(self, line: int, text: str) -> None:
        self.problems.append(f"{self.path}:{line}: {text}")

    def mapping(self, node, what: str) -> dict:
        if not isinstance(node, yaml.MappingNode):
            self.problem(node, f"{what}: expected a mapping 'name: value'.")
            return {}
        result = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.problem(key, f"{what}: a key must be a plain word.")
                continue
            if key.value in result:
                self.problem(key, f"{what}: key '{key.value}' is there twice. Keep one.")
                continue
            result[key.value] = (key, value)
        return result

    def known_keys(self, fields: dict, what: str, allowed) -> None:
        """Complains about each key that is not one of `allowed`."""
        for key, _ in fields.values():
            if key.value not in allowed:
                self.problem(
                    key,
                    f"{what}key '{key.value}' is not known. Allowed: {', '.join(allowed)}"
                    f"{near(key.value, allowed)}.",
                )

    def text(self, node, what: str) -> str:
        if isinstance(node, yaml.ScalarNode):
            return node.value
        self.problem(node, f"{what}: expected plain text.")
        return ""

    def sequence(self, node, what: str) -> list:
        if isinstance(node, yaml.SequenceNode):
            return node.value
        self.problem(node, f"{what}: expected a list [a, b].")
        return []

    def choice(self, node, what: str, allowed) -> str:
        value = self.text(node, what)
        if value not in allowed:
            self.problem(
                node,
                f"{what}: '{value}' is not known. Allowed: {', '.join(allowed)}"
                f"{near(value, allowed)}.",
            )
            return next(iter(allowed))
        return value
