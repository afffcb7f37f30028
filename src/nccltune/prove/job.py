# SPDX-License-Identifier: Apache-2.0
"""Judge whether a job is faster with a configuration, from pairs of its starts.

A pair gives one gain: the natural log of the speed with the rules over that without. The verdict is
on the configuration as a whole. It says nothing about a single rule, so no rule changes its state.
"""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from nccltune.analyze.stats import median, trimmed_interval
from nccltune.formats.tuner_config.csv_rules import config_hash
from nccltune.measure.experiments.ab.speed import JobSpeed
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.study import names
from nccltune.study.files import Study

JobVerdict = Literal["proven", "not sure", "no"]
LEAST_PAIRS = 3
"""With fewer pairs nothing is decided."""
LEAST_GAIN = 0.005
"""If the gain is certainly below this, the verdict is no: as in `tune.worth`."""
_CHANCE = 0.05


class JobProof(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `job-proof.json`: a job with the configuration as a whole, and without.

    - `verdict`: `proven` (faster beyond noise), `no` (slower, or certainly no gain) or `not sure`
    - `metric`: what was read of the output; `values` and `left_out` are those of a start
    - `default`, `tuned`: medians over the starts, in the unit of the metric
    - `gain`: speed with the rules over speed without (1.1 is 1.1 times as fast), with its interval
      at `confidence`; None with fewer than three pairs
    - `ratio`: as `gain`, of the two medians
    - `coarse`: whether more pairs cannot decide, because the program prints too few digits
    - `failed`: starts with the rules that failed
    - `pairs`, `known`: the number of pairs, and of those that are from earlier runs
    - `sent`: what two starts sent, without and with the rules; empty if it was not recorded.
      `sent_differs` is whether the job is then not the same
    - `in_nccl`: the time of NCCL's kernels in these starts; empty if it was not recorded
    - `reason`: why the run ended: `done`, `budget` or `failed`
    """

    schema_version: int = SCHEMA_VERSION
    study: str
    config_hash: str
    program: list[str]
    verdict: JobVerdict
    why: str
    metric: str | None = None
    values: int = 0
    left_out: int = 0
    default: float | None = None
    tuned: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    ratio: float | None = None
    coarse: bool = False
    confidence: float = 0.95
    pairs: int = 0
    known: int = 0
    failed: int = 0
    sent: str = ""
    sent_differs: bool = False
    in_nccl: str = ""
    seconds: float = 0.0
    reason: str = "done"
    nccl_version: str | None = None
    command: str = ""
    at: str = ""

    @property
    def harms(self) -> bool:
        """Return whether the job is slower with the rules, beyond noise, or fails with them."""
        return self.reason == "failed" or (self.gain_high is not None and self.gain_high < 1)

    @property
    def gain_text(self) -> str:
        """Return `1.050x as fast (97.5 % CI 1.040-1.060)`; empty without a gain."""
        if self.gain is None or self.gain_low is None:
            return ""
        interval = f"{100 * self.confidence:.3g} % CI {self.gain_low:.3f}-{self.gain_high:.3f}"
        return f"{self.gain:.3f}x as fast ({interval})"

    @property
    def sentence(self) -> str:
        """Return what is known of the job with the rules; it ends with the command."""
        how = {
            "proven": "a job is proven faster with these rules",
            "no": f"a job gains less than {100 * LEAST_GAIN:g} % by these rules",
            "not sure": "whether a job is faster with these rules is not decided",
        }[self.verdict]
        if self.harms:
            how = f"a job {'fails' if self.gain is None else 'is slower'} with these rules"
        advice = "do not deploy them for it" if self.harms else ""
        parts = [", ".join(filter(None, (how, self.gain_text))), advice, shlex.join(self.program)]
        return ": ".join(filter(None, parts))


def job_of(config: Path) -> JobProof | None:
    """Return the proof of a job beside a configuration, `job-proof.json`.

    None without one, or if it is of another content. Raises StudyError.
    """
    path = config.parent / names.JOB_PROOF
    if not path.is_file() or not config.is_file():
        return None
    job = Study(config.parent).read_json(path, JobProof)
    return job if job.config_hash == config_hash(config.read_bytes()) else None


class JobGain(msgspec.Struct, frozen=True):
    """The fields of `JobProof` that pairs decide."""

    verdict: JobVerdict
    why: str
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    coarse: bool = False


def judge_pairs(
    pairs: Sequence[tuple[JobSpeed, JobSpeed]], confidence: float, error: str | None = None
) -> JobGain:
    """Return the verdict on pairs of speeds, without and with the rules.

    `error` is that of the starts with the rules, two of which failed. What the program rounds
    widens the interval.

    >>> fast, slow = JobSpeed("steps/s", 2.0), JobSpeed("steps/s", 1.0)
    >>> judge_pairs([(slow, fast)] * 4, 0.95).verdict
    'proven'
    """
    if error is not None:
        return JobGain("no", f"the job failed twice with the rules: {error}")
    if len(pairs) < LEAST_PAIRS:
        return JobGain(
            "not sure", f"needs at least {LEAST_PAIRS} pairs of starts, has {len(pairs)}"
        )
    centre, half = trimmed_interval(
        [math.log(after.speed / before.speed) for before, after in pairs], confidence
    )
    rounding = median([before.rounding + after.rounding for before, after in pairs])
    spread, half = half, half + rounding
    found = JobGain(
        "not sure", "", math.exp(centre), math.exp(centre - half), math.exp(centre + half)
    )
    log_least = math.log1p(LEAST_GAIN)
    verdict, why = found.verdict, "the gain cannot be told from noise"
    if centre + half < 0:
        verdict, why = "no", "the job is slower with the rules"
    elif centre + half < log_least:
        verdict, why = "no", f"the rules gain less than {100 * LEAST_GAIN:g} % of the job"
    elif centre - half > 0:
        verdict, why = "proven", "the job is faster with the rules"
    elif spread <= rounding and abs(centre) <= rounding and centre + rounding >= log_least:
        # More pairs make the spread smaller, and never the rounding.
        digits = f"the program prints too few digits (rounded to {100 * rounding / 2:.2g} %)"
        return msgspec.structs.replace(found, why=digits, coarse=True)
    return msgspec.structs.replace(found, verdict=verdict, why=why)


def looks(rounds: int) -> list[int]:
    """Return the numbers of pairs after which a job is judged, while it is not decided.

    They do not depend on `rounds` otherwise, so that a later run with more goes on with them.

    >>> looks(16)
    [3, 6, 12]
    """
    found = [min(LEAST_PAIRS, rounds)]
    while 2 * found[-1] <= rounds:
        found.append(2 * found[-1])
    return found


def confidence_of(pairs: int) -> float:
    """Return the confidence of the look after so many pairs.

    Each look may be wrong half as often as the one before, so that all of them together, however
    many runs they take, are wrong in 5 % at most.

    >>> confidence_of(3), confidence_of(6)
    (0.975, 0.9875)
    """
    doublings = max(0, math.ceil(math.log2(max(pairs, 1) / LEAST_PAIRS)))
    return 1 - math.ldexp(_CHANCE, -(doublings + 1))


def job_proof(
    found: JobGain, pairs: Sequence[tuple[JobSpeed, JobSpeed]], proof: JobProof
) -> JobProof:
    """Return `proof` with the verdict, the gain, and what was read in the pairs."""
    proof = msgspec.structs.replace(proof, **msgspec.structs.asdict(found), pairs=len(pairs))
    if not pairs:
        return proof
    last = pairs[-1][1]
    return msgspec.structs.replace(
        proof,
        metric=last.metric,
        values=last.values,
        left_out=last.left_out,
        default=median([before.value for before, _ in pairs]),
        tuned=median([after.value for _, after in pairs]),
        ratio=median([after.speed for _, after in pairs])
        / median([before.speed for before, _ in pairs]),
    )
