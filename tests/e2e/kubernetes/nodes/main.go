// SPDX-License-Identifier: Apache-2.0

// Command nodes stands in for the parts of a Kubernetes cluster that need containers: the kubelets
// of some nodes, whose pods are processes in namespaces of their own, and the controllers of MPIJobs
// and JobSets. In pods it is ssh, sshd and ssh-keygen as well.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
)

const tick = 200 * time.Millisecond

// options are what the command line says.
type options struct {
	kubeconfig  string
	state       string
	images      string
	nodes       string
	gpus        int64
	mpiOperator bool
	jobSet      bool
}

func main() {
	switch filepath.Base(os.Args[0]) {
	case "ssh":
		os.Exit(sshMain(os.Args[1:]))
	case "sshd":
		os.Exit(sshdMain())
	case "ssh-keygen":
		return
	}
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	var err error
	switch {
	case verb == "run":
		err = run(os.Args[2:])
	case verb == "container":
		err = becomeContainer()
	case verb == "key" && len(os.Args) == 3:
		err = writeKey(os.Args[2])
	default:
		err = fmt.Errorf("usage: nodes run OPTIONS | nodes key FILE")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// writeKey writes a new private key, with which an API server signs tokens.
func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func run(arguments []string) error {
	var o options
	flags := flag.NewFlagSet("run", flag.ExitOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "how the API server is reached")
	flags.StringVar(&o.state, "state", "", "folder of the socket, logs and volumes")
	flags.StringVar(&o.images, "images", "", "folder of images: NAME/bin is first on the PATH")
	flags.StringVar(&o.nodes, "nodes", "a,b", "names of the nodes")
	flags.Int64Var(&o.gpus, "gpus", 8, "nvidia.com/gpu of a node")
	flags.BoolVar(&o.mpiOperator, "mpi-operator", true, "look after MPIJobs")
	flags.BoolVar(&o.jobSet, "jobset", true, "look after JobSets")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	// A server that is away shall be asked again soon.
	config.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	m, err := newMachine(o, client)
	if err != nil {
		return err
	}
	var tasks sync.WaitGroup
	for _, name := range strings.Split(o.nodes, ",") {
		node, err := m.addNode(ctx, name)
		if err != nil {
			return err
		}
		tasks.Add(1)
		go func() { defer tasks.Done(); node.beat() }()
	}
	loops := []func(context.Context) error{m.syncPods}
	if o.mpiOperator {
		loops = append(loops, (&mpiOperator{client, objects, eventsOf(client, "mpi-job-controller")}).syncAll)
	}
	if o.jobSet {
		loops = append(loops, (&jobSets{client, objects}).syncAll)
	}
	for _, loop := range loops {
		tasks.Add(1)
		go func() { defer tasks.Done(); repeat(ctx, loop) }()
	}
	if err := m.listen(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	tasks.Wait()
	m.endAll()
	return nil
}

// repeat does something again and again. What fails is said once, as an API server may be away.
func repeat(ctx context.Context, do func(context.Context) error) {
	last := ""
	for ctx.Err() == nil {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			if err.Error() != last {
				log.Print(err)
			}
			last = err.Error()
		} else {
			last = ""
		}
		select {
		case <-ctx.Done():
		case <-time.After(tick):
		}
	}
}
