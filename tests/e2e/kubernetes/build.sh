#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds what the test cluster (cluster.py) runs and Debian has no package of, into DIR:
#
#   tests/e2e/kubernetes/build.sh DIR
#
# What is there stays, but our own `nodes`. Needs Go 1.22 or newer, and 3 minutes on two cores.
set -euo pipefail
[ $# = 1 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
mkdir -p "$1"
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")"

packages=(./nodes)
for name in kube-apiserver kube-controller-manager kube-scheduler; do
  [ -x "$bin/$name" ] || packages+=("k8s.io/kubernetes/cmd/$name")
done
[ -x "$bin/kubectl" ] || command -v kubectl >/dev/null || packages+=(k8s.io/kubernetes/cmd/kubectl)
# One build of all: their common packages are compiled once. Without optimisation it takes three
# minutes on two cores instead of five, and the cluster starts as fast.
CGO_ENABLED=0 go build -gcflags='all=-N -l' -ldflags='-s -w' -o "$bin/" "${packages[@]}"
