#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the tree with plain CMake against the torch that `python3` has and runs the Python tests with
# the host driver. For machines without a package registry: everything it needs is there or travels along
# (wheels/ holds pytest and friends when it exists).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/gpu}
python=${PYTHON:-python3}
site=$PWD/$build/site
mkdir -p "$site"
if ls wheels/*.whl >/dev/null 2>&1; then
  for wheel in wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$site"; done
fi
export PYTHONPATH=$site
"$python" - <<'PY'
import torch
print("torch", torch.__version__, "cuda" if torch.version.cuda else "cpu")
PY
cmake -S . -B "$build" -G Ninja -DPython3_EXECUTABLE="$(command -v "$python")" -DNPU_BUILD_TESTS=OFF \
  -DCMAKE_INSTALL_PREFIX="$site"
cmake --build "$build" -j "$(nproc)"
cmake --install "$build" >/dev/null
"$python" -m opennpu doctor
"$python" -m pytest -q -n "${JOBS:-8}" -p no:cacheprovider "${@:-tests}"
