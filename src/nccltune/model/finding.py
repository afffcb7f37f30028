# SPDX-License-Identifier: Apache-2.0
"""A finding: a property of a curve of bandwidth over size, as data and as one sentence."""

from enum import StrEnum

import msgspec

from nccltune.model.choice import Choice
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale


class Severity(StrEnum):
    """How serious a problem is. A note is only information."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class FindingKind(StrEnum):
    """The kind of a finding."""

    DIP = "dip"
    PLATEAU = "plateau"
    BAD_CROSSOVER = "bad_crossover"
    FALLING_TIME = "falling_time"
    NOT_SATURATED = "not_saturated"
    NOISY = "noisy"
    NOT_A_TUNING_PROBLEM = "not_a_tuning_problem"
    BELOW_EXPECTED = "below_expected"
    AS_EXPECTED = "as_expected"
    SINGLE_SAMPLES = "single_samples"
    NO_DEFAULT = "no_default"
    NOT_COMPARED = "not_compared"
    WRONG_RESULTS = "wrong_results"
    SUSPECT_RUN = "suspect_run"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A property of a curve of bandwidth over message size.

    `min_bytes` to `max_bytes` are the sizes at which the property shows. `evidence` holds the
    numbers in the sentence. `where` is the title of the curve's condition (`all-reduce, 4 nodes, 4
    ranks, in place`), with which the sentence begins; None if the finding is not about one curve.
    `better` is a choice with more bandwidth. `tuning` is whether another choice fixes the problem;
    None if that is not known.
    """

    kind: FindingKind
    sentence: str
    where: str | None = None
    collective: Collective | None = None
    scale: Scale | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    better: Choice | None = None
    tuning: bool | None = None
    evidence: dict[str, float] = {}
