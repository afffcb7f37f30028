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
version=1.31.4

packages=()
[ -x "$bin/kube-apiserver" ] || packages+=(k8s.io/kubernetes/cmd/kube-apiserver)
[ -x "$bin/kubectl" ] || command -v kubectl >/dev/null || packages+=(k8s.io/kubernetes/cmd/kubectl)
[ ${#packages[@]} = 0 ] && exit

# All versions follow from Kubernetes' own go.mod. It takes modules of the release from its source
# tree, which is not in the module: they have the release's number. Go checks the sums of all
# modules in its checksum database (GOSUMDB).
module=$(mktemp -d)
trap 'rm -rf "$module"' EXIT
cd "$module"
export GOFLAGS="${GOFLAGS:-} -mod=mod" CGO_ENABLED=0
printf 'module nccltune.test/kubernetes\ngo 1.22.0\nrequire k8s.io/kubernetes v%s\n' $version > go.mod
of_kubernetes=$(go mod download -json k8s.io/kubernetes@v$version | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
sed -n "s,^\s*\(k8s.io/[^ ]*\) => \./staging.*,replace \1 => \1 v0${version#1},p" "$of_kubernetes" >> go.mod
# Without optimisation the build takes half as long, and the server starts as fast.
go build -gcflags='all=-N -l' -ldflags='-s -w' -o "$bin/" "${packages[@]}"
