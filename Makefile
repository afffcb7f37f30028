# SPDX-License-Identifier: Apache-2.0
#
# make demo    set up what it needs (own virtual environment, no root) and do the main job on a recording
# make install set everything up: nccltune with all compiled parts, in the virtual environment
# make wheels  portable wheels for x86-64 and aarch64 in dist/ (glibc 2.28; compiled by a package)
# make check-wheels  what the wheels need and show, and that they load on other systems
# make test    set up and run all tests: native (CTest) and Python (pytest)
# make docs    the documentation as a site, in build/site
# make picture the README's picture: the report of the demo in Chromium
# make image   a container image of the wheel in dist (PLATFORM=linux/arm64: for Grace)
# make packages, check-packages  a deb and an rpm with the plugins, of each wheel in dist; and their tests
# make check   the loop of a change, minutes: make style, then the unit tests, Python and native
# make style   ruff, mypy --strict, packaging/checks.py, clang-format; compiles nothing
# make lint    make style, then clang-tidy

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

.PHONY: help demo install wheels check-wheels test test-native test-python sanitize check style lint format clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

PIP := $(BIN)/pip --disable-pip-version-check
# Shows each second how far its commands are.
PROGRESS := $(PYTHON) packaging/progress.py

# Only make's own first step may change it: pip changes the time of the folder's files.
$(VENV)/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer that can make a virtual environment" >&2; \
	  echo "hint:  install one (Debian: python3 python3-venv), or name it: make PYTHON=/path/to/python3" >&2; exit 3; }
	@$(PROGRESS) build/log/venv "virtual environment in $(VENV), about 5 s" "$(PYTHON) -m venv $(VENV)"

# A wheel's compiler is a package, all others' is the machine's.
.PHONY: compiler
compiler:
	@command -v $${CXX:-c++} >/dev/null || { echo "error: no C++ compiler" >&2; \
	  echo "hint:  install one that knows C++20 (Debian: g++), or name it: make CXX=..." >&2; \
	  echo "hint:  or install the wheel, which has the compiled parts: pip install nccltune-VERSION-py3-none-manylinux_2_28_$$(uname -m).whl" >&2; \
	  echo "hint:  or install without them: NCCLTUNE_NATIVE=off pip install ." >&2; exit 3; }

# Bytecode is written when a module is first imported: a tenth of the time to install.
LIBRARIES = $(BIN)/python packaging/dependencies.py | $(PIP) install --no-compile -r /dev/stdin
# Editable: Python sources are used in place, the native parts are built and installed. The demo
# uses two of them.
EDITABLE = $(PIP) -v install --no-compile --no-deps -e .
DEMO_PARTS = --config-settings build.targets=nccltune-demo --config-settings install.components=demo

$(VENV)/.installed-demo: pyproject.toml src/nccltune/__init__.py $(NATIVE) | compiler $(VENV)/pyvenv.cfg
	@echo "first run: compiling what the demo uses, about 35 files, beside installing libraries: about 50 s with 2 cores" >&2
	@$(PROGRESS) build/log/demo compiling "$(EDITABLE) $(DEMO_PARTS)" libraries "$(LIBRARIES)"
	@touch $@

$(VENV)/.installed: pyproject.toml src/nccltune/__init__.py $(NATIVE) | compiler $(VENV)/pyvenv.cfg
	@echo "compiling all native parts, about 100 files, beside installing libraries: about 2 minutes with 2 cores" >&2
	@$(PROGRESS) build/log/install compiling "$(EDITABLE)" libraries "$(LIBRARIES)"
	@touch $@ $(VENV)/.installed-demo

install: $(VENV)/.installed

$(VENV)/.installed-test: $(VENV)/.installed
	@$(PROGRESS) build/log/test "libraries of the tests" "$(BIN)/python packaging/dependencies.py test | $(PIP) install -r /dev/stdin"
	@touch $@

# Without nccltune, which would have to be compiled: its sources are enough for these.
$(VENV)/.installed-style: pyproject.toml | $(VENV)/pyvenv.cfg
	@$(PROGRESS) build/log/style "libraries, tools of make style" "$(LIBRARIES) && $(BIN)/python packaging/dependencies.py test | $(PIP) install -r /dev/stdin && $(BIN)/python packaging/dependencies.py lint | $(PIP) install -r /dev/stdin"
	@touch $@

$(VENV)/.installed-wheels: $(VENV)/pyvenv.cfg pyproject.toml
	@$(PROGRESS) build/log/tools "tools of the wheels" "$(BIN)/python packaging/dependencies.py wheels | $(PIP) install -r /dev/stdin"
	@touch $@

demo: $(VENV)/.installed-demo
	$(BIN)/nccltune demo
	@echo "(nccltune is $(BIN)/nccltune: source $(BIN)/activate puts it on the PATH)" >&2

wheels: $(VENV)/.installed-wheels
	$(BIN)/python packaging/wheels.py

check-wheels: $(VENV)/.installed-test $(VENV)/.installed-wheels
	tests/packaging/sysroots.sh
	$(BIN)/python -m pytest -n $$(($(JOBS) + 1)) tests/packaging

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
# more than there are cores, for that waiting. What tests the wheels is `make check-wheels`.
test-python: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $$(($(JOBS) + 1)) --dist loadfile --no-loadscope-reorder --ignore tests/packaging

CPP_FILES = $(shell find native tests/native benchmarks/native \( -name '*.cc' -o -name '*.h' -o -name '*.c' \) 2>/dev/null)
# The longest first, so that none is left to the end.
TIDY_FILES = $(shell find native -name '*.cc' -printf '%s %p\n' 2>/dev/null | sort -rn | cut -d' ' -f2)

# How far the analyzer follows a function's paths, a tenth of what it would: most of lint's time went
# to the rest.
TIDY_BUDGET = $(addprefix --extra-arg=,-Xclang -analyzer-config -Xclang max-nodes=22500)

style: $(VENV)/.installed-style
	$(BIN)/ruff check src tests benchmarks packaging docs/site
	$(BIN)/ruff format --check src tests benchmarks packaging docs/site
	$(BIN)/python packaging/checks.py
	$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)
	$(BIN)/mypy

lint: style $(VENV)/.installed-test
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --preset dev -B build/lint -DCMAKE_UNITY_BUILD=OFF >/dev/null
	printf '%s\n' $(TIDY_FILES) | xargs -P $(JOBS) -n 1 $(BIN)/clang-tidy -p build/lint --quiet --warnings-as-errors='*' $(TIDY_BUDGET)

# Without the native programs that start programs of their own and wait for them.
check: style build-dev
	PATH="$(CURDIR)/$(BIN):$$PATH" ctest --preset dev -j $$(($(JOBS) + 1)) -E '_(whole|scenario|fault|host)_test[.]'
	$(BIN)/python -m pytest -n $$(($(JOBS) + 1)) --dist loadfile tests/unit

format: $(VENV)/.installed-style
	$(BIN)/ruff check --fix src tests benchmarks packaging docs/site
	$(BIN)/ruff format src tests benchmarks packaging docs/site
	$(BIN)/clang-format -i $(CPP_FILES)

# The site of the documentation, in build/site. A warning (a link to nowhere, a page that no menu has) is an error.
.PHONY: docs
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "build/site/index.html"

$(VENV)/.installed-docs: $(VENV)/.installed pyproject.toml
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' \
	  | $(BIN)/pip install -q --disable-pip-version-check -r /dev/stdin
	@touch $@

# The README's picture, by the nccltune that is installed.
.PHONY: picture
CHROMIUM ?= $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name) 2>/dev/null)))
picture:
	@test -n "$(CHROMIUM)" || { echo "error: no Chromium" >&2; \
	  echo "hint:  install it (Debian: chromium), or name it: make picture CHROMIUM=..." >&2; exit 3; }
	rm -rf build/picture
	$(BIN)/nccltune demo -q -o build/picture/h200x4-as-4-nodes >/dev/null
	$(CHROMIUM) --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,1400 --virtual-time-budget=5000 \
	  --screenshot=docs/images/report.png "file://$(CURDIR)/build/picture/h200x4-as-4-nodes/report.html" 2>/dev/null

# The wheels in dist, as an image and as packages with the plugins alone (a deb and an rpm).
.PHONY: image packages check-packages
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/nccltune/__init__.py)
IMAGE ?= nccltune:$(VERSION)
IMAGE_BUILDER ?= $(firstword $(foreach name,podman docker buildah,$(shell command -v $(name) 2>/dev/null)))
image:
	@test -n "$(IMAGE_BUILDER)" || { echo "error: no builder of images" >&2; \
	  echo "hint:  install podman, docker or buildah, or name one: make image IMAGE_BUILDER=..." >&2; exit 3; }
	@ls dist/nccltune-*.whl >/dev/null 2>&1 || { echo "error: no wheel in dist" >&2; \
	  echo "hint:  make wheels" >&2; exit 3; }
	$(IMAGE_BUILDER) build $(if $(PLATFORM),--platform $(PLATFORM)) $(IMAGE_ARGS) \
	  -f packaging/container/Containerfile -t $(IMAGE) dist

packages:
	packaging/packages.sh dist

check-packages: packages $(VENV)/.installed-test
	$(BIN)/python -m pytest tests/e2e/packaging/test_packages.py

clean:
	rm -rf build $(VENV)
