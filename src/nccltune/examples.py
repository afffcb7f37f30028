# SPDX-License-Identifier: Apache-2.0
"""Where the recorded studies are: inside the installed package, or in the source tree."""

from pathlib import Path

import nccltune
from nccltune.model.errors import PlatformError

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
    """The folder of one recorded study. Raises PlatformError where it is not installed."""
    found = examples()
    if name not in found:
        raise PlatformError(
            f"the recording {name!r} is not installed",
            hint="reinstall nccltune" + (f"; there are: {' '.join(found)}" if found else ""),
        )
    return found[name]
