# SPDX-License-Identifier: Apache-2.0
"""A pack's first load, in a process that may end by it: python -m torch_npu._pack_trial NAME MODULE FOLDER."""

import sys
from pathlib import Path


def main() -> int:
    import torch_npu  # noqa: F401  (NPU_PACKS=0: no packs)
    from torch_npu import _packs

    try:
        name, module, folder = sys.argv[1:4]
        pack = _packs.read(name, module, Path(folder))
        check_yaml(pack)
        _packs.load(pack)
    except _packs.Broken as why:
        print(f"left out: {why}", file=sys.stderr)
        return 1
    return 0


def check_yaml(pack) -> None:
    """The API information is read again: it may have been edited since the pack was built."""
    from opennpu import pack_yaml

    from torch_npu import _packs

    try:
        listed = pack_yaml.operators(pack.yaml)
    except pack_yaml.YamlError as error:
        raise _packs.Broken(str(error).splitlines()[0].rstrip(".")) from None
    built = [row["overload"] for row in pack.manifest["operators"]]
    missing = [row for row in listed if row["overload"] not in built]
    if missing:
        raise _packs.Broken(
            f"{pack.yaml}:{missing[0]['line']}: {missing[0]['overload']} was added after the pack was built. "
            "Build it again with opennpu pack build"
        )


if __name__ == "__main__":
    sys.exit(main())
