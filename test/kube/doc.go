// Package kube tries the client of Kubernetes and the injector's answers against client-go and the API's own types.
package kube
