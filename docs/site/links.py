# SPDX-License-Identifier: Apache-2.0
"""Pages of the repository outside of docs/ on the site, and links as they are in the repository.

A link of a page is relative to its file. `docs/` is the site's root there, so that links out of it
have another depth, and pages beside it (README, benchmarks) link into it by its name.
"""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
FOLDERS = ("benchmarks", "examples")
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_OUTSIDE = re.compile(r"\w+:")


def site_path(path: str) -> str:
    """Where a file of the repository is on the site."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def repository_path(page: File) -> str:
    """The file that a page of the site is made of."""
    assert page.abs_src_path is not None
    return Path(page.abs_src_path).relative_to(ROOT).as_posix()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages beside docs/, and every file that a page links to."""
    beside = [*PAGES, *(path.relative_to(ROOT).as_posix() for path in _pages_in(FOLDERS))]
    for path in beside:
        _add(path, files, config)
    for page in list(files.documentation_pages()):
        if page.abs_src_path is None:
            continue
        for path in _targets(page):
            _add(path, files, config)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Rewrite links between files of the repository into links between pages."""
    if page.file.abs_src_path is None:
        return markdown
    source = repository_path(page.file)

    def rewritten(match: re.Match[str]) -> str:
        path = _target(source, match[2])
        if path is None:
            return match[0]
        here = posixpath.dirname(page.file.src_uri)
        return (
            match[1] + posixpath.relpath(site_path(path), here or ".") + (match[3] or "") + match[4]
        )

    return _LINK.sub(rewritten, markdown)


def _pages_in(folders: tuple[str, ...]) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.md"))]


def _targets(page: File) -> set[str]:
    text = page.content_string
    found = (_target(repository_path(page), match[2]) for match in _LINK.finditer(text))
    return {path for path in found if path is not None}


def _target(source: str, link: str) -> str | None:
    """The file of the repository that a link of `source` leads to; None for anything else."""
    if _OUTSIDE.match(link):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    return path if not path.startswith("..") and (ROOT / path).is_file() else None


def _add(path: str, files: Files, config: MkDocsConfig) -> None:
    target = site_path(path)
    if files.get_file_from_path(target) is None:
        files.append(File.generated(config, target, abs_src_path=os.fspath(ROOT / path)))
