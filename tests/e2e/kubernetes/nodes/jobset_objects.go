// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// create makes the Service that names the pods and the jobs that are missing; all follow the
// set's suspension.
func (o *jobSets) create(ctx context.Context, set *jobSet, jobs map[string]*batchv1.Job) error {
	subdomain := ""
	if ptr.Deref(set.Spec.Network.EnableDNSHostnames, true) {
		if subdomain = set.Spec.Network.Subdomain; subdomain == "" {
			subdomain = set.Name
		}
		if err := o.createService(ctx, set, subdomain); err != nil {
			return err
		}
	}
	global := 0
	for _, group := range set.Spec.ReplicatedJobs {
		for i := range int(group.Replicas) {
			made := set.job(&group, i, global, subdomain)
			global++
			found := jobs[made.Name]
			var err error
			if found == nil {
				_, err = o.client.BatchV1().Jobs(set.Namespace).Create(ctx, made, metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					err = nil // of an earlier attempt, on its way out
				}
			} else if finished(found) == "" && ptr.Deref(found.Spec.Suspend, false) != set.Spec.Suspend {
				found.Spec.Suspend = &set.Spec.Suspend
				_, err = o.client.BatchV1().Jobs(set.Namespace).Update(ctx, found, metav1.UpdateOptions{})
			}
			if err != nil {
				return err
			}
		}
	}
	if set.Spec.Suspend {
		set.set("Suspended", metav1.ConditionTrue, "SuspendedJobs", "jobset is suspended")
	} else if meta.IsStatusConditionTrue(set.Status.Conditions, "Suspended") {
		set.set("Suspended", metav1.ConditionFalse, "ResumeJobs", "jobset is resumed")
	}
	return nil
}

func (s *jobSet) owner() []metav1.OwnerReference {
	kind := jobSetsResource.GroupVersion().WithKind("JobSet")
	return []metav1.OwnerReference{*metav1.NewControllerRef(s, kind)}
}

func (o *jobSets) createService(ctx context.Context, set *jobSet, name string) error {
	services := o.client.CoreV1().Services(set.Namespace)
	_, err := services.Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: set.Namespace, OwnerReferences: set.owner()},
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			Selector:                 map[string]string{jobSetLabel + "jobset-name": set.Name},
			PublishNotReadyAddresses: ptr.Deref(set.Spec.Network.PublishNotReadyAddresses, true),
		},
	}, metav1.CreateOptions{})
	return err
}

func (s *jobSet) job(group *replicatedJob, index, global int, subdomain string) *batchv1.Job {
	name := fmt.Sprintf("%s-%s-%d", s.Name, group.Name, index)
	all := 0
	for _, each := range s.Spec.ReplicatedJobs {
		all += int(each.Replicas)
	}
	hash := sha1.Sum([]byte(s.Namespace + "/" + name))
	said := map[string]string{
		"jobset-name": s.Name, "jobset-uid": string(s.UID), "replicatedjob-name": group.Name,
		"replicatedjob-replicas": strconv.Itoa(int(group.Replicas)), "global-replicas": strconv.Itoa(all),
		"job-index": strconv.Itoa(index), "job-global-index": strconv.Itoa(global),
		"job-key": hex.EncodeToString(hash[:]), "restart-attempt": strconv.Itoa(int(s.Status.Restarts)),
	}
	template := group.Template.DeepCopy()
	made := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.Namespace, OwnerReferences: s.owner(),
			Labels: template.Labels, Annotations: template.Annotations,
		},
		Spec: template.Spec,
	}
	for _, object := range []*metav1.ObjectMeta{&made.ObjectMeta, &made.Spec.Template.ObjectMeta} {
		if object.Labels == nil {
			object.Labels = map[string]string{}
		}
		if object.Annotations == nil {
			object.Annotations = map[string]string{}
		}
		for key, value := range said {
			object.Labels[jobSetLabel+key], object.Annotations[jobSetLabel+key] = value, value
		}
	}
	pod := &made.Spec.Template.Spec
	pod.Subdomain = subdomain
	if pod.RestartPolicy == "" {
		pod.RestartPolicy = corev1.RestartPolicyOnFailure
	}
	if made.Spec.CompletionMode == nil {
		made.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	}
	made.Spec.Suspend = &s.Spec.Suspend
	return made
}
