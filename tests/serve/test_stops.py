"""Stop strings over pieces: nothing of a match is shown, nothing but a possible beginning is held back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrai_serve.engine.stops import StopMatcher


def run(pieces, stops) -> tuple[list[str], str | None]:
    """What is shown for each piece until a match, then what is left at the end."""
    matcher, shown = StopMatcher(stops), []
    for piece in pieces:
        shown.append(matcher.push(piece))
        if matcher.matched is not None:
            return shown, matcher.matched
    return [*shown, matcher.finish()], None


@pytest.mark.parametrize(
    ("pieces", "stops", "shown", "matched"),
    [
        (["Hello", "X", "world"], ["X"], ["Hello", ""], "X"),
        (["Hello", " abXcd"], ["X"], ["Hello", " ab"], "X"),
        (["Hello ", "ST", "OP!"], ["STOP"], ["Hello ", "", ""], "STOP"),
        (["Hello E", "ND"], ["END"], ["Hello ", ""], "END"),
        (["xaxb"], ["b", "a"], ["x"], "a"),
        (["O", " ", "P", " ", "Q"], ["O P Q"], ["", "", "", "", ""], "O P Q"),
        (["a ST", "ORE"], ["STOP"], ["a ", "STORE", ""], None),
        (["ends in ST"], ["STOP"], ["ends in ", "ST"], None),
        (["aab"], ["ab"], ["a"], "ab"),
        (["aa", "ab"], ["aab"], ["", "a"], "aab"),
        (["one two"], [""], ["one two", ""], None),
        (["xyz"], ["yz", "xyz"], [""], "xyz"),
    ],
)
def test_table(pieces, stops, shown, matched):
    assert run(pieces, stops) == (shown, matched)


@given(st.text("ab<", max_size=30), st.lists(st.text("ab<", min_size=1, max_size=4), max_size=3), st.data())
def test_the_result_does_not_depend_on_the_cuts(text, stops, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown, matched = run(pieces, stops)
    whole, matched_whole = run(list(text), stops)
    assert ("".join(shown), matched) == ("".join(whole), matched_whole)
    assert text.startswith("".join(shown))
    assert not any(stop in "".join(shown) for stop in stops)
