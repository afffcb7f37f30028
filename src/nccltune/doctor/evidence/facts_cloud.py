# SPDX-License-Identifier: Apache-2.0
"""Facts of the cloud that a machine runs in, from its DMI strings and from saved metadata.

This module queries no metadata service. It reads these saved answers:
`gcloud compute instances describe NAME --format=json`, GCP's metadata (`?recursive=true`), AWS's
instance identity document or `describe-instance-topology` and `describe-instance-types`, Azure's
`/metadata/instance`.
"""

import json
import re
from typing import Any

from nccltune.doctor.evidence.raw import NodeEvidence
from nccltune.doctor.facts import FactName, Facts
from nccltune.doctor.facts.cloud import (
    CLOUD_LINE_RATE_GBIT_PER_S,
    CLOUD_MACHINE_TYPE,
    CLOUD_PHYSICAL_HOST,
    CLOUD_PLACEMENT,
    CLOUD_PROVIDER,
)

_DMI = "/sys/class/dmi/id/"
CloudFacts = dict[FactName[Any], Any]
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"


def add_cloud(evidence: NodeEvidence, facts: Facts) -> None:
    """Add the facts `cloud.*`."""
    system = evidence.tree("system")
    if system is not None and any(path.startswith(_DMI) for path in system[0].values):
        vendor = system[0].get(_DMI + "sys_vendor") or ""
        product = system[0].get(_DMI + "product_name") or ""
        tag = system[0].get(_DMI + "chassis_asset_tag") or ""
        provider = _provider(vendor, product, tag)
        source = evidence.where(system[1], _DMI.rstrip("/"))
        facts.add(CLOUD_PROVIDER, provider, source)
        if provider == "aws" and product and not product.startswith("HVM"):
            facts.add(CLOUD_MACHINE_TYPE, product, source)
    for name in ("cloud-metadata", "gcloud", "aws-topology", "aws-instance-type"):
        raw = evidence.get(name)
        document = evidence.parse(raw, _json) if raw is not None else None
        if raw is not None and document is None:
            evidence.problems.append(f"{raw.source}: is no JSON")
        elif raw is not None:
            for fact, value in _facts_in(document).items():
                facts.add(fact, value, raw.place())


def _provider(vendor: str, product: str, tag: str) -> str:
    if "Google" in vendor or product == "Google Compute Engine":
        return "gcp"
    if "Amazon" in vendor:
        return "aws"
    if tag == _AZURE_TAG:
        return "azure"
    if "OracleCloud" in tag:
        return "oracle"
    if "Alibaba" in vendor:
        return "alibaba"
    return "ibm" if "IBM:Cloud" in vendor or "ibmcloud" in tag else "none"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _facts_in(document: Any) -> CloudFacts:
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, dict):
        return {}
    if "networkNodes" in document or "Instances" in document or "NetworkNodes" in document:
        return _aws_topology(document)
    if isinstance(document.get("InstanceTypes"), list):
        return _aws_type(document["InstanceTypes"])
    if "instanceType" in document:
        return _texts({CLOUD_MACHINE_TYPE: document["instanceType"]})
    if isinstance(document.get("compute"), dict):
        return _azure(document["compute"])
    return _gcp(document)


def _texts(found: CloudFacts) -> CloudFacts:
    return {fact: value for fact, value in found.items() if isinstance(value, str)}


def _gcp(document: dict[str, Any]) -> CloudFacts:
    instance = document.get("instance")
    inner = instance if isinstance(instance, dict) else document
    machine = inner.get("machineType")
    found: CloudFacts = {}
    if isinstance(machine, str):
        found[CLOUD_MACHINE_TYPE] = machine.rpartition("/")[2]
    attributes = inner.get("attributes")
    status = inner.get("resourceStatus")
    for place in (
        attributes.get("physical_host") if isinstance(attributes, dict) else None,
        status.get("physicalHost") if isinstance(status, dict) else None,
    ):
        if isinstance(place, str) and place:
            found[CLOUD_PHYSICAL_HOST] = place
    if "resourcePolicies" in inner or "networkInterfaces" in inner:
        policies = inner.get("resourcePolicies")
        first = policies[0] if isinstance(policies, list) and policies else ""
        # The metadata service does not list policies, so the placement is unknown. The output of
        # `describe` (it has `selfLink`) omits an empty list, so the instance has no policy: "".
        if "selfLink" in inner or policies is not None:
            found[CLOUD_PLACEMENT] = str(first).rpartition("/")[2]
    return found


def _aws_topology(document: dict[str, Any]) -> CloudFacts:
    instances = document.get("Instances")
    inner = instances[0] if isinstance(instances, list) and instances else document
    if not isinstance(inner, dict):
        return {}
    nodes = inner.get("NetworkNodes", inner.get("networkNodes"))
    found = _texts(
        {
            CLOUD_MACHINE_TYPE: inner.get("InstanceType"),
            CLOUD_PLACEMENT: inner.get("GroupName"),
        }
    )
    if isinstance(nodes, list) and nodes:
        found[CLOUD_PHYSICAL_HOST] = "/" + "/".join(str(node) for node in nodes)
    return found


def _aws_type(types: list[Any]) -> CloudFacts:
    """Return the fact of the line rate from the output of `aws ec2 describe-instance-types`.

    AWS writes the rate as a text, such as `3200 Gigabit`. Without such a text the result is empty.
    """
    inner = types[0] if types and isinstance(types[0], dict) else {}
    network = inner.get("NetworkInfo")
    told = network.get("NetworkPerformance") if isinstance(network, dict) else None
    match = re.search(r"(\d{1,6}(?:\.\d{1,3})?) Gigabit", told) if isinstance(told, str) else None
    return {CLOUD_LINE_RATE_GBIT_PER_S: float(match[1])} if match else {}


def _azure(compute: dict[str, Any]) -> CloudFacts:
    return _texts(
        {
            CLOUD_MACHINE_TYPE: compute.get("vmSize"),
            CLOUD_PLACEMENT: compute.get("placementGroupId"),
        }
    )
