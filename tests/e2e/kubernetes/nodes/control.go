// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// request is a line on our socket: from tests (kill, processes), or from pods (ssh, sshd).
type request struct {
	Kind     string `json:"kind"`
	Node     string `json:"node,omitempty"`
	Silent   bool   `json:"silent,omitempty"`
	Host     string `json:"host,omitempty"`
	Command  string `json:"command,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
}

var errRefused = errors.New("Connection refused")

type answer struct {
	Error     string `json:"error,omitempty"`
	Code      int    `json:"code"`
	Processes []int  `json:"processes"`
}

func (m *machine) listen(ctx context.Context) error {
	path := filepath.Join(m.state, "nodes.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		listener.Close()
	}()
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				log.Print(err)
				continue
			}
			go func() {
				defer conn.Close()
				if err := m.serve(conn); err != nil {
					json.NewEncoder(conn).Encode(answer{Error: err.Error(), Code: failed})
				}
			}()
		}
	}()
	return nil
}

func (m *machine) serve(conn *net.UnixConn) error {
	buffer, control := make([]byte, 1<<20), make([]byte, 1024)
	length, controls, _, _, err := conn.ReadMsgUnix(buffer, control)
	if err != nil {
		return err
	}
	for !bytes.HasSuffix(buffer[:length], []byte("\n")) {
		more, err := conn.Read(buffer[length:])
		if err != nil {
			return err
		}
		length += more
	}
	streams := []*os.File{}
	if messages, err := syscall.ParseSocketControlMessage(control[:controls]); err == nil {
		for i := range messages {
			handles, _ := syscall.ParseUnixRights(&messages[i])
			for _, handle := range handles {
				syscall.CloseOnExec(handle)
				streams = append(streams, os.NewFile(uintptr(handle), "stream"))
			}
		}
	}
	defer func() {
		for _, each := range streams {
			each.Close()
		}
	}()
	var asked request
	if err := json.Unmarshal(buffer[:length], &asked); err != nil {
		return err
	}
	said := answer{}
	switch asked.Kind {
	case "kill":
		m.mu.Lock()
		on := m.nodes[asked.Node]
		m.mu.Unlock()
		if on == nil {
			return fmt.Errorf("no node %s", asked.Node)
		}
		on.die(asked.Silent)
	case "processes":
		said.Processes = m.processes()
	case "sshd":
		c := m.caller(conn)
		if c == nil {
			return errors.New("not from a pod")
		}
		c.mu.Lock()
		c.listening = true
		c.mu.Unlock()
	case "ssh":
		from := m.caller(conn)
		said.Code, err = m.session(from, asked, streams)
		for tries := 1; errors.Is(err, errRefused) && tries < asked.Attempts; tries++ {
			time.Sleep(time.Second)
			said.Code, err = m.session(from, asked, streams)
		}
		if err != nil {
			return err
		}
	default:
		return fmt.Errorf("no request %s", asked.Kind)
	}
	return json.NewEncoder(conn).Encode(said)
}

// caller is the container that a connection comes from: the one with the peer's PID namespace. A
// container may ask before we know that it has begun.
func (m *machine) caller(conn *net.UnixConn) *container {
	for tries := 0; tries < 100; tries++ {
		if c := m.callerNow(conn); c != nil {
			return c
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func (m *machine) callerNow(conn *net.UnixConn) *container {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	space := ""
	raw.Control(func(handle uintptr) {
		if peer, err := syscall.GetsockoptUcred(int(handle), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			space, _ = os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", peer.Pid))
		}
	})
	for _, p := range m.allPods() {
		for _, c := range p.containers {
			c.mu.Lock()
			same := c.process != nil && c.space == space
			c.mu.Unlock()
			if same {
				return c
			}
		}
	}
	return nil
}

// session runs a command in the pod that is called so, with the environment of a new session.
func (m *machine) session(from *container, asked request, streams []*os.File) (int, error) {
	if from == nil || len(streams) != 3 {
		return failed, errors.New("ssh: not from a pod")
	}
	to := m.resolve(from.pod, asked.Host)
	if to == nil {
		return failed, fmt.Errorf("ssh: Could not resolve hostname %s: Name or service not known", asked.Host)
	}
	for _, c := range to.running() {
		c.mu.Lock()
		listening := c.listening
		c.mu.Unlock()
		if !listening || to.node.dead() {
			continue
		}
		words := []string{"/bin/bash", "-c", asked.Command}
		env := []string{
			"PATH=" + c.path(), "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash",
			"SSH_CONNECTION=" + from.pod.ip + " 40000 " + to.ip + " 22",
		}
		cmd, err := c.inNamespaces(env, words...)
		if err != nil {
			return failed, err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = streams[0], streams[1], streams[2]
		if err := startHere(cmd); err != nil {
			return failed, err
		}
		for _, each := range streams {
			each.Close()
		}
		cmd.Wait()
		code := codeOf(cmd.ProcessState)
		if code > 128 && cmd.ProcessState.ExitCode() < 0 {
			code = failed
		}
		return code, nil
	}
	return failed, fmt.Errorf("ssh: connect to host %s port 22: %w", asked.Host, errRefused)
}

// resolve finds a pod as the cluster's DNS does, with what the asking pod searches in.
func (m *machine) resolve(from *pod, host string) *pod {
	if host == from.hostname() || host == "localhost" {
		return from
	}
	searched := []string{"", from.namespace + ".svc.cluster.local", "svc.cluster.local", "cluster.local"}
	if config := from.api.Spec.DNSConfig; config != nil {
		searched = append(searched, config.Searches...)
	}
	for _, each := range m.allPods() {
		full := each.fullName()
		if full == "" || each.ended() {
			continue
		}
		for _, domain := range searched {
			if strings.TrimSuffix(host+"."+domain, ".") == full {
				return each
			}
		}
	}
	return nil
}
