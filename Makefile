# make serve     environment, build, install, the bundled pair, a server with DFLASH on 127.0.0.1:30000
# make test      environment, build, every test that this machine can run
# make test-gpu  the same suite where an NVIDIA GPU must be present
# make lint      style checks
# make compile-kernels  what DFLASH serving compiles on first use, for SM90, SM100 and SM120, with nvcc 13 and no GPU
#                (1.0 GB of packages, an hour or more; goes on where it was stopped)
# make clean     removes the environment and build leftovers (the cache of models stays)
#
# Variables, as in `make serve PORT=8000`:
#   DEVICE       cuda or cpu                      (default: cuda where nvidia-smi lists a GPU)
#   PYTHON       makes the environment            (default: the first of python3, 3.13, 3.12, 3.11 that fits)
#   VENV         folder of the environment        (default: .venv)
#   TORCH        what a CPU environment gets      (default: torch==2.13.0)
#   TORCH_INDEX  index that holds CPU builds of torch  (default: none; without it pip may take a CUDA build)
#   HOST PORT    where the server listens         (default: 127.0.0.1 30000)
#   MODEL DRAFT  another target and its draft     (default: the bundled pair)
#   SERVER_ARGS  further flags of the server
#   WORKERS      test files that run side by side  (default: 2; 1 with a GPU, whose memory servers share)
#   PYTEST_ARGS  further arguments of pytest

VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
HOST ?= 127.0.0.1
PORT ?= 30000

WORKERS ?= $(if $(filter cuda,$(DEVICE)),1,2)

HAS_GPU := nvidia-smi -L 2>/dev/null | grep -q GPU
ifndef DEVICE
DEVICE := $(shell $(HAS_GPU) && echo cuda || echo cpu)
endif

FITS := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(FITS)' >/dev/null 2>&1 && echo $$p && break; done)
endif

SOURCES := $(shell find python patches sgl-kernel build_backend -type f \
	-not -path '*/.*' -not -path '*/__pycache__/*' 2>/dev/null | sort) pyproject.toml LICENSE NOTICE
# Part of the stamp's name, since a removed file has no time of change.
SOURCE_LIST := $(shell echo '$(SOURCES)' | cksum | cut -d ' ' -f 1)

BIN := $(VENV)/bin
ENVIRONMENT := $(VENV)/.made
CPU_TORCH := $(VENV)/.torch-cpu
INSTALLED := $(VENV)/.installed-$(DEVICE)-$(SOURCE_LIST)
TEST_TOOLS := $(VENV)/.test-tools

.DEFAULT_GOAL := help
.PHONY: help serve test test-gpu lint compile-kernels clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed '/^Part of/d'

serve: $(INSTALLED)
	@$(BIN)/python -m sglang.bundled_pair serve --host $(HOST) --port $(PORT) \
		$(if $(MODEL),--model $(MODEL)) $(if $(DRAFT),--draft $(DRAFT)) $(SERVER_ARGS)

test: $(INSTALLED) $(TEST_TOOLS)
	@echo "==> running the tests (those that need a GPU are skipped where there is none)"
	@PYTHONWARNINGS='ignore:builtin type :DeprecationWarning' $(BIN)/python -m pytest \
		$(if $(filter-out 1,$(WORKERS)),-n $(WORKERS) --dist loadfile) $(PYTEST_ARGS)

test-gpu:
	@$(HAS_GPU) || { echo "make test-gpu: nvidia-smi -L lists no GPU here; use make test"; exit 1; }
	@$(MAKE) --no-print-directory test DEVICE=cuda

lint: $(TEST_TOOLS)
	@$(BIN)/python -m ruff check .

KERNEL_SOURCES := build/kernel-sources

compile-kernels: $(INSTALLED) $(TEST_TOOLS) $(KERNEL_SOURCES)/.installed
	@PYTHONPATH=$(KERNEL_SOURCES) PATH=$(abspath $(BIN)):$$PATH \
		nice -n 19 $(BIN)/python scripts/compile_kernels.py

$(KERNEL_SOURCES)/.installed: $(ENVIRONMENT) scripts/compile_kernels.txt
	@echo "==> fetching FlashInfer's sources and a CUDA toolkit"
	@rm -rf $(KERNEL_SOURCES)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(KERNEL_SOURCES) \
		-r scripts/compile_kernels.txt
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

$(ENVIRONMENT):
	@test -n "$(PYTHON)" || { echo "no Python 3.11, 3.12 or 3.13 with venv found: install one, or name it with PYTHON=..."; exit 1; }
	@echo "==> making the environment $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(CPU_TORCH): $(ENVIRONMENT) scripts/install_cpu_torch.py
	@echo "==> installing $(TORCH) for CPU"
	@$(BIN)/python scripts/install_cpu_torch.py '$(TORCH)' $(if $(TORCH_INDEX),--index $(TORCH_INDEX))
	@touch $@

$(INSTALLED): $(ENVIRONMENT) $(if $(filter cpu,$(DEVICE)),$(CPU_TORCH)) $(SOURCES)
	@echo "==> building and installing the fork for $(DEVICE)"
	@SGLANG_TARGET_DEVICE=$(DEVICE) $(BIN)/python -m pip install --disable-pip-version-check .
	@rm -f $(VENV)/.installed-*
	@touch $@

$(TEST_TOOLS): $(ENVIRONMENT) test/requirements.txt benchmark/requirements.txt
	@echo "==> installing the test tools"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r test/requirements.txt
	@touch $@
