# SPDX-License-Identifier: Apache-2.0
"""Read numbers with units as people write them: `1,048,576`, `64 KiB`, `1.5 ms`, `12,5`.

Whatever has two meanings is an error, or several values of which the caller's other columns decide.
"""

import re
from decimal import Decimal
from typing import NamedTuple

from nccltune.formats.text.cells import AmbiguousCellError, CellError
from nccltune.formats.text.lines import visible

TIME_UNITS = {
    "us": Decimal(1), "usec": Decimal(1), "usecs": Decimal(1), "microseconds": Decimal(1),
    "micros": Decimal(1), "ns": Decimal("0.001"), "ms": Decimal(1000), "msec": Decimal(1000),
    "milliseconds": Decimal(1000), "s": Decimal(10**6), "sec": Decimal(10**6),
    "seconds": Decimal(10**6),
}  # fmt: skip
"""Microseconds of a unit of time."""
BINARY_PREFIXES = "K, M and G of the sizes are read as 1024, 1024^2, 1024^3, as nccl-tests does"
"""The note on a file whose sizes are read with binary prefixes."""
DECIMAL_PREFIXES = "K, M and G of the sizes are read as 1000, 1000^2, 1000^3: their digits fit that"
ROUNDED_SIZES = "sizes are rounded: each is read as the only power of two that is printed so"
_LARGEST_ROUNDING = 0.06
"""The largest rounding of a size, as a fraction, with which it is read as it is printed."""
_EXACT = 0.006
"""The largest rounding of a bandwidth, as a fraction, from which a time is computed."""
_BINARY, _DECIMAL = 1024, 1000
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE_UNIT = re.compile(r"(?P<power>[KMGT]?)(?P<binary>i?)(?:b|bytes?)?", re.IGNORECASE)
_BANDWIDTH_UNIT = re.compile(
    r"(?P<power>[KMGT])(?P<binary>i?)(?P<what>B|b|Bytes?|bytes?|bits?|Bits?)"
    r"(?:ps|PS|s|S|/s|/S|/sec|/SEC| per second)"
)
_NUMBER = re.compile(
    r"(?P<number>[+-]?(?:\d[\d,.'_\s]*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s][^\d]*)?",
    re.ASCII,
)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:(?P<mark>[,'_\s])\d{3})(?:(?P=mark)\d{3})*(?:\.\d+)?")
_PLAIN = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_SIMPLE = re.compile(r"[0-9]{1,15}(?:\.(?P<digits>[0-9]{1,12}))?")
_COMMA = re.compile(r"[+-]?\d+,\d+")
# A value with its spread: `12.3 \u00b1 0.4 us`, `12.3us (+/- 2 %)`.
_SPREAD = re.compile(
    r"(?P<value>[^(\u00b1]{1,40}?)\s{0,4}\(?(?:\u00b1|\+/-)\s{0,4}[\d.,]{1,24}(?:[eE][+-]?\d{1,3})?"
    r"\s{0,4}(?P<unit>[^\d()]{0,16})\)?"
)


class PossibleBytes(NamedTuple):
    """The bytes that a size may stand for: with binary and with decimal prefixes.

    Both are equal for a size without a prefix. None: no whole number of bytes. A size that was
    rounded, such as `0.06 MiB`, is the only power of two that is printed so: `rounded` if neither
    is exact. `printed` are the bytes of the digits alone, which are right up to the fraction
    `slack`; None if that is too large.
    """

    binary: int | None
    decimal: int | None
    rounded: bool = False
    printed: tuple[int, int] | None = None
    slack: float = 0.0

    def of(self, *, binary: bool, printed: bool = False) -> int | None:
        """Return the bytes with binary or decimal prefixes, or those of the digits alone."""
        if printed and self.printed is not None:
            return self.printed[not binary]
        return self.binary if binary else self.decimal


def rounded_sizes(slack: float) -> str:
    """Return the note on sizes that are read as they are printed."""
    return f"sizes are rounded: read as printed, up to {100 * slack:.2g} % off"


class Number(NamedTuple):
    """A number, half a unit of its last printed digit, and whether it was converted."""

    value: float
    half: float
    converted: bool

    @property
    def gives_time(self) -> bool:
        """Whether this bandwidth is printed with enough digits to compute a time from it."""
        return 0 < self.half <= _EXACT * self.value


def time_unit(text: str) -> Decimal | None:
    """Return the microseconds of a unit of time; None for another word."""
    return TIME_UNITS.get(text.strip(" .").lower().replace("\u00b5", "u").replace("\u03bc", "u"))


def size_of(cell: str, unit: str) -> PossibleBytes:
    """Return the bytes of a size; `unit` is that of its column. Raises CellError."""
    if cell.isdecimal() and unit in ("", "B") and cell.isascii():
        return PossibleBytes(int(cell), int(cell))
    number, own = _split(cell, "a size", whole=True)
    match = _SIZE_UNIT.fullmatch(own or unit)
    if match is None:
        raise CellError(f"{visible(cell, 40)!r} is not a size", "write bytes, or 64K, 1M, 2GiB")
    power = _POWERS[match["power"].upper()]
    found = [_rounded_bytes(number, base**power) for base in (_BINARY, _DECIMAL)]
    binary, decimal = found[0], found[0] if match["binary"] else found[1]
    whole = number == number.to_integral_value()
    slack = 0.0 if whole or not number else float(_half(number) / abs(number))
    printed = (
        round(number * _BINARY**power),
        round(number * (_BINARY if match["binary"] else _DECIMAL) ** power),
    )
    near = None if not power or slack > _LARGEST_ROUNDING or min(printed) <= 0 else printed
    if binary is None and decimal is None and near is None:
        raise CellError(f"{visible(cell, 40)!r} is no whole number of bytes", "write whole bytes")
    exact = {number * _BINARY**power, number * _DECIMAL**power}
    return PossibleBytes(binary, decimal, not exact & {binary, decimal}, near, slack)


def _rounded_bytes(number: Decimal, factor: int) -> int | None:
    """Return the only power of two that is printed as `number`, or else the number if it is whole.

    `factor` is the bytes of its unit.
    """
    exact, half = number * factor, _half(number) * factor
    above = 1 << max(0, int(exact - half)).bit_length()
    powers = [power for power in (above // 2, above, above * 2) if abs(power - exact) <= half]
    if factor > 1 and len(powers) == 1:
        return powers[0]
    return int(exact) if exact == int(exact) >= 0 else None


def time_of(cell: str, unit: Decimal | None, *, thousands: bool = False) -> tuple[Number, bool]:
    """Return a time in microseconds, and whether the cell or the column names its unit.

    `thousands`: the comma in `1,234` is one between thousands. Otherwise it raises CellError, as
    for other cells that are no time.
    """
    if (quick := _simple(cell, unit)) is not None:
        return quick, unit is not None
    number, own = _split(cell, "a time", whole=thousands)
    factor = time_unit(own) if own else unit
    if own and factor is None:
        raise CellError(f"{own!r} is not a unit of time", "units are us, ms and s")
    return _scaled(number, factor or Decimal(1)), factor is not None


def bandwidth_unit(text: str) -> Decimal | None:
    """Return the GB/s of a unit of bandwidth; None for another word.

    `gbps` in lower case is 1e9 bytes a second, as in NVIDIA's raw CSV, `Gbps` and `Gb/s` are bits.
    """
    text = text.strip()
    match = _BANDWIDTH_UNIT.fullmatch(text[:1].upper() + text[1:])
    if match is None:
        return None
    base = _BINARY if match["binary"] else _DECIMAL
    value = Decimal(base) ** _POWERS[match["power"].upper()] / Decimal(10**9)
    bits = match["what"].startswith("b") and match["what"].lower() not in ("byte", "bytes")
    lower = text == text.lower() and "bit" not in text
    return value / 8 if bits and not lower else value


def bandwidth_of(cell: str, unit: Decimal | None) -> Number | None:
    """Return a bandwidth in GB/s; None for an empty cell. Raises CellError."""
    if (quick := _simple(cell, unit)) is not None:
        return quick
    if not cell.strip("-\u2013\u2014 ") or cell.upper() in ("N/A", "NA", "NAN"):
        return None
    number, own = _split(cell, "a bandwidth")
    factor = bandwidth_unit(own) if own else unit
    if own and factor is None:
        raise CellError(f"{own!r} is not a unit of bandwidth", "write GB/s")
    return _scaled(number, factor or Decimal(1))


def whole_of(cell: str, noun: str) -> int:
    """Return a whole number, also with marks between thousands. Raises CellError."""
    number, own = _split(cell, noun, whole=True)
    if own or number != int(number):
        raise CellError(f"{visible(cell, 40)!r} is not {noun}", "write a whole number")
    return int(number)


def _simple(cell: str, factor: Decimal | None) -> Number | None:
    """Return a plain number that needs no conversion, quickly; None for others."""
    match = _SIMPLE.fullmatch(cell)
    if match is None or (factor is not None and factor != 1):
        return None
    return Number(float(cell), 0.5 * 10.0 ** -len(match["digits"] or ""), False)


def _scaled(number: Decimal, factor: Decimal) -> Number:
    return Number(float(number * factor), float(_half(number) * factor), factor != 1)


def _half(number: Decimal) -> Decimal:
    """Return half a unit of the last digit of a number."""
    return Decimal(5).scaleb(int(number.as_tuple().exponent) - 1)


def _split(cell: str, noun: str, *, whole: bool = False) -> tuple[Decimal, str]:
    """Return the number of a cell and the unit behind it; `whole`: a comma marks thousands."""
    text = cell.replace("\u00a0", " ").replace("\u202f", " ").replace("\u2212", "-").strip()
    if not text:
        raise CellError(f"empty where {noun} belongs", "write a number")
    if (spread := _SPREAD.fullmatch(text)) is not None:
        text = spread["value"]
        text += spread["unit"].strip("% ") if text[-1:].isdigit() else ""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise CellError(f"{visible(cell, 40)!r} is not {noun}", "write a number above 0")
    number, unit = match["number"].strip(), (match["unit"] or "").strip()
    if _THOUSANDS.fullmatch(number):
        if number.count(",") == 1 and "." not in number and not whole:
            raise AmbiguousCellError(
                f"{number!r} has two meanings: a decimal comma, or one between thousands",
                f"write {number.replace(',', '')} or {number.replace(',', '.')}",
            )
        number = re.sub(r"[,'_\s]", "", number)
    elif _COMMA.fullmatch(number):
        number = number.replace(",", ".")
    if not _PLAIN.fullmatch(number):
        raise CellError(f"{visible(cell, 40)!r} is not {noun}", "write a number above 0")
    return Decimal(number), unit
