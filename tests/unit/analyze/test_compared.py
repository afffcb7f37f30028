# SPDX-License-Identifier: Apache-2.0
"""What counts as a comparison with the default."""

from nccltune.analyze.compared import Compared, compared
from nccltune.model.platform import Platform
from nccltune.model.sample import Sample
from tests.unit.builders import analyze_samples, measure, sizes

SIZES = sizes(1 << 20, 1 << 23)


def of(samples: list[Sample]) -> Compared:
    return compared(analyze_samples(Platform(name="synthetic"), samples).conditions)


def test_the_default_alone_is_compared_with_nothing() -> None:
    found = of(measure(SIZES, lambda size: {"default": size / 1e5}))
    assert (found.choices, found.sizes, found.alone) == (0, 0, SIZES)
    assert found.has_default
    assert not found.anything
    assert not found.conclusive


def test_choices_without_the_default_are_compared_with_nothing() -> None:
    found = of(measure(SIZES, lambda size: {"tree/ll": size / 1e5, "ring/ll": size / 1e5}))
    assert (found.choices, found.sizes, found.alone) == (2, 0, [])
    assert not found.has_default
    assert not found.anything
    assert not found.everywhere


def test_rounds_of_both_at_every_size_are_conclusive() -> None:
    both = lambda size: {"default": size / 1e5, "ring/ll": size / 9e4}  # noqa: E731
    found = of(measure(SIZES, both, rounds=6, twice=False))
    assert found == Compared(1, len(SIZES), [], True, 6, True)
    assert found.conclusive
    once = of(measure(SIZES, both, rounds=1, twice=False))
    assert once.everywhere
    assert not once.known
    assert not once.conclusive


def test_sizes_without_another_choice_are_listed() -> None:
    def some(size: int) -> dict[str, float]:
        times = {"default": size / 1e5}
        return times if size == SIZES[-1] else {**times, "ring/ll": size / 9e4}

    found = of(measure(SIZES, some))
    assert found.anything
    assert not found.everywhere
    assert found.alone == SIZES[-1:]


def test_a_comparison_in_place_counts_for_both_placements() -> None:
    default = measure(SIZES, lambda size: {"default": size / 1e5})
    inside = measure(
        SIZES, lambda size: {"default": size / 1e5, "ring/ll": size / 9e4}, in_place=True
    )
    assert of([*default, *inside]).everywhere
