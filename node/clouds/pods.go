package clouds

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/k8s/kubeapi"
	"corbel.dev/corbel/node/cloudjoin"
)

// portAnnotation names the port at which a pod is joined: a number, or the name of a port of one of its containers.
const portAnnotation = "consul.hashicorp.com/auto-join-port"

// pods finds the pods of a Kubernetes cluster: of the kubeconfig file that is named, else of the one that this process
// runs in a pod of, else of the file that kubectl would take.
type pods struct{}

func kubeConfig(file string) (kubeapi.Config, error) {
	if file == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return kubeapi.InCluster(os.Getenv)
	}
	if file == "" {
		file, _, _ = strings.Cut(os.Getenv("KUBECONFIG"), string(os.PathListSeparator))
	}
	if file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return kubeapi.Config{}, err
		}
		file = filepath.Join(home, ".kube", "config")
	}
	return kubeapi.FromFile(file)
}

type pod struct {
	Metadata struct{ Annotations map[string]string }
	Spec     struct {
		Containers []struct{ Ports []port }
	}
	Status struct {
		Phase, PodIP, HostIP string
		Conditions           []struct{ Type, Status string }
	}
}

type port struct {
	Name                    string
	ContainerPort, HostPort int
}

func (pods) Addrs(args map[string]string) ([]string, error) {
	onHost := false
	if v := args["host_network"]; v != "" {
		var err error
		if onHost, err = strconv.ParseBool(v); err != nil {
			return nil, fmt.Errorf("host_network: %q must be true or false", v)
		}
	}
	cfg, err := kubeConfig(args["kubeconfig"])
	if err != nil {
		return nil, err
	}
	client, err := kubeapi.New(cfg)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	namespace := args["namespace"]
	if namespace == "" {
		namespace = "default"
	}
	q := url.Values{}
	for key, name := range map[string]string{"label_selector": "labelSelector", "field_selector": "fieldSelector"} {
		if v := args[key]; v != "" {
			q.Set(name, v)
		}
	}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	ctx, cancel := context.WithTimeout(context.Background(), cloudjoin.Deadline)
	defer cancel()
	var addrs []string
	_, err = client.List(ctx, path, func(raw []byte) error {
		var one pod
		if err := json.Unmarshal(raw, &one); err != nil {
			return fmt.Errorf("a pod: %w", err)
		}
		if addr := one.addr(onHost); addr != "" {
			addrs = append(addrs, addr)
		}
		return nil
	})
	return addrs, err
}

// addr is where the pod is joined; "" is not at all: it does not run, is not ready, or has no such port.
func (p *pod) addr(onHost bool) string {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			return ""
		}
	}
	ip := p.Status.PodIP
	if onHost {
		ip = p.Status.HostIP
	}
	if p.Status.Phase != "Running" || ip == "" {
		return ""
	}
	want := p.Metadata.Annotations[portAnnotation]
	if want == "" {
		return ip
	}
	number, err := strconv.Atoi(want)
	byNumber := err == nil
	for _, c := range p.Spec.Containers {
		i := slices.IndexFunc(c.Ports, func(o port) bool {
			return byNumber && o.ContainerPort == number || !byNumber && o.Name == want
		})
		switch {
		case i < 0:
		case onHost && c.Ports[i].HostPort == 0:
			return ""
		case onHost:
			return net.JoinHostPort(ip, strconv.Itoa(c.Ports[i].HostPort))
		default:
			return net.JoinHostPort(ip, strconv.Itoa(c.Ports[i].ContainerPort))
		}
	}
	if byNumber && !onHost && number > 0 {
		return net.JoinHostPort(ip, want)
	}
	return ""
}
