package cluster

// invitation is what a cluster that this server asked to join has said.
type invitation struct {
	Records map[string][]byte // of the seal: they show what is needed to unseal
}

// JoinTarget is a server of a cluster to join.
type JoinTarget struct {
	APIAddr                       string
	ServerName                    string
	CACert, ClientCert, ClientKey []byte // PEM
	NonVoter                      bool
}
