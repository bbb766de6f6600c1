#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs dist/ into a new environment, as a user would: the tools' wheel without the plugin first,
# whose self-test has to pass on its own, then the plugin's beside it, then an operator pack that is
# begun, built, installed and tested with nothing else.
#
#   scripts/test_wheels.sh PYTHON          TORCH_SPEC, PIP_FLAGS: as in the Makefile
#
# TORCH_FROM=DIR borrows torch, and what it and the tools need, from a folder of packages: nothing is fetched.
set -euo pipefail
dist=$(cd "$(dirname "$0")/../dist" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1" -m venv "$place/venv"
cd "$place" # the checkout must not be found by accident
python=$place/venv/bin/python
install() { "$python" -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} "$@"; }

if [ -n "${TORCH_FROM:-}" ]; then
  echo "$TORCH_FROM" >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
  PIP_FLAGS="--no-index --no-deps"
  install "$dist"/opennpu_tools-*.whl
else
  install "${TORCH_SPEC:-torch==2.13.0}" "$dist"/opennpu_tools-*.whl
fi
"$python" -c 'import importlib.util as u; assert not u.find_spec("torch_npu"), "the plugin is here"'
"$python" -m op_tools.selftest
"$place/venv/bin/op-tools" --help >/dev/null

install --no-deps "$dist"/opennpu-*.whl "$dist"/torch_npu-*.whl
"$place/venv/bin/opennpu" doctor
"$python" -m op_tools.selftest

# An operator pack against nothing but what is installed; from here on offline.
[ -n "${TORCH_FROM:-}" ] || install pyyaml
export PATH=$place/venv/bin:$PATH XDG_CACHE_HOME=$place/cache
begun=$SECONDS
opennpu pack new my_ops
cd my_ops
opennpu pack build
"$python" -m pip install -q --disable-pip-version-check --no-index --no-deps dist/*.whl
"$python" tests/test_my_ops.py
cd "$place" # from another folder than the project's
opennpu pack list | grep -q 'my_ops: 1 operators.*: loaded'
opennpu ops --why my_ops::scaled_add | grep -q 'of the pack'
echo "operator pack: new, build, install, test in $((SECONDS - begun)) s"
