// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// longest is how much of a line is one entry; the rest follows in entries of its own.
const longest = 16 << 10

type entry struct {
	at      time.Time
	text    []byte
	partial bool // its line goes on in the stream's next entry
}

// logFile is what a container said, in memory and in a file of the format of container runtimes.
type logFile struct {
	path string

	mu      sync.Mutex
	entries []entry
	changed chan struct{} // closed at each change
	closed  bool
}

func newLog(path string) *logFile { return &logFile{path: path, changed: make(chan struct{})} }

// copy takes all of a stream.
func (l *logFile) copy(stream string, from io.Reader) {
	lines := bufio.NewReaderSize(from, longest)
	for {
		text, err := lines.ReadSlice('\n')
		if len(text) > 0 {
			partial := text[len(text)-1] != '\n' && err != io.EOF
			l.add(stream, text, partial)
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

func (l *logFile) add(stream string, text []byte, partial bool) {
	kept := append([]byte{}, text...)
	if !partial && kept[len(kept)-1] != '\n' {
		kept = append(kept, '\n')
	}
	tag, end := "F", ""
	if partial {
		tag, end = "P", "\n"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now().UTC()
	os.MkdirAll(filepath.Dir(l.path), 0o755)
	if file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintf(file, "%s %s %s %s%s", at.Format(time.RFC3339Nano), stream, tag, kept, end)
		file.Close()
	}
	l.entries = append(l.entries, entry{at, kept, partial})
	l.change()
}

func (l *logFile) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// close is called when nothing will follow.
func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.change()
}

type logQuery struct {
	follow     bool
	timestamps bool
	since      time.Time
	tail       int // negative: all
}

// send writes the log, with what follows until the container has ended where that is asked.
func (l *logFile) send(ctx context.Context, out io.Writer, flush func(), q logQuery) {
	l.mu.Lock()
	next := 0
	if q.tail >= 0 {
		next = len(l.entries)
		for lines := 0; next > 0; next-- {
			if !l.entries[next-1].partial {
				if lines++; lines > q.tail {
					break
				}
			}
		}
	}
	l.mu.Unlock()
	within := false // of a line whose time was written
	for {
		l.mu.Lock()
		some, changed, closed := l.entries[next:], l.changed, l.closed
		next = len(l.entries)
		l.mu.Unlock()
		for _, each := range some {
			if each.at.Before(q.since) {
				continue
			}
			if q.timestamps && !within {
				fmt.Fprintf(out, "%s ", each.at.Format(time.RFC3339Nano))
			}
			if _, err := out.Write(each.text); err != nil {
				return
			}
			within = each.partial
		}
		flush()
		if !q.follow || closed {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
