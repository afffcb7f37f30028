// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools keeps the modules of the programs that build.sh builds in go.mod.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
