# SPDX-License-Identifier: Apache-2.0
"""Small synthetic measurements, shared by the unit tests."""

import math
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from nccltune.analyze import analyze, sort_samples
from nccltune.analyze.result import Analysis
from nccltune.model.choice import Choice, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.platform import Platform
from nccltune.model.rule import Rule
from nccltune.model.sample import Sample, Source
from nccltune.study.files import Study

Times = Callable[[int], Mapping[str, float]]
"""Time in us of every choice at a size."""


def choice(label: str) -> Choice:
    """Return the choice of this label, which is not the default."""
    found = parse_choice(label)
    assert isinstance(found, Choice)
    return found


def rule(low: int, high: int, label: str = "tree/ll", **more: Any) -> Rule:
    """Return a rule for all-reduce, or for the `collective` of `more`."""
    values: dict[str, Any] = {"collective": Collective.ALLREDUCE, **more}
    return Rule(min_bytes=low, max_bytes=high, choice=choice(label), **values)


def measure(
    sizes: Iterable[int],
    times: Times | Mapping[str, float],
    *,
    rounds: int = 8,
    noise: float = 0.0,
    seed: int = 0,
    twice: bool = True,
    collective: Collective = Collective.ALLREDUCE,
    nodes: int = 4,
    ranks: int = 4,
    in_place: bool = False,
    registered: bool = False,
    group_calls: int = 1,
    pipe_ops: int = 1,
) -> list[Sample]:
    """Samples as a bench would make them: rounds over all choices, log-normal noise, the default
    twice a round. `times` may be the same at every size."""
    random_ = random.Random(seed)
    samples = []
    for size in sizes:
        for round_ in range(rounds):
            for label, time_us in (times(size) if callable(times) else times).items():
                repeats = 2 if label == "default" and twice else 1
                for repeat in range(repeats):
                    samples.append(
                        Sample(
                            study="synthetic",
                            collective=collective,
                            bytes=size,
                            nodes=nodes,
                            ranks=ranks,
                            in_place=in_place,
                            registered=registered,
                            group_calls=group_calls,
                            pipe_ops=pipe_ops,
                            choice=parse_choice(label),
                            round=round_,
                            repeat=repeat,
                            time_us=time_us * math.exp(random_.gauss(0, noise)),
                            source=Source(tool="synthetic"),
                        )
                    )
    return samples


def study_of(
    path: Path, samples: Iterable[Sample], platform: Platform | None = None, **facts: Any
) -> Study:
    """Write a study of samples, and of a platform, or of one with these facts."""
    study = Study.create(path)
    study.append_lines(study.samples_path, list(samples))
    if facts:
        platform = Platform(**{"name": path.name, **facts})
    if platform is not None:
        study.write_json(study.platform_path, platform)
    return study


def analyze_samples(platform: Platform, samples: Iterable[Sample], **options: Any) -> Analysis:
    return analyze(platform, sort_samples(samples), **options)


def sizes(first: int, last: int) -> list[int]:
    """Powers of two from `first` to `last`."""
    return [1 << power for power in range(first.bit_length() - 1, last.bit_length())]
