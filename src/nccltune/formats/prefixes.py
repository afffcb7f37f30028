# SPDX-License-Identifier: Apache-2.0
"""What launchers put in front of a line: process tags and time stamps.

Open MPI 4 `--tag-output` and `--timestamp-output`, Open MPI 5 `--output tag`, `tag-detailed`,
`tag-fullname`, `rank` and `timestamp`, `srun -l`, hydra `-l`, and combinations of them.
"""

import re

_PREFIX = re.compile(
    r"(?:\w{3} \w{3} [ \d]?\d \d\d:\d\d:\d\d \d{4} ?)?"  # ctime of --timestamp-output
    r"(?:\[(?P<tag>[^\]\s]{1,128})\](?:\[[^\]\s]*\])?)?"
    r"<(?:stdout|stderr|stddiag)>:"
    r"|[ \t]*(?P<srun>\d{1,7}):(?=\s|$)"
    r"|\[(?P<hydra>\d{1,7})\](?=\s|$)"
)


def strip_prefix(line: str) -> tuple[str, str]:
    """Split `line` into the process it comes from (empty: unknown) and its own text.

    Blanks after a prefix stay: columns keep their places within a source.
    """
    source = ""
    for _ in range(3):
        match = _PREFIX.match(line)
        if match is None:
            break
        tag = match["tag"] or match["srun"] or match["hydra"]
        if tag:
            source = f"{source}|{tag}" if source else tag
        line = line[match.end() :]
        if line.startswith((" [", " <")):
            line = line[1:]
    return source, line
