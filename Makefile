# The two commands of README: `make demo` and `make test`; both set everything up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEV    := $(VENV)/.installed-dev
TREE   := $(VENV)/tree
LOGS   := fixtures/logs/lm_eval/0.4.13/out
PIP    := PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: demo seeds check test programs lint docs validate mutants bench bench-peers bench-big bench-gpu test-versions clean

demo: $(STAMP)
	$(BIN)/evalstats-plugin report $(LOGS)
	$(BIN)/evalstats-plugin annotate $(LOGS) --output demo-annotated
	@echo "The annotated copies lie in demo-annotated/ (look for the \"evalstats\" block)."

# `lint` keeps one core busy for minutes: it runs beside the tests, and speaks when they are done.
# Tests start many processes: what these import is compiled once.
# A line in which make sees its own name is run by `make -n` too, hence another.
TREE_LAYOUT = rm -rf $(TREE) && mkdir -p $(TREE) && \
	tar -cf - --exclude __pycache__ evalstats_plugin pyproject.toml | tar -xf - -C $(TREE) && \
	tar -cf - --exclude __pycache__ adapters | tar -xf - -C $(TREE)/evalstats_plugin
# ty knows what Python lacks on other systems, and which lines run there; its other rules are idle.
ABROAD := ../bin/ty check --python .. --ignore all --error missing-attribute evalstats_plugin
TYPES := ../bin/pyrefly check --python-interpreter-path ../bin/python --output-format min-text --summary=none
TEXTS := README.md CONTRIBUTING.md CHANGELOG.md docs evalstats_plugin adapters
# No text file is opened with the encoding that a system happens to have; a rule in preview.
ENCODINGS := $(BIN)/ruff check --preview --select PLW1514 evalstats_plugin adapters
LINT := $(MAKE) --no-print-directory lint
# Without EVALSTATS_REQUIRE_ALL, tests that need what is not here are skipped, and named at the end.
test: $(DEV) programs
	@$(LINT) > $(VENV)/lint.log 2>&1 & lint=$$!; \
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= \
		$(BIN)/python -m pytest -n 2 --dist worksteal; \
	tests=$$?; wait $$lint; lint=$$?; cat $(VENV)/lint.log; exit $$((tests | lint))

# What pip cannot install: Chromium for the pages, LaTeX for the tables. tests/conftest.py names the same.
PROGRAMS := chromium texlive-latex-recommended texlive-science
programs:
	@if { command -v chromium || command -v google-chrome; } >/dev/null && kpsewhich siunitx.sty >/dev/null 2>&1; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "Installing what some tests need and pip has not, by apt-get: $(PROGRAMS)"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends $(PROGRAMS); } >$(VENV)/programs.log 2>&1 || { \
			tail -n 3 $(VENV)/programs.log; echo "apt-get failed (all of it: $(VENV)/programs.log)"; \
			[ -z "$$EVALSTATS_REQUIRE_ALL" ]; }; \
	fi

# Under a minute, before every commit: lint, import contracts, types, fast tests.
FAST := tests/test_architecture.py tests/data tests/stats/test_binomial.py tests/stats/test_mean.py \
	tests/stats/test_multiplicity.py tests/scores/test_by_columns.py tests/comparisons/test_design.py tests/test_plain_english.py
check: $(DEV)
	@$(BIN)/ruff check . && $(ENCODINGS) && $(BIN)/ruff format --check . && $(BIN)/codespell $(TEXTS)
	@$(TREE_LAYOUT)
	@cd $(TREE) && ../bin/lint-imports --no-cache > ../contracts.log || { cat ../contracts.log; exit 1; }
	@cd $(TREE) && $(TYPES)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(FAST)

# pyrefly and import-linter do not know that adapters/ is mapped into the package: they look at
# the tree as a wheel lays it out.
lint: $(DEV)
	$(BIN)/ruff check .
	$(ENCODINGS)
	$(BIN)/ruff format --check .
	$(BIN)/codespell $(TEXTS)
	$(TREE_LAYOUT)
	cd $(TREE) && $(TYPES) && $(ABROAD) --python-platform darwin && $(ABROAD) --python-platform win32
	cd $(TREE) && ../bin/lint-imports --no-cache

# The pages of docs/, to be read in build/docs/index.html; a broken link is an error. What they
# show of the program is renewed by `python docs/render.py`.
docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file docs/site/mkdocs.yml

validate: $(DEV)
	$(BIN)/python -m pytest -m validation tests
	EVALSTATS_EXAMPLES=500 $(BIN)/python -m pytest tests/stats
	EVALSTATS_ADVERSARY=20 $(BIN)/python -m pytest -n 2 tests/adversary/test_relations.py
	EVALSTATS_ADVERSARY=1 EVALSTATS_LARGEST=5000 $(BIN)/python -m pytest -n 2 tests/adversary/test_relations.py
	EVALSTATS_MUTATIONS=500000 $(BIN)/python -m pytest -n 2 tests/adversary/test_mutations.py

# Central lines are changed one at a time: which change does no test notice? It goes on where it
# stopped; any change of a test draws another sample, in a file of its own.
mutants: $(DEV)
	$(BIN)/python -m tests.mutants --seconds 2400

# Every claim of the sources that this package began with, run again: about three CPU minutes.
seeds: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.seeds

bench: $(DEV)
	$(BIN)/python -m benchmarks

# Other programs beside ours, in an environment of their own (.venv-bench).
bench-peers: $(DEV)
	$(BIN)/python -m benchmarks.comparison_peers
	$(BIN)/python -m benchmarks.harness_errors
	$(BIN)/python -m benchmarks.question_peers
	$(BIN)/python -m benchmarks.irt_peers
	$(BIN)/python -m benchmarks.ranking
	$(BIN)/python -m benchmarks.hierarchical
	$(BIN)/python -m benchmarks.adaptive_peers
	$(BIN)/python -m benchmarks.r_peers

# 250 million answers from disk; growth from 1 × 1; a bank of 50,000 items; thousands of logs, kills
# at every step.
bench-big: $(DEV)
	$(BIN)/python -m benchmarks.big
	$(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.adaptive
	$(BIN)/python -m benchmarks.robustness
	$(BIN)/python -m benchmarks.votes

# What share of a GPU's bandwidth and arithmetic the kernels reach, and whole fits beside the CPU's.
bench-gpu: $(DEV)
	$(BIN)/python -m benchmarks.gpu

# The oldest dependencies that pyproject allows, and the newest on each later Python: half an hour.
test-versions: $(DEV)
	$(BIN)/python -m benchmarks.dependencies

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip

$(STAMP): $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

# torch first and alone, so that the pinned build is there before anything asks for "torch".
$(DEV): $(STAMP)
	$(PIP) torch
	$(PIP) --group dev
	touch $@

clean:
	rm -rf $(VENV) .venv-bench demo-annotated build *.egg-info .pytest_cache .ruff_cache .hypothesis
