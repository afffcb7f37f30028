# SPDX-License-Identifier: Apache-2.0
"""Messages between two network namespaces while their network is down (needs root).

python benchmarks/net_outage.py --host nccltune-net-host --plugin NAME=PATH ... \\
    [--down 60,120,300] [--what link|switch] [--set VARIABLE=VALUE ...] [--json]

Each outage has its own pair of namespaces with a switch (a bridge in a third one) between them, and
all run side by side. Two connections, one in each direction, carry messages of up to 1 MiB, whose
bytes are all checked. In the middle the first host's link or the switch goes down for so many
seconds. A host notices that its link is down; a switch that is off only swallows packets.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

MESSAGES = 600
RATE = "100mbit"
BEFORE_THE_OUTAGE = 8 << 20
AFTER_THE_OUTAGE = 4 << 20
PATIENCE_S = 1200


@dataclass
class Outage:
    """One outage and how the ranks took it."""

    plugin: str
    down_s: float
    ok: bool = False  # both ranks ended well, and all bytes are right
    recovered_s: float | None = None  # from the link's return to data on it
    deaths: int = 0
    reconnects: int = 0
    error: str = ""


def ip(words: str) -> str:
    return subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def network(name: str) -> Iterator[tuple[list[str], str]]:
    """Two hosts with links of limited speed, and the switch between them."""
    hosts, switch = [f"{name}a", f"{name}b"], f"{name}s"
    try:
        ip(f"netns add {switch}")
        ip(f"-n {switch} link add br0 type bridge")
        ip(f"-n {switch} link set br0 up")
        for number, host in enumerate(hosts, 1):
            ip(f"netns add {host}")
            ip(f"-n {host} link add eth0 type veth peer name port{number} netns {switch}")
            ip(f"-n {switch} link set port{number} master br0")
            ip(f"-n {switch} link set port{number} up")
            ip(f"-n {host} link set lo up")
            ip(f"-n {host} addr add 10.77.0.{number}/24 dev eth0")
            ip(f"-n {host} link set eth0 up")
            shaped = f"tc qdisc add dev eth0 root tbf rate {RATE} burst 64kb latency 40ms"
            ip(f"netns exec {host} {shaped}")
        time.sleep(1)  # the kernel reports the link a little later
        yield hosts, switch
    finally:
        for host in (*hosts, switch):
            subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)


def sent(host: str) -> int:
    return int(json.loads(ip(f"-n {host} -s -j link show dev eth0"))[0]["stats64"]["tx"]["bytes"])


def wait_for_bytes(host: str, more: int, ranks: list[subprocess.Popen[str]]) -> bool:
    """Wait until so much left by the host's NIC; False if a rank ended before."""
    begun = sent(host)
    while sent(host) - begun < more:
        if any(rank.poll() is not None for rank in ranks):
            return False
        time.sleep(0.05)
    return True


def call(args: argparse.Namespace, outage: Outage, path: str, name: str) -> None:
    """Run both ranks with one outage."""
    settings = dict(each.split("=", 1) for each in args.set)
    environment = os.environ | {"NCCL_SOCKET_IFNAME": "=eth0"} | settings
    words = f"transfer --sizes 0-1M --messages {MESSAGES} --timeout {PATIENCE_S} --log".split()
    with network(name) as (hosts, switch), tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank, host in enumerate(hosts):
            place = ["--rendezvous", f"{folder}/meet", "--rank", str(rank), "--plugin", path]
            command = ["ip", "netns", "exec", host, args.host, *words, *place]
            log = (Path(folder) / f"log{rank}").open("w")
            started = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
            ranks.append(started)
        had_outage = wait_for_bytes(hosts[0], BEFORE_THE_OUTAGE, ranks)
        if had_outage:
            device = (
                f"{hosts[0]} link set eth0" if args.what == "link" else f"{switch} link set br0"
            )
            ip(f"-n {device} down")
            time.sleep(outage.down_s)
            ip(f"-n {device} up")
            begun = time.monotonic()
            if wait_for_bytes(hosts[0], AFTER_THE_OUTAGE, ranks):
                outage.recovered_s = time.monotonic() - begun
        reports = [rank.communicate(timeout=PATIENCE_S)[0] for rank in ranks]
        logs = "".join((Path(folder) / f"log{rank}").read_text() for rank in (0, 1))
        failures = re.findall(r".*(?:failed with|returned).*", logs)
        outage.error = failures[0] if failures else ""
        outage.deaths = sum(map(int, re.findall(r"flow deaths (\d+)", logs)))
        outage.reconnects = sum(map(int, re.findall(r"reconnect attempts (\d+)", logs)))
        if all(rank.returncode == 0 for rank in ranks):
            received = [each["received"]["messages"] for each in json.loads(reports[0])["ranks"]]
            outage.ok = had_outage and received == [MESSAGES, MESSAGES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", required=True, help="nccltune-net-host")
    parser.add_argument("--plugin", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--down", default="60,120,300", help="seconds of each outage")
    parser.add_argument("--what", choices=("link", "switch"), default="link", help="what is down")
    parser.add_argument("--set", action="append", default=[], metavar="VARIABLE=VALUE")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    plugins = dict(each.split("=", 1) for each in args.plugin)
    outages = [Outage(name, float(down)) for name in plugins for down in args.down.split(",")]
    threads = [
        threading.Thread(
            target=call, args=(args, outage, plugins[outage.plugin], f"no{os.getpid()}-{number}")
        )
        for number, outage in enumerate(outages)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if args.json:
        print(json.dumps([asdict(outage) for outage in outages]))
        return
    for each in outages:
        again = "-" if each.recovered_s is None else f"{each.recovered_s:.1f} s"
        print(
            f"| {each.plugin} | {each.down_s:g} s | {'all arrived' if each.ok else 'failed'} "
            f"| {again} | {each.deaths} | {each.reconnects} | {each.error} |"
        )


if __name__ == "__main__":
    main()
