# SPDX-License-Identifier: Apache-2.0
"""The platform that a bench runs on, and whether a study is of the same platform."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from nccltune.formats.importing.hardware import kept
from nccltune.formats.tuner_config.csv_rules import config_hash
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.bench.process import Launch, driver_version, topology_hash
from nccltune.model.errors import StudyError
from nccltune.model.platform import Platform
from nccltune.study.files import Study

_SAME = {
    "gpu": "GPU",
    "gpus": "number of GPUs",
    "nodes": "number of nodes",
    "emulated_nodes": "emulated nodes",
    "ranks_per_gpu": "ranks on a GPU",
    "mps": "MPS",
    "nccl_version": "NCCL",
    "replay": "replay of",
    "settings": "NCCL settings",
}
"""Fields that must be equal for two platforms to be the same, with their names in messages."""
OTHER_STUDY = "timings of two platforms must not be mixed; name another study with -o"
"""The hint for a study of another platform."""
_OF_ONE_RUN = (
    "NCCL_DEBUG",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_HOSTID",
    "NCCL_TESTS_",
    "NCCL_TOPO_DUMP_FILE",
    "NCCL_TUNER_CONFIG_FILE",
    "NCCL_TUNER_PLUGIN",
    "NCCL_VERSION",
)
"""Prefixes of settings that do not change what is measured, or that the bench sets.

NCCL_TESTS_* are variables of nccl-tests. NCCL_VERSION is none: CUDA's container images set it to
the version that they ship.
"""


def platform_of(
    hello: Hello,
    name: str,
    *,
    environment: Mapping[str, str],
    today: str,
    emulated_nodes: int | None = None,
    ranks_per_gpu: int = 1,
    mps: bool = False,
    recording: Platform | None = None,
) -> Platform:
    """Return the platform of a run, from the bench's first answer or its recording."""
    if recording is not None:
        return msgspec.structs.replace(
            recording,
            name=name,
            nodes=hello.nodes,
            nccl_version=hello.nccl.version,
            replay=hello.replay or recording.name,
            recorded_at=today,
            notes=[f"a replay: timings are drawn from the recording {recording.name}"],
        )
    models = list(dict.fromkeys(gpu.name for gpu in hello.gpus if gpu.name))
    return Platform(
        name=name,
        gpu=" and ".join(models) or None,
        gpus=hello.ranks // ranks_per_gpu,
        nodes=hello.nodes,
        emulated_nodes=(emulated_nodes or 1) > 1,
        ranks_per_gpu=ranks_per_gpu,
        mps=mps,
        nccl_version=hello.nccl.version,
        driver_version=driver_version(),
        topology_hash=topology_hash(),
        settings=nccl_settings(environment),
        recorded_at=today,
    )


def nccl_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of NCCL that change what is measured."""
    return {
        key: value
        for key, value in sorted(environment.items())
        if key.startswith("NCCL_") and not key.startswith(_OF_ONE_RUN)
    }


def check_same_platform(study: Study, now: Platform, *, hint: str = OTHER_STUDY) -> None:
    """Raise StudyError, with `hint`, if the study's measurements are not of `now`."""
    if not study.platform_path.exists():
        if study.samples_path.exists():
            raise StudyError(
                "holds measurements, but does not name their platform",
                where=str(study.path),
                hint="name another study with -o",
            )
        return
    before = study.platform()
    differences = [
        f"{words} {_value_text(then)} there, {_value_text(here)} here"
        for field, words in _SAME.items()
        if (then := getattr(before, field)) != (here := getattr(now, field))
    ]
    if differences:
        raise StudyError(
            f"is a study of another platform: {'; '.join(differences)}",
            where=str(study.path),
            hint=hint,
        )


def this_host_hash() -> str:
    """Return the hash of this host, as in a bench's answer (`HostHash` of native/bench/nccl)."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    words = boot.read_text(encoding="ascii").split() if boot.exists() else []
    return config_hash((os.uname().nodename + "".join(words[:1])).encode())


def _value_text(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)


DUMP = "NCCL_TOPO_DUMP_FILE"


@contextmanager
def topology_dump(launch: Launch) -> Iterator[Path | None]:
    """Yield the path to which NCCL writes the topology: the user's, or a temporary file.

    Yield None in a replay, with emulated nodes, and in pods.
    """
    with_launcher = launch.with_launcher
    far = with_launcher is not None and with_launcher.pods is not None
    if launch.replay is not None or launch.emulate_nodes or far:
        yield None
        return
    if named := os.environ.get(DUMP):
        yield Path(named)
        return
    with TemporaryDirectory(prefix="nccltune-") as folder:
        yield Path(folder) / "topology.xml"


def dump_settings(file: Path | None) -> Mapping[str, str]:
    """Return the settings that make NCCL write its topology to `file`."""
    return {DUMP: str(file)} if file is not None else {}


def keep_topology(study: Study, launch: Launch, file: Path | None) -> None:
    """Copy the topology (of the replayed study in a replay) into a study without one.

    Without `file` nothing is copied: process 0 may run elsewhere. Raises StudyError.
    """
    if launch.replay is not None:
        file = Study(launch.replay).topology_path
    if study.topology_path is not None or file is None or not file.is_file():
        return
    name, content = kept(file.read_bytes())
    study.write_text(study.path / name, content.decode("utf-8", errors="replace"))
