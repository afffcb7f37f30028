# SPDX-License-Identifier: Apache-2.0
"""Read the files of the pages (`page/`), and make the environment of their templates."""

import importlib.resources
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

Filters = Mapping[str, Callable[..., Any]]
"""Functions that a template calls by name."""


def asset(name: str) -> str:
    """Return the text of a file in `page/`: a template, a style or a script."""
    folder = importlib.resources.files("nccltune.report").joinpath("page")
    return folder.joinpath(name).read_text(encoding="utf-8")


def environment(filters: Filters) -> "Environment":
    """Return the environment of templates. HTML is escaped, and an undefined name is an error."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(asset),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    made.filters |= filters
    return made
