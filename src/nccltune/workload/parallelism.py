# SPDX-License-Identifier: Apache-2.0
"""The parallelism that the name of a communicator states."""

import re

_WORDS = {
    "tensor": ("tp", "etp", "tensor"),
    "data": ("dp", "ddp", "edp", "fsdp", "efsdp", "hsdp", "data", "replicate", "shard"),
    "pipeline": ("pp", "pipe", "pipeline"),
    "expert": ("ep", "etp", "edp", "efsdp", "expert", "moe"),
    "context": ("cp", "context", "sp", "sequence"),
}


def parallelism(name: str) -> str | None:
    """Return the kinds of parallelism whose words are in `name`; None without any.

    No name is no evidence: a communicator is never guessed from the collectives that it runs.

    >>> parallelism("mesh_tp"), parallelism("TENSOR_AND_DATA_PARALLEL_GROUP")
    ('tensor parallel', 'tensor and data parallel')
    >>> parallelism("mesh_efsdp"), parallelism("EXPERT_MODEL_PARALLEL_GROUP")
    ('data and expert parallel', 'expert parallel')
    >>> parallelism("default_pg") is None
    True
    """
    words = set(re.findall(r"[a-z]+", name.lower()))
    kinds = [kind for kind, own in _WORDS.items() if words.intersection(own)]
    return f"{' and '.join(kinds)} parallel" if kinds else None
