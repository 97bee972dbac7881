"MARK's log in frames, and the frames in pictures: the same as the store has, nobody else's words, and safe to draw."
import re
from dataclasses import replace
from datetime import timedelta
from xml.etree import ElementTree

from hypothesis import HealthCheck, example, given, settings, strategies as st

from memkit.models.lm import ScriptedLM
from memkit.records import new_id, utc_now
from memkit.store.store import MemoryStore
from memkit.mark import open_mark
from memkit.mark.assistant import MarkAssistant
from memkit.mark.builder import Builder
from memkit.mark.corrections import classify, judge_memory, recall_outcomes
from memkit.mark.maintain import DROPPED, maintain, undo
from memkit.mark.search import read_policy
from memkit.mark.refined import DOMAIN, KINDS, QUESTION, RESIDUAL, RESPONSE, Refined, conversation_of
from memkit.mark.search import RefinedSearch, SearchSettings
from memkit.mark.trust import replay as trusted
from memkit.mark.maintain import QuorumSettings
from memkit.widgets.draw.board import TALL, draw_board
from memkit.widgets.steppers.mark import ASIDE, IN_FORCE, JUDGEMENT, READING, SUPERSEDED, UPKEEP, mark_board, mark_steps, read_record
from memkit.widgets.steppers.stepper import differences
from test_widgets import Letters


NASTY = "</text><script>alert(1)</script> & \x1b\u202e 'q' \"q\" $x$"


class Taken:
    "An agent that keeps what stands behind 'KIND: ' in a message."
    def __init__(self, kind): self.kind = kind
    def extract(self, conversation):
        told = [(e, e.question.split(": ", 1)) for e in conversation.exchanges if e.question.startswith(f"{self.kind}: ")]
        return [Refined(kind=self.kind, text=text, turns=(e.turn,), source="user", reason="correction") for e, (_, text) in told]


def make(quorum=None, policy=None, attributes=lambda user: {}):
    store = MemoryStore(":memory:")
    search = RefinedSearch(store, Letters(), SearchSettings(at_least=-1., relevant=0.), policy)
    return MarkAssistant(ScriptedLM(lambda messages: "I see."), search, Builder(store, Letters(), [Taken(k) for k in KINDS], quorum=quorum), attributes_of=attributes)


def talk(mark, user, *messages):
    turns = [mark.chat(user, m) for m in messages]
    mark.end(user).result()
    return turns


def same_as_store(mark, user):
    "The last frame against the store: what is where, and every count."
    end, store = read_record(mark, user)[-1], mark.store
    out = store.superseded(user) | store.superseded(DOMAIN)
    rows = [m for owner in (user, DOMAIN) for m in store.list(owner, superseded=True) if m.kind.removeprefix(DROPPED) in KINDS]
    assert {c.id: c.place for c in end.cards.values()} == {m.id: SUPERSEDED if m.id in out else ASIDE if m.kind.startswith(DROPPED) else IN_FORCE for m in rows}
    for m in rows:
        t, events = end.cards[m.id].standing.trust, store.events(m.user)
        if not any(e.kind == "restored" for e in events):
            assert (t.total, t.correct, t.incorrect) == (m.recalls, m.correct, m.incorrect) and t == trusted(recall_outcomes(events, m.id))
    return end


FACTS = ["Velorin is given twice a day.", "Velorin is given four times a day.", "The night entrance is on Elm Street.", "Two visitors may come at once.", "The laboratory closes at six."]
acts = st.lists(st.tuples(st.sampled_from(["teach", "ask", "judge", "review", "night", "forget", "undo"]), st.integers(0, 99)), max_size=14)

@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(acts=acts, voices=st.booleans())
@example(acts=[("teach", 7), ("teach", 0), ("forget", 0)], voices=False)
def test_whatever_happens_the_last_frame_is_what_the_store_has(acts, voices):
    mark = make(QuorumSettings() if voices else None)
    for act, n in acts:
        user, store = ("ann", "ben", "cid")[n % 3], mark.store
        mine = [m for m in store.list(DOMAIN) if m.kind == RESIDUAL]
        if act == "teach": talk(mark, user, f"{KINDS[n % 7 % 3]}: {FACTS[n % 5]}", f"{RESIDUAL}: {FACTS[n // 7 % 5]}")
        if act == "ask": talk(mark, user, FACTS[n % 5] + "?")
        if act == "judge" and mine: judge_memory(store, DOMAIN, mine[n % len(mine)].id, user, n % 2 == 0, as_reviewer=True, revise=True)
        if act == "review" and mine: classify(store, DOMAIN, mine[n % len(mine)].id, ("good", "bad", None)[n % 3], user)
        if act == "night": maintain(store, DOMAIN, embedder=Letters(), clock=lambda: utc_now() + timedelta(days=n % 40))
        if act == "forget": mark.forget(user)
        if act == "undo" and (aside := [m.id for m in store.list(DOMAIN) if m.kind.startswith(DROPPED)]):
            try: undo(store, DOMAIN, aside[0])
            except ValueError: continue
    for user in ("ann", "cid"):
        same_as_store(mark, user)
        for step in mark_steps(mark, user, also=("ben",)): ElementTree.fromstring(step.scene().svg()), step.facts()


def test_two_become_one_with_both_wordings():
    mark = make()
    talk(mark, "ann", f"{RESIDUAL}: Velorin is given twice a day.")
    talk(mark, "ben", f"{RESIDUAL}: velorin is given twice a day")
    f = next(f for f in read_record(mark, "ann", also=["ben"]) if any(c.how == "merged" for c in f.changes))
    [c] = [c for c in f.changes if c.how == "merged"]
    assert (f.what, f.who, c.words, c.before.said, c.after.said) == (READING, "ben", "velorin is given twice a day", 1, 2)
    assert c.after.standing.trust.correct == 0, "ben had been shown it"
    tree = ElementTree.fromstring(draw_board(mark_board(f)).svg())
    texts = [t.text for t in tree.iter() if t.tag.endswith("text")]
    assert {"said now", "was there", "velorin is given twice a day", "merged, one memory, said 2 times", "merged"} <= set(texts) and "said now" in mark_board(f).words
    arrows = [e for e in tree.iter() if e.tag.endswith("path") and "C" in e.get("d")]
    assert len({e.get("d").split("C")[0] for e in arrows}) == 2 and len({e.get("d").split()[-1] for e in arrows}) == 1, "an arrow from each of the two, to one place"


def test_who_says_the_same_unasked_confirms_it_in_their_own_words():
    mark, session = make(), new_id("s")
    talk(mark, "ann", f"{RESIDUAL}: Velorin is given twice a day.")
    mark.store.add_turn("ben", session, f"{RESIDUAL}: VELORIN is given twice a day!", "I see.")
    mark.builder.build(conversation_of(mark.store, "ben", session))
    [c] = read_record(mark, "ann", also=["ben"])[-1].changes
    assert (c.how, c.words, c.after.standing.trust.correct, c.before.trust < c.after.trust) == ("merged", "VELORIN is given twice a day!", 1, True)
    assert read_record(mark, "ann")[-1].who == "somebody else"


def test_one_gives_way_struck_and_with_its_reason():
    mark = make()
    talk(mark, "ann", f"{RESIDUAL}: Velorin is given twice a day.")
    talk(mark, "ben", "How often is velorin given?", f"{RESIDUAL}: Velorin is given four times a day.")
    steps = mark_steps(mark, "ann", also=["ben"])
    svg = steps[-1].scene().svg()
    struck = [t.text for t in ElementTree.fromstring(svg).iter() if t.get("text-decoration") == "line-through"]
    assert set(struck) == {"Velorin is given twice a day."} and "Why: contradiction; trust" in svg and "1 gone" in svg
    [away] = [d for d in differences(steps[-2], steps[-1]) if d.name == "Velorin is given twice a day."]
    assert away.before.startswith("Residual, trust 0.2") and away.after.startswith("Residual, superseded: contradiction")


def test_a_judgement_moves_the_counts_and_says_the_verdict():
    mark = make()
    talk(mark, "ann", f"{RESIDUAL}: Velorin is given twice a day.")
    [turn] = talk(mark, "ben", "How often is velorin given?")
    memory = turn.recalled[0].item
    mark.feedback("ben", memory.id, False)
    mark.feedback("ben", memory.id, True, revise=True)
    wrong, right = [f for f in read_record(mark, "ann") if f.what == JUDGEMENT]
    assert [(c.how, c.after.standing.trust.correct, c.after.standing.trust.incorrect) for f in (wrong, right) for c in f.changes] == [("wrong", 0, 1), ("right", 1, 0)]
    assert right.who == "somebody else" and right.changes[0].before.standing.trust.incorrect == 1
    assert "→ trust" in mark_board(right).words and mark_board(wrong).heading == "Somebody else judges: 1 called wrong"
    same_as_store(mark, "ann")


def test_a_round_shows_the_parts_as_far_as_its_trace_is_kept():
    mark = make()
    talk(mark, "ann", f"{RESIDUAL}: Velorin is given twice a day.", f"{QUESTION}: By DTR ann means the transport request.", f"{RESPONSE}: One sentence.")
    turns = talk(mark, "ann", "How often is velorin given?")
    shown = {h.item.kind: h for h in turns[0].recalled}
    step = mark_steps(mark, "ann")[5]
    assert step.turn == turns[0] and set(shown) == set(KINDS)
    for hit in shown.values(): assert f"relevance {hit.score:.3f}" in step.words
    widths = [float(r.get("width")) for r in ElementTree.fromstring(step.scene().svg()).iter() if r.tag.endswith("rect") and len(r) and r[0].text.startswith(("recency ", "similarity ")) and ";" not in r[0].text]
    assert widths and sum(widths) <= 3*120, "the parts lie within their bars"
    with_trace, mark.settings = mark.settings, replace(mark.settings, trace=False)
    talk(mark, "ann", "How often is velorin given?")
    bare = [s for s in mark_steps(mark, "ann") if s.turn][-1]
    assert with_trace.trace and not bare.turn.model and "relevance" not in bare.words and "Velorin is given twice a day" in bare.words


def saids(mark, user="ann", **how):
    "By kind: the `said` of each memory, frame by frame, as far as it changes."
    out = {}
    for f in read_record(mark, user, **how):
        for c in f.cards.values():
            seen = out.setdefault((c.id, c.kind), [])
            if not seen or seen[-1] != c.said: seen.append(c.said)
    return out


def test_said_counts_people_and_nothing_else():
    "One expert corrects once, the conversation is read four times, a colleague asks twice and calls it right."
    mark = open_mark(":memory:", ScriptedLM(lambda messages: "You are right: velorin is given four times a day." if messages[-1].text.startswith("No") else "Velorin is given twice a day."))
    for text in ("How often is velorin given?", "No, that is wrong: velorin is given four times a day.", "Thank you.", "And where do I find the form?"):
        mark.chat("ann", text)
        mark.memories("ann")                      # which reads the conversation up to here
    mark.end("ann").result()
    for _ in range(2):
        asked = mark.chat("ben", "How often is velorin given?")
        mark.end("ben").result()
    mark.feedback("ben", asked.recalled[0].item.id, True)
    said = saids(mark, also=["ben"])
    assert {kind for _, kind in said} >= {RESIDUAL, RESPONSE}
    assert all(seen == ([0] if kind == RESPONSE else [1]) for (_, kind), seen in said.items()), said
    words = "".join(s.words + s.scene().svg() for s in mark_steps(mark, "ann", also=["ben"]))
    assert "by the assistant" in words and "said 2 times" not in words


def test_said_grows_with_each_person_and_once_for_each_conversation():
    mark = make()
    fact = f"{RESIDUAL}: Velorin is given twice a day."
    for who, times in (("ann", 1), ("ben", 2), ("cid", 1), ("ben", 1)): talk(mark, who, *[fact]*times)
    [(_, seen)] = [x for x in saids(mark).items() if x[0][1] == RESIDUAL]
    assert seen == [1, 2, 3, 4], "ben says it in two conversations, and twice in one of them"
    mark.forget("cid")
    assert read_record(mark, "ann")[-1].of(RESIDUAL)[0].said == 3


def test_what_gave_way_to_something_forgotten_is_superseded_from_the_deletion_on():
    mark = make()
    talk(mark, "ben", f"{RESIDUAL}: Velorin is given four times a day.")
    talk(mark, "ann", "How often is velorin given?", f"{RESIDUAL}: Velorin is given twice a day.")
    mark.forget("ann")
    [before, after] = [f.cards[min(f.cards)].place for f in read_record(mark, "ben")[-2:]]
    assert (before, after) == (IN_FORCE, SUPERSEDED)
    assert read_record(mark, "ben")[-1].cards[1].reason == "what took its place was forgotten"
    same_as_store(mark, "ben")


def test_others_show_without_name_and_words_and_what_a_policy_hides_isnt_there():
    policy = read_policy({"region": "equals"})
    mark = make(policy=policy, attributes=lambda user: {"region": "EU" if user != "cid" else "US"})
    talk(mark, "ben", "Ben's own secret question?", f"{RESIDUAL}: Velorin is given twice a day.", f"{QUESTION}: Ben says DTR.")
    talk(mark, "cid", "A question of cid's?", f"{RESIDUAL}: Cid's hidden fact.")
    all_ = "".join(s.title + s.words + s.scene().svg() + str(s.facts()) for s in mark_steps(mark, "ann"))
    assert "twice a day" in all_ and "Somebody else" in all_ and "cid" not in all_.lower() and "secret" not in all_ and "DTR" not in all_ and "ben" not in all_.lower()
    assert "Cid's hidden fact" in "".join(s.words for s in mark_steps(mark, "cid"))


def test_nasty_words_are_only_words():
    mark = make()
    talk(mark, "ann", f"{RESIDUAL}: {NASTY}", NASTY)
    for step in mark_steps(mark, "ann"):
        tree = ElementTree.fromstring(step.scene().svg())
        assert {e.tag.split("}")[1] for e in tree.iter()} <= {"svg", "title", "desc", "style", "rect", "text", "path", "g"}


def test_maintenance_and_forgetting_are_steps():
    mark = make()
    talk(mark, "ann", f"{RESIDUAL}: Velorin is given twice a day.")
    memory = mark.shared_memories("ann")[0]
    classify(mark.store, DOMAIN, memory.id, "bad", "ann")
    mark.maintain()
    frames = read_record(mark, "ann")
    assert frames[-1].what == UPKEEP and frames[-1].of(RESIDUAL, ASIDE) and "a reviewer called it bad" in mark_board(frames[-1]).words and "1 gone" in draw_board(mark_board(frames[-1])).svg()
    mark.forget("ann")
    assert all("twice" not in s.words + s.scene().svg() for s in mark_steps(mark, "ben"))


def test_many_memories_become_cells_and_nothing_is_cut_off():
    mark = make()
    for i in range(40): mark.store.add(DOMAIN, f"Fact {i}.", kind=RESIDUAL, meta={"sources": []})
    [step] = mark_steps(mark, "ann")[1:]
    scene = step.scene()
    assert re.search("and 3[0-9] more", scene.svg()) and scene.height <= TALL
    boxes = [e for e in ElementTree.fromstring(scene.svg()).iter() if e.tag.endswith("rect") and e.get("x")]
    assert all(float(b.get("x")) + float(b.get("width")) <= 760 and float(b.get("y")) <= scene.height for b in boxes)
