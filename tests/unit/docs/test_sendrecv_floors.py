"""native/sendrecv is a house of at most ten floors without circles (docs/design/sendrecv.md)."""

import re
from collections import defaultdict
from pathlib import Path

NATIVE = Path(__file__).parents[3] / "native"


def test_floors() -> None:
    includes: dict[str, set[str]] = defaultdict(set)
    for file in (NATIVE / "sendrecv").rglob("*.*"):
        unit = str(file.relative_to(NATIVE).with_suffix(""))
        for name in re.findall(r'#include "(sendrecv/.+)\.\w+"', file.read_text(encoding="utf-8")):
            if name != unit:
                includes[unit].add(name)

    def floor(unit: str, above: tuple[str, ...]) -> int:
        assert unit not in above, "a circle: " + " -> ".join((*above, unit))
        return 1 + max((floor(each, (*above, unit)) for each in includes[unit]), default=0)

    floors = {unit: floor(unit, ()) for unit in list(includes)}
    assert 5 < max(floors.values()) <= 10, floors
