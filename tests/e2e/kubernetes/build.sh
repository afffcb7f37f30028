#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Kubernetes API server of the tests (cluster.py), and kubectl where there is none, into
# DIR:
#
#   tests/e2e/kubernetes/build.sh DIR
#
# What is there stays. Needs Go 1.22 or newer, and 2 minutes on two cores.
set -euo pipefail
[ $# = 1 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
mkdir -p "$1"
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")"

packages=()
[ -x "$bin/kube-apiserver" ] || packages+=(k8s.io/kubernetes/cmd/kube-apiserver)
[ -x "$bin/kubectl" ] || command -v kubectl >/dev/null || packages+=(k8s.io/kubernetes/cmd/kubectl)
[ ${#packages[@]} = 0 ] ||
  # Without optimisation the build takes half as long, and the server starts as fast.
  CGO_ENABLED=0 go build -gcflags='all=-N -l' -ldflags='-s -w' -o "$bin/" "${packages[@]}"
