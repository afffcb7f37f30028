# SPDX-License-Identifier: Apache-2.0
"""Where the recorded studies are: inside the installed package, or in the source tree."""

from pathlib import Path

import nccltune
from nccltune.model.errors import InputError, PlatformError
from nccltune.model.names import nearest

DEMO = "h200x4-as-4-nodes"
"""The recording that the demo tells its story on."""


def examples() -> dict[str, Path]:
    """Recorded studies by name."""
    # An editable install has the sources and the installed files on the package's path.
    places = [Path(place) / "examples" for place in nccltune.__path__]
    places.append(Path(nccltune.__file__).parents[2] / "examples")
    return {
        study.parent.name: study.parent
        for place in reversed(places)
        for study in sorted(place.glob("*/*samples.jsonl"))
    }


def example(name: str) -> Path:
    """Return the folder of one recorded study.

    Raises InputError for another name, PlatformError where no recording is installed.
    """
    found = examples()
    if not found:
        raise PlatformError("no recording is installed", hint="reinstall nccltune")
    if name not in found:
        raise InputError(f"no recording is called {name!r}", hint=nearest(name, found))
    return found[name]
