// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

type mpiCondition struct {
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
	LastUpdateTime     metav1.Time            `json:"lastUpdateTime,omitempty"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime,omitempty"`
}

// news is an event that the operator tells of a job.
type news struct{ kind, reason, message string }

// set gives the job a condition, and tells it where it is new. One that ends the job ends Running,
// too; the newest is the last.
func (j *mpiJob) set(kind string, holds bool, reason, message string) {
	now := metav1.Now()
	made := mpiCondition{kind, corev1.ConditionFalse, reason, message, now, now}
	if holds {
		made.Status = corev1.ConditionTrue
	}
	kept := []mpiCondition{}
	for _, each := range j.Status.Conditions {
		if each.Type == kind {
			if each.Status == made.Status && each.Reason == reason {
				return
			}
			if each.Status == made.Status {
				made.LastTransitionTime = each.LastTransitionTime
			}
			continue
		}
		if (kind == "Succeeded" || kind == "Failed") && (each.Type == "Running" || each.Type == "Failed") {
			each.Status = corev1.ConditionFalse
		}
		kept = append(kept, each)
	}
	j.Status.Conditions = append(kept, made)
	event := news{corev1.EventTypeNormal, reason, message}
	if !holds && kind == "Running" {
		return
	}
	if kind == "Failed" {
		event.kind = corev1.EventTypeWarning
	}
	j.News = append(j.News, event)
}

// count sets how many pods of a kind are in which state.
func (j *mpiJob) count(kind string, counts mpiReplicas) {
	all := map[string]mpiReplicas{}
	for name, each := range j.Status.ReplicaStatuses {
		all[name] = each
	}
	all[kind] = counts
	j.Status.ReplicaStatuses = all
}

// judge says how the job is, from its launcher and its workers.
func (o *mpiOperator) judge(
	ctx context.Context, job *mpiJob, launcher *batchv1.Job, workers []*corev1.Pod,
) error {
	suspended := job.Spec.RunPolicy.Suspend
	name := fmt.Sprintf("MPIJob %s/%s", job.Namespace, job.Name)
	if suspended {
		job.set("Suspended", true, "MPIJobSuspended", "MPIJob suspended")
	} else if job.holds("Suspended") {
		job.set("Suspended", false, "MPIJobResumed", "MPIJob resumed")
		job.Status.StartTime = ptr.To(metav1.Now())
	}
	active := int32(0)
	if launcher != nil {
		selector := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(launcher.Spec.Selector)}
		pods, err := o.client.CoreV1().Pods(job.Namespace).List(ctx, selector)
		if err != nil {
			return err
		}
		for _, each := range pods.Items {
			if each.Status.Phase == corev1.PodRunning {
				active++
			}
		}
		counts := mpiReplicas{Failed: launcher.Status.Failed}
		switch finished(launcher) {
		case batchv1.JobComplete:
			counts.Succeeded = 1
			if job.Status.CompletionTime == nil {
				job.Status.CompletionTime = launcher.Status.CompletionTime
			}
			job.set("Succeeded", true, "MPIJobSucceeded", name+" successfully completed.")
		case batchv1.JobFailed:
			job.fail(launcher, pods.Items)
		default:
			counts.Active = active
		}
		job.count("Launcher", counts)
	}
	counts := mpiReplicas{}
	for _, each := range workers {
		switch each.Status.Phase {
		case corev1.PodFailed:
			counts.Failed++
		case corev1.PodSucceeded:
			counts.Succeeded++
		case corev1.PodRunning:
			counts.Active++
		}
	}
	job.count("Worker", counts)
	if suspended {
		job.set("Running", false, "MPIJobSuspended", name+" is suspended.")
	} else if active >= 1 && int(counts.Active) == len(workers) {
		job.set("Running", true, "MPIJobRunning", name+" is running.")
	}
	return nil
}

// fail tells the launcher's end, with what is known of its last pod.
func (j *mpiJob) fail(launcher *batchv1.Job, pods []corev1.Pod) {
	reason, message := "MPIJobFailed", fmt.Sprintf("MPIJob %s/%s has failed", j.Namespace, j.Name)
	for _, each := range launcher.Status.Conditions {
		if each.Type == batchv1.JobFailed && each.Reason != "" {
			reason, message = each.Reason, each.Message
		}
	}
	var last *corev1.Pod
	for i := range pods {
		if pods[i].Status.Phase == corev1.PodFailed &&
			(last == nil || last.CreationTimestamp.Before(&pods[i].CreationTimestamp)) {
			last = &pods[i]
		}
	}
	if reason == batchv1.JobReasonBackoffLimitExceeded && last != nil {
		reason += "/" + last.Status.Reason
		message += ": " + last.Status.Message
	}
	if j.Status.CompletionTime == nil {
		j.Status.CompletionTime = ptr.To(metav1.Now())
	}
	j.set("Failed", true, reason, message)
}

// same compares as the API server would see it.
func same(one, other any) bool {
	a, _ := json.Marshal(one)
	b, _ := json.Marshal(other)
	return string(a) == string(b)
}
