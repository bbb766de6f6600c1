#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the tree with plain CMake against the torch that `python3` has and runs the Python tests with
# the host driver, in an environment of its own that borrows python3's packages. For machines without a
# package registry: what is missing there travels along in wheels/ (pytest and friends).
#
#   scripts/check_gpu.sh [pytest arguments, default: tests]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/gpu}
python=${PYTHON:-python3}
venv=$PWD/$build/venv
mkdir -p "$build"
[ -x "$venv/bin/python" ] || "$python" -m venv --without-pip "$venv"
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))' >"$site/borrowed.pth"
if ls wheels/*.whl >/dev/null 2>&1; then
  for wheel in wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$site"; done
fi
py=$venv/bin/python
"$py" -c 'import torch; print("torch", torch.__version__, "cuda", torch.version.cuda)'
cmake -S . -B "$build" -G Ninja -DNPU_BUILD_TESTS=OFF -DPython3_EXECUTABLE="$py" -DCMAKE_INSTALL_PREFIX="$site" >"$build/configure.log"
cmake --build "$build" -j "$(nproc)" >"$build/build.log" || { tail -n 60 "$build/build.log"; exit 1; }
cmake --install "$build" >/dev/null
"$py" -m opennpu doctor
"$py" -m pytest -q -n "${JOBS:-8}" -p no:cacheprovider "${@:-tests}"
