# SPDX-License-Identifier: Apache-2.0
"""One process of sendrecv_memory.py. RANK and the like as torchrun sets them.

Writes to one JSON file the bytes that CUDA reports as used, less those before.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from sendrecv_overlap_rank import Ring
from torch import distributed

EXCHANGES = 6
"""Of each pair of tensors. NCCL carries the first ones."""
SMALL = 64 << 20


class FilledRing(Ring):
    def __init__(self, size: int) -> None:
        number = distributed.get_rank() + 1
        super().__init__(torch.full((size,), number, dtype=torch.uint8, device="cuda"))

    def run(self) -> None:
        for _ in range(EXCHANGES):
            self.exchange()
        torch.cuda.synchronize()
        if not bool((self.into == self.before + 1).all()):
            raise SystemExit("wrong bytes")


def used() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--later", required=True)
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl", device_id=device)

    small = FilledRing(SMALL)
    small.run()
    before = used()
    large = FilledRing(args.bytes)
    large.run()
    found = {"with the memory": used() - before}
    del large
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    distributed.barrier()
    freed = time.monotonic()
    for seconds in map(float, args.later.split(",")):
        while time.monotonic() < freed + seconds:
            small.run()
            # A program has moments without work, for example when it reads a loss.
            time.sleep(0.01)
        found[f"{seconds:g} s after it was freed"] = used() - before
    distributed.barrier()
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    report = {"used": found, "torch": torch.__version__, "nccl": nccl}
    args.report.write_text(json.dumps(report))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
