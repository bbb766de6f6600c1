# SPDX-License-Identifier: Apache-2.0
# Two commands are enough: `make demo` and `make test`. Both set up what they need.
#
#   TORCH_SPEC   which PyTorch to install       (default torch==2.13.0)
#   PIP_FLAGS    passed to every pip install    (an index, --pre, ...)
#   VENV         where the environment lives    (default .venv, for another TORCH_SPEC .venv-torch-...;
#                                                VENV= uses PYTHON as it is)
#   JOBS         compile and test processes     (default: the machine's cores)
SHELL      := /bin/bash
PYTHON     ?= python3
DEFAULT_TORCH := torch==2.13.0
TORCH_SPEC ?= $(DEFAULT_TORCH)
PIP_FLAGS  ?=
# One environment for each PyTorch.
VENV       ?= .venv$(if $(filter-out $(DEFAULT_TORCH),$(TORCH_SPEC)),-$(subst ==,-,$(firstword $(TORCH_SPEC))))
JOBS       ?= $(shell nproc)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
# One name for one compiler: the cache takes g++ and c++ for two.
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
export CC CXX
# A copy of the tree finds in the compiler cache what this one compiled.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

ifeq ($(VENV),)
PY := $(PYTHON)
else
PY := $(VENV)/bin/python
endif
PIP := $(PY) -m pip install -q --disable-pip-version-check $(PIP_FLAGS)

.PHONY: help setup build build-core cuda demo test test-full test-modes test-includes test-core test-sanitizers test-asan-fuzz test-asan-optools test-tsan-optools test-asan-torch test-python test-docs test-wheel wheel wheel-cuda bench bench-kernels seen-operators docs docs-env format lint tidy doctor clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

# Of the environment, not of the tree, which may have several.
SETUP_DONE := $(or $(VENV),build)/.setup
setup: $(SETUP_DONE) ## system packages, .venv, PyTorch and the Python tools

# torch first and pinned: whatever needs torch must find it there, never fetch another.
$(SETUP_DONE): scripts/system_packages.sh requirements.txt requirements-dev.txt
	@scripts/system_packages.sh $(PYTHON)
	@mkdir -p build
	@if [ -n "$(VENV)" ] && [ ! -x $(PY) ]; then $(PYTHON) -m venv $(VENV); fi
	@$(PY) -c "import torch" 2>/dev/null || { echo "installing $(TORCH_SPEC)"; $(PIP) numpy $(TORCH_SPEC); }
	@$(PIP) -r requirements-dev.txt
	@touch $@

ifdef BUILT
# By scripts/stages.sh, which runs after it.
build:
else
# The tools are compiled beside the plugin, by fewer processes: no core waits for the end of either.
TOOLS_WHEEL := build/tools-wheel
build: setup ## compile and install into the environment
	@export TORCH_DEVICE_BACKEND_AUTOLOAD=0; rm -rf $(TOOLS_WHEEL); \
	  CMAKE_BUILD_PARALLEL_LEVEL=$$(( ($(JOBS) + 1) / 2 )) $(PY) -m pip wheel -q --disable-pip-version-check \
	    --no-build-isolation --no-deps -w $(TOOLS_WHEEL) ./optools & tools=$$!; \
	  $(PIP) --no-build-isolation --no-deps --force-reinstall . || { wait; exit 1; }; wait $$tools
	@rm -rf build/compat-wheel; $(PY) -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w build/compat-wheel ./compat
	@$(PY) scripts/label_wheels.py build/compat-wheel && $(PIP) --no-deps --force-reinstall build/compat-wheel/*.whl
	@$(PY) scripts/foreign_apex.py || $(PIP) --no-build-isolation --no-deps ./compat/apex
	@$(PIP) --no-deps --force-reinstall $(TOOLS_WHEEL)/*.whl
endif

# For the GPUs of this machine; CUDA_ARCHITECTURES="80;90" names others.
CUDA_ARCHITECTURES ?= $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u | paste -sd ';'),90)
cuda: build ## compile the cuda driver (needs nvcc) and put it beside the installed drivers
	@cmake --preset core -DPython3_EXECUTABLE=$(abspath $(PY)) -DNPU_CUDA=ON "-DNPU_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)" >/dev/null
	@cmake --build --preset core -j $(JOBS) --target npu_cuda
	@cp build/core/drivers/libnpu_cuda.so $(DRIVERS) && echo "$(DRIVERS)/libnpu_cuda.so: use it with NPU_DRIVER=cuda"

demo: build ## train a small GPT on npu:0
	@$(PY) -m examples.train_gpt

doctor: build ## check torch, driver, devices, autoload, one operator
	@$(PY) -m opennpu doctor

# Every stage with what it took, in wall and CPU seconds; docs/testing.md says what each is for.
STAGES := lint test-core test-sanitizers test-asan-fuzz test-asan-optools test-python
test: build ## everything, in the time of docs/testing.md; each stage with what it took, the ten slowest tests
	@scripts/stages.sh $(MAKE) $(STAGES)

# The drivers that were installed are the ones tested: nothing is compiled twice.
DRIVERS = $(shell $(PY) -c 'import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec("torch_npu").origin).parent / "drivers")')
build-core: build
	@cmake --preset core -DPython3_EXECUTABLE=$(abspath $(PY)) -DNPU_DRIVERS_FROM=$(DRIVERS) >/dev/null
	@cmake --build --preset core -j $(JOBS)

test-core: build-core ## the torch-free half: contract, loader, drivers, conformance kit
	@ctest --preset core -j $(JOBS)

test-sanitizers: build-core ## the same under ASAN+UBSAN and, what threads share, under TSAN
	@for preset in asan tsan; do \
	  cmake --preset $$preset -DPython3_EXECUTABLE=$(abspath $(PY)) >/dev/null && \
	  cmake --build --preset $$preset -j $(JOBS) && ctest --preset $$preset -j $(JOBS) || exit 1; done

test-asan-fuzz: build ## the fuzz test on the host driver under ASAN+UBSAN
	@cmake --preset asan -DPython3_EXECUTABLE=$(abspath $(PY)) >/dev/null
	@cmake --build --preset asan -j $(JOBS) --target npu_host
	@scripts/fuzz_under_asan.sh $(PY) $(CURDIR)/build/asan/drivers/libnpu_host.so

test-asan-optools: build ## the tools' core under ASAN+UBSAN, four threads on it
	@JOBS=$(JOBS) scripts/test_optools_sanitized.sh $(PY) address

test-tsan-optools: build ## the same under TSAN
	@JOBS=$(JOBS) scripts/test_optools_sanitized.sh $(PY) thread

# Long: compiles everything again.
test-asan-torch: setup ## the fuzz test with adapters, runtime and driver under ASAN
	@cmake --preset asan-torch -DPython3_EXECUTABLE=$(abspath $(PY)) >/dev/null
	@cmake --build --preset asan-torch -j $(JOBS) --target install >/dev/null
	@scripts/fuzz_under_asan.sh $(PY) $(CURDIR)/build/asan-torch/drivers/libnpu_host.so $(CURDIR)/build/asan-torch/site

# Long tests start first, and a worker without work takes some of another's.
PYTEST := $(PY) -m pytest -q -n $(JOBS) --dist worksteal
test-python: build build-core ## pytest: every folder of tests/ that holds Python; says which were the ten slowest
	@$(PYTEST) --durations=10 --durations-min=0 tests

test-docs: build ## the code blocks of the READMEs and guides print what they show (in test-python too)
	@$(PY) -m pytest -q tests/docs

test-includes: build ## every C++ file compiled by itself, syntax only: includes that the joined units hide
	@JOBS=$(JOBS) $(PY) scripts/check_includes.py --all

tidy: setup ## clang-tidy on the whole torch-free half (make lint: on changed files)
	@JOBS=$(JOBS) $(PY) scripts/tidy.py --all

test-full: build build-core tidy test-includes test-asan-torch test-tsan-optools test-modes ## test-python with every OpInfo sample, a long fuzz, what is left out of make test
	@OPENNPU_TEST_FULL=1 $(PYTEST) --durations=10 --durations-min=0 tests

# Each mode is the same tests on a device, or on a machine, that behaves differently.
MODES := devices async protect together
MODE_devices  := NPU_HOST_DEVICES=8
MODE_protect  := NPU_HOST_PROTECT=1
# The fast kernels have the CPU's bits, so results have to; together is with all of them.
ASYNC         := NPU_HOST_ASYNC=1 NPU_HOST_DELAY_US=50
MODE_async    := $(ASYNC) NPU_HOST_KERNELS=fast
MODE_together := $(MODE_devices) $(ASYNC) $(MODE_protect)
# Machines: PyTorch's kernels, MKL's and oneDNN's choose other instructions, or other splits of the work.
MACHINES      := default avx2 one-thread three-threads
MODE_default  := ATEN_CPU_CAPABILITY=default NPU_HOST_ISA=baseline
MODE_avx2     := ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 NPU_HOST_ISA=avx2
MODE_one-thread    := OMP_NUM_THREADS=1
MODE_three-threads := OMP_NUM_THREADS=3
test-modes: build ## tests marked `modes` under 8 devices, async, protect; those marked `machines` on imitated machines
	@$(foreach mode,$(MODES),echo "== $(mode): $(MODE_$(mode))" && $(MODE_$(mode)) $(PYTEST) -m modes tests/python tests/graph || exit 1;)
	@$(foreach mode,$(MACHINES),echo "== $(mode): $(MODE_$(mode))" && $(MODE_$(mode)) $(PYTEST) -m machines tests/python || exit 1;)

wheel: setup ## fill dist/ with opennpu, opennpu-tools, the torch_npu metadata and apex
	@rm -rf build/wheels && mkdir -p dist
	@for project in ". -C cmake.define.NPU_BUILD_KIT=ON" ./optools ./compat ./compat/apex; do \
	  TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(PY) -m pip wheel -q --no-build-isolation --no-deps -w build/wheels $$project || exit 1; done
	@$(PY) scripts/label_wheels.py build/wheels && mv build/wheels/*.whl dist
	@ls -1 dist

wheel-cuda: cuda ## dist/opennpu_cuda-*.whl: the cuda driver alone, for the GPUs of CUDA_ARCHITECTURES (needs nvcc)
	@$(PY) scripts/cuda_wheel.py build/core/drivers/libnpu_cuda.so dist

test-wheel: wheel ## the tools' wheel alone, then the plugin's beside it, in a new environment; then operator packs, offline
	@TORCH_SPEC="$(TORCH_SPEC)" TORCH_SERIES=$$($(PY) -c 'import importlib.metadata as m; print(".".join(m.version("torch").split(".")[:2]))') \
	  PIP_FLAGS="$(PIP_FLAGS)" scripts/test_wheels.sh $(PYTHON)

bench: build ## the ratios of docs/performance.md, measured here
	@$(PY) -m benchmarks.run && $(PY) -m benchmarks.expensive

bench-kernels: build ## which host kernels beat rung 4: remakes drivers/host/fast.txt
	@$(PY) -m benchmarks.kernels --write

seen-operators: build ## which operators reach the host driver's kernels: remakes ops/seen_host.txt
	@cd build && $(abspath $(PY)) $(CURDIR)/scripts/seen_operators.py

docs: setup ## the pages as a site, English and Chinese, in build/site
	@export NO_MKDOCS_2_WARNING=1; for config in mkdocs.yml mkdocs.zh-CN.yml; do \
	  $(PY) -m mkdocs build -q --strict -f $$config || exit 1; done
	@echo "build/site/index.html; with search: $(PY) -m http.server -d build/site"

docs-env: build-core ## remakes docs/environment.md from the table of variables
	@NPU_TEST_WRITE=1 ctest --preset core -R '^driver$$' >/dev/null; git diff --stat -- docs/environment.md

CLANG_FORMAT := $(PY) -c 'import clang_format; clang_format.clang_format()'
CPP_FILES = $(shell git ls-files '*.c' '*.h' '*.cpp')
format: setup ## clang-format and ruff
	@$(CLANG_FORMAT) -i $(CPP_FILES)
	@$(PY) -m ruff check -q --fix . && $(PY) -m ruff format -q .

lint: setup ## what CI checks of style and layers
	@$(CLANG_FORMAT) --dry-run -Werror $(CPP_FILES)
	@$(PY) -m ruff check -q . && $(PY) -m ruff format -q --check .
	@$(PY) -m mypy --no-error-summary
	@JOBS=$(JOBS) $(PY) scripts/tidy.py
	@$(PY) scripts/check_layers.py
	@$(PY) scripts/check_size.py

clean: ## remove build/ and dist/ (not .venv)
	@rm -rf build dist
