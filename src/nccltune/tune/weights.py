# SPDX-License-Identifier: Apache-2.0
"""Read the weight of each message size from a file."""

import bisect
from pathlib import Path

from nccltune.formats.text.lines import check_text, encoding_of
from nccltune.model.errors import InputError
from nccltune.model.sizes import parse_bytes
from nccltune.tune.search import Weights

MAX_WEIGHT = 1e12
"""The largest weight. With larger weights a sum of costs overflows, or the penalty of a rule is
lost to rounding."""


def _text(path: Path) -> str:
    """Return the text of a file. Raises InputError if the file cannot be read or is not text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    try:
        check_text(data)
        return data.decode(encoding_of(data))
    except InputError as error:
        raise InputError(error.message, where=str(path), hint=error.hint) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            "is not UTF-8 text", where=f"{path}:{line}", hint="write lines of bytes,weight"
        ) from error


def read_weights(path: Path) -> Weights:
    """Return the weights of a CSV file of `bytes,weight` lines.

    Lines that begin with `#` are comments. Sizes are written as `64K` or in bytes. A size has the
    weight of the nearest smaller or equal size in the file. Sizes below all sizes in the file have
    the weight of the smallest size in the file. Raises InputError if the file cannot be read, has a
    bad line, or has no weight above 0.
    """
    text = _text(path)
    found: dict[int, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#") or stripped.replace(" ", "") == "bytes,weight":
            continue
        where = f"{path}:{number}"
        size_text, comma, weight_text = stripped.partition(",")
        try:
            weight = float(weight_text) if comma else -1.0
        except ValueError:
            weight = -1.0
        if not 0 <= weight <= MAX_WEIGHT:
            raise InputError(
                f"{line!r} is not a weight",
                where=where,
                hint=f"write bytes,weight such as 64K,12.5; weights are 0 to {MAX_WEIGHT:g}",
            )
        try:
            found[parse_bytes(size_text)] = weight
        except InputError as error:
            raise InputError(error.message, where=where, hint=error.hint) from error
    if not any(found.values()):
        raise InputError("holds no weight above 0", where=str(path))
    sizes = sorted(found)

    def weight_of(size: int) -> float:
        return found[sizes[max(0, bisect.bisect_right(sizes, size) - 1)]]

    return weight_of
