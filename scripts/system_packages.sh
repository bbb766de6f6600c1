#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the system packages the build needs, or says which and stops.
set -euo pipefail
python=${1:-python3}
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need g++ g++
need cmake cmake
need ninja ninja-build
need git git
"$python" -c 'import venv, ensurepip' >/dev/null 2>&1 || missing+=(python3-venv)
"$python" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
  >/dev/null 2>&1 || missing+=(python3-dev)
[ -e /usr/include/gtest/gtest.h ] || [ -e /usr/local/include/gtest/gtest.h ] || missing+=(libgtest-dev)
# The operator tools name contents by xxHash (its header is compiled in) and check frames by zlib's CRC-32.
header() { [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ] || missing+=("$2"); }
header xxhash.h libxxhash-dev
header zlib.h zlib1g-dev
# For one test only, which is skipped without it: no reason to stop.
if ! command -v chromium >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
  echo "apt-get install -y chromium (tests of op-tools report)"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } ||
    echo "chromium could not be installed: the tests of op-tools report in a browser are skipped" >&2
fi
if ! command -v ip >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
  echo "apt-get install -y iproute2 (tests of several machines)"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq iproute2 >/dev/null; } ||
    echo "iproute2 could not be installed: the tests of several machines are skipped" >&2
fi
[ ${#missing[@]} -eq 0 ] && exit 0

line="apt-get install -y ${missing[*]}"
if ! command -v apt-get >/dev/null 2>&1; then
  echo "These are needed and missing: ${missing[*]}. Install them with your system's package manager, then run make again." >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "These system packages are missing. Run this, then make again:" >&2
  echo "  sudo $line" >&2
  exit 1
fi
echo "$line"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive $line -qq >/dev/null
