# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from nccltune.measure.bench.conversation import PointKey, RoundRequest
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from tests.unit.builders import choice

ASK = RoundRequest(
    Collective.ALLREDUCE, (1024, 4096, 9216), (DEFAULT, choice("tree/ll")), 3, check=True
)


def test_the_default_is_timed_twice() -> None:
    keys = list(ASK.points())
    assert len(keys) == 9
    assert PointKey(Collective.ALLREDUCE, 4096, DEFAULT, 3, 1) in keys
    assert PointKey(Collective.ALLREDUCE, 4096, choice("tree/ll"), 3, 1) not in keys


@given(st.sets(st.sampled_from(list(ASK.points()))))
def test_what_is_known_is_not_asked_for_and_all_else_is(known: set[PointKey]) -> None:
    parts = ASK.without(known)
    asked = [key for part in parts for key in part.points()]
    assert len(asked) == len(set(asked))
    assert set(asked) == set(ASK.points()) - known
    assert all(part.check and part.round == 3 for part in parts)


def test_nothing_missing_is_no_ask() -> None:
    assert ASK.without(set(ASK.points())) == []
    assert ASK.without(set()) == [ASK]
