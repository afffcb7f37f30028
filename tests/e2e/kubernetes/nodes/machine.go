// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// machine is this host: all nodes, all pods, and what they share.
type machine struct {
	options
	client kubernetes.Interface
	events record.EventRecorder
	self   string

	mu    sync.Mutex
	nodes map[string]*node
	pods  map[types.UID]*pod
	ips   int
	hosts string
}

func newMachine(o options, client kubernetes.Interface) (*machine, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, path := range []*string{&o.state, &o.images} {
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	m := &machine{
		options: o,
		client:  client,
		events:  eventsOf(client, "kubelet"),
		self:    self,
		nodes:   map[string]*node{},
		pods:    map[types.UID]*pod{},
	}
	return m, m.writeHosts()
}

// eventsOf records what a part of the cluster has to say of an object.
func eventsOf(client kubernetes.Interface, component string) record.EventRecorder {
	sent := record.NewBroadcaster()
	sent.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return sent.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
}

// syncPods compares the API server's pods with ours: starts, ends and reports.
func (m *machine) syncPods(ctx context.Context) error {
	found, err := m.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	seen := map[types.UID]bool{}
	for i := range found.Items {
		api := &found.Items[i]
		seen[api.UID] = true
		m.mu.Lock()
		on := m.nodes[api.Spec.NodeName]
		known := m.pods[api.UID]
		if on != nil && !on.dead() && known == nil {
			known = newPod(m, on, api, m.nextIP())
			m.pods[api.UID] = known
			go known.run()
		}
		m.mu.Unlock()
		if known != nil && !known.node.dead() {
			known.sync(api)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, each := range m.pods {
		if !seen[uid] && !each.node.dead() {
			// Deleted by force, or by us.
			each.kill()
			if each.ended() {
				each.cleanUp()
				delete(m.pods, uid)
			}
		}
	}
	return m.writeHosts()
}

// nextIP gives each pod an address of its own: Open MPI takes a host that has the address of an
// interface for the one that it runs on.
func (m *machine) nextIP() string {
	m.ips++
	return fmt.Sprintf("127.1.%d.%d", m.ips/250, m.ips%250+1)
}

// writeHosts writes what pods see as /etc/hosts: the names that a cluster's DNS knows.
func (m *machine) writeHosts() error {
	lines := []string{}
	for _, each := range m.pods {
		if full := each.fullName(); full != "" && !each.ended() {
			words := strings.Split(full, ".")
			names := []string{}
			for _, n := range []int{len(words), 4, 3, 2, 1} {
				names = append(names, strings.Join(words[:n], "."))
			}
			lines = append(lines, each.ip+" "+strings.Join(names, " "))
		}
	}
	sort.Strings(lines)
	text := "127.0.0.1 localhost\n" + strings.Join(append(lines, ""), "\n")
	if text == m.hosts {
		return nil
	}
	m.hosts = text
	// In place: pods have this file mounted.
	return os.WriteFile(m.hostsFile(), []byte(text), 0o644)
}

func (m *machine) hostsFile() string { return filepath.Join(m.state, "hosts") }

// findPod finds a pod of a node by its names, nil without.
func (m *machine) findPod(on *node, namespace, name string) *pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found *pod
	for _, each := range m.pods {
		if each.node == on && each.namespace == namespace && each.name == name &&
			(found == nil || found.ended()) {
			found = each
		}
	}
	return found
}

// allPods are the pods that are known now.
func (m *machine) allPods() []*pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := []*pod{}
	for _, each := range m.pods {
		all = append(all, each)
	}
	return all
}

// endAll leaves no process behind.
func (m *machine) endAll() {
	for _, each := range m.allPods() {
		each.kill()
		<-each.done
		each.cleanUp()
	}
	for _, each := range m.nodes {
		each.server.Close()
	}
}

// processes are the ids of everything that runs in pods.
func (m *machine) processes() []int {
	spaces := map[string]bool{}
	for _, each := range m.allPods() {
		for _, c := range each.running() {
			spaces[c.space] = true
		}
	}
	found := []int{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range entries {
		if space, err := os.Readlink(path + "/ns/pid"); err == nil && spaces[space] {
			var pid int
			fmt.Sscan(filepath.Base(path), &pid)
			found = append(found, pid)
		}
	}
	return found
}
