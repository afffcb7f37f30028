// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// container is one command of a pod, in namespaces of its own.
type container struct {
	pod  *pod
	spec *corev1.Container
	log  *logFile

	mu        sync.Mutex
	state     corev1.ContainerState
	last      corev1.ContainerState
	count     int32
	process   *os.Process
	space     string // its PID namespace, as /proc tells it
	env       []string
	listening bool // sshd runs
}

func newContainer(p *pod, spec *corev1.Container) *container {
	c := &container{pod: p, spec: spec, log: newLog(filepath.Join(p.folder, spec.Name+".log"))}
	c.wait("ContainerCreating", "")
	return c
}

func (c *container) wait(reason, message string) {
	c.setState(corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
	})
}

func (c *container) setState(state corev1.ContainerState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = state
}

func (c *container) getState() corev1.ContainerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *container) lastState() corev1.ContainerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *container) restarts() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

func (c *container) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		c.process.Signal(s)
	}
}

// image is the name without registry and tag.
func (c *container) image() string {
	name := c.spec.Image[strings.LastIndex(c.spec.Image, "/")+1:]
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// run pulls and starts, again where the pod's restart policy says so, until the pod ends.
func (c *container) run(mounts []mount) {
	defer c.log.close()
	if !c.pull() {
		c.end(137, "ContainerStatusUnknown", "The container was never started", metav1.Now())
		return
	}
	for {
		code := c.once(mounts)
		policy := c.pod.api.Spec.RestartPolicy
		again := policy == corev1.RestartPolicyAlways ||
			(policy == corev1.RestartPolicyOnFailure && code != 0)
		if !again || !c.pod.pause(0) {
			return
		}
		ended := c.getState()
		c.mu.Lock()
		c.last, c.count = ended, c.count+1
		c.mu.Unlock()
		c.wait("CrashLoopBackOff", "back-off 2s restarting failed container="+c.spec.Name)
		if !c.pod.pause(2 * time.Second) {
			c.setState(ended)
			return
		}
	}
}

// pull waits for the image; false where the pod is to end before it is there.
func (c *container) pull() bool {
	folder := filepath.Join(c.pod.machine.images, c.image())
	event := func(kind, reason, message string) {
		c.pod.machine.events.Event(c.pod.api, kind, reason, message)
	}
	for tries := 0; ; tries++ {
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			event(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q", c.spec.Image))
			return true
		}
		if tries%4 == 0 {
			why := fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: "+
				"pull access denied, repository does not exist or may require authorization",
				c.spec.Image, c.spec.Image)
			event(corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", c.spec.Image, why))
			c.wait("ErrImagePull", why)
		} else {
			why := fmt.Sprintf("Back-off pulling image %q", c.spec.Image)
			event(corev1.EventTypeNormal, "BackOff", why)
			c.wait("ImagePullBackOff", why)
		}
		if !c.pod.pause(time.Second) {
			return false
		}
	}
}

func (c *container) end(code int, reason, message string, started metav1.Time) {
	c.setState(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: message,
		StartedAt: started, FinishedAt: metav1.Now(),
	}})
}

// once runs the command, and returns its exit code.
func (c *container) once(mounts []mount) int {
	began := metav1.Now()
	code, why, err := c.command(mounts)
	c.mu.Lock()
	c.process, c.listening = nil, false
	c.mu.Unlock()
	switch {
	case err != nil:
		c.end(137, "ContainerStatusUnknown", err.Error(), began)
	case why != "":
		c.end(128, "StartError", why, began)
		code = 128
	case code != 0:
		c.end(code, "Error", "", began)
	default:
		c.end(code, "Completed", "", began)
	}
	return code
}

func (c *container) command(mounts []mount) (code int, why string, err error) {
	in, err := json.Marshal(c.inside(mounts))
	if err != nil {
		return 137, "", err
	}
	pipes := [4][2]*os.File{} // what it is to be, why it cannot, stdout, stderr
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			return 137, "", err
		}
	}
	cmd := exec.Command(c.pod.machine.self, "container")
	cmd.Stdout, cmd.Stderr = pipes[2][1], pipes[3][1]
	cmd.ExtraFiles = []*os.File{pipes[0][0], pipes[1][1]}
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
	}
	err = startHere(cmd)
	for _, file := range []*os.File{pipes[0][0], pipes[1][1], pipes[2][1], pipes[3][1]} {
		file.Close()
	}
	if err != nil {
		return 137, "", err
	}
	var logs sync.WaitGroup
	for i, stream := range []string{"stdout", "stderr"} {
		logs.Add(1)
		go func() { defer logs.Done(); c.log.copy(stream, pipes[2+i][0]) }()
	}
	pipes[0][1].Write(in)
	pipes[0][1].Close()
	said, _ := io.ReadAll(pipes[1][0])
	if len(said) == 0 {
		c.began(cmd.Process)
	}
	err = cmd.Wait()
	logs.Wait()
	for i := 1; i < len(pipes); i++ {
		pipes[i][0].Close()
	}
	if len(said) > 0 {
		return 128, string(said), nil
	}
	return codeOf(cmd.ProcessState), "", nil
}

// began is told once the command runs. A pod that is to end already ends then.
func (c *container) began(process *os.Process) {
	space, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", process.Pid))
	c.mu.Lock()
	c.process, c.space = process, space
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	c.mu.Unlock()
	select {
	case <-c.pod.killed:
		c.signal(syscall.SIGKILL)
	case <-c.pod.stopping:
		c.signal(syscall.SIGTERM)
	default:
	}
}

// codeOf is an exit code as shells tell it.
func codeOf(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// inNamespaces is a command that runs inside of the container.
func (c *container) inNamespaces(env []string, words ...string) (*exec.Cmd, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return nil, fmt.Errorf("container %q is not running", c.spec.Name)
	}
	target := fmt.Sprint(c.process.Pid)
	args := append([]string{"-t", target, "-m", "-u", "-i", "-p", "--"}, words...)
	cmd := exec.Command("nsenter", args...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

var starts = make(chan func())

// startHere starts a command from the one thread that lives as long as we do: a process dies with
// the thread that started it.
func startHere(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	starts <- func() { result <- cmd.Start() }
	return <-result
}

func init() {
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
}
