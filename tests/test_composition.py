"""The sizes of the experiment on structures are nested, balanced and exact, and a query gives back its values."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.composition import ALL, PARAMS, chosen, nested, sized
from lib.questions.demonstrations import fill
from lib.questions.generate import slots_of
from lib.settings import load

names = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=6)


@given(st.dictionaries(names, st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 5), st.data())
def test_each_beginning_has_the_shares_by_hops_of_the_whole(hops, seed, data):
    order = nested(hops, seed)
    assert sorted(order) == sorted(hops) and order == nested(dict(reversed(hops.items())), seed)
    n = data.draw(st.integers(1, len(order)))
    found, whole = Counter(hops[i] for i in order[:n]), Counter(hops.values())
    assert all(abs(found[h] - n * k / len(order)) <= len(whole) for h, k in whole.items())


def test_a_size_that_the_set_cannot_fill_is_named():
    assert chosen(["a", "b"], ALL) == ["a", "b"] and chosen(["a", "b"], "1") == ["a"]
    for size in ("3", "0", "many"):
        with pytest.raises(ValueError, match=f"size '{size}' .* from 1 to 2"):
            chosen(["a", "b"], size)


def test_sizes_share_a_graph_and_keep_apart_what_is_theirs(tmp_path):
    one, two = (sized(load(PARAMS, tmp_path), size) for size in ("40", ALL))
    assert one.graph_dir == two.graph_dir and one.human_dir == two.human_dir
    assert one.run != two.run and one.questions_dir != two.questions_dir and one.base_dir != two.base_dir


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 -]{0,20}", fullmatch=True), st.integers(-5, 10**6), st.integers(2000, 2020)
)
def test_a_query_gives_back_the_values_it_was_filled_with(name, number, year):
    template = (
        "MATCH (u:User) WHERE u.name = '{username}' AND u.views > {usernumber} AND u.on.year = {onyear} RETURN u.name"
    )
    slots = {
        "username": {"kind": "username", "value": name},
        "usernumber": {"kind": "usernumber", "value": number},
        "onyear": {"kind": "year", "value": year},
    }
    assert slots_of(template, fill(template, slots)) == slots
    with pytest.raises(ValueError, match="isn't made from the template"):
        slots_of(template, "RETURN 1")
