// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
)

var mpiJobs = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"}

// mpiJob is what we read of an MPIJob (kubeflow.org/v2beta1), and its status.
type mpiJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              mpiJobSpec   `json:"spec"`
	Status            mpiJobStatus `json:"status,omitempty"`

	News []news `json:"-"` // what save tells
}

type mpiJobSpec struct {
	SlotsPerWorker         *int32               `json:"slotsPerWorker,omitempty"`
	RunLauncherAsWorker    bool                 `json:"runLauncherAsWorker,omitempty"`
	RunPolicy              runPolicy            `json:"runPolicy,omitempty"`
	MPIReplicaSpecs        map[string]*mpiGroup `json:"mpiReplicaSpecs"`
	SSHAuthMountPath       string               `json:"sshAuthMountPath,omitempty"`
	LauncherCreationPolicy string               `json:"launcherCreationPolicy,omitempty"`
	MPIImplementation      string               `json:"mpiImplementation,omitempty"`
}

type runPolicy struct {
	CleanPodPolicy          string `json:"cleanPodPolicy,omitempty"`
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	ActiveDeadlineSeconds   *int64 `json:"activeDeadlineSeconds,omitempty"`
	BackoffLimit            *int32 `json:"backoffLimit,omitempty"`
	Suspend                 bool   `json:"suspend,omitempty"`
}

type mpiGroup struct {
	Replicas      *int32                 `json:"replicas,omitempty"`
	Template      corev1.PodTemplateSpec `json:"template"`
	RestartPolicy string                 `json:"restartPolicy,omitempty"`
}

type mpiJobStatus struct {
	Conditions      []mpiCondition         `json:"conditions,omitempty"`
	ReplicaStatuses map[string]mpiReplicas `json:"replicaStatuses,omitempty"`
	StartTime       *metav1.Time           `json:"startTime,omitempty"`
	CompletionTime  *metav1.Time           `json:"completionTime,omitempty"`
}

type mpiReplicas struct {
	Active    int32 `json:"active,omitempty"`
	Succeeded int32 `json:"succeeded,omitempty"`
	Failed    int32 `json:"failed,omitempty"`
}

// mpiOperator looks after MPIJobs as the MPI Operator 0.7 does.
type mpiOperator struct {
	client  kubernetes.Interface
	objects dynamic.Interface
	events  record.EventRecorder
}

func (o *mpiOperator) syncAll(ctx context.Context) error {
	return syncEach(ctx, o.objects.Resource(mpiJobs), "MPIJob", o.sync)
}

func (j *mpiJob) setDefaults() {
	if j.Spec.SlotsPerWorker == nil {
		j.Spec.SlotsPerWorker = ptr.To[int32](1)
	}
	for _, each := range []struct {
		field *string
		value string
	}{
		{&j.Spec.SSHAuthMountPath, "/root/.ssh"},
		{&j.Spec.LauncherCreationPolicy, "AtStartup"},
		{&j.Spec.MPIImplementation, "OpenMPI"},
		{&j.Spec.RunPolicy.CleanPodPolicy, "None"},
	} {
		if *each.field == "" {
			*each.field = each.value
		}
	}
	for name, policy := range map[string]string{"Launcher": "OnFailure", "Worker": "Never"} {
		if group := j.Spec.MPIReplicaSpecs[name]; group != nil && group.RestartPolicy == "" {
			group.RestartPolicy = policy
		}
	}
}

func (j *mpiJob) workers() int {
	if group := j.Spec.MPIReplicaSpecs["Worker"]; group != nil {
		return int(ptr.Deref(group.Replicas, 0))
	}
	return 0
}

func (j *mpiJob) holds(kind string) bool {
	for _, each := range j.Status.Conditions {
		if each.Type == kind {
			return each.Status == corev1.ConditionTrue
		}
	}
	return false
}

// sync does what the job's state asks for, once.
func (o *mpiOperator) sync(ctx context.Context, job *mpiJob) error {
	job.setDefaults()
	if job.DeletionTimestamp != nil || job.Spec.MPIReplicaSpecs["Launcher"] == nil {
		return nil
	}
	before := job.Status
	if len(job.Status.Conditions) == 0 {
		job.set("Created", true, "MPIJobCreated", fmt.Sprintf("MPIJob %s/%s is created.", job.Namespace, job.Name))
	}
	if (job.holds("Succeeded") || job.holds("Failed")) && job.Status.CompletionTime != nil {
		if job.Spec.RunPolicy.CleanPodPolicy == "None" {
			return nil
		}
		if err := o.removeWorkers(ctx, job); err != nil {
			return err
		}
		job.count("Worker", mpiReplicas{})
		return o.save(ctx, job, before)
	}
	suspended := job.Spec.RunPolicy.Suspend
	if job.Status.StartTime == nil && !suspended {
		job.Status.StartTime = ptr.To(metav1.Now())
	}
	launcher, err := o.client.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name+"-launcher", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		launcher = nil
	} else if err != nil {
		return err
	}
	workers := []*corev1.Pod{}
	if launcher == nil || finished(launcher) == "" {
		if workers, launcher, err = o.create(ctx, job, launcher); err != nil {
			return err
		}
	}
	if launcher != nil && ptr.Deref(launcher.Spec.Suspend, false) != suspended {
		launcher.Spec.Suspend = &suspended
		if launcher, err = o.client.BatchV1().Jobs(job.Namespace).Update(ctx, launcher, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if suspended {
		if err := o.removeWorkers(ctx, job); err != nil {
			return err
		}
	}
	if err := o.judge(ctx, job, launcher, workers); err != nil {
		return err
	}
	return o.save(ctx, job, before)
}

// create makes what is missing: the files that pods need, workers, and the launcher in its turn.
func (o *mpiOperator) create(
	ctx context.Context, job *mpiJob, launcher *batchv1.Job,
) ([]*corev1.Pod, *batchv1.Job, error) {
	if err := o.createFiles(ctx, job); err != nil {
		return nil, nil, err
	}
	workers, ready := []*corev1.Pod{}, 0
	pods := o.client.CoreV1().Pods(job.Namespace)
	for i := 0; i < job.workers() && !job.Spec.RunPolicy.Suspend; i++ {
		found, err := pods.Get(ctx, job.workerName(i), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			found, err = pods.Create(ctx, job.worker(i), metav1.CreateOptions{})
		}
		if err != nil {
			return nil, nil, err
		}
		workers = append(workers, found)
		for _, each := range found.Status.Conditions {
			if each.Type == corev1.PodReady && each.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	if launcher == nil && (job.Spec.LauncherCreationPolicy == "AtStartup" || ready == len(workers)) {
		var err error
		jobs := o.client.BatchV1().Jobs(job.Namespace)
		if launcher, err = jobs.Create(ctx, job.launcher(), metav1.CreateOptions{}); err != nil {
			return nil, nil, err
		}
	}
	return workers, launcher, nil
}

// removeWorkers ends the workers; with the policy Running, those that have ended stay.
func (o *mpiOperator) removeWorkers(ctx context.Context, job *mpiJob) error {
	pods := o.client.CoreV1().Pods(job.Namespace)
	for i := range job.workers() {
		found, err := pods.Get(ctx, job.workerName(i), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		ended := found.Status.Phase == corev1.PodSucceeded || found.Status.Phase == corev1.PodFailed
		if found.DeletionTimestamp != nil || (ended && job.Spec.RunPolicy.CleanPodPolicy == "Running") {
			continue
		}
		if err := pods.Delete(ctx, found.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// save writes the status, where it is not what it was.
func (o *mpiOperator) save(ctx context.Context, job *mpiJob, before mpiJobStatus) error {
	if same(before, job.Status) {
		return nil
	}
	text, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: text}
	_, err = o.objects.Resource(mpiJobs).Namespace(job.Namespace).UpdateStatus(
		ctx, object, metav1.UpdateOptions{})
	if err == nil {
		for _, each := range job.News {
			o.events.Event(object, each.kind, each.reason, each.message)
		}
	}
	return err
}

// finished is the condition with which a Job has ended, empty before.
func finished(job *batchv1.Job) batchv1.JobConditionType {
	for _, each := range job.Status.Conditions {
		ends := each.Type == batchv1.JobComplete || each.Type == batchv1.JobFailed
		if ends && each.Status == corev1.ConditionTrue {
			return each.Type
		}
	}
	return ""
}
