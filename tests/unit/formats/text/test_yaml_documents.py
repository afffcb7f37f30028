# SPDX-License-Identifier: Apache-2.0
"""Foreign YAML takes bounded time and memory."""

import pytest

from nccltune.formats.text.yaml_documents import MAX_CHARACTERS, load_documents
from nccltune.model.errors import InputError

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 10)
)


def test_documents() -> None:
    assert load_documents("a: &x [1, 2]\nb: *x\n---\n- c\n", "f") == [
        {"a": [1, 2], "b": [1, 2]},
        ["c"],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "aliases expanded"),
        ("a: &a [*a]\n", "part of"),
        ("x" * (MAX_CHARACTERS + 1), "4 MiB"),
        ("[" * 5000, "not YAML"),
        ("a: [1", "not YAML"),
        ("a: !!python/object:os.system x", "not YAML"),
        ("a: 2026-99-99", "not YAML"),
        ("- x\n" * 20_000, "values"),
    ],
)
def test_documents_that_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setattr("nccltune.formats.text.yaml_documents.MAX_NODES", 10_000)
    with pytest.raises(InputError, match=message) as caught:
        load_documents(text, "job.yaml")
    assert caught.value.where == "job.yaml"
