# SPDX-License-Identifier: Apache-2.0
"""The doctor inside `nccltune auto`: check this node while the bench starts."""

import threading
from typing import NamedTuple, Self

from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.settings import NCCL_VERSION
from nccltune.doctor.result import Examination
from nccltune.doctor.summary import line_words
from nccltune.measure.bench.conditions import restrictions
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.bench.identity import this_host_hash
from nccltune.measure.bench.process import Launch
from nccltune.model.errors import PlatformError
from nccltune.model.platform import Platform
from nccltune.report.words import printable
from nccltune.study.files import Study

GRACE_S, END_S = 0.3, 0.2
"""Seconds to wait for the facts: first for the thread to end, then after it was asked to."""
_SOURCE = "nccltune auto on "


class ChecksLine(NamedTuple):
    """The line that reports the checks. `is_wrong` is True if the line reports a problem."""

    words: str
    is_wrong: bool


class Examiner:
    """Collects the facts of this node for the doctor while the bench initialises its GPUs.

    Leaving the `with` stops it. An error of the doctor does not stop a measurement.
    """

    def __init__(self, launch: Launch) -> None:
        # Do not examine this machine if the timings come from pods or from a recording. Pods may
        # run on any machine.
        self._is_wanted = launch.replay is None and not (
            launch.with_launcher and launch.with_launcher.pods
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._collect_facts, name="doctor", daemon=True)
        self._facts: Facts | None = None
        self._trouble: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(END_S)

    def begin(self) -> None:
        """Start collecting facts if this machine may be the measured one."""
        if self._is_wanted:
            self._thread.start()

    def checks_line(self, study: Study, platform: Platform, hello: Hello) -> ChecksLine:
        """Return the line that reports the checks, and store the examination in the study.

        Nothing is stored for a recording, for other machines, or if facts come too late.
        """
        where = "in the recording" if platform.replay else "here"
        found = restrictions(platform.settings)
        settings = f"set {where}: {', '.join(found)}" if found else ""
        if platform.replay:
            nothing = f"no NCCL setting {where} filters or bends what is measured"
            return ChecksLine(settings or nothing, bool(found))
        parts = ["not examined, others measure: nccltune doctor on their nodes", settings]
        hosts = list(dict.fromkeys(gpu.host_hash for gpu in hello.gpus))
        try:
            if self._is_wanted and hosts[:1] in ([], [None], [this_host_hash()]):
                facts = self._facts_in_time()
                if hello.nccl.version is not None:
                    # Use the version that the bench opened. Another one may be installed, too.
                    place = hello.nccl.path or "nccltune-bench"
                    facts.add(NCCL_VERSION, hello.nccl.version, place)
                examined = _examined(facts)
                _keep(study, examined)
                return _of(examined, len(hosts))
        except Exception as error:  # noqa: BLE001 - an error of the doctor must not stop a measurement
            words = f"{error}" or type(error).__name__
            parts = [f"cannot tell: {words}", settings]
        return ChecksLine(printable(" · ".join(part for part in parts if part)), bool(found))

    def _collect_facts(self) -> None:
        try:
            # Import the doctor in this thread, because the bench starts at the same time.
            from nccltune.doctor.evidence.collect import collect
            from nccltune.doctor.rulebase import rule_base

            self._facts = collect(stop=self._stop)
            rule_base()
        except Exception as error:  # noqa: BLE001 - `_facts_in_time` raises it again
            self._trouble = error

    def _facts_in_time(self) -> Facts:
        self._thread.join(GRACE_S)
        self._stop.set()
        self._thread.join(END_S)
        if self._trouble is not None:
            raise self._trouble
        if self._facts is None or self._thread.is_alive():
            raise PlatformError("this node did not answer in time: nccltune doctor")
        return self._facts


def _examined(facts: Facts) -> Examination:
    from nccltune.doctor.examine import examine
    from nccltune.doctor.rulebase import rule_base

    return examine({facts.node: facts}, rule_base(), f"{_SOURCE}{facts.node}")


def _keep(study: Study, examined: Examination) -> None:
    """Store the examination, but not over one of `nccltune doctor`, which may have more nodes."""
    path = study.doctor_path
    if path.is_file() and not study.read_json(path, Examination).source.startswith(_SOURCE):
        return
    study.write_json(path, examined)


def _of(examined: Examination, hosts: int) -> ChecksLine:
    words = line_words(examined)
    if hosts > 1:
        words = f"of the head node alone, {examined.nodes[0].name}: {words}"
    return ChecksLine(printable(words), examined.is_wrong)
