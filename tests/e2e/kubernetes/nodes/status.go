// SPDX-License-Identifier: Apache-2.0

package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// status is what a kubelet says of a pod. Conditions keep the times that the API server has.
func (p *pod) status(api *corev1.Pod) corev1.PodStatus {
	p.mu.Lock()
	phase := p.phase
	p.mu.Unlock()
	said := corev1.PodStatus{
		Phase: phase, StartTime: &p.started, HostIP: address,
		HostIPs: []corev1.HostIP{{IP: address}}, QOSClass: api.Status.QOSClass,
	}
	ready, running := true, false
	for _, c := range p.containers {
		state := c.getState()
		status := corev1.ContainerStatus{
			Name: c.spec.Name, Image: c.spec.Image, ImageID: "", State: state, Ready: state.Running != nil,
			RestartCount: c.restarts(), Started: ptr.To(state.Running != nil),
			LastTerminationState: c.lastState(),
		}
		ready = ready && status.Ready
		running = running || state.Running != nil
		said.ContainerStatuses = append(said.ContainerStatuses, status)
	}
	if running && phase == corev1.PodPending {
		said.Phase = corev1.PodRunning
	}
	if said.Phase != corev1.PodPending {
		said.PodIP, said.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	}
	reason := "ContainersNotReady"
	switch {
	case said.Phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case said.Phase == corev1.PodFailed:
		reason = "PodFailed"
	case ready:
		reason = ""
	}
	initialized := ""
	if said.Phase == corev1.PodSucceeded {
		initialized = "PodCompleted"
	}
	said.Conditions = []corev1.PodCondition{
		conditionOf(api, corev1.PodInitialized, true, initialized),
		conditionOf(api, corev1.PodReady, ready, reason),
		conditionOf(api, corev1.ContainersReady, ready, reason),
		conditionOf(api, corev1.PodScheduled, true, ""),
	}
	return said
}

func conditionOf(
	api *corev1.Pod, kind corev1.PodConditionType, holds bool, reason string,
) corev1.PodCondition {
	made := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.Now(),
	}
	if holds {
		made.Status = corev1.ConditionTrue
	}
	for _, each := range api.Status.Conditions {
		if each.Type == kind && each.Status == made.Status {
			made.LastTransitionTime = each.LastTransitionTime
		}
	}
	return made
}
