// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const jobSetLabel = "jobset.sigs.k8s.io/"

var jobSetsResource = schema.GroupVersionResource{
	Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets",
}

// jobSet is what we read of a JobSet (jobset.x-k8s.io/v1alpha2), and its status.
type jobSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              jobSetSpec   `json:"spec"`
	Status            jobSetStatus `json:"status,omitempty"`
}

type jobSetSpec struct {
	ReplicatedJobs []replicatedJob `json:"replicatedJobs"`
	Network        struct {
		EnableDNSHostnames       *bool  `json:"enableDNSHostnames,omitempty"`
		Subdomain                string `json:"subdomain,omitempty"`
		PublishNotReadyAddresses *bool  `json:"publishNotReadyAddresses,omitempty"`
	} `json:"network,omitempty"`
	SuccessPolicy struct {
		Operator             string   `json:"operator,omitempty"`
		TargetReplicatedJobs []string `json:"targetReplicatedJobs,omitempty"`
	} `json:"successPolicy,omitempty"`
	FailurePolicy *struct {
		MaxRestarts int32 `json:"maxRestarts,omitempty"`
	} `json:"failurePolicy,omitempty"`
	Suspend bool `json:"suspend,omitempty"`
}

type replicatedJob struct {
	Name     string                  `json:"name"`
	Replicas int32                   `json:"replicas,omitempty"`
	Template batchv1.JobTemplateSpec `json:"template"`
}

type jobSetStatus struct {
	Conditions           []metav1.Condition `json:"conditions,omitempty"`
	Restarts             int32              `json:"restarts"`
	TerminalState        string             `json:"terminalState,omitempty"`
	ReplicatedJobsStatus []replicatedStatus `json:"replicatedJobsStatus,omitempty"`
}

type replicatedStatus struct {
	Name      string `json:"name"`
	Ready     int32  `json:"ready"`
	Succeeded int32  `json:"succeeded"`
	Failed    int32  `json:"failed"`
	Active    int32  `json:"active"`
	Suspended int32  `json:"suspended"`
}

// jobSets looks after JobSets as their controller does.
type jobSets struct {
	client  kubernetes.Interface
	objects dynamic.Interface
}

func (o *jobSets) syncAll(ctx context.Context) error {
	return syncEach(ctx, o.objects.Resource(jobSetsResource), "JobSet", o.sync)
}

func (o *jobSets) sync(ctx context.Context, set *jobSet) error {
	if set.DeletionTimestamp != nil {
		return nil
	}
	before := set.Status
	before.Conditions = slices.Clone(before.Conditions)
	jobs, err := o.children(ctx, set)
	if err != nil {
		return err
	}
	set.count(jobs)
	switch {
	case set.Status.TerminalState != "":
		if err := o.remove(ctx, jobs, func(job *batchv1.Job) bool { return finished(job) == "" }); err != nil {
			return err
		}
	case set.failed(jobs):
	case set.succeeded(jobs):
	default:
		if err := o.create(ctx, set, jobs); err != nil {
			return err
		}
	}
	if same(before, set.Status) {
		return nil
	}
	text, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	if err != nil {
		return err
	}
	// Only the status is taken; the rest must be what it is.
	_, err = o.objects.Resource(jobSetsResource).Namespace(set.Namespace).UpdateStatus(
		ctx, &unstructured.Unstructured{Object: text}, metav1.UpdateOptions{})
	return err
}

// children are the set's jobs; those of an earlier attempt are removed.
func (o *jobSets) children(ctx context.Context, set *jobSet) (map[string]*batchv1.Job, error) {
	selector := metav1.ListOptions{LabelSelector: jobSetLabel + "jobset-uid=" + string(set.UID)}
	found, err := o.client.BatchV1().Jobs(set.Namespace).List(ctx, selector)
	if err != nil {
		return nil, err
	}
	now, old := map[string]*batchv1.Job{}, map[string]*batchv1.Job{}
	for i := range found.Items {
		job := &found.Items[i]
		if attempt, _ := strconv.Atoi(job.Labels[jobSetLabel+"restart-attempt"]); int32(attempt) < set.Status.Restarts {
			old[job.Name] = job
		} else {
			now[job.Name] = job
		}
	}
	return now, o.remove(ctx, old, func(*batchv1.Job) bool { return true })
}

func (o *jobSets) remove(ctx context.Context, jobs map[string]*batchv1.Job, which func(*batchv1.Job) bool) error {
	how := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}
	for _, job := range jobs {
		if job.DeletionTimestamp != nil || !which(job) {
			continue
		}
		err := o.client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, how)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (s *jobSet) count(jobs map[string]*batchv1.Job) {
	s.Status.ReplicatedJobsStatus = nil
	for _, group := range s.Spec.ReplicatedJobs {
		counts := replicatedStatus{Name: group.Name}
		for _, job := range jobs {
			if job.Labels[jobSetLabel+"replicatedjob-name"] != group.Name {
				continue
			}
			switch finished(job) {
			case batchv1.JobComplete:
				counts.Succeeded++
				continue
			case batchv1.JobFailed:
				counts.Failed++
				continue
			}
			wanted := ptr.Deref(job.Spec.Parallelism, 1)
			if job.Spec.Completions != nil {
				wanted = min(wanted, *job.Spec.Completions)
			}
			if job.Status.Succeeded+ptr.Deref(job.Status.Ready, 0) >= wanted {
				counts.Ready++
			}
			if job.Status.Active > 0 {
				counts.Active++
			}
			if ptr.Deref(job.Spec.Suspend, false) {
				counts.Suspended++
			}
		}
		s.Status.ReplicatedJobsStatus = append(s.Status.ReplicatedJobsStatus, counts)
	}
}

func (s *jobSet) end(state, reason, message string) {
	s.set(state, metav1.ConditionTrue, reason, message)
	s.Status.TerminalState = state
}

func (s *jobSet) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
	})
}

// failed applies the failure policy once a job has failed: restarts, as many as there may be.
func (s *jobSet) failed(jobs map[string]*batchv1.Job) bool {
	var first *batchv1.Job
	at := metav1.Time{}
	for _, job := range jobs {
		for _, each := range job.Status.Conditions {
			if each.Type == batchv1.JobFailed && each.Status == corev1.ConditionTrue &&
				(first == nil || each.LastTransitionTime.Before(&at)) {
				first, at = job, each.LastTransitionTime
			}
		}
	}
	if first == nil {
		return false
	}
	which := fmt.Sprintf(" (first failed job: %s)", first.Name)
	switch {
	case s.Spec.FailurePolicy == nil:
		s.end("Failed", "FailedJobs", "jobset failed due to one or more job failures"+which)
	case s.Status.Restarts >= s.Spec.FailurePolicy.MaxRestarts:
		s.end("Failed", "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts"+which)
	default:
		s.Status.Restarts++
	}
	return true
}

func (s *jobSet) succeeded(jobs map[string]*batchv1.Job) bool {
	policy := s.Spec.SuccessPolicy
	counts := func(name string) bool {
		return len(policy.TargetReplicatedJobs) == 0 || slices.Contains(policy.TargetReplicatedJobs, name)
	}
	done, wanted := 0, 0
	for _, job := range jobs {
		if finished(job) == batchv1.JobComplete && counts(job.Labels[jobSetLabel+"replicatedjob-name"]) {
			done++
		}
	}
	for _, group := range s.Spec.ReplicatedJobs {
		if counts(group.Name) {
			wanted += int(group.Replicas)
		}
	}
	if policy.Operator == "Any" {
		wanted = 1
	}
	if done == 0 || done < wanted {
		return false
	}
	s.end("Completed", "AllJobsCompleted", "jobset completed successfully")
	return true
}
