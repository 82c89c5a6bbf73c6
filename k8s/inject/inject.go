// Package inject decides whether a pod that is made gets a sidecar, and writes the patch that adds it.
//
// Review reads an AdmissionReview and answers with one; the webhook around it (cli/k8scmd) does no more than carry
// bytes. It is pure: the same review has the same answer, and nothing is looked up.
//
// What always holds: a pod that has a sidecar already gets no second one, so the patch may be asked for again (the API
// server does that). A patch only adds. What a pod asks for and cannot have is refused in words, rather than run
// without its protection; a pod that asks for nothing is always allowed.
package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/k8s"
	"corbel.dev/corbel/kit/errkind"
)

// The annotations of pods.
const (
	Inject    = k8s.AnnotationPrefix + "connect-inject"
	Status    = k8s.AnnotationPrefix + "connect-inject-status"
	Service   = k8s.AnnotationPrefix + "connect-service"
	Port      = k8s.AnnotationPrefix + "connect-service-port"
	Upstreams = k8s.AnnotationPrefix + "connect-service-upstreams"
	redirect  = k8s.AnnotationPrefix + "transparent-proxy"
)

// injected is what Status says of a pod with a sidecar.
const injected = "injected"

// ContainerName is the sidecar's.
const ContainerName = "corbel-sidecar"

// Options are what each sidecar gets. Image and Agent are required.
type Options struct {
	Default    bool   // inject into pods without the annotation
	Image      string // of the sidecar
	Agent      string // address of the host's agent; $(HOST_IP) is the host's
	AuthMethod string // by which the pod's account logs in; "" uses no token
	CAFile     string // of the agent, in the image; "" is the system's
	Deny       []string
	Resources  json.RawMessage // of the container, as Kubernetes has them; nil: none
}

type container struct {
	Name  string `json:"name"`
	Ports []struct {
		Name          string `json:"name"`
		ContainerPort int    `json:"containerPort"`
	} `json:"ports"`
}

type pod struct {
	Metadata struct {
		Name         string            `json:"name"`
		GenerateName string            `json:"generateName"`
		Namespace    string            `json:"namespace"`
		Labels       map[string]string `json:"labels"`
		Annotations  map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		ServiceAccountName string      `json:"serviceAccountName"`
		HostNetwork        bool        `json:"hostNetwork"`
		AutomountToken     *bool       `json:"automountServiceAccountToken"`
		Containers         []container `json:"containers"`
		InitContainers     []container `json:"initContainers"`
	} `json:"spec"`
}

type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID  string `json:"uid"`
	Kind struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
	} `json:"kind"`
	Namespace string          `json:"namespace"`
	Operation string          `json:"operation"`
	Object    json.RawMessage `json:"object"`
}

type response struct {
	UID       string  `json:"uid"`
	Allowed   bool    `json:"allowed"`
	PatchType string  `json:"patchType,omitempty"`
	Patch     []byte  `json:"patch,omitempty"` // base64 in JSON, as the API wants it
	Status    *status `json:"status,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

const reviewVersion, reviewKind = "admission.k8s.io/v1", "AdmissionReview"

// Review answers an AdmissionReview. The error is of kind Invalid: the text is none.
func Review(text []byte, o *Options) ([]byte, error) {
	var in review
	if err := k8s.Decode(text, &in); err != nil {
		return nil, err
	}
	if in.APIVersion != reviewVersion || in.Kind != reviewKind || in.Request == nil || in.Request.UID == "" {
		return nil, errkind.Errorf(errkind.Invalid, "this is no request of %s %s", reviewVersion, reviewKind)
	}
	out := review{APIVersion: reviewVersion, Kind: reviewKind, Response: &response{UID: in.Request.UID}}
	patch, err := of(in.Request, o)
	switch {
	case err != nil:
		out.Response.Status = &status{Code: 403, Message: "corbel: " + err.Error()}
	case len(patch) > 0:
		text, err := json.Marshal(patch)
		if err != nil {
			return nil, errkind.E(errkind.Internal, "encode patch", err)
		}
		out.Response.Allowed, out.Response.PatchType, out.Response.Patch = true, "JSONPatch", text
	default:
		out.Response.Allowed = true
	}
	return json.Marshal(out)
}

// of is the patch for what is made. Without one, and without an error, the object stays as it is.
func of(in *request, o *Options) ([]op, error) {
	if in.Kind.Group != "" || in.Kind.Kind != "Pod" || in.Operation != "" && in.Operation != "CREATE" {
		return nil, nil
	}
	var p pod
	if err := k8s.Decode(in.Object, &p); err != nil {
		return nil, err
	}
	annotations := p.Metadata.Annotations
	if slices.Contains(o.Deny, in.Namespace) || annotations[Status] == injected {
		return nil, nil
	}
	if yes, err := k8s.Bool(annotations, Inject, o.Default); !yes {
		return nil, err
	}
	w, err := wants(&p, o)
	if err != nil {
		return nil, err
	}
	return w.patch(&p, o)
}

// wanted is what a pod's annotations ask for.
type wanted struct {
	service   string
	port      int
	upstreams []string // NAME:PORT
	tags      []string
	meta      map[string]string
}

func wants(p *pod, o *Options) (*wanted, error) {
	a := p.Metadata.Annotations
	switch on, err := k8s.Bool(a, redirect, false); {
	case err != nil:
		return nil, err
	case on:
		return nil, fmt.Errorf("annotation %s: connections are not redirected here; name upstreams in %s", redirect,
			Upstreams)
	case p.Spec.HostNetwork:
		return nil, fmt.Errorf("a pod on its host's network gets no sidecar: its ports would be the host's; say %s: "+
			`"false"`, Inject)
	case len(p.Spec.Containers) == 0:
		return nil, fmt.Errorf("the pod has no containers")
	case slices.ContainsFunc(slices.Concat(p.Spec.Containers, p.Spec.InitContainers),
		func(c container) bool { return c.Name == ContainerName }):
		return nil, fmt.Errorf("the pod has a container %s of its own, and no annotation %s: take it out of the manifest",
			ContainerName, Status)
	case o.AuthMethod != "" && p.Spec.AutomountToken != nil && !*p.Spec.AutomountToken:
		return nil, fmt.Errorf("the sidecar logs in with the account's token, and the pod mounts none " +
			"(automountServiceAccountToken)")
	}
	w := &wanted{service: a[Service], tags: k8s.List(a[k8s.ServiceTags]), meta: map[string]string{}}
	if w.service == "" {
		if w.service = p.Spec.ServiceAccountName; w.service == "" || w.service == "default" {
			w.service = p.Spec.Containers[0].Name
		}
	}
	if strings.ContainsAny(w.service, ", /") {
		return nil, fmt.Errorf("annotation %s is %q; a pod stands for one service", Service, w.service)
	}
	for name, value := range a {
		if key, ok := strings.CutPrefix(name, k8s.ServiceMeta); ok && key != "" {
			w.meta[key] = value
		}
	}
	var err error
	if w.port, err = portOf(p); err == nil {
		w.upstreams, err = upstreamsOf(a[Upstreams])
	}
	return w, err
}

// portOf is the port of the pod that the mesh leads to: 0 where there is none.
func portOf(p *pod) (int, error) {
	text, asked := p.Metadata.Annotations[Port]
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if !asked || port.Name == text && text != "" {
				return port.ContainerPort, nil
			}
		}
	}
	if !asked {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 65535 {
		return 0, fmt.Errorf("annotation %s is %q; it must be a port, or the name of one of the pod's", Port, text)
	}
	return n, nil
}

// upstreamsOf reads NAME:PORT,NAME:PORT; NAME.svc:PORT is the same.
func upstreamsOf(text string) (list []string, err error) {
	for _, item := range k8s.List(text) {
		parts := strings.Split(item, ":")
		name := strings.TrimSuffix(parts[0], ".svc")
		if len(parts) != 2 || name == "" || strings.Contains(name, ".") || parts[0] == "prepared_query" {
			return nil, fmt.Errorf("annotation %s has %q; it must be NAME:PORT, of a service of this datacenter", Upstreams,
				item)
		}
		if n, err := strconv.Atoi(parts[1]); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("annotation %s has %q; the port must be 1 to 65535", Upstreams, item)
		}
		list = append(list, name+":"+parts[1])
	}
	return list, nil
}

// op is one operation of a JSON patch.
type op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

type object = map[string]any

// patch adds the sidecar and the marks that it is there.
func (w *wanted) patch(p *pod, o *Options) ([]op, error) {
	c := object{"name": ContainerName, "image": o.Image, "args": w.args(o), "restartPolicy": "Always",
		"env": []object{field("HOST_IP", "status.hostIP"), field("POD_IP", "status.podIP"),
			field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")},
		"securityContext": object{"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
			"capabilities":   object{"drop": []string{"ALL"}},
			"seccompProfile": object{"type": "RuntimeDefault"}}}
	if len(o.Resources) > 0 {
		c["resources"] = o.Resources
	}
	// A container of the init list that is restarted always: it runs before the pod's own and ends after them.
	list := []op{{"add", "/spec/initContainers/0", c}}
	if len(p.Spec.InitContainers) == 0 {
		list[0] = op{"add", "/spec/initContainers", []object{c}}
	}
	list = append(list, mark("/metadata/annotations", p.Metadata.Annotations), mark("/metadata/labels", p.Metadata.Labels))
	return list, nil
}

func mark(path string, have map[string]string) op {
	if len(have) == 0 {
		return op{"add", path, map[string]string{Status: injected}}
	}
	return op{"add", path + "/" + strings.ReplaceAll(Status, "/", "~1"), injected}
}

func field(name, path string) object {
	return object{"name": name, "valueFrom": object{"fieldRef": object{"fieldPath": path}}}
}

// args are the sidecar's. $ of what a pod says is doubled: Kubernetes would put variables in its place.
func (w *wanted) args(o *Options) []string {
	plain := func(s string) string { return strings.ReplaceAll(s, "$", "$$") }
	args := []string{"k8s", "sidecar", "--http-addr=" + o.Agent, "--service=" + plain(w.service), "--pod-ip=$(POD_IP)",
		"--pod-name=$(POD_NAME)", "--pod-namespace=$(POD_NAMESPACE)"}
	if w.port > 0 {
		args = append(args, fmt.Sprintf("--port=%d", w.port))
	}
	for _, u := range w.upstreams {
		args = append(args, "--upstream="+plain(u))
	}
	for _, tag := range w.tags {
		args = append(args, "--tag="+plain(tag))
	}
	for _, key := range slices.Sorted(maps.Keys(w.meta)) {
		args = append(args, "--meta="+plain(key+"="+w.meta[key]))
	}
	if o.AuthMethod != "" {
		args = append(args, "--auth-method="+o.AuthMethod)
	}
	if o.CAFile != "" {
		args = append(args, "--ca-file="+o.CAFile)
	}
	return args
}

// Said is what an answer of Review says: that the pod is patched, or why it is refused.
func Said(answer []byte) (patched bool, refusal string) {
	var r review
	if json.Unmarshal(answer, &r) != nil || r.Response == nil {
		return false, ""
	}
	if s := r.Response.Status; s != nil && !r.Response.Allowed {
		return false, s.Message
	}
	return len(r.Response.Patch) > 0, ""
}
