# SPDX-License-Identifier: Apache-2.0
"""python -m ditorch script.py [arguments]: runs a CUDA script on the device that is there.

--help, --version: in the place of the script.
"""

import os
import runpy
import sys

import ditorch


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        raise SystemExit(0 if len(sys.argv) > 1 else 2)
    if sys.argv[1] == "--version":
        print(f"ditorch {ditorch.__version__}")
        raise SystemExit(0)
    script = sys.argv[1]
    if not os.path.exists(script):
        raise SystemExit(f"ditorch: there is no file {script!r}")
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
