# SPDX-License-Identifier: Apache-2.0
"""The tables of mutants fit the source. (The mutants themselves: `make mutants`,
`make mutants-native`.)"""

from pathlib import Path

import pytest

from tests.mutants.run import Mutant, mutants
from tests.mutants.run_native import NativeMutant, native_mutants

NATIVE_TESTS = Path(__file__).parents[1] / "native"
TESTS = Path(__file__).parents[1] / "unit"


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_has_one_place_in_the_source_and_tests(mutant: Mutant) -> None:
    assert mutant.fits
    assert mutant.old != mutant.new
    assert mutant.tests
    assert all((TESTS / test).exists() for test in mutant.tests)


def test_there_are_enough_mutants() -> None:
    assert len(mutants()) >= 40


@pytest.mark.parametrize("mutant", native_mutants(), ids=lambda mutant: mutant.name)
def test_a_native_mutant_has_one_place_in_the_source_and_a_program(mutant: NativeMutant) -> None:
    assert mutant.fits
    assert mutant.old != mutant.new
    declared = f"nccltune_test({mutant.target}\n"
    assert any(declared in file.read_text() for file in NATIVE_TESTS.rglob("CMakeLists.txt"))
