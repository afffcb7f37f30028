# SPDX-License-Identifier: Apache-2.0
"""Read what the text around a command says about its nodes, its ranks and its host files."""

import re

from nccltune.launch_lint.command import LaunchContext

_SEVERAL = re.compile(
    r"\b(?:[2-9]|[1-9]\d+)[ -](?:gpu[ -])?(?:node|host|machine|server)s?\b|\bmulti-?(?:node|host)\b"
    r"|(?:two|three|four|several|all|both) (?:nodes|hosts|machines|servers)\b"
    r"|\bSLURM_(?:JOB_)?(?:NNODES|NUM_NODES|NODELIST)\b|\bscontrol show host|\brunai\b.*\bmpi\b"
    r"|\b(?:NNODES|NUM_NODES)=(?:[2-9]|[1-9]\d+)\b|--workers[= ]"
)
_RANK = re.compile(
    r"\$\{?((?:OMPI_COMM_WORLD|MV2_COMM_WORLD|PMIX?|FLUX_TASK|SLURM_(?:PROC|LOCAL)ID|MPI_LOCALRANK)\w*)"
)
_NODE = r"(?:node|host|machine|server)"
_GPUS = re.compile(
    rf"\b(?:(?:each|every) {_NODE} (?:has|with|contains)"
    rf"|{_NODE}s,? each (?:has|have|having|with|contain(?:s|ing))"
    rf"|{_NODE}s (?:with|having)(?=[^.\n]{{0,40}}gpus? each\b)) ([1-9]\d?)"
    r" (?:[\w.-]+ ){0,3}?gpus?\b",
    re.I,
)
"""What a text says of each of its nodes: `two nodes, each with 4 A100 GPUs`."""
_SUPPOSED = re.compile(r"^[^\n]*\b(?:if|suppose|imagine|for example)\b[^\n]*", re.I | re.M)
_RAY_GPUS = re.compile(r"^[^#\n]*\bray start\b[^\n]*?--num-gpus[ =]([1-9]\d?)\b", re.M)
_LAUNCHERS = re.compile(r"\b(?:mpirun|mpiexec|srun|torchrun|flux|jsrun|aprun|prterun)\b")
_HOST_LINE = r"[ \t>]{0,8}`?[\w.-]{1,255}(?::\d+|(?:[ \t]+(?:max[-_])?slots?=\d+)+)`?[ \t]*\n"
_HOSTFILE = re.compile(
    r"^.{0,80}?\b([\w.-]{0,40}(?:host|machine|node)[\w.-]{0,40})\W{0,9}?"
    r"(?:(?:'s)?(?: contents?)? (?:contains?|is|has)\b.{0,40})?\n(?:```.*\n)?"
    rf"((?:[ \t]*#.*\n){{0,3}}(?:{_HOST_LINE})+)"
    r"|^.{0,80}?\bcat (?:[\w./~-]{0,99}/)?([\w.-]{1,80})[ \t]*\n"
    r"((?:[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}[ \t]*\n)+)",
    re.M | re.I,
)
"""The name of a host file above its lines, each with a number of slots, or behind `cat`."""
OF_DEEPSPEED = "/job/hostfile"
"""The host file that deepspeed reads without an option."""
_BY_NODE = re.compile(
    rf"^[^\n=]{{0,40}}\b(?i:{_NODE})(?: ?\w{{1,9}})?\W{{0,5}}\n"
    r"(?:[^\n=]*\n)?[ \t$]*(?:export )?(NCCL_\w+)=([^\s;]+)[ \t]*$",
    re.M,
)
"""A setting below the name of a node, `# node A`."""
_CREATES = re.compile(r"\b(?:docker|podman|nerdctl) (?:run|create) (?:.*\\\n)*.*")
_GIVEN = re.compile(r"\s(?:-e|--env)[= ]\s*[\"']?([A-Z]\w*)")
_NODES = re.compile(r"\b([1-9]\d{0,4})[ -]?(?:nodes?\b|hosts?\b|machines?\b|节点|台)", re.I)


def read_around(text: str, site: LaunchContext) -> LaunchContext:
    """Return `site` with what a text says of its nodes, and the workers of Run:ai.

    These are whether there are several, their numbers, host files, and a rank that it reads.
    """
    found = [
        re.search(rf"\brunai\b[^\n]*(?:\\\n[^\n]*)*?--{name}[= ]+(\d{{1,5}})\b", text)
        for name in ("workers", "slots-per-worker")
    ]
    workers, slots = (int(match[1]) if match is not None else None for match in found)
    if workers is not None and slots is not None:
        site = site._replace(nodes=site.nodes or workers, slots=site.slots or slots)
    named = tuple(int(number) for number in _NODES.findall(text))
    several = site.several or _SEVERAL.search(text) is not None
    stated = _SUPPOSED.sub("", text)
    gpus = {int(n) for n in (_GPUS.findall(stated) or _RAY_GPUS.findall(text.replace("\\\n", " ")))}
    rank = _RANK.search(text) if _LAUNCHERS.search(text) is None else None
    boxed = {name for creates in _CREATES.findall(text) for name in _GIVEN.findall(creates)}
    by_node = dict(_BY_NODE.findall(text))
    shown = tuple(
        (match[1] or match[3], (match[2] or match[4]).replace("`", ""))
        for match in _HOSTFILE.finditer(f"{text}\n")
    )
    if f"cat {OF_DEEPSPEED}" in text:
        shown += tuple((OF_DEEPSPEED, hosts) for name, hosts in shown if name == "hostfile")
    return site._replace(
        files=(*site.files, *shown),
        several=several,
        named_nodes=named,
        boxed=(*site.boxed, *sorted(boxed)),
        by_node=tuple(n for n, value in _BY_NODE.findall(text) if by_node[n] != value),
        gpus=gpus.pop() if len(gpus) == 1 and site.gpus is None else site.gpus,
        rank=site.rank or (rank[1] if rank is not None else ""),
    )
