# SPDX-License-Identifier: Apache-2.0
"""pip's way to a pack: `pip install --no-build-isolation .` in its folder (PEP 517)."""

from __future__ import annotations

from pathlib import Path

from opennpu import pack_build


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    return pack_build.build_wheel(Path.cwd(), Path(wheel_directory)).name


def get_requires_for_build_wheel(config_settings=None) -> list[str]:
    return []
