// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/cert"
	serving "k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// server is what the API server asks for logs, and for commands in containers.
type server struct {
	node *node
	port int
	http *http.Server

	listener net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newServer(n *node) (*server, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey(n.name, []net.IP{net.ParseIP(address)}, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		return nil, err
	}
	s := &server{
		node: n, port: listener.Addr().(*net.TCPAddr).Port, listener: listener, conns: map[net.Conn]bool{},
	}
	routes := http.NewServeMux()
	routes.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", s.logs)
	routes.HandleFunc("/exec/{namespace}/{pod}/{container}", s.exec)
	s.http = &http.Server{
		Handler: routes, ConnState: s.track, ErrorLog: log.New(io.Discard, "", 0),
		// Streams take over their connection, which HTTP/2 has no way for.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{pair}},
	}
	go s.http.ServeTLS(listener, "", "")
	return s, nil
}

func (s *server) track(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[conn] = true
	case http.StateClosed:
		delete(s.conns, conn)
	}
}

// Close ends the server and all its connections, those of streams as well.
func (s *server) Close() {
	s.http.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		conn.Close()
	}
}

// find is the container that a request names; nil when the request was answered.
func (s *server) find(w http.ResponseWriter, r *http.Request) *container {
	name, wanted := r.PathValue("pod"), r.PathValue("container")
	p := s.node.machine.findPod(s.node, r.PathValue("namespace"), name)
	if p == nil {
		http.Error(w, fmt.Sprintf("pod %q not found", name), http.StatusNotFound)
		return nil
	}
	for _, c := range p.containers {
		if c.spec.Name == wanted {
			return c
		}
	}
	http.Error(w, fmt.Sprintf("container %s not found in pod %s", wanted, name), http.StatusNotFound)
	return nil
}

func (s *server) logs(w http.ResponseWriter, r *http.Request) {
	c := s.find(w, r)
	if c == nil {
		return
	}
	if waiting := c.getState().Waiting; waiting != nil && c.restarts() == 0 {
		why := waiting.Reason
		if strings.Contains(why, "ImagePull") {
			why = "trying and failing to pull image"
		}
		text := fmt.Sprintf("container %q in pod %q is waiting to start: %s", c.spec.Name, c.pod.name, why)
		http.Error(w, text, http.StatusBadRequest)
		return
	}
	asked := r.URL.Query()
	if asked.Get("previous") == "true" {
		text := fmt.Sprintf("previous terminated container %q in pod %q not found", c.spec.Name, c.pod.name)
		http.Error(w, text, http.StatusBadRequest)
		return
	}
	q := logQuery{tail: -1, follow: asked.Get("follow") == "true", timestamps: asked.Get("timestamps") == "true"}
	if lines, err := strconv.Atoi(asked.Get("tailLines")); err == nil {
		q.tail = lines
	}
	if seconds, err := strconv.Atoi(asked.Get("sinceSeconds")); err == nil {
		q.since = time.Now().Add(-time.Duration(seconds) * time.Second)
	}
	if at, err := time.Parse(time.RFC3339, asked.Get("sinceTime")); err == nil {
		q.since = at
	}
	flush := func() { http.NewResponseController(w).Flush() }
	w.Header().Set("Content-Type", "text/plain")
	c.log.send(r.Context(), w, flush, q)
	if s.node.silent.Load() {
		<-r.Context().Done()
	}
}

func (s *server) exec(w http.ResponseWriter, r *http.Request) {
	c := s.find(w, r)
	if c == nil {
		return
	}
	streams, err := serving.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if c.getState().Running == nil {
		http.Error(w, fmt.Sprintf("container not found (%q)", c.spec.Name), http.StatusInternalServerError)
		return
	}
	serving.ServeExec(w, r, c, c.pod.name, c.pod.uid, c.spec.Name, r.URL.Query()["command"], streams,
		time.Hour, 30*time.Second, remotecommandconsts.SupportedStreamingProtocols)
}

// ExecInContainer runs a command in the container; a stream that is not wanted is nil.
func (c *container) ExecInContainer(
	_ context.Context, _ string, _ types.UID, _ string, words []string,
	in io.Reader, out, errs io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	c.mu.Lock()
	env := c.env
	c.mu.Unlock()
	cmd, err := c.inNamespaces(env, words...)
	if err != nil {
		return err
	}
	// Not nil in an interface: a stream that is not there must not look like one.
	if out != nil {
		cmd.Stdout = out
	}
	if errs != nil {
		cmd.Stderr = errs
	}
	var stdin io.WriteCloser
	if in != nil {
		if stdin, err = cmd.StdinPipe(); err != nil {
			return err
		}
	}
	if err := startHere(cmd); err != nil {
		return err
	}
	if in != nil {
		// Not awaited: a command may end while its input is open.
		go func() {
			io.Copy(stdin, in)
			stdin.Close()
		}()
	}
	err = cmd.Wait()
	if c.pod.node.silent.Load() {
		select {} // nobody is left who could tell the end
	}
	if code := codeOf(cmd.ProcessState); code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
	}
	return err
}
