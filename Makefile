# SPDX-License-Identifier: Apache-2.0
#
# make demo    set everything up (own virtual environment, no root) and do the main job on a recording
# make test    set up and run all tests: native (CTest) and Python (pytest)
# make mutants break the core in 40 places, one at a time: its tests must fail (minutes)
# make lint    ruff, mypy --strict, clang-format, clang-tidy

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

# The newest Python from 3.11 on that can make a virtual environment.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  && command -v $$p && break; done)

NATIVE := CMakeLists.txt CMakePresets.json $(shell find native cmake examples -type f 2>/dev/null)

.PHONY: help demo test test-native test-python mutants sanitize lint format clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

$(VENV)/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer that can make a virtual environment" >&2; \
	  echo "hint:  install one (Debian: python3 python3-venv), or name it: make PYTHON=/path/to/python3" >&2; exit 3; }
	@command -v $${CXX:-c++} >/dev/null || { echo "error: no C++ compiler" >&2; \
	  echo "hint:  install one that knows C++20 (g++ 12 or newer), or name it: make CXX=..." >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --upgrade pip

# Editable: Python sources are used in place, the native parts are built and installed.
$(VENV)/.installed: $(VENV)/pyvenv.cfg pyproject.toml src/nccltune/__init__.py $(NATIVE)
	$(BIN)/pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed pyproject.toml
	$(BIN)/pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@

# All at once, and with that what the two above are for.
$(VENV)/.installed-lint: $(VENV)/pyvenv.cfg pyproject.toml src/nccltune/__init__.py $(NATIVE)
	$(BIN)/pip install -q --disable-pip-version-check -e '.[test,lint]'
	@touch $(VENV)/.installed $(VENV)/.installed-test $@

demo: $(VENV)/.installed
	$(BIN)/nccltune demo
	@echo "(nccltune is $(BIN)/nccltune: source $(BIN)/activate puts it on the PATH)" >&2

test: test-native test-python

test-native: ctest-dev

# Address and undefined behaviour, then data races, over the native tests.
sanitize: ctest-asan-ubsan ctest-tsan

# Not `release` and `fuzz`, which CI leaves out.
PRESETS := dev asan-ubsan tsan
.PHONY: $(PRESETS:%=build-%) $(PRESETS:%=ctest-%)

# build-PRESET compiles everything, ctest-PRESET runs its native tests. One test more than there are
# cores, for those that wait.
$(PRESETS:%=build-%): build-%: $(VENV)/.installed-test
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --preset $*
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build --preset $* -j $(JOBS)

$(PRESETS:%=ctest-%): ctest-%: build-%
	PATH="$(CURDIR)/$(BIN):$$PATH" ctest --preset $* -j $$(($(JOBS) + 1))

# Files side by side, in the order in which they stand: those that wait for programs come first. One
# more than there are cores, for that waiting.
test-python: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $$(($(JOBS) + 1)) --dist loadfile --no-loadscope-reorder

mutants: $(VENV)/.installed-test
	$(BIN)/python tests/mutants/run.py $(if $(SAVE),--save $(SAVE))

CPP_FILES = $(shell find native tests/native benchmarks/native \( -name '*.cc' -o -name '*.h' -o -name '*.c' \) 2>/dev/null)
# The longest first, so that none is left to the end.
TIDY_FILES = $(shell find native -name '*.cc' -printf '%s %p\n' 2>/dev/null | sort -rn | cut -d' ' -f2)

# How far the analyzer follows a function's paths, a tenth of what it would: most of lint's time went
# to the rest.
TIDY_BUDGET = $(addprefix --extra-arg=,-Xclang -analyzer-config -Xclang max-nodes=22500)

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --preset dev -B build/lint -DCMAKE_UNITY_BUILD=OFF >/dev/null
	printf '%s\n' $(TIDY_FILES) | xargs -P $(JOBS) -n 1 $(BIN)/clang-tidy -p build/lint --quiet --warnings-as-errors='*' $(TIDY_BUDGET)

format: $(VENV)/.installed-lint
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks
	$(BIN)/clang-format -i $(CPP_FILES)

clean:
	rm -rf build $(VENV)
