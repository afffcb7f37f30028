// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	socketNote = "/etc/nccltune-nodes" // tells ssh and sshd whom to ask
	defaultShm = 64 << 20              // what a container has of /dev/shm
)

// becomeContainer is the first process of new namespaces: it builds the view of the file system,
// and becomes the container's command. What goes wrong is written to file 4.
func becomeContainer() error {
	told := os.NewFile(4, "told")
	syscall.CloseOnExec(4)
	err := func() error {
		var in inside
		file := os.NewFile(3, "inside")
		err := json.NewDecoder(file).Decode(&in)
		// Not by its number, which the next file has while this one is still to be finalized.
		file.Close()
		if err != nil {
			return err
		}
		if err := build(&in); err != nil {
			return fmt.Errorf("failed to create containerd task: %w", err)
		}
		return execute(&in)
	}()
	fmt.Fprint(told, err)
	os.Exit(128)
	return nil
}

// build makes this host's files the container's: all can be read, and what is written is gone with
// the container, but in /tmp, which all pods and the host have in common.
func build(in *inside) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	shared, err := otherMounts()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(in.Scratch, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", in.Scratch, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	upper, work, root := in.Scratch+"/upper", in.Scratch+"/work", in.Scratch+"/root"
	for _, path := range []string{upper, work, root} {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	layers := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", upper, work)
	if err := syscall.Mount("overlay", root, "overlay", 0, layers); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	for _, path := range append(shared, "/sys", "/dev", "/tmp", in.State) {
		if err := bind(path, root+path, false); err != nil {
			return err
		}
	}
	if err := syscall.Mount("proc", root+"/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := memory(root+"/dev/shm", defaultShm); err != nil {
		return err
	}
	if err := settle(root, in); err != nil {
		return err
	}
	for _, m := range in.Mounts {
		target := filepath.Join(root, m.Target)
		if m.Memory {
			err = memory(target, m.Bytes)
		} else {
			err = bind(m.Source, target, m.ReadOnly)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", m.Volume, err)
		}
	}
	if err := syscall.Sethostname([]byte(in.Hostname)); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := syscall.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	return syscall.Unmount(".", syscall.MNT_DETACH)
}

// settle writes the files of a container's own, and puts our ssh in the place of the real one.
func settle(root string, in *inside) error {
	os.RemoveAll(root + "/root/.ssh")
	files := map[string]string{
		"/etc/hostname": in.Hostname + "\n", socketNote: in.State + "/nodes.sock", "/etc/hosts": "",
	}
	for path, text := range files {
		os.Remove(root + path)
		if err := os.WriteFile(root+path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := syscall.Mount(in.Hosts, root+"/etc/hosts", "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	for _, path := range []string{"/usr/bin/ssh", "/usr/sbin/sshd", "/usr/bin/ssh-keygen"} {
		os.Remove(root + path)
		if err := os.Symlink(in.Self, root+path); err != nil {
			return err
		}
	}
	return nil
}

// otherMounts are what is mounted beside the system's own: checkouts and data may lie there.
func otherMounts() ([]string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := []string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		path := strings.Fields(lines.Text())[4]
		own := path == "/"
		for _, root := range []string{"/proc", "/sys", "/dev", "/tmp", "/etc", "/run"} {
			own = own || path == root || strings.HasPrefix(path, root+"/")
		}
		if info, err := os.Stat(path); !own && err == nil && info.IsDir() {
			found = append(found, path)
		}
	}
	return found, lines.Err()
}

func bind(source, target string, readOnly bool) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(source, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", target, err)
	}
	if !readOnly {
		return nil
	}
	return syscall.Mount("", target, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
}

func memory(target string, bytes int64) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	options := "mode=1777"
	if bytes > 0 {
		options += fmt.Sprintf(",size=%d", bytes)
	}
	return syscall.Mount("tmpfs", target, "tmpfs", 0, options)
}

// execute becomes the command; it returns where there is none.
func execute(in *inside) error {
	if len(in.Words) == 0 {
		return fmt.Errorf("no command specified")
	}
	if in.Folder == "" {
		in.Folder = "/"
	}
	if err := os.Chdir(in.Folder); err != nil {
		return err
	}
	os.Clearenv()
	for _, each := range in.Env {
		name, value, _ := strings.Cut(each, "=")
		os.Setenv(name, value)
	}
	program, err := exec.LookPath(in.Words[0])
	if err == nil {
		err = syscall.Exec(program, in.Words, in.Env)
	}
	return fmt.Errorf("failed to create containerd task: failed to create shim task: OCI runtime "+
		"create failed: runc create failed: unable to start container process: %w: unknown", err)
}
