#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The API guide's build command: bash ci/build.sh --python=3.11 leaves the wheels in dist/ (make wheel).
set -euo pipefail
cd "$(dirname "$0")/.."
python=python3
for argument in "$@"; do
  case $argument in
    --python=3.*) python=python${argument#--python=} ;;
    -h | --help)
      echo "usage: bash ci/build.sh [--python=3.11]"
      exit 0
      ;;
    *)
      echo "ci/build.sh: '$argument' is not known. Usage: bash ci/build.sh --python=3.11" >&2
      exit 2
      ;;
  esac
done
command -v "$python" >/dev/null || {
  echo "ci/build.sh: $python is not installed here. Give the version of a Python that is, such as --python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')" >&2
  exit 2
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
  echo "ci/build.sh: PyTorch 2.11 and later need Python 3.10 or later, not $python" >&2
  exit 2
}
exec make wheel PYTHON="$python" ${VENV+VENV="$VENV"}
