package kubeapi

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"corbel.dev/corbel/kit/errkind"
)

// maxKubeconfig bounds a kubeconfig file, in bytes.
const maxKubeconfig = 4 << 20

// kubeconfig is what is read of a file of kubectl's (Kubernetes' reference of kubeconfig, v1).
type kubeconfig struct {
	Current  string `yaml:"current-context"`
	Contexts []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster kubeCluster
	}
	Users []struct {
		Name string
		User kubeUser
	}
}

type kubeCluster struct {
	Server     string
	CAFile     string `yaml:"certificate-authority"`
	CA         string `yaml:"certificate-authority-data"`
	ServerName string `yaml:"tls-server-name"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
	Proxy      string `yaml:"proxy-url"`
}

type kubeUser struct {
	Token        string
	TokenFile    string         `yaml:"tokenFile"`
	CertFile     string         `yaml:"client-certificate"`
	Cert         string         `yaml:"client-certificate-data"`
	KeyFile      string         `yaml:"client-key"`
	Key          string         `yaml:"client-key-data"`
	Username     string         `yaml:"username"`
	Exec         map[string]any `yaml:"exec"`
	AuthProvider map[string]any `yaml:"auth-provider"`
}

// FromFile is the Config of a kubeconfig file's current context. What it cannot do as kubectl does it refuses: programs
// that give tokens, passwords, and servers whose certificate nobody checks. Files that it names are looked for beside
// it.
func FromFile(path string) (Config, error) {
	fail := func(format string, args ...any) (Config, error) {
		return Config{}, errkind.Errorf(errkind.Invalid, "%s: %s", path, fmt.Sprintf(format, args...))
	}
	st, err := os.Stat(path)
	if err == nil && st.Size() > maxKubeconfig {
		return fail("it is larger than %d bytes", maxKubeconfig)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return Config{}, errkind.E(errkind.Invalid, "kubeconfig", err)
	}
	var f kubeconfig
	if err := yaml.Unmarshal(text, &f); err != nil {
		return fail("%v", err)
	}
	cluster, user, why := f.current()
	if why == "" {
		why = refused(cluster, user)
	}
	if why != "" {
		return fail("%s", why)
	}
	beside := func(file string) string {
		if file == "" || filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(filepath.Dir(path), file)
	}
	cfg := Config{Host: cluster.Server, ServerName: cluster.ServerName, Token: user.Token}
	if user.Token == "" { // as kubectl, which prefers a token that is there
		cfg.TokenFile = beside(user.TokenFile)
	}
	if cfg.CA, err = dataOr(cluster.CA, beside(cluster.CAFile)); err != nil {
		return fail("certificate-authority: %v", err)
	}
	cert, err := dataOr(user.Cert, beside(user.CertFile))
	if err != nil {
		return fail("client-certificate: %v", err)
	}
	key, err := dataOr(user.Key, beside(user.KeyFile))
	if err != nil {
		return fail("client-key: %v", err)
	}
	if len(cert)+len(key) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return fail("client-certificate: %v", err)
		}
		cfg.Cert = &pair
	}
	return cfg, nil
}

// current are the cluster and the user of the current context; why says why there are none.
func (f *kubeconfig) current() (cluster *kubeCluster, user *kubeUser, why string) {
	for i := range f.Contexts {
		c := &f.Contexts[i]
		if c.Name != f.Current {
			continue
		}
		for j := range f.Clusters {
			if f.Clusters[j].Name == c.Context.Cluster {
				cluster = &f.Clusters[j].Cluster
			}
		}
		for j := range f.Users {
			if f.Users[j].Name == c.Context.User {
				user = &f.Users[j].User
			}
		}
		switch {
		case cluster == nil:
			why = fmt.Sprintf("context %q: there is no cluster %q", c.Name, c.Context.Cluster)
		case user == nil:
			why = fmt.Sprintf("context %q: there is no user %q", c.Name, c.Context.User)
		}
		return cluster, user, why
	}
	return nil, nil, fmt.Sprintf("current-context: there is no context %q", f.Current)
}

// refused says what of a context is not done here; "" is nothing.
func refused(cluster *kubeCluster, user *kubeUser) string {
	switch {
	case cluster.Insecure:
		return "insecure-skip-tls-verify: is not taken; name the certificate-authority"
	case cluster.Proxy != "":
		return "proxy-url: is not taken; set HTTPS_PROXY"
	case user.Exec != nil:
		return "exec: programs that give tokens are not run; name a token or a client-certificate"
	case user.AuthProvider != nil:
		return "auth-provider: is not taken; name a token or a client-certificate"
	case user.Username != "":
		return "username: is not taken; name a token or a client-certificate"
	}
	return ""
}

// dataOr is what base64 text holds, else what a file does; nil where neither is named.
func dataOr(text, file string) ([]byte, error) {
	if text != "" {
		return base64.StdEncoding.DecodeString(text)
	}
	if file == "" {
		return nil, nil
	}
	return os.ReadFile(file)
}
