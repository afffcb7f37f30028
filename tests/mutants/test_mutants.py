# SPDX-License-Identifier: Apache-2.0
"""The table of mutants fits the source. (The mutants themselves: `make mutants`.)"""

from pathlib import Path

import pytest

from tests.mutants.run import Mutant, mutants

TESTS = Path(__file__).parents[1] / "unit"


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_has_one_place_in_the_source_and_tests(mutant: Mutant) -> None:
    assert mutant.fits
    assert mutant.old != mutant.new
    assert mutant.tests
    assert all((TESTS / test).exists() for test in mutant.tests)


def test_there_are_enough_mutants() -> None:
    assert len(mutants()) >= 40
