"What somebody passes that can't be used is told in the call, with what is wanted; in a running panel, in place."
import numpy as np
import pytest

from memkit.models.lm import ScriptedLM
from memkit.records import Turn, new_id, utc_now
from memkit.store.store import MemoryStore
from memkit.malp import open_malp
from memkit.maprec.items import Item, Rated
from memkit.widgets.steppers.dpem import dpem_steps
from memkit.widgets.explorers.rating import explore_adapters
from memkit.widgets.explorers.prompt import explore_fusion
from memkit.widgets.explorers.memories import explore_memories
from memkit.widgets.explorers.prompt import explore_budget
from memkit.widgets.explorers.rating import explore_rating
from memkit.widgets.explorers.prompt import candidates_of, explore_mrs
from memkit.widgets.explorers.memories import explore_trust
from memkit.widgets.steppers.steps import take_away, turns_steps
from memkit.widgets.explorers.memories import LONGEST, life_of, parse_life, walk
from memkit.widgets.steppers.map import map_steps
from memkit.widgets.steppers.mark import mark_steps
from memkit.widgets.draw.scene import Panel, Scene, all_given, given, listed, ordinal, quotation, width_of
from memkit.widgets.steppers.stepper import Step, step_table, stepper
from test_widgets import Letters, told
from test_widgets_map import fresh, parts  # noqa: F401 (a fixture)
from test_widgets_mark import make

pytest.importorskip("ipywidgets")
ONE = Step(title="One", words="One step.", scene=lambda: Scene(10, 10, "One."))
TALK = Turn(id=new_id("t"), user="ann", session="s", at=utc_now(), text="<b>Hi</b> 😀 שלום 你好", answer="Hello.")


@pytest.mark.parametrize("wrong", [None, "hello", 3, [1, 2]])
@pytest.mark.parametrize("call, wanted", [
    (stepper, "dpem_steps"), (step_table, "dpem_steps"), (turns_steps, "list of Turn"), (lambda x: take_away(told([])[0].memory, x), "HybridChatbot"), (explore_budget, "a Turn"), (explore_mrs, "candidates_of"),
    (candidates_of, "list of Hit"), (lambda x: explore_fusion(x, "May I?"), "FusedRetriever"), (lambda x: explore_memories(x, "ann", Letters()), "MemoryStore"),
    (lambda x: explore_memories(MemoryStore(":memory:"), "ann", x), "load_embedder"), (lambda x: explore_rating([], Item(id="a", title="A"), x), "a predictor has"),
    (lambda x: explore_rating(x, Item(id="a", title="A"), None), "list of Rated"), (lambda x: explore_adapters(x, ["ann"], {"Q?": {"short": "A."}}), "PersonalLM"), (lambda x: life_of(x, 1), "MarkAssistant"),
    (lambda x: dpem_steps(x, "ann"), "open_malp"), (lambda x: mark_steps(x, "ann"), "open_mark"), (lambda x: map_steps(x, "ann"), "open_map")])
def test_what_is_wanted_is_said_in_the_call(call, wanted, wrong):
    with pytest.raises(TypeError, match=wanted): call(wrong)


@pytest.mark.parametrize("wrong", [None, 3, [1]])
def test_a_life_is_a_script_or_moments(wrong):
    with pytest.raises(TypeError, match="a life is a script"): explore_trust(wrong)


def test_a_life_has_an_end_and_judges_what_was_shown():
    with pytest.raises(ValueError, match="a hundred years"): parse_life(f"+ {LONGEST + 1}d -")
    with pytest.raises(ValueError, match="a hundred years"): parse_life("9"*400 + "d")
    with pytest.raises(IndexError, match="@5 judges recall 5, and only 1 recall went before it"): walk(parse_life("+ -@5"))
    panel = explore_trust("+ -")
    for script, said in (("9"*30 + "d good", "a hundred years"), ("-@9", "only 0 recalls"), ("😀", "nothing that happens")):
        panel.set({"script": script})
        assert said in panel.error and 'role="alert"' in panel._below.value


@pytest.mark.parametrize("how, kind, said", [(dict(start="x"), TypeError, "start is the number")])
def test_a_stepper_says_what_its_numbers_are(how, kind, said):
    with pytest.raises(kind, match=said) as told_: stepper([ONE], **how)
    assert len(str(told_.value)) < 200


def test_steps_are_those_of_the_own_assistant(parts):  # noqa: F811
    malp, mark = open_malp(":memory:", ScriptedLM(lambda m: "I see.")), make()
    with fresh(parts) as film:
        for call, own in ((dpem_steps, malp), (mark_steps, mark), (map_steps, film)):
            for other in (malp, mark, film):
                if other is own: assert stepper(call(own, "nobody")).error == ""
                else:
                    with pytest.raises(TypeError, match=f"got {type(other).__name__}"): call(other, "ann")
        film.chat("ann", "Alien, 5 stars.")
        assert len(map_steps(film, "ann")) == 2
    with pytest.raises(TypeError, match="names users"): mark_steps(mark, "ann", also=None)
    assert mark_steps(mark, "ann", also="bob"), "one user alone is a list of one, not of letters"
    mark.store.close()
    with pytest.raises(Exception, match="it was closed; open it again"): mark_steps(mark, "ann")


def test_any_assistants_turn_can_be_stepped_through():
    panel = stepper(turns_steps([TALK]))
    assert not panel.error and "<b>" not in panel._below.value and not stepper(turns_steps(TALK)).error


def test_ratings_grades_and_targets(parts):  # noqa: F811
    past, new = [Rated(Item(id="a", title="A"), 4)], Item(id="b", title="<b>B</b> 中"*60)
    assert not explore_rating(past, new, parts.predictor).error
    with pytest.raises(ValueError, match="one predictor at least"): explore_rating(past, new, {})
    for wrong in (None, "x", [1]):
        with pytest.raises(TypeError, match="to be predicted"): explore_rating(past, wrong, parts.predictor)
    retriever = type("Both", (), {"dense": 1, "documents": [], "__len__": lambda self: 0})()
    with pytest.raises(TypeError, match="a grade is a number"): explore_fusion(retriever, "May I?", {"a": "good"})


def test_a_button_tells_what_went_wrong_in_place():
    with MemoryStore(":memory:") as store:
        store.add("ann", "A fact.", Letters().embed(["A fact."])[0], encoder=Letters.name)
        panel = explore_memories(store, "ann", Letters())
    before = panel.scene
    again = next(b for row in panel.widget.children[:2] for b in row.children if b.description.startswith("Read"))
    again.click()
    assert panel.error.startswith("store :memory:: it was closed") and panel.scene is before and 'role="alert"' in panel._below.value
    plain = Panel({"n": panel.controls["k"]}, lambda n: Scene(10, 10, f"{n}."))
    plain.attempt(lambda: {}["types"])
    assert plain.error == "KeyError: 'types'", "a bare name is no message"
    plain.attempt(lambda: None)
    assert plain.error == ""


def test_words_that_pictures_share():
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"]
    assert quotation("Yes.\nNo.") == "“Yes. No”" and quotation("a"*9, 4) == "“aaaa…”" and listed("New", []) == "" and listed("New", ["a", "b", "c"], 2) == " New: a; b; and 1 more."
    assert all_given(iter([1, 2]), int, "x") == [1, 2] and given("x", "upper", "y") == "x"


def test_texts_of_any_direction_and_length_keep_their_place():
    told_ = quotation("שלום, أنا أحب.")
    assert told_ == "“\u2068שלום, أنا أحب\u2069”" and quotation("Hello.") == "“Hello”", "its direction ends where it ends"
    step = lambda n: Step(title="x"*90, words=f"{told_} (0.47); {n}.", scene=lambda: Scene(99, 9, told_).text(0, 5, told_), facts=lambda: {"שלום": n})
    panel = stepper([step("a"*400), step("b")])
    panel.set({"step": 1})
    assert not panel.error and '<b dir="auto">' in panel.differences.html and "overflow-wrap:anywhere" in panel._below.value
    assert all(len(name) < 80 and name.endswith("…") for name, _ in panel.widget.children[1].children[0].options)
    assert width_of("<b>bold</b>") > width_of("(b)bold(/b)") + 20, "signs are as broad as they are drawn"


def test_one_memory_and_many():
    with MemoryStore(":memory:") as store:
        vectors = np.random.default_rng(0).normal(size=(300, 26))
        store.add("ann", "A fact.", vectors[0], encoder=Letters.name)
        assert "1 memory of ann" in explore_memories(store, "ann", Letters(), "what?").scene.svg()
        for i, v in enumerate(vectors[1:]): store.add("ann", f"Fact {i}.", v, encoder=Letters.name)
        assert "300 memories of ann" in (svg := explore_memories(store, "ann", Letters()).scene.svg()) and 'width="8"' in svg, "many are drawn smaller"
