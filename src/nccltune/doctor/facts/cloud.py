# SPDX-License-Identifier: Apache-2.0
"""Facts of the cloud and of the placement in it."""

from nccltune.doctor.facts.declaration import fact

CLOUD_PROVIDER = fact(
    "cloud.provider",
    str,
    meaning="gcp, aws, azure, ibm, oracle, alibaba; none for a machine of one's own",
    read="/sys/class/dmi/id/{sys_vendor,product_name,chassis_asset_tag}",
)
CLOUD_MACHINE_TYPE = fact(
    "cloud.machine_type",
    str,
    meaning="a3-highgpu-8g, p5.48xlarge, Standard_ND96isr_H100_v5",
    read="DMI product name on AWS; the provider's metadata where it was collected",
)
CLOUD_PLACEMENT = fact(
    "cloud.placement",
    str,
    meaning="placement policy or group of the VM; empty where it has none",
    read=(
        "GCP: resourcePolicies of gcloud compute instances describe; AWS: metadata "
        "placement/group-name; Azure: metadata placementGroupId"
    ),
)
CLOUD_PHYSICAL_HOST = fact(
    "cloud.physical_host",
    str,
    meaning=("where the VM stands, from the wide to the near, parted by slashes: /block/rack/host"),
    read="GCP: metadata attributes/physical_host; AWS: describe-instance-topology",
)
CLOUD_LINE_RATE_GBIT_PER_S = fact(
    "cloud.line_rate_gbit_per_s",
    float,
    meaning="network bandwidth that the provider gives this machine, all interfaces together",
    read="the provider's metadata where it was collected",
)
