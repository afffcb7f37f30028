# SPDX-License-Identifier: Apache-2.0
"""Parse states of services: `systemctl is-active NAMES`, `show` and `status`, and lines
`NAME STATE`."""

import re

from nccltune.doctor.evidence.parsers.text import lines_of

ASKED = (
    "nvidia-fabricmanager",
    "nvidia-persistenced",
    "nvidia-imex",
    "opensm",
    "irqbalance",
    "systemd-logind",
)
_NAMED = re.compile(r"^(?P<name>[\w@.-]{1,80}?)(?:\.service)?[ \t]+(?P<state>[a-z-]{3,20})\s*$")
_STATUS = re.compile(r"^[^\w\n]{0,5}(?P<name>[\w@.-]{1,80})\.service - ")
_ACTIVE = re.compile(r"^\s+Active: (?P<state>[a-z]{3,20})\b")
_ABSENT = re.compile(
    r"\bUnit (?P<name>[\w@.-]{1,80})\.service (?:(?:could not be|not) found|not loaded|is masked)"
)
_SHOWN = re.compile(r"^(?P<key>Id|ActiveState|LoadState)=(?P<value>[\w@.-]{1,80})$")


def parse_services(text: str) -> dict[str, str]:
    """Return the state by name without `.service`: active, inactive, failed, not-found, ..."""
    found: dict[str, str] = {}
    shown: dict[str, str] = {}

    def done() -> None:
        if "Id" in shown:
            state = shown.get("LoadState", "")
            state = state if state == "not-found" else shown.get("ActiveState", "")
            if state:
                found[shown["Id"].removesuffix(".service")] = state
        shown.clear()

    service = ""
    for _, line in lines_of(text):
        if (match := _STATUS.match(line)) is not None:
            service = match["name"]
            continue
        if service and (match := _ACTIVE.match(line)) is not None:
            found[service], service = match["state"], ""
            continue
        if (match := _ABSENT.search(line)) is not None:
            found[match["name"]] = "not-found"
            continue
        match = _SHOWN.match(line)
        if match is not None:
            # Services follow each other without a separator. A repeated key starts the next
            # service.
            if match["key"] in shown:
                done()
            shown[match["key"]] = match["value"]
            continue
        match = _NAMED.match(line)
        if match is not None:
            found[match["name"]] = match["state"]
    done()
    return found
