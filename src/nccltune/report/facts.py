# SPDX-License-Identifier: Apache-2.0
"""The facts of the header: platform, versions, date, number of timings, noise and settings."""

from collections.abc import Sequence

import msgspec

from nccltune.analyze.result import Analysis, Noise
from nccltune.model.numbers import counted, percent_text
from nccltune.model.platform import Platform
from nccltune.prove.result import Proof
from nccltune.report import remarks, words
from nccltune.report.data import HeaderFact
from nccltune.tune.result import Tuning


def header_facts(
    platform: Platform,
    analysis: Analysis,
    tuning: Tuning,
    tool_version: str,
    proof: Proof | None = None,
) -> list[HeaderFact]:
    """Return the facts of the header. Unknown facts are left out."""
    machine = msgspec.structs.replace(platform, nccl_version=None)
    facts = [HeaderFact("Platform", words.printable(machine.title))]
    versions = []
    if platform.nccl_version or tuning.nccl_version:
        versions.append(f"NCCL {platform.nccl_version or tuning.nccl_version}")
    if platform.driver_version:
        versions.append(f"driver {platform.driver_version}")
    versions.append(f"nccltune {tool_version}")
    facts.append(HeaderFact("Versions", words.printable(" · ".join(versions))))
    facts.append(_when(platform, analysis, tuning))
    facts.append(HeaderFact("Timings (n)", _timings(analysis)))
    facts += _noise_facts([item.noise for item in analysis.conditions], proof)
    if platform.settings:
        pairs = " ".join(f"{name}={value}" for name, value in sorted(platform.settings.items()))
        facts.append(HeaderFact("Settings", words.printable(pairs)))
    return facts


def _when(platform: Platform, analysis: Analysis, tuning: Tuning) -> HeaderFact:
    """Return the date of the measurement, and the scale if there is only one.

    If the date of the measurement is unknown, return the date of the analysis.
    """
    scales = {item.condition.scale for item in analysis.conditions}
    where = f", {scales.pop()}" if len(scales) == 1 else ""
    date = words.printable((platform.recorded_at or tuning.created)[:10])
    return HeaderFact("Measured" if platform.recorded_at else "Analysed", date + where)


def _timings(analysis: Analysis) -> str:
    """Return the number of timings: `3,128 timings in 8 rounds`."""
    count = counted(analysis.samples, "timing")
    rounds = sorted({item.rounds for item in analysis.conditions})
    if not rounds:
        return count
    if len(rounds) > 1:
        return f"{count} in {rounds[0]} to {rounds[-1]} rounds"
    return f"{count} in {counted(rounds[0], 'round')}"


def _noise_facts(noises: Sequence[Noise], proof: Proof | None) -> list[HeaderFact]:
    """Return the noise floor over all conditions; empty if there are no conditions.

    If any condition has measured noise, conditions with assumed noise are ignored. The proof has a
    noise floor of its own, because it is another run.
    """
    if not noises:
        return []
    known = [noise for noise in noises if noise.known]
    typical = sorted(noise.typical for noise in known or noises)
    high = max(noise.high for noise in known or noises)
    if not known:
        value = f"unknown; {percent_text(high)} is assumed"
    else:
        value = f"{percent_text(typical[len(typical) // 2])} typical"
        value += f", {percent_text(high)} at worst" if high > typical[0] else ""
    sources = {remarks.NOISE_WORDS.get(noise.source, noise.source) for noise in known or noises}
    if proof is not None and proof.rounds:
        value += f"; {percent_text(proof.noise)} at worst in the proof, which is another run"
    return [HeaderFact("Noise floor", value, "; ".join(sorted(sources)))]
