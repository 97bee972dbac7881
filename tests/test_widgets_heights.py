"Every explorer and every stepper fits one screen: controls, drawing and caption together, in a window of 1280 by 900 pixels."
from math import ceil

import pytest

from memkit.search.documents import RetrieveSettings, index_documents
from memkit.widgets.explorers.rating import explore_recorded
from memkit.widgets.explorers.prompt import explore_fusion
from memkit.widgets.explorers.memories import explore_memories
from memkit.widgets.explorers.prompt import explore_budget
from memkit.widgets.explorers.rating import explore_rating
from memkit.widgets.explorers.prompt import PromptCandidate, explore_mrs
from memkit.widgets.explorers.memories import explore_trust
from memkit.widgets.explorers.memories import LIVES
from memkit.widgets.steppers.mark import mark_steps
from memkit.widgets.draw.scene import CAPTION, width_of
from memkit.widgets.steppers.stepper import Step, stepper
from memkit.widgets.draw.board import Board, Column, Row, draw_board
from memkit.widgets.steppers.steps import turns_steps
from test_widgets_explorers import ASK, DOCS, Components, Words, a_turn
import test_widgets_mark as marks
from memkit.mark.refined import DOMAIN, KINDS, RESIDUAL
from test_widgets_steps import a_turn as any_turn
from test_widgets_explorers2 import HISTORY, TARGETS, Letters, Mean, filled

pytest.importorskip("ipywidgets")
SCREEN = 900 - 120       # pixels; JupyterLab's own bars above and below take about 120
ACROSS = 1100            # pixels that a cell's output has in a window of 1280
ROW, GAP, LINE = 32, 4, 20
ABOVE = 18               # the name of a row of toggle buttons stands above them


def wide(widget) -> float:
    "How much room a control takes in its row."
    if (px := widget.layout.width or "").endswith("px"): return float(px[:-2]) + GAP
    if hasattr(widget, "options") and hasattr(widget.style, "button_width"): return len(widget.options)*(float(widget.style.button_width[:-2]) + GAP) + 120
    return width_of(widget.description, 13) + 40 if "auto" == widget.layout.width else 300 + GAP


def rows_of(box) -> int:
    "Into how many lines a row of controls is broken."
    lines, used = 1, 0.
    for w in map(wide, box.children): lines, used = (lines + 1, w) if used + w > ACROSS and used else (lines, used + w)
    return lines


def height(panel) -> float:
    "Pixels of the whole panel: controls, drawing, caption, and the folded words."
    boxes = [box for box in panel.widget.children if hasattr(box, "children")]
    controls = sum(rows_of(box)*(ROW + GAP) + ABOVE*any("Toggle" in type(c).__name__ for c in box.children) for box in boxes)
    scale = min(1., ACROSS/panel.scene.width)
    return controls + panel.scene.height*scale + LINE*ceil(width_of(panel.scene.caption, 13)/640) + 2*GAP + LINE


def crowd(n): return [PromptCandidate(id=i, text=f"Memory {i} says something of some length about what the user once told.", kind="residual", components=Components(i, 3.*i, .9 - .02*i, 0.)) for i in range(1, n + 1)]
def library(): return index_documents(DOCS, Words(), RetrieveSettings(several=False))
def packed(n):
    turn = a_turn(60, [20]*n, 9000)
    long = "A section of many words, as an exchange with a long answer is one. "*30
    return type(turn)(**{**vars(turn), "sections": tuple(type(s)(**{**vars(s), "text": long}) for s in turn.sections)})

EXPLORERS = {
    "budget": lambda: explore_budget(packed(6)), "budget of many sections": lambda: explore_budget(packed(40)),
    "fusion": lambda: explore_fusion(library(), ASK, ["d3"]), "fusion without labels": lambda: explore_fusion(library(), ASK*6),
    "relevance": lambda: explore_mrs(crowd(6)), "relevance of many": lambda: explore_mrs(crowd(40)),
    **{f"trust: {life}": lambda life=life: explore_trust(life) for life in LIVES},
    "recorded adapters": explore_recorded,
    "ratings": lambda: explore_rating(HISTORY, TARGETS, Mean()), "ratings, one target": lambda: explore_rating(HISTORY, TARGETS[0], Mean()),
    "memories": lambda: explore_memories(filled(40), "ann", Letters()), "memories asked": lambda: explore_memories(filled(300, 9), "ann", Letters(), "abc"),
}


@pytest.mark.parametrize("name", EXPLORERS)
def test_controls_and_drawing_fit_one_screen(name):
    panel = EXPLORERS[name]()
    assert not panel.error and height(panel) <= SCREEN, f"{height(panel):.0f} pixels, of which the drawing takes {panel.scene.height:.0f}"
    assert len(panel.scene.caption) <= CAPTION + 3 and panel.scene.caption in panel._repr_mimebundle_()["text/plain"] or panel.scene.caption != panel.scene.words
    assert panel._words.words == panel.scene.words, "one caption below; the full words for screen readers, and folded"


def test_ten_neighbours_and_every_strength_fit_too():
    memories = explore_memories(filled(60), "ann", Letters(), "abc")
    memories.set({"k": 10})
    assert height(memories) <= SCREEN
    recorded = explore_recorded()
    for question in recorded.controls["question"].options:
        recorded.set({"question": question[1], "strength": 2., "others": True})
        assert height(recorded) <= SCREEN


# --- steppers, each with more than a picture has room for

LONG = "Somebody says something of some length here, which doesn't find room in a single line of a picture. "*4

def long_rows(n: int, **how): return [Row(text=LONG, key=f"memory {i}", note=LONG, why=LONG, how="new" if i < 20 else "", **how) for i in range(n)]

def a_board(notes: int, left: int, right: int, gone: int):
    "A board with as many rows of each form."
    columns = [Column(name=LONG, note=LONG, cards=True, rows=long_rows(n, parts={"counted": .5}, boxes=3)) for n in (left, right)]
    return Board(title=LONG, note=LONG, said=[("User", LONG), ("Answer", LONG)], bands=[
        [Column(name="Notes", rows=[Row(text=LONG, label="user", gone=i % 2 == 0, why=LONG*(i % 2)) for i in range(notes)])], columns,
        [Column(name="Arrows", rows=[Row(text=LONG, into=LONG, why=LONG, gone=i % 2 == 0) for i in range(min(gone, 2))])], [Column(name="History", rows=long_rows(gone, gone=True))]])

def a_ward(n: int):
    "Every kind of thing that happens, with `n` memories of each kind."
    mark = marks.make()
    for i in range(n): mark.store.add(DOMAIN, f"{i}. {LONG}", kind=RESIDUAL, meta={"sources": []})
    for i in range(n): mark.store.add("ann", f"{i}. {LONG}", kind=KINDS[1], meta={"sources": []})
    marks.talk(mark, "ann", *(f"{RESIDUAL}: {fact}" for fact in marks.FACTS))
    marks.talk(mark, "ben", *(f"{RESIDUAL}: {fact}" for fact in reversed(marks.FACTS)), LONG)
    marks.talk(mark, "ann", LONG, LONG)
    return mark_steps(mark, "ann", also=["ben"])

def of_scene(draw, *args): return Step(title=LONG, words=LONG, scene=lambda: draw(*args), facts=lambda: {f"{LONG} {i}": LONG for i in range(40)})

STEPPERS = {
    "any turn": lambda: turns_steps([any_turn(d, m) for d, m in ((0, 0), (0, 300), (300, 300))]),
    "any board": lambda: [of_scene(draw_board, a_board(*n)) for n in ((0, 0, 0, 0), (3, 2, 0, 0), (40, 500, 0, 60), (9, 0, 400, 9), (20, 500, 500, 99))],
    "MARK": lambda: [step for n in (0, 200) for step in a_ward(n)],
}


@pytest.mark.parametrize("name", STEPPERS)
def test_a_stepper_fits_one_screen_at_every_step(name):
    panel = stepper(STEPPERS[name]())
    for i in range(len(panel.controls["step"].options) if hasattr(panel.controls["step"], "options") else panel.controls["step"].max + 1):
        panel.set({"step": i})
        assert not panel.error and height(panel) + LINE <= SCREEN, f"step {i}: {height(panel):.0f} pixels, of which the drawing takes {panel.scene.height:.0f}"
        assert panel._picture.words == panel.scene.words and (panel._words.words or panel.scene.caption) == panel.scene.words
