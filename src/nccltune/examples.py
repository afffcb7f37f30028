# SPDX-License-Identifier: Apache-2.0
"""Find the recorded studies, which are in the installed package or in the source tree."""

from pathlib import Path

import nccltune
from nccltune.model.errors import InputError, PlatformError, StudyError
from nccltune.model.names import nearest
from nccltune.study.files import Study

DEMO = "h200x4-as-4-nodes"
"""The name of the recorded study that `nccltune demo` uses."""


def examples() -> dict[str, Path]:
    """Return the folders of the recorded studies, by name."""
    # In an editable installation, the path of the package has two folders: the sources and the
    # installed files. All places are searched. If two places have the same name, the first counts.
    places = [Path(place) / "examples" for place in nccltune.__path__]
    places.append(Path(nccltune.__file__).parents[2] / "examples")
    return {
        study.parent.name: study.parent
        for place in reversed(places)
        for study in sorted(place.glob("*/*samples.jsonl"))
    }


def example(name: str) -> Path:
    """Return the folder of one recorded study.

    Raises InputError if no recording has this name, and PlatformError if no recording is installed.
    """
    found = examples()
    if not found:
        raise PlatformError("no recording is installed", hint="reinstall nccltune")
    if name not in found:
        raise InputError(f"no recording is called {name!r}", hint=nearest(name, found))
    return found[name]


def recording(text: str) -> Path:
    """Return the folder of a study by its path, or of an installed recording by its name.

    A path that exists takes precedence. Raises StudyError if `text` is neither a study nor a
    recording. If `text` is a name without folders, a hint then names the nearest recording.
    """
    path = Path(text)
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if not exists and path.name in examples():
        path = examples()[path.name]
    elif not exists and len(path.parts) == 1 and examples():
        raise StudyError(
            f"no study and no recording is called {text!r}", hint=nearest(text, examples())
        )
    return Study.open(path).path.absolute()
