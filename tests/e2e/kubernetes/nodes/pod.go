// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// pod is a pod of a living node, from its first sight to the last.
type pod struct {
	machine   *machine
	node      *node
	namespace string
	name      string
	uid       types.UID
	ip        string
	folder    string
	api       *corev1.Pod

	stopping chan struct{} // closed when the pod is to end, with grace
	killed   chan struct{} // closed when it is to end now
	done     chan struct{} // closed when all its processes are gone
	once     sync.Once
	onceKill sync.Once
	grace    time.Duration

	mu         sync.Mutex
	containers []*container
	phase      corev1.PodPhase
	started    metav1.Time
	told       string // the status that the API server has
}

func newPod(m *machine, on *node, api *corev1.Pod, ip string) *pod {
	p := &pod{
		machine: m, node: on, namespace: api.Namespace, name: api.Name, uid: api.UID, ip: ip, api: api,
		folder:   filepath.Join(m.state, "pods", string(api.UID)),
		stopping: make(chan struct{}), killed: make(chan struct{}), done: make(chan struct{}),
		phase: corev1.PodPending, started: metav1.Now(),
	}
	for i := range api.Spec.Containers {
		p.containers = append(p.containers, newContainer(p, &api.Spec.Containers[i]))
	}
	return p
}

func (p *pod) hostname() string {
	if p.api.Spec.Hostname != "" {
		return p.api.Spec.Hostname
	}
	return p.name
}

// fullName is the pod's name in the cluster's DNS, empty without.
func (p *pod) fullName() string {
	if p.api.Spec.Hostname == "" || p.api.Spec.Subdomain == "" {
		return ""
	}
	words := []string{p.hostname(), p.api.Spec.Subdomain, p.namespace, "svc", "cluster", "local"}
	return strings.Join(words, ".")
}

func (p *pod) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// run is the life of a pod's containers. A pod that was seen when it had ended does not start again.
func (p *pod) run() {
	defer close(p.done)
	if p.api.Status.Phase == corev1.PodSucceeded || p.api.Status.Phase == corev1.PodFailed {
		p.setPhase(p.api.Status.Phase)
		return
	}
	if what := p.unknown(); what != "" {
		p.machine.events.Event(p.api, corev1.EventTypeWarning, "Failed", "this node knows no "+what)
		p.setPhase(corev1.PodFailed)
		return
	}
	var mounts []mount
	for {
		var err error
		if mounts, err = p.volumes(p.node.ctx); err == nil {
			break
		}
		p.machine.events.Event(p.api, corev1.EventTypeWarning, "FailedMount", err.Error())
		if !p.pause(time.Second) {
			p.setPhase(corev1.PodFailed)
			return
		}
	}
	var all sync.WaitGroup
	for _, c := range p.containers {
		all.Add(1)
		go func() { defer all.Done(); c.run(mounts) }()
	}
	all.Wait()
	phase := corev1.PodSucceeded
	for _, c := range p.containers {
		if t := c.getState().Terminated; t == nil || t.ExitCode != 0 {
			phase = corev1.PodFailed
		}
	}
	p.setPhase(phase)
}

// unknown is what the pod asks for and this stand-in has not.
func (p *pod) unknown() string {
	if len(p.api.Spec.InitContainers) > 0 {
		return "init containers"
	}
	for _, c := range p.api.Spec.Containers {
		if len(c.EnvFrom) > 0 {
			return "envFrom"
		}
		for _, each := range c.Env {
			if each.ValueFrom != nil && each.ValueFrom.FieldRef == nil {
				return "such value of " + each.Name
			}
		}
	}
	return ""
}

func (p *pod) setPhase(phase corev1.PodPhase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase = phase
}

// pause waits; false where the pod is to end meanwhile.
func (p *pod) pause(d time.Duration) bool {
	select {
	case <-p.stopping:
		return false
	case <-time.After(d):
		return true
	}
}

// stop ends the pod: a polite signal, and after its grace the other one.
func (p *pod) stop(grace time.Duration) {
	p.once.Do(func() {
		p.grace = grace
		close(p.stopping)
		p.signal(syscall.SIGTERM)
		go func() {
			select {
			case <-p.done:
			case <-time.After(grace):
				p.kill()
			}
		}()
	})
}

// kill ends the pod's processes now.
func (p *pod) kill() {
	p.once.Do(func() { close(p.stopping) })
	p.onceKill.Do(func() { close(p.killed) })
	p.signal(syscall.SIGKILL)
}

func (p *pod) signal(s syscall.Signal) {
	for _, c := range p.containers {
		c.signal(s)
	}
}

// running are the containers that have processes.
func (p *pod) running() []*container {
	found := []*container{}
	for _, c := range p.containers {
		if c.getState().Running != nil {
			found = append(found, c)
		}
	}
	return found
}

// sync takes what the API server says of the pod, and says how it is.
func (p *pod) sync(api *corev1.Pod) {
	if api.DeletionTimestamp != nil {
		seconds := ptr.Deref(api.DeletionGracePeriodSeconds, 30)
		p.stop(time.Duration(seconds) * time.Second)
	}
	if err := p.tell(api); err != nil {
		if p.node.ctx.Err() == nil {
			log.Printf("status of %s: %v", p.name, err)
		}
		return
	}
	if api.DeletionTimestamp != nil && p.ended() {
		now := metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &p.uid},
		}
		err := p.machine.client.CoreV1().Pods(p.namespace).Delete(p.node.ctx, p.name, now)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			log.Printf("removing %s: %v", p.name, err)
		}
	}
}

// tell brings our status to the API server, where it has another one.
func (p *pod) tell(api *corev1.Pod) error {
	status := p.status(api)
	text, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.uid}, "status": status,
	})
	if err != nil {
		return err
	}
	ready := ""
	for _, each := range api.Status.Conditions {
		if each.Type == corev1.PodReady {
			ready = string(each.Status)
		}
	}
	mine := ""
	for _, each := range status.Conditions {
		if each.Type == corev1.PodReady {
			mine = string(each.Status)
		}
	}
	if string(text) == p.told && ready == mine && api.Status.Phase == status.Phase {
		return nil
	}
	_, err = p.machine.client.CoreV1().Pods(p.namespace).Patch(
		p.node.ctx, p.name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	p.told = string(text)
	return nil
}

// cleanUp removes the pod's folder, and what Open MPI leaves behind when it is killed.
func (p *pod) cleanUp() {
	left, _ := filepath.Glob("/tmp/ompi." + p.hostname() + ".*")
	for _, path := range append(left, p.folder) {
		if err := os.RemoveAll(path); err != nil {
			log.Print(err)
		}
	}
}

// files are what a config map or a secret has, by name.
func (p *pod) files(ctx context.Context, kind, name string) (map[string][]byte, error) {
	files := map[string][]byte{}
	core := p.machine.client.CoreV1()
	if kind == "configmap" {
		found, err := core.ConfigMaps(p.namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%s %q not found", kind, name)
		}
		if err != nil {
			return nil, err
		}
		for key, text := range found.Data {
			files[key] = []byte(text)
		}
		for key, content := range found.BinaryData {
			files[key] = content
		}
		return files, nil
	}
	found, err := core.Secrets(p.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s %q not found", kind, name)
	}
	if err != nil {
		return nil, err
	}
	return found.Data, nil
}
