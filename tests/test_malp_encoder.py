"The memory encoder: a store stays valid with and without it, and the one that travels with memkit finds more."
import json

import numpy as np
import pytest

from memkit.files import own_data
from memkit.malp.memories import MalpRecall, MemoryEncoder, load_memory_encoder
from memkit.models.embed import MiniLM, check_embedder
from memkit.store.store import MemoryStore

FACTS = ["The user takes 5 mg of ramipril.", "The user lives in Leeds.", "The user can't stand coriander.", "The user's sister is called Ines."]
ASKED = ["Which tablets?", "Where's home?", "What mustn't be in my soup?", "Who is Ines?"]


@pytest.fixture(scope="module")
def plain(): return MiniLM()


def test_a_store_stays_valid_with_and_without_the_encoder(plain):
    tuned = load_memory_encoder()
    check_embedder(lambda: tuned)
    assert tuned.name == plain.name and np.array_equal(tuned.embed(FACTS), plain.embed(FACTS))
    assert not np.array_equal(tuned.embed(ASKED, "query"), plain.embed(ASKED, "query"))
    with MemoryStore(":memory:") as store:
        for i, text in enumerate(FACTS): store.add("ann", text, (plain, tuned)[i % 2].embed([text])[0], kind="long-term", encoder=plain.name)
        for e in (plain, tuned): assert {h.item.text for h in MalpRecall(store, e).recall("ann", "Which tablets?", 6)} == set(FACTS)


def test_the_encoder_that_travels_with_memkit(plain):
    e, card = load_memory_encoder(), json.loads(own_data("minilm_memories.json").read_text("utf-8"))
    assert e.adapter == card["digest"] and "simulated patients" in card["note"] and e.name == plain.name
    assert .5 < float((e.embed(["What animal do I have?"], "query")*plain.embed(["What animal do I have?"], "query")).sum()) < .9999
    with pytest.raises(FileNotFoundError): MemoryEncoder("nowhere")
