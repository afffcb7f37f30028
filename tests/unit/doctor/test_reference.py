# SPDX-License-Identifier: Apache-2.0
"""The tables of the reference page match the rules, functions and facts of the code.

`python -m tests.unit.doctor.test_reference` rewrites them.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nccltune.doctor.examine import link
from nccltune.doctor.facts import catalogue
from nccltune.doctor.language.functions import FUNCTIONS
from nccltune.doctor.rulebase import rule_base

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "doctor.md"


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("<", "&lt;")


def rules() -> Iterator[str]:
    for family in rule_base().families:
        yield f"### {family.title} (`{family.name}.toml`)"
        yield ""
        yield "| id | number | severity | what | NCCL | source |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for rule in family.rules:
            text = rule.text
            sources = "; ".join(_short(source) for source in text.source)
            yield (
                f"| `{rule.id}` | {text.number or ''} | {text.severity.value} | "
                f"{_cell(text.title)} | {text.nccl.words if text.nccl else ''} | {_cell(sources)} |"
            )
        yield ""


def _short(source: str) -> str:
    words, found, address = link(source).rpartition(" (https://")
    return f"[{words}](https://{address.removesuffix(')')})" if found else source


def functions() -> Iterator[str]:
    yield "| function | gives |"
    yield "| --- | --- |"
    for function in FUNCTIONS.values():
        yield f"| `{function.signature}` | {_cell(function.meaning)} |"


def facts() -> Iterator[str]:
    yield "| fact | type | meaning | read from |"
    yield "| --- | --- | --- | --- |"
    for known in catalogue().values():
        fields = ", ".join(f"`{field.name}`" for field in known.fields)
        meaning = _cell(known.meaning) + (f" ({fields})" if fields else "")
        yield f"| `{known.name}` | {known.type.value} | {meaning} | {_cell(known.read)} |"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "rules": rules,
    "functions": functions,
    "facts": facts,
}


def filled(page: str) -> str:
    """Return the page with its generated parts up to date."""
    for name, lines in TABLES.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        head, found, rest = page.partition(begin)
        _, closed, tail = rest.partition(end)
        assert found, f"{PAGE.name} has no part {name}"
        assert closed, f"{PAGE.name} has no part {name}"
        page = head + begin + "\n" + "\n".join(lines()).rstrip() + "\n\n" + end + tail
    return page


def test_the_page_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == filled(page), "python -m tests.unit.doctor.test_reference"


def test_no_address_has_a_blank() -> None:
    addresses = re.findall(
        r"\]\((https?://[^|]*?)\)(?=[;,. |]|$)", PAGE.read_text(encoding="utf-8"), re.M
    )
    assert len(addresses) > 100
    assert [one for one in addresses if " " in one] == []


@pytest.mark.parametrize("name", ["since", "within", "tolerance", "scope", "code"])
def test_the_page_names_the_field_of_a_rule(name: str) -> None:
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
