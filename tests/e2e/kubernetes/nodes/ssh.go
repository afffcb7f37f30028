// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// failed is ssh's exit status for all that is not the command's.
const failed = 255

// sshMain is ssh inside of a pod: a command in another pod, by the pod's name. Its streams are pipes
// that break when it goes, and nothing else ends the command, as with a real sshd.
func sshMain(words []string) int {
	host, command, noInput := readWords(words)
	attempts := 1
	for _, word := range words {
		if _, count, found := strings.Cut(word, "ConnectionAttempts="); found {
			fmt.Sscan(count, &attempts)
		}
	}
	if host == "" {
		fmt.Fprintln(os.Stderr, "usage: ssh [options] destination [command [argument ...]]")
		return failed
	}
	conn, err := dial()
	if err != nil {
		fmt.Fprintf(os.Stderr, "ssh: connect to host %s port 22: %v\n", host, err)
		return failed
	}
	defer conn.Close()
	var ends [3][2]*os.File
	for i := range ends {
		if ends[i][0], ends[i][1], err = os.Pipe(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return failed
		}
	}
	asked, _ := json.Marshal(request{Kind: "ssh", Host: host, Command: command, Attempts: attempts})
	rights := syscall.UnixRights(int(ends[0][0].Fd()), int(ends[1][1].Fd()), int(ends[2][1].Fd()))
	if _, _, err := conn.WriteMsgUnix(append(asked, '\n'), rights, nil); err != nil {
		fmt.Fprintf(os.Stderr, "ssh: connect to host %s port 22: %v\n", host, err)
		return failed
	}
	for _, file := range []*os.File{ends[0][0], ends[1][1], ends[2][1]} {
		file.Close()
	}
	go func() {
		if !noInput {
			io.Copy(ends[0][1], os.Stdin)
		}
		ends[0][1].Close()
	}()
	drained := make(chan bool, 2)
	go func() { io.Copy(os.Stdout, ends[1][0]); drained <- true }()
	go func() { io.Copy(os.Stderr, ends[2][0]); drained <- true }()
	var got answer
	if err := json.NewDecoder(conn).Decode(&got); err != nil {
		fmt.Fprintf(os.Stderr, "Connection to %s closed by remote host.\n", host)
		return failed
	}
	if got.Error != "" {
		fmt.Fprintln(os.Stderr, got.Error)
		return failed
	}
	<-drained
	<-drained
	return got.Code
}

// readWords splits ssh's command line: options, a host, and a command.
func readWords(words []string) (host, command string, noInput bool) {
	const withValue = "BbcDEeFIiJLlmOopQRSWw"
	for i := 0; i < len(words); i++ {
		word := words[i]
		if host == "" && strings.HasPrefix(word, "-") && len(word) > 1 {
			for at := 1; at < len(word); at++ {
				if strings.IndexByte(withValue, word[at]) >= 0 {
					if at == len(word)-1 {
						i++
					}
					break
				}
				noInput = noInput || word[at] == 'n'
			}
			continue
		}
		if host == "" {
			host = word[strings.LastIndex(word, "@")+1:]
			continue
		}
		return host, strings.Join(words[i:], " "), noInput
	}
	return host, "", noInput
}

// sshdMain stands for sshd: from now on others reach this pod.
func sshdMain() int {
	conn, err := dial()
	if err == nil {
		err = json.NewEncoder(conn).Encode(request{Kind: "sshd"})
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sshd: %v\n", err)
		return failed
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, syscall.SIGCHLD)
	for {
		select {
		case <-ended:
			fmt.Fprintln(os.Stderr, "Received signal 15; terminating.")
			return failed
		case <-orphans:
			// The first process of a pod inherits all orphans.
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}

func dial() (*net.UnixConn, error) {
	path, err := os.ReadFile(socketNote)
	if err != nil {
		return nil, err
	}
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: string(path), Net: "unix"})
}
