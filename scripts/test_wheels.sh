#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs dist/ into a new environment, as a user would: the tools' wheel without the plugin first,
# whose self-test has to pass on its own, then the plugin's beside it, then operator packs that are
# begun, built, installed and tested with nothing else: from an empty folder, without a network and
# without a compiler cache.
#
#   scripts/test_wheels.sh PYTHON          TORCH_SPEC, PIP_FLAGS: as in the Makefile; TORCH_SERIES=2.13: the wheels' torch
#
# TORCH_FROM=DIR borrows torch, and what it and the tools need, from a site-packages folder: nothing is fetched.
set -euo pipefail
dist=$(cd "$(dirname "$0")/../dist" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
unset PYTHONPATH
"$1" -m venv "$place/venv"
cd "$place" # the checkout must not be found by accident
python=$place/venv/bin/python
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
install() { "$python" -m pip install -q --disable-pip-version-check ${PIP_FLAGS:-} "$@"; }

if [ -n "${TORCH_FROM:-}" ]; then
  # Every package of the folder but ours.
  for package in "$TORCH_FROM"/*; do
    case ${package##*/} in
      torch_npu* | torchair* | npugraph_ex* | opennpu* | op_tools* | op_tools_* | ditorch* | apex* | pip | pip-* | __pycache__) ;;
      *) [ -e "$site/${package##*/}" ] || ln -s "$package" "$site/" ;;
    esac
  done
  PIP_FLAGS="--no-index --no-deps"
  install "$dist"/opennpu_tools-*+torch"$TORCH_SERIES"-*.whl
else
  install "${TORCH_SPEC:-torch==2.13.0}" "$dist"/opennpu_tools-*+torch"$TORCH_SERIES"-*.whl
fi
"$python" -c 'import importlib.util as u; assert not u.find_spec("torch_npu"), "the plugin is here"'
"$python" -m op_tools.selftest
"$place/venv/bin/op-tools" --help >/dev/null

# torch is there and fits; pyyaml comes with it where it is not.
install "$dist"/opennpu-*+torch"$TORCH_SERIES"-*.whl "$dist"/torch_npu-"$TORCH_SERIES".*.whl
"$place/venv/bin/opennpu" doctor
"$python" -m op_tools.selftest

# ---- operator packs ------------------------------------------------------------------
# A network namespace of its own has no way out. Where the system allows none, only pip is kept offline.
offline=()
if unshare -rn true 2>/dev/null; then
  offline=(unshare -rn)
  if "${offline[@]}" "$python" -c 'import socket; socket.create_connection(("1.1.1.1", 443), 3)' 2>/dev/null; then
    echo "the network is still there" >&2
    exit 1
  fi
else
  echo "note: no network namespace here; the packs' steps could reach the network" >&2
fi
export PATH=$place/venv/bin:$PATH XDG_CACHE_HOME=$place/cache CCACHE_DISABLE=1 PIP_NO_INDEX=1
for kind in cpp stable python; do
  mkdir "$place/$kind"
  begun=$SECONDS
  "${offline[@]}" bash -euo pipefail -s "$kind" "$place/$kind" <<'STEPS'
cd "$2" # empty
name=my_$1
opennpu pack new "$name" --kind "$1"
cd "$name"
opennpu pack check
opennpu pack build
pip install -q --disable-pip-version-check --no-deps dist/*.whl
python tests/test_"$name".py
cd .. # from another folder than the project's
opennpu pack list | grep "$name: 1 operators.*: loaded"
opennpu ops --why "$name::scaled_add" | grep "pack: $name, loaded"
STEPS
  echo "operator pack of kind $kind: new, check, build, install, test in $((SECONDS - begun)) s"
done
