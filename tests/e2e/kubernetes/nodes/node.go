// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	leases   = "kube-node-lease"
	address  = "127.0.0.1"
	leaseFor = 40
)

// node is a kubelet: it tells that it lives, and its server answers for logs and exec.
type node struct {
	machine *machine
	name    string
	server  *server
	ctx     context.Context
	cancel  context.CancelFunc
	silent  atomic.Bool // it died without closing its connections
}

func (m *machine) addNode(ctx context.Context, name string) (*node, error) {
	n := &node{machine: m, name: name}
	n.ctx, n.cancel = context.WithCancel(ctx)
	var err error
	if n.server, err = newServer(n); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[name] = n
	return n, nil
}

func (n *node) dead() bool { return n.ctx.Err() != nil }

// die is a power cut: nothing that the node has to say is said any more. Its connections break at
// once, as when something on the way tells of it, or stay silent for ever.
func (n *node) die(silent bool) {
	n.silent.Store(silent)
	n.cancel()
	if silent {
		n.server.listener.Close()
	} else {
		n.server.Close()
	}
	for _, each := range n.machine.allPods() {
		if each.node == n {
			each.kill()
		}
	}
}

// beat registers the node, and renews its lease and its status while it lives.
func (n *node) beat() {
	told := time.Time{}
	repeat(n.ctx, func(ctx context.Context) error {
		if time.Since(told) > 10*time.Second {
			if err := n.tell(ctx); err != nil {
				return fmt.Errorf("node %s: %w", n.name, err)
			}
			told = time.Now()
		}
		if err := n.renew(ctx); err != nil {
			// The controllers may have called us gone meanwhile.
			told = time.Time{}
			return fmt.Errorf("lease of node %s: %w", n.name, err)
		}
		return n.mend(ctx, &told)
	})
}

// mend tells at once that the node lives, where the controllers have said otherwise.
func (n *node) mend(ctx context.Context, told *time.Time) error {
	found, err := n.machine.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, each := range found.Status.Conditions {
		if each.Type == corev1.NodeReady && each.Status != corev1.ConditionTrue {
			*told = time.Time{}
		}
	}
	return nil
}

func (n *node) tell(ctx context.Context) error {
	nodes := n.machine.client.CoreV1().Nodes()
	found, err := nodes.Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		labels := map[string]string{
			corev1.LabelHostname:   n.name,
			corev1.LabelOSStable:   runtime.GOOS,
			corev1.LabelArchStable: runtime.GOARCH,
		}
		made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: labels}}
		found, err = nodes.Create(ctx, made, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	has := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(64, resource.DecimalSI),
		corev1.ResourceMemory:           resource.MustParse("512Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("512Gi"),
		corev1.ResourcePods:             *resource.NewQuantity(110, resource.DecimalSI),
		"nvidia.com/gpu":                *resource.NewQuantity(n.machine.gpus, resource.DecimalSI),
	}
	status := &found.Status
	status.Capacity, status.Allocatable = has, has
	status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	status.DaemonEndpoints.KubeletEndpoint.Port = int32(n.server.port)
	status.NodeInfo.KubeletVersion = "v1.31.4"
	status.NodeInfo.OperatingSystem, status.NodeInfo.Architecture = runtime.GOOS, runtime.GOARCH
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		Message:           "kubelet is posting ready status",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}
	kept := []corev1.NodeCondition{}
	for _, each := range status.Conditions {
		if each.Type == ready.Type && each.Status == ready.Status {
			ready.LastTransitionTime = each.LastTransitionTime
		}
		if each.Type != ready.Type {
			kept = append(kept, each)
		}
	}
	status.Conditions = append(kept, ready)
	_, err = nodes.UpdateStatus(ctx, found, metav1.UpdateOptions{})
	return err
}

func (n *node) renew(ctx context.Context) error {
	client := n.machine.client.CoordinationV1().Leases(leases)
	now := ptr.To(metav1.NewMicroTime(time.Now()))
	found, err := client.Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		made := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.name, Namespace: leases},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &n.name, LeaseDurationSeconds: ptr.To[int32](leaseFor), RenewTime: now,
			},
		}
		_, err = client.Create(ctx, made, metav1.CreateOptions{})
		return err
	}
	if err != nil || time.Since(found.Spec.RenewTime.Time) < time.Second {
		return err
	}
	found.Spec.RenewTime = now
	_, err = client.Update(ctx, found, metav1.UpdateOptions{})
	return err
}
