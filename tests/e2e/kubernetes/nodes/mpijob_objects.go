// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	labelOperator = "training.kubeflow.org/operator-name"
	labelJob      = "training.kubeflow.org/job-name"
	labelRole     = "training.kubeflow.org/job-role"
	labelIndex    = "training.kubeflow.org/replica-index"
	hostfile      = "/etc/mpi/hostfile"
)

func (j *mpiJob) workerName(i int) string { return fmt.Sprintf("%s-worker-%d", j.Name, i) }

func (j *mpiJob) owner() []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(j, mpiJobs.GroupVersion().WithKind("MPIJob"))}
}

func (j *mpiJob) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: j.Namespace, Labels: map[string]string{"app": j.Name}, OwnerReferences: j.owner(),
	}
}

// createFiles makes the Service that names the pods, the hostfile and the keys.
func (o *mpiOperator) createFiles(ctx context.Context, job *mpiJob) error {
	core := o.client.CoreV1()
	_, err := core.Services(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = core.Services(job.Namespace).Create(ctx, &corev1.Service{
			ObjectMeta: job.meta(job.Name),
			Spec: corev1.ServiceSpec{
				ClusterIP:                corev1.ClusterIPNone,
				Selector:                 map[string]string{labelOperator: "mpi-operator", labelJob: job.Name},
				PublishNotReadyAddresses: job.Spec.RunLauncherAsWorker,
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	if err := o.createHosts(ctx, job); err != nil {
		return err
	}
	_, err = core.Secrets(job.Namespace).Get(ctx, job.Name+"-ssh", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	private, public, err := sshKeys()
	if err != nil {
		return err
	}
	_, err = core.Secrets(job.Namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: job.meta(job.Name + "-ssh"),
		Type:       corev1.SecretTypeSSHAuth,
		Data:       map[string][]byte{corev1.SSHAuthPrivateKey: private, "ssh-publickey": public},
	}, metav1.CreateOptions{})
	return err
}

// createHosts writes the hostfile in the words of the MPI, and a script that tells who runs.
func (o *mpiOperator) createHosts(ctx context.Context, job *mpiJob) error {
	format := "%s slots=%d\n"
	if job.Spec.MPIImplementation != "OpenMPI" {
		format = "%s:%d\n"
	}
	names := []string{}
	if job.Spec.RunLauncherAsWorker {
		names = append(names, job.Name+"-launcher")
	}
	for i := range job.workers() {
		names = append(names, job.workerName(i))
	}
	var hosts, running strings.Builder
	running.WriteString("#!/bin/sh\n")
	for _, name := range names {
		host := fmt.Sprintf("%s.%s.%s.svc", name, job.Name, job.Namespace)
		fmt.Fprintf(&hosts, format, host, *job.Spec.SlotsPerWorker)
		found, err := o.client.CoreV1().Pods(job.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && found.Status.Phase == corev1.PodRunning {
			fmt.Fprintf(&running, "echo %s\n", host)
		}
	}
	data := map[string]string{"hostfile": hosts.String(), "discover_hosts.sh": running.String()}
	maps := o.client.CoreV1().ConfigMaps(job.Namespace)
	found, err := maps.Get(ctx, job.Name+"-config", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		made := &corev1.ConfigMap{ObjectMeta: job.meta(job.Name + "-config"), Data: data}
		_, err = maps.Create(ctx, made, metav1.CreateOptions{})
		return err
	}
	if err != nil || same(found.Data, data) {
		return err
	}
	found.Data = data
	_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
	return err
}

func sshKeys() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	known, err := ssh.NewPublicKey(&key.PublicKey)
	if err != nil {
		return nil, nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return text, ssh.MarshalAuthorizedKey(known), nil
}

// template is a group's pods as the operator makes them: names, keys, and who they are.
func (j *mpiJob) template(group, role, host string) corev1.PodTemplateSpec {
	made := *j.Spec.MPIReplicaSpecs[group].Template.DeepCopy()
	if made.Labels == nil {
		made.Labels = map[string]string{}
	}
	made.Labels[labelOperator], made.Labels[labelJob], made.Labels[labelRole] = "mpi-operator", j.Name, role
	pod := &made.Spec
	pod.Hostname, pod.Subdomain = host, j.Name
	policy := j.Spec.MPIReplicaSpecs[group].RestartPolicy
	if policy == "ExitCode" {
		policy = "Never"
	}
	pod.RestartPolicy = corev1.RestartPolicy(policy)
	first := &pod.Containers[0]
	first.Env = append(first.Env, corev1.EnvVar{Name: "K_MPI_JOB_ROLE", Value: role})
	var mode *int32
	if j.Spec.SSHAuthMountPath == "/root/.ssh" {
		mode = ptr.To[int32](0o600)
	}
	addVolume(pod, "ssh-auth", j.Spec.SSHAuthMountPath, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: j.Name + "-ssh", DefaultMode: mode,
		Items: []corev1.KeyToPath{
			{Key: corev1.SSHAuthPrivateKey, Path: "id_rsa"},
			{Key: "ssh-publickey", Path: "id_rsa.pub"},
			{Key: "ssh-publickey", Path: "authorized_keys"},
		},
	}})
	return made
}

func addVolume(pod *corev1.PodSpec, name, path string, source corev1.VolumeSource) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	first := &pod.Containers[0]
	first.VolumeMounts = append(first.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
}

func (j *mpiJob) worker(i int) *corev1.Pod {
	made := j.template("Worker", "worker", j.workerName(i))
	if j.Spec.RunLauncherAsWorker {
		made.Labels[labelIndex] = strconv.Itoa(i + 1)
	} else {
		made.Labels[labelIndex] = strconv.Itoa(i)
	}
	search := fmt.Sprintf("%s.%s.svc.cluster.local", j.Name, j.Namespace)
	if made.Spec.DNSConfig == nil {
		made.Spec.DNSConfig = &corev1.PodDNSConfig{}
	}
	made.Spec.DNSConfig.Searches = append(made.Spec.DNSConfig.Searches, search)
	first := &made.Spec.Containers[0]
	if len(first.Command) == 0 && len(first.Args) == 0 {
		first.Command = []string{"/usr/sbin/sshd", "-De"}
	}
	meta := metav1.ObjectMeta{
		Name: j.workerName(i), Namespace: j.Namespace, Labels: made.Labels, Annotations: made.Annotations,
		OwnerReferences: j.owner(),
	}
	return &corev1.Pod{ObjectMeta: meta, Spec: made.Spec}
}

// mpiVariables are what the operator tells each MPI in the launcher's environment.
func (j *mpiJob) mpiVariables() []corev1.EnvVar {
	slots := strconv.Itoa(int(*j.Spec.SlotsPerWorker))
	const patience = "-o ConnectionAttempts=10"
	switch j.Spec.MPIImplementation {
	case "Intel":
		return []corev1.EnvVar{
			{Name: "I_MPI_HYDRA_HOST_FILE", Value: hostfile},
			{Name: "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", Value: patience},
			{Name: "I_MPI_PERHOST", Value: slots},
		}
	case "MPICH":
		return []corev1.EnvVar{
			{Name: "HYDRA_HOST_FILE", Value: hostfile}, {Name: "HYDRA_LAUNCH_EXTRA_ARGS", Value: patience},
		}
	}
	return []corev1.EnvVar{
		{Name: "OMPI_MCA_orte_keep_fqdn_hostnames", Value: "true"},
		{Name: "OMPI_MCA_orte_default_hostfile", Value: hostfile},
		{Name: "OMPI_MCA_plm_rsh_args", Value: patience},
		{Name: "OMPI_MCA_orte_set_default_slots", Value: slots},
	}
}

func (j *mpiJob) launcher() *batchv1.Job {
	made := j.template("Launcher", "launcher", j.Name+"-launcher")
	first := &made.Spec.Containers[0]
	first.Env = append(first.Env, j.mpiVariables()...)
	if j.Spec.RunLauncherAsWorker {
		made.Labels[labelIndex] = "0"
	} else {
		// A launcher without GPUs must not see any.
		first.Env = append(first.Env,
			corev1.EnvVar{Name: "NVIDIA_VISIBLE_DEVICES"}, corev1.EnvVar{Name: "NVIDIA_DRIVER_CAPABILITIES"})
	}
	addVolume(&made.Spec, "mpi-job-config", "/etc/mpi", corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: j.Name + "-config"},
			Items: []corev1.KeyToPath{
				{Key: "hostfile", Path: "hostfile", Mode: ptr.To[int32](0o444)},
				{Key: "discover_hosts.sh", Path: "discover_hosts.sh", Mode: ptr.To[int32](0o555)},
			},
		},
	})
	policy := j.Spec.RunPolicy
	made.ObjectMeta = metav1.ObjectMeta{
		Labels: made.Labels, Annotations: made.Annotations, OwnerReferences: j.owner(),
	}
	job := &batchv1.Job{ObjectMeta: j.meta(j.Name + "-launcher"), Spec: batchv1.JobSpec{
		TTLSecondsAfterFinished: policy.TTLSecondsAfterFinished,
		ActiveDeadlineSeconds:   policy.ActiveDeadlineSeconds,
		BackoffLimit:            policy.BackoffLimit,
		Template:                made,
	}}
	if policy.Suspend {
		job.Spec.Suspend = ptr.To(true)
	}
	return job
}
