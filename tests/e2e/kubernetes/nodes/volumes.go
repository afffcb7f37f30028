// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// mount is a volume of a container: a folder of ours, or memory.
type mount struct {
	Volume   string
	Source   string
	Memory   bool
	Bytes    int64
	Target   string
	ReadOnly bool
}

// inside is what a container's first process has to know.
type inside struct {
	Scratch  string
	State    string
	Self     string
	Hosts    string
	Hostname string
	Mounts   []mount
	Env      []string
	Words    []string
	Folder   string
}

// volumes makes the pod's volumes, with no target yet.
func (p *pod) volumes(ctx context.Context) ([]mount, error) {
	made := []mount{}
	for _, volume := range p.api.Spec.Volumes {
		m := mount{Volume: volume.Name, Source: filepath.Join(p.folder, "volumes", volume.Name)}
		if err := os.MkdirAll(m.Source, 0o755); err != nil {
			return nil, err
		}
		var err error
		switch {
		case volume.EmptyDir != nil:
			m.Memory = volume.EmptyDir.Medium == corev1.StorageMediumMemory
			if limit := volume.EmptyDir.SizeLimit; limit != nil {
				m.Bytes = limit.Value()
			}
		case volume.ConfigMap != nil:
			from := volume.ConfigMap
			err = p.write(ctx, m.Source, "configmap", from.Name, from.Items, from.DefaultMode)
		case volume.Secret != nil:
			from := volume.Secret
			err = p.write(ctx, m.Source, "secret", from.SecretName, from.Items, from.DefaultMode)
		case volume.Projected != nil:
			err = p.project(ctx, m.Source, volume.Projected)
		case volume.HostPath != nil:
			m.Source = volume.HostPath.Path
		default:
			err = fmt.Errorf("this node knows no volume of this kind")
		}
		if err != nil {
			return nil, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", volume.Name, err)
		}
		made = append(made, m)
	}
	return made, nil
}

func (p *pod) write(
	ctx context.Context, folder, kind, name string, items []corev1.KeyToPath, mode *int32,
) error {
	files, err := p.files(ctx, kind, name)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		for key := range files {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		content, there := files[item.Key]
		if !there {
			return fmt.Errorf("references non-existent %s key: %s", kind, item.Key)
		}
		path := filepath.Join(folder, item.Path)
		rights := ptr.Deref(item.Mode, ptr.Deref(mode, 0o644))
		if err := writeFile(path, content, os.FileMode(rights)); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// project writes what every pod gets: how it would talk to the API server.
func (p *pod) project(ctx context.Context, folder string, from *corev1.ProjectedVolumeSource) error {
	for _, source := range from.Sources {
		switch {
		case source.ConfigMap != nil:
			c := source.ConfigMap
			if err := p.write(ctx, folder, "configmap", c.Name, c.Items, from.DefaultMode); err != nil {
				return err
			}
		case source.Secret != nil:
			s := source.Secret
			if err := p.write(ctx, folder, "secret", s.Name, s.Items, from.DefaultMode); err != nil {
				return err
			}
		case source.ServiceAccountToken != nil:
			asked := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: source.ServiceAccountToken.ExpirationSeconds,
			}}
			got, err := p.machine.client.CoreV1().ServiceAccounts(p.namespace).CreateToken(
				ctx, p.api.Spec.ServiceAccountName, asked, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			path := filepath.Join(folder, source.ServiceAccountToken.Path)
			if err := writeFile(path, []byte(got.Status.Token), 0o644); err != nil {
				return err
			}
		case source.DownwardAPI != nil:
			for _, item := range source.DownwardAPI.Items {
				text := p.field(item.FieldRef)
				if err := writeFile(filepath.Join(folder, item.Path), []byte(text), 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// field is a fact about the pod that it may ask for.
func (p *pod) field(ref *corev1.ObjectFieldSelector) string {
	if ref == nil {
		return ""
	}
	for prefix, of := range map[string]map[string]string{
		"metadata.labels['": p.api.Labels, "metadata.annotations['": p.api.Annotations,
	} {
		if key, found := strings.CutPrefix(ref.FieldPath, prefix); found {
			return of[strings.TrimSuffix(key, "']")]
		}
	}
	return map[string]string{
		"metadata.name": p.name, "metadata.namespace": p.namespace, "metadata.uid": string(p.uid),
		"spec.nodeName": p.node.name, "status.podIP": p.ip, "status.hostIP": address,
	}[ref.FieldPath]
}

// inside puts together what the container is to be.
func (c *container) inside(volumes []mount) inside {
	p := c.pod
	in := inside{
		Scratch: filepath.Join(p.folder, "scratch"), State: p.machine.state, Self: p.machine.self,
		Hosts: p.machine.hostsFile(), Hostname: p.hostname(), Folder: c.spec.WorkingDir,
	}
	for _, asked := range c.spec.VolumeMounts {
		for _, m := range volumes {
			if m.Volume == asked.Name {
				m.Target, m.ReadOnly = asked.MountPath, asked.ReadOnly
				m.Source = filepath.Join(m.Source, asked.SubPath)
				in.Mounts = append(in.Mounts, m)
			}
		}
	}
	values := map[string]string{}
	names := []string{}
	set := func(name, value string) {
		if _, there := values[name]; !there {
			names = append(names, name)
		}
		values[name] = value
	}
	set("PATH", c.path())
	set("HOME", "/root")
	set("HOSTNAME", p.hostname())
	for _, each := range c.spec.Env {
		value := each.Value
		if each.ValueFrom != nil {
			value = p.field(each.ValueFrom.FieldRef)
		}
		set(each.Name, expand(value, values))
	}
	for _, name := range names {
		in.Env = append(in.Env, name+"="+values[name])
	}
	for _, word := range append(append([]string{}, c.spec.Command...), c.spec.Args...) {
		in.Words = append(in.Words, expand(word, values))
	}
	c.mu.Lock()
	c.env = in.Env
	c.mu.Unlock()
	return in
}

func (c *container) path() string {
	return filepath.Join(c.pod.machine.images, c.image(), "bin") + ":" + systemPath
}

// expand replaces $(NAME) as Kubernetes does: what is not known stays, $$ is a dollar.
func expand(text string, values map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		if strings.HasPrefix(rest, "$$") {
			out.WriteByte('$')
			i++
			continue
		}
		if end := strings.IndexByte(rest, ')'); strings.HasPrefix(rest, "$(") && end > 0 {
			if value, there := values[rest[2:end]]; there {
				out.WriteString(value)
				i += end
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}
