#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the plugin and the tools with plain CMake against the torch that `python3` has and runs the
# Python tests with the host driver, in an environment of its own that borrows python3's packages. For
# machines without a package registry: what is missing there travels along in wheels/ (pytest and
# friends; for the tools prettytable with wcwidth, safetensors, and the headers xxhash.h, zlib.h, zconf.h).
#
#   scripts/check_gpu.sh [pytest arguments, default: tests, then tests/optools on cpu and cuda]
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

# The tools are a project of their own: ONLY=tools builds and tests just them (a minute).
build_project() {  # source folder, build folder, extra arguments
  cmake -S "$1" -B "$2" -G Ninja -DPython3_EXECUTABLE="$py" -DCMAKE_INSTALL_PREFIX="$site" "${@:3}" >"$2.configure.log"
  cmake --build "$2" -j "$(nproc)" -- -k 0 >"$2.build.log" || { grep -E -A8 "error:|FAILED" "$2.build.log" | head -n 120; exit 1; }
  cmake --install "$2" >/dev/null
}
run_tests() { "$py" -m pytest -q -n "${JOBS:-8}" -p no:cacheprovider "$@"; }

if [ "${ONLY:-}" != tools ]; then
  build_project . "$build" -DNPU_BUILD_TESTS=OFF
  "$py" scripts/distribution_metadata.py "$site" . ./compat
  "$py" -m opennpu doctor
fi
build_project optools "$build/tools" -DOPTOOLS_HEADERS="$PWD/wheels"
"$py" scripts/distribution_metadata.py "$site" ./optools
if [ $# -gt 0 ]; then
  run_tests "$@"
  exit
fi
status=0
[ "${ONLY:-}" = tools ] || run_tests tests --ignore=tests/optools || status=1
# In a process of its own: with the plugin loaded PyTorch has no backward on cuda.
run_tests tests/optools || status=1
exit $status
