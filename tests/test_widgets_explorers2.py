"""The explorers of trust, ratings, memories and adapters: their figures are those of the parts they show, and what can't be drawn is said in place."""
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.records import new_id
from memkit.store.store import MemoryStore
from memkit.maprec.items import Item, Rated
from memkit.maprec.own_ratings import expected, shares_around
from memkit.mark.corrections import classify, injected, judge_memory, trust_of
from memkit.mark.maintain import memory_logs, maintain, maintenance_verdict, standings, undo
from memkit.mark.refined import DOMAIN, RESIDUAL
from memkit.mark.trust import PAPER, TABLE_7, TrustSettings, errors_to_drop
from memkit.widgets.explorers.memories import draw_map, explore_memories, memory_map, nearest
from memkit.widgets.explorers.rating import draw_forecast, explore_rating, forecast, pushes
from memkit.widgets.explorers.memories import draw_life, explore_trust, story
from memkit.widgets.explorers.memories import LIVES, MemoryMoment, fall, life_of, parse_life, script_of, walk

BORN = datetime(2026, 3, 1, tzinfo=timezone.utc)


def parsed(scene) -> str:
    "All words of a picture, which must be sound XML and hold no link, script or foreign thing."
    root = ET.fromstring(scene.svg())
    assert {e.tag.rpartition("}")[2] for e in root.iter()} <= {"svg", "title", "desc", "style", "rect", "path", "text", "g"}
    return " | ".join(t for t in root.itertext() if t.strip())


# --- trust ---------------------------------------------------------------------------------------------------------------

@st.composite
def lives(draw):
    "Anything that may happen to a memory, in an order in which it can."
    out, day, recalls = [], 0., 0
    for _ in range(draw(st.integers(0, 25))):
        day += draw(st.sampled_from((0, 0, 1, 7.5)))
        what = draw(st.sampled_from(("shown", "right", "wrong", "wrong", "good", "bad", "unsaid", "back", "aside")))
        recall = draw(st.integers(1, recalls)) if recalls and what in ("right", "wrong") and draw(st.booleans()) else None
        recalls += what in ("shown", "right", "wrong") and recall is None
        out.append(MemoryMoment(day, what, recall, draw(st.sampled_from(("", "ann", "eve w")))))
    return tuple(out)


@settings(max_examples=120, deadline=None)
@given(lives(), st.sampled_from((PAPER, TrustSettings(alpha=.5, w_a=2, w_s=3, penalty=1, threshold=1), TrustSettings(w_a=0, threshold=0))))
def test_any_life_can_be_walked_drawn_and_written(life, how):
    points = walk(life, how)
    assert len(points) == len(life) + 1
    assert parsed(draw_life(life, how, "x", by_day=len(life) % 2 == 0))
    again = parse_life(script_of(life))
    assert [(m.what, m.recall, m.by if m.what in ("shown", "right", "wrong") else "") for m in life] == [(m.what, m.recall, m.by) for m in again]
    assert np.allclose([m.day for m in life], [m.day for m in again])


def test_table_7_and_the_errors_it_takes():
    points = walk(parse_life(LIVES["MARK's Table 7"]))
    for row in TABLE_7[:5]: assert (points[row.total].trust.correct, points[row.total].trust.incorrect) == (row.correct, row.incorrect)
    for right in range(5): assert fall(walk(parse_life("+ "*right + "-x60"))) == right + errors_to_drop([True]*right)


def test_days_alone_change_neither_score():
    short, long = (walk(parse_life(s)) for s in ("+ - 1d o", "+ 900d - 3000d o 9999d"))
    assert [p.trust for p in short] == [p.trust for p in long] and [p.verdict for p in short] == [p.verdict for p in long]
    never = walk(parse_life("4000d"))
    assert never[-1].verdict.kept and never[-1].rule == "new"


@pytest.mark.parametrize("script, said", [("+ maybe", "'maybe' is nothing"), ("+-huh", "'-huh'"), ("7", "'7' is nothing"), ("+@", "'+@'"), ("-x999 -x999", "300 moments"), ("<b>", "'<b>'")])
def test_a_script_that_cannot_be_read(script, said):
    with pytest.raises(ValueError, match=said.replace("+", r"\+")): parse_life(script)


def test_scripts():
    assert parse_life("") == parse_life("  ") == ()
    assert parse_life("+-o") == parse_life(" +  - o ") == parse_life("+−o")
    assert parse_life("2dgood1.5dbad") == (MemoryMoment(2., "good"), MemoryMoment(3.5, "bad"))
    assert [m.by for m in parse_life("-(Eve L.)x2")] == ["Eve L."]*2
    with pytest.raises(IndexError): walk(parse_life("+ -@2"))
    for bad in (MemoryMoment, ): pytest.raises(ValueError, bad, -1., "right"); pytest.raises(ValueError, bad, 0., "nothing")


def recorded():
    store = MemoryStore(":memory:")
    m = store.add(DOMAIN, "The night entrance is on Mill Lane.", np.ones(3), RESIDUAL, at=BORN)
    for day, who, right, later in ((1, "ann", True, 0), (2, "bob", None, 0), (4, "eve", False, 9), (5, "eve", False, 0), (6, "eve", False, 0), (7, "eve", False, 1)):
        turn, at = new_id("t"), BORN + timedelta(days=day)
        injected(store, DOMAIN, [m.id], turn, who, at)
        injected(store, DOMAIN, [m.id], turn, who, at)                                      # counted once
        if right is not None: judge_memory(store, DOMAIN, m.id, who, right, turn=turn, at=at + timedelta(days=later))
    judge_memory(store, DOMAIN, m.id, "rev", False, as_reviewer=True, at=BORN + timedelta(days=20))
    judge_memory(store, DOMAIN, m.id, "rev", True, as_reviewer=True, revise=True, at=BORN + timedelta(days=21))
    return store, m


def agree(store, m):
    here, life = maintenance_verdict(store.get(DOMAIN, m.id), memory_logs(store.events(DOMAIN))[m.id]), life_of(store, m.id)
    for moments in (life, parse_life(script_of(life))):
        end = walk(moments)[-1]
        assert (end.trust, end.verdict) == (here.trust, here.verdict)
    return life


def test_a_recorded_life():
    store, m = recorded()
    assert walk(agree(store, m))[-1].trust == trust_of(store, DOMAIN, m.id)
    assert not any(name in script_of(life_of(store, m.id)) for name in ("ann", "bob", "eve", "rev"))       # nobody is named
    for label, day in (("good", 30), ("bad", 31)):
        classify(store, DOMAIN, m.id, label, "rev", at=BORN + timedelta(days=day))
        assert walk(agree(store, m))[-1].verdict.kept == (label == "good")
    assert [d.id for d in maintain(store, DOMAIN, clock=lambda: BORN + timedelta(days=32)).dropped] == [m.id]
    classify(store, DOMAIN, m.id, None, "rev", at=BORN + timedelta(days=33))
    undo(store, DOMAIN, m.id, clock=lambda: BORN + timedelta(days=34))
    life = agree(store, m)
    assert [x.what for x in life[-5:]] == ["good", "bad", "aside", "unsaid", "back"] and walk(life)[-1].rule == "new"
    assert [s.verdict for s in standings(store, DOMAIN)] == [walk(life)[-1].verdict]
    with pytest.raises(LookupError): life_of(store, 999)
    with pytest.raises(LookupError): life_of(store, m.id, "ann")
    class Holder: pass
    (holder := Holder()).store = store
    assert life_of(holder, m.id) == life


def test_words_of_a_life():
    poisoned = story(parse_life(LIVES["poisoned by one"]))
    points = walk(parse_life(LIVES["poisoned by one"]))
    assert f"{points[fall(points)].trust.total}th recall" in poisoned and "20 of the 20 errors were called by one person (eve)" in poisoned
    assert "A hundred errors in a row wouldn't change that" in story((), TrustSettings(threshold=0))
    assert f"{errors_to_drop([True, True])} errors in a row from here" in story(parse_life("+ +"))
    for title, script in LIVES.items(): assert title in parsed(draw_life(parse_life(script), title=title))
    assert "<script" not in draw_life(parse_life("-(<script>alert)x4"), title="<script>").svg()


def test_the_trust_panel():
    panel = explore_trust(key="test-trust")
    rows = panel.widget.children
    menu, script, buttons, reset = rows[0].children[0], rows[1].children[0], {b.description: b for b in rows[2].children}, rows[4].children[0]
    assert menu.value == "never used" and "never recalled" in panel.scene.words
    menu.value = "always wrong"
    assert script.value == LIVES["always wrong"] and "falls below the border" in panel.scene.words
    panel.set({"threshold": .5})
    assert "never falls" in panel.scene.words
    reset.click()
    assert panel.values()["threshold"] == PAPER.threshold and "falls below" in panel.scene.words
    script.value = "+"
    assert menu.value == "one of my own"
    buttons["Called wrong −"].click()
    buttons["A week passes"].click()
    assert script.value == "+ - 7d" and "2 recalls" in panel.scene.words
    for _ in range(4): buttons["Take back"].click()
    assert script.value == "" and panel.error == ""
    panel.set({"script": "- - nonsense"})
    assert "nonsense" in panel.error and 'role="alert"' in panel._below.value
    panel.set({"script": "- -", "w_a": 9.})
    assert "w_a <= w_s" in panel.error
    panel.set({"w_a": 1., "along": False})
    again = explore_trust(key="test-trust")
    assert again.values() == panel.values() and again.widget.children[0].children[0].value == "one of my own"


# --- ratings -------------------------------------------------------------------------------------------------------------

class Mean:
    "Expects the user's mean so far; sure only after many ratings."
    def predict(self, history, targets):
        mean = np.mean([r.rating for r in history]) if history else 3.5
        return np.tile(shares_around(np.array(mean), np.array(1.2/(1 + len(history))**.5 + .2)), (len(targets), 1))


ITEMS = [Item(id=f"i{n}", title=f"Film {n}", year=1950 + n) for n in range(12)]
HISTORY = [Rated(item=i, rating=r) for i, r in zip(ITEMS, (5, 1, 4.5, 4, 3, 2, 5, 5))]
TARGETS = [Rated(item=ITEMS[9], rating=4), Rated(item=ITEMS[10], rating=2.5)]


def test_forecasts():
    f = forecast(Mean(), HISTORY, TARGETS)
    for n in range(len(HISTORY) + 1): assert np.allclose(f.shares[n], Mean().predict(HISTORY[:n], [t.item for t in TARGETS]))
    by_hand = [np.mean([abs(float(expected(f.shares[n, i])) - t.rating) for i, t in enumerate(TARGETS)]) for n in range(9)]
    assert np.allclose(f.errors(), by_hand)
    assert set(np.unique(f.answers("argmax"))) <= {1., 2., 3., 4., 5.}
    assert np.isnan(forecast(Mean(), HISTORY, ITEMS[9:11]).errors()).all()
    for n in range(9):
        words = parsed(draw_forecast(f, n, 1, "median", pushes(Mean(), HISTORY[:n], ITEMS[10])))
        assert "truth 2.5" in words and f"{n} of 8 ratings known" in words and f"{f.shares[n, 1].max():.0%}" in words
    for bad in (lambda: forecast(Mean(), HISTORY, []), lambda: forecast(Mean(), HISTORY, [HISTORY[2]]), lambda: draw_forecast(f, 9), lambda: draw_forecast(f, -1)):
        with pytest.raises(ValueError): bad()


def test_pushes_are_what_leaving_out_does():
    class AllAtOnce(Mean):
        def without_each(self, history, targets):
            return np.array([[self.predict([*history[:i], *history[i + 1:]], [t])[0] for i in range(len(history))] for t in targets])
    slow, quick = pushes(Mean(), HISTORY, ITEMS[9]), pushes(AllAtOnce(), HISTORY, ITEMS[9])
    assert np.allclose(slow, quick) and slow[1] < 0 < slow[0] and pushes(Mean(), [], ITEMS[9]).shape == (0,)


def test_the_rating_panel():
    class Short(Mean):
        def predict(self, history, targets):
            if len(history) > 4: raise ValueError("four ratings at most")
            return super().predict(history, targets)
    panel = explore_rating(HISTORY, TARGETS, {"mean": Mean(), "short": Short()}, n=0, key="test-rating")
    assert panel.scene.words.startswith("After 0 of 8 ratings, the model predicts 3.4") and "stars for Film 9 (mean)" in panel.scene.words
    panel.set({"n": 8, "target": 1, "how": "argmax"})
    assert "Film 10" in panel.scene.words and "The 8th rating (Film 7: 5 stars) changed the prediction by" in panel.scene.words
    one = panel.scene.words
    panel.set({"mixed": True})
    assert panel.scene.words.split(" changed")[0] != one.split(" changed")[0]
    panel.set({"predictor": "short"})
    assert panel.error == "four ratings at most"
    assert explore_rating(HISTORY, TARGETS, {"mean": Mean(), "short": Short()}, key="test-rating").values()["n"] == 8
    alone = explore_rating([], ITEMS[3], Mean())
    assert "true rating" not in alone.scene.words and "nothing does" in parsed(alone.scene)


# --- memories ------------------------------------------------------------------------------------------------------------

class Letters:
    "Vectors of letter counts, for lessons about places and not about meaning."
    name, dim = "letters-1", 26
    def embed(self, texts, kind="document"):
        if any("\0" in t for t in texts): raise ValueError("text 0 holds a NUL character")
        v = np.array([[t.lower().count(chr(97 + i)) + .01*i for i in range(26)] for t in texts], np.float32)
        return v/np.linalg.norm(v, axis=1, keepdims=True)


def filled(n=40, kinds=3, seed=0):
    rng, store = np.random.default_rng(seed), MemoryStore(":memory:")
    texts = ["".join(rng.choice(list("abcdefghij klmno"), 24)) + f" {i}" for i in range(n)]
    for i, (t, v) in enumerate(zip(texts, Letters().embed(texts))): store.add("ann", t, v, f"kind {i % kinds}", encoder=Letters.name)
    return store


def test_the_true_neighbours():
    store, e = filled(), Letters()
    m = memory_map(store, "ann")
    for question in ("abcabc", "zzz", "hello goblin"):
        v = e.embed([question], "query")[0]
        found = nearest(m, v, 7)
        hits = store.search("ann", v, 7)
        assert [m.memories[n.position].id for n in found] == [h.item.id for h in hits]
        assert np.allclose([n.cosine for n in found], [h.score for h in hits], atol=1e-6)
        away = np.linalg.norm(m.places - m.plane.places(v), axis=1)
        assert all(n.rank_on_map == 1 + (away < away[n.position]).sum() for n in found)
    assert sum(m.plane.shown) == pytest.approx(m.places.var(0).sum()/m.vectors.var(0).sum())
    assert m.plane.shown[0] >= m.plane.shown[1] >= 0 and np.allclose(m.places, memory_map(store, "ann").places)
    with pytest.raises(ValueError, match="same embedder"): nearest(m, np.ones(3))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_memories(n):
    store = filled(n)
    m = memory_map(store, "ann")
    assert m.places.shape == (n, 2) and np.isfinite(m.places).all()
    assert sum(m.plane.shown) == pytest.approx(float(n > 1))
    assert f"{n} memor" in parsed(draw_map(m, "abc", Letters().embed(["abc"])[0], 10))


def test_maps_of_odd_memories():
    store = MemoryStore(":memory:")
    for i in range(4): store.add("ann", f"<b>the same & more</b> {i}", np.ones(5), "<i>kind</i>")
    m = memory_map(store, "ann")
    assert sum(m.plane.shown) == 0 and "<b>" not in draw_map(m, "</svg><script>", np.ones(5)).svg()
    store.add("ann", "from elsewhere", np.ones(6), encoder="another")
    with pytest.raises(ValueError, match="2 encoders"): memory_map(store, "ann")
    with pytest.raises(ValueError, match="no memory with a vector"): memory_map(store, "bob")
    with pytest.raises(ValueError, match="no memory with a vector of nothing"): memory_map(store, "ann", "nothing")
    many = filled(30, 12)
    assert "other kinds" in parsed(draw_map(memory_map(many, "ann")))


def test_a_large_map():
    m = memory_map(filled(500, 5), "ann")
    scene = draw_map(m, "abc", Letters().embed(["abc"])[0])
    assert len(scene.svg()) < 300_000 and parsed(scene).count("kind") >= 5


def test_the_memory_panel():
    store, e = filled(12), Letters()
    store.add("bob", "a secret of bob's", e.embed(["a secret"])[0], encoder=e.name)
    panel = explore_memories(store, "ann", e, "abc", key="test-map")
    box, again = panel.controls["question"], panel.widget.children[1].children[1]
    assert "Of the nearest 5" in panel.scene.words and "secret" not in panel.scene.svg()
    panel.set({"k": 3, "kind": "kind 1"})
    assert "Of the nearest 3" in panel.scene.words
    first = store.list("ann")[0]
    store.forget("ann", [first.id])
    assert first.text in panel.scene.svg() or panel.values()["kind"]      # the map is of the moment it was made
    panel.set({"kind": ""})
    again.click()
    assert first.text not in panel.scene.svg() and "11 memories" in panel.scene.words
    box.value = "a\0b"
    assert "NUL" in panel.error
    box.value = " "
    assert panel.error == "" and "Nearest to" not in panel.scene.words
    store.forget("ann")
    again.click()
    assert "no memory with a vector" in panel.error


# --- adapters ------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def served():
    torch = pytest.importorskip("torch")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from memkit.train.adapters import AdapterStore, LoraShape, base_digest, lora_model, lora_weights
    from memkit.models.local import LocalLM
    from memkit.train.adapters import PersonalLM
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=128, eos_token_id=1, bos_token_id=None, initializer_range=.3))
    t = Tokenizer(models.WordLevel({c: i for i, c in enumerate(["<pad>", "<end>", "<unk>", *map(chr, range(32, 127))])}, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    lm = LocalLM.wrap(model, PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="<end>", unk_token="<unk>"), "tiny", context=300)
    changed, adapters, rng = lora_model(model, LoraShape(rank=2, alpha=4)), AdapterStore(MemoryStore(":memory:")), np.random.default_rng(3)
    weights = {n: (rng.normal(size=w.shape)/4).astype(np.float32) for n, w in lora_weights(changed).items()}
    lm._parts = changed.unload().eval(), lm._parts[1]
    for user, alpha in (("ann", 4.), ("twice", 8.)): adapters.save(user, weights, {"base": base_digest(lm.load()[0]), "shape": LoraShape(rank=2, alpha=alpha)})
    return PersonalLM(lm, adapters)


STYLES = {"short": "Yes.", "long": "Yes, and twice a day."}


def test_strength_is_alpha(served):
    from memkit.widgets.explorers.rating import ask_adapters, weighted
    ask = lambda users, strength, n=0: ask_adapters(served, users, "How much?", STYLES, strength, n, "")
    one, double, none = ask(["ann", "twice"], 1., 6), ask(["ann"], 2., 6), ask(["ann"], 0., 6)
    assert np.allclose(one.scores[2], double.scores[1], atol=1e-4) and one.answers[2] == double.answers[1]     # the same change as with twice the alpha
    assert np.allclose(none.gains(), 0, atol=1e-4) and none.answers[0] == none.answers[1]
    assert np.abs(one.gains()[1:]).min() > 1e-3 and np.allclose(one.gains()[0], 0)
    assert one.users == (None, "ann", "twice")
    scores = one.scores
    assert np.allclose(one.gains(True)[1:], [np.exp(scores[1] - scores[2]) - 1, np.exp(scores[2] - scores[1]) - 1]) and np.allclose(double.gains(True), double.gains())   # one user has no others
    with pytest.raises(ValueError, match="0 or more"): weighted(served, -.1)
    with pytest.raises(LookupError, match="no weights"): ask(["zoe"], 1.)
    with pytest.raises(ValueError, match="one style"): ask_adapters(served, ["ann"], "How much?", {})


def test_the_scores_are_the_models_own(served):
    from memkit.train.adapters import PersonalLM
    from memkit.records import Message
    from memkit.experiments.malp.answers import mean_scores
    from memkit.widgets.explorers.rating import ask_adapters
    h = ask_adapters(served, ["ann"], "How much?", STYLES, 1., 0, "Be brief.")
    messages = [Message(role="system", text="Be brief."), Message(role="user", text="How much?")]
    for user, mine in zip(h.users, h.scores): assert np.allclose(mine, mean_scores(PersonalLM(served.lm, served.adapters).for_user(user), messages, list(STYLES.values())), atol=1e-4)
    assert np.allclose(h.gains()[1] + 1, np.exp(h.scores[1])/np.exp(h.scores[0]))


def test_the_recording_is_of_the_real_model_and_fits_its_questions():
    from memkit.experiments.malp.answers import style_examples
    from memkit.malp.patients import PREFERENCES
    from memkit.widgets.explorers.rating import STRENGTHS, load_recording
    r = load_recording()
    assert "SmolLM2-135M" in r.made["model"] and {"date", "settings", "versions", "users", "decoding"} <= set(r.made)
    assert {"torch", "transformers", "python"} <= set(r.made["versions"]) and "seed" in r.made["settings"]
    assert set(r.wanted) == set(r.made["users"]) and all(u["after"] < u["before"] for u in r.made["users"].values()), "trained, each on their own dialogues"
    assert {h.question for h in r.hearings} == {q for q, _ in style_examples(4)} and {h.strength for h in r.hearings} == set(STRENGTHS) and len(r.hearings) == 28
    plain = {}
    for h in r.hearings:
        assert h.styles == tuple(PREFERENCES) and h.users == (None, *r.wanted) and np.isfinite(h.scores).all()
        plain.setdefault(h.question, []).append(h.answers[0])
        if h.strength == 0: assert np.allclose(h.gains(), 0, atol=2e-3) and len(set(h.answers)) == 1, "no strength, no change"
        if h.strength == 1:
            assert np.abs(h.gains()[1:]).max() > .05
            for text in h.answers: assert len(text.split()) >= 4 and sum(c.isalpha() or c.isspace() for c in text) > .85*len(text), f"gibberish: {text}"
    assert all(len(set(texts)) == 1 for texts in plain.values()), "without weights the strength makes no difference"


def test_recorded_answers_are_shown_without_a_model():
    pytest.importorskip("ipywidgets")
    from memkit.files import own_data
    from memkit.widgets.explorers.rating import Hearing, Recording, explore_recorded, load_recording
    r = load_recording()
    panel = explore_recorded(key="test-recorded")
    told = parsed(panel.scene)
    for user, style in r.wanted.items(): assert f"{user} (likes: {style})" in told and f"{style} ★" in told
    for question in {h.question for h in r.hearings}:
        for strength in {h.strength for h in r.hearings}:
            panel.set({"question": question, "strength": strength, "others": strength > 1})
            assert panel.error == "" and panel.scene.words.startswith(f"Asked “{question}”") and "the liked style (★)" in panel.scene.caption
    assert explore_recorded(key="test-recorded").values() == panel.values()
    own = Recording((Hearing("Q <b>?", ("short",), (None, "zoe"), ("A.", "B."), np.array([[0.], [1.]]), .5),), {}, {})
    assert "<b>" not in explore_recorded(own).scene.svg()
    with pytest.raises(ValueError, match="no recording of adapters"): load_recording(own_data("style_answers.json"))
    with pytest.raises(TypeError, match="load_recording"): explore_recorded("r.json")


def test_the_adapter_panel(served):
    from memkit.widgets.explorers.rating import explore_adapters
    panel = explore_adapters(served, ["ann"], {"How much?": STYLES, "<When>?": STYLES}, {"ann": "long"}, 4, "", key="test-adapters")
    assert "ann (likes: long)" in parsed(panel.scene) and "long ★" in parsed(panel.scene)
    panel.set({"question": "<When>?", "strength": 0.})
    assert panel.error == "" and panel.scene.words.startswith("Asked “<When>?”") and "<When" not in panel.scene.svg()
    assert "weights at 0 of their strength" in panel.scene.words
    panel.set({"question": "How much?", "strength": 1.})
    assert panel.error == "" and "Against no weights" in panel.scene.words
    panel.set({"others": True})
    assert "Against no weights" in panel.scene.words        # nobody else is there
    assert panel.scene.caption.endswith("of 1 user.")
    with pytest.raises(ValueError, match="one question"): explore_adapters(served, ["ann"], {})
