# SPDX-License-Identifier: Apache-2.0
"""Write `sendrecv.conf` of a study: the settings that its comparisons of copy engines recommend.

Two comparisons write to this file: by size, and by size while the GPUs compute.
"""

from collections.abc import Iterator, Mapping

import msgspec

from nccltune.formats.tuner_config.nccl_conf import read_conf, render_conf
from nccltune.measure.experiments.copies.preload import SENDRECV, UNDER_LOAD
from nccltune.measure.experiments.copies.settings import CHUNK, MEANING, ON, POLICY
from nccltune.model.platform import Platform
from nccltune.study import names
from nccltune.study.files import Study

CONF = names.SENDRECV_CONF
"""The name of the file in a study."""
_INTRODUCED = {
    SENDRECV: "",
    UNDER_LOAD: "While the GPUs compute: ",
}


class _Result(msgspec.Struct):
    """The fields that the result files of all comparisons have."""

    settings: dict[str, int | str]
    why: str


def keep_threshold(study: Study, platform: Platform, settings: Mapping[str, int | str]) -> None:
    """Replace the settings in sendrecv.conf by `settings`, the result of a comparison by size.

    A chunk size that the user added is kept, unless the new settings turn
    the library off. Raises InputError if the file cannot be read, and UnwritableError if it cannot
    be written.
    """
    values, path = _as_text(settings), study.path / CONF
    before = read_conf(path) if path.is_file() else {}
    if CHUNK in before and POLICY not in before and values.get(ON) != "0":
        values[CHUNK] = before[CHUNK]
    study.write_text(path, render_conf(values, _comments(study, platform, values)))


def _as_text(settings: Mapping[str, int | str]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items()}


def _comments(study: Study, platform: Platform, values: Mapping[str, str]) -> Iterator[str]:
    origin = f"replay of {platform.replay}" if platform.replay else platform.title
    yield f"Settings of the library before NCCL by nccltune: {origin}"
    for kept, introduced in _INTRODUCED.items():
        path = study.path / kept.result
        if path.is_file():
            found = study.read_json(path, _Result)
            # Skip a comparison whose settings a later comparison has replaced.
            if found.settings and _as_text(found.settings).items() <= values.items():
                yield introduced + found.why
    for name in values:
        if name in MEANING:
            yield f"{name}: {MEANING[name]}"
