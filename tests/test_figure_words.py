"Figures told in words: whatever is drawn, something true is said, and nothing fails."
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.widgets.draw.figure_words import bar_words, grid_words, mark_words, panel_words, place, said, series, figure_text

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402


def drawn(**labels):
    figure = Figure()
    axes = figure.subplots()
    axes.set(**labels)
    return figure, axes


@pytest.mark.parametrize("x, text", [(0, "0"), (-.5, "-0.5"), (1234.5, "1,234"), (1e-7, "1.0e-07"), (float("inf"), "inf"), (None, "None"), ("a", "a"), (np.float32(.25), "0.25")])
def test_numbers(x, text): assert said(x) == text


def test_a_bar_chart_is_a_table():
    figure, axes = drawn(title="Kept", ylabel="notes")
    axes.bar(["ann", "ben"], [3, 4.5], label="long-term")
    axes.legend()
    assert figure_text(figure).startswith("Kept: Up: notes, 0 to 4.7") and "Bars “long-term”: ann 3, ben 4.5." in figure_text(figure)


def test_bars_that_lie_and_bars_that_are_stacked_or_grouped():
    _, axes = drawn()
    axes.barh(["ann", "ben"], [3, 4])
    assert bar_words(axes) == ["bars: ann 3, ben 4"]
    _, axes = drawn()
    axes.bar([0, 1], [3, 4], label="a")
    axes.bar([0, 1], [1, 2], bottom=[3, 4], label="b")
    axes.set_xticks([0, 1], ["x", "y"])
    assert bar_words(axes) == ["bars “a”: x 3, y 4", "bars “b”: x 1, y 2"]
    _, axes = drawn()
    for i, name in enumerate("ab"): axes.bar(np.arange(2) + .4*i, [i, i + 1], .4, label=name)
    axes.set_xticks([.2, 1.2], ["x", "y"])
    assert bar_words(axes) == ["bars “a”: x 0, y 1", "bars “b”: x 1, y 2"]


def test_lines():
    _, axes = drawn()
    axes.plot([0, 1, 2], [1, np.nan, 3], label="seen")
    axes.axhline(2), axes.axvline(1, label="now")
    axes.plot([5], [5], "o"), axes.plot([], [])
    assert mark_words(axes) == ["a line “seen”: 1 at 0, 3 at 2", "a level line at 2", "an upright line “now” at 1", "points: 5 at 5"]
    _, axes = drawn()
    axes.plot(range(100), [2]*100)
    for i in range(9): axes.plot([i], [i], "o")
    assert mark_words(axes) == ["a line: 100 values, each 2", "9 points from 0 to 8 across and 0 to 8 up"]


def test_grids_clouds_and_areas():
    _, axes = drawn()
    axes.imshow(np.arange(6.).reshape(2, 3)), axes.scatter([], []), axes.scatter([1, 2], [3, 3], label="notes"), axes.fill_between([0, 1], [0, 1], label="interval"), axes.fill_between([0, 1], [1, 1])
    assert mark_words(axes) == ["“notes”: 2 points from 1 to 2 across and 3 up", "“interval”: an area", "a grid of 2 by 3 fields, from 0 to 5"]
    assert grid_words(np.full((2, 2), np.nan)) == "an empty grid of 2 by 2 fields"


def test_a_heat_map_by_seaborn_has_no_second_panel_for_its_scale():
    seaborn = pytest.importorskip("seaborn")
    figure, axes = drawn(title="Confusion")
    seaborn.heatmap(np.eye(2), annot=True, ax=axes, xticklabels=["yes", "no"], yticklabels=["yes", "no"])
    assert "Panel" not in figure_text(figure) and "a grid of 2 by 2 fields, from 0 to 1" in figure_text(figure).lower()


def test_dates_logarithms_and_formulas():
    from datetime import date
    _, axes = drawn(xlabel="day")
    axes.plot([date(2026, 3, 2), date(2026, 3, 9)], [1, 2])
    assert mark_words(axes) == ["a line: 1 at 2 Mar 2026, 2 at 9 Mar 2026"]
    figure, axes = drawn(title=r"$\alpha$ and $\mathdefault{10^{3}}$")
    axes.plot([1, 1000], [1, 2])
    axes.set_xscale("log")
    assert "logarithmic" in figure_text(figure) and "$" not in figure_text(figure)


def test_what_is_written_and_what_is_hidden():
    figure, axes = drawn()
    axes.axis("off")
    axes.text(0, 0, "working"), axes.text(1, 1, "long-term"), axes.text(1, 1, "gone", visible=False)
    assert figure_text(figure) == "Written in it: working; long-term."
    axes.set_visible(False)
    assert figure_text(figure) == "An empty figure."


def test_many_panels_and_few_words():
    figure = Figure()
    for i, axes in enumerate(figure.subplots(3, 3).flat): axes.plot(range(50), np.arange(50)*i), axes.set_title(f"user {i}")
    figure.suptitle("Nine users.")
    assert figure_text(figure, most=10_000).count("Panel ") == 9 and figure_text(figure).startswith("Nine users. Panel 1. user 0: ")
    assert len(figure_text(figure, most=200)) <= 203 and figure_text(figure, most=200).endswith(" …")
    assert panel_words(figure.axes[0]).startswith("user 0: ")


@pytest.mark.parametrize("what", ["a picture", None, 3])
def test_only_figures_have_words(what):
    with pytest.raises(TypeError, match="Figure"): figure_text(what)


@given(st.lists(st.tuples(st.text("ab", max_size=3), st.floats(allow_nan=True)), max_size=30), st.booleans())
@settings(deadline=None, max_examples=60)
def test_any_series_is_told(values, places):
    real = [v for _, v in values if v == v]
    told = series(values, places)
    assert told == "nothing" if not real else said(max(real)) in told and said(min(real)) in told


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
@settings(deadline=None, max_examples=25)
def test_any_line_is_told(heights):
    _, axes = drawn()
    axes.plot(heights)
    assert said(max(heights)) in mark_words(axes)[0] and place(axes.xaxis, 0) == "0"
