package monitor

import "corbel.dev/corbel/kit/tagproto"

// Type is a type of objects that are the plane's configuration.
type Type struct {
	Name       string // in paths of the API and in rules of roles
	Kind       string // in files of objects
	APIVersion string // "": the plane's own, which no API shows
	Scoped     bool   // belongs to a namespace
	New        func() Object
}

// Types are all types of objects, by name. Events are none of them: they are kept elsewhere.
var Types = []Type{
	{"apikeys", "APIKey", "core/v2", false, func() Object { return new(APIKey) }},
	{"assets", "Asset", "core/v2", true, func() Object { return new(Asset) }},
	{"authproviders", "oidc", "authentication/v2", false, func() Object { return new(AuthProvider) }},
	{"checks", "CheckConfig", "core/v2", true, func() Object { return new(CheckConfig) }},
	{"clusterrolebindings", "ClusterRoleBinding", "core/v2", false, func() Object { return new(ClusterRoleBinding) }},
	{"clusterroles", "ClusterRole", "core/v2", false, func() Object { return new(ClusterRole) }},
	{"clusters", "Cluster", federationAPI, false, func() Object { return new(Cluster) }},
	{"config", "GlobalConfig", "web/v1", false, func() Object { return new(Provider) }},
	{"entities", "EntityConfig", "core/v3", true, func() Object { return new(EntityConfig) }},
	{"etcd-replicators", "EtcdReplicator", federationAPI, false, func() Object { return new(Replicator) }},
	{"filters", "EventFilter", "core/v2", true, func() Object { return new(EventFilter) }},
	{"handlers", "Handler", "core/v2", true, func() Object { return new(Handler) }},
	{"hooks", "HookConfig", "core/v2", true, func() Object { return new(HookConfig) }},
	{"logins", "Login", "", false, func() Object { return new(Login) }},
	{"mutators", "Mutator", "core/v2", true, func() Object { return new(Mutator) }},
	{"namespaces", "Namespace", "core/v2", false, func() Object { return new(Namespace) }},
	{"pipelines", "Pipeline", "core/v2", true, func() Object { return new(Pipeline) }},
	{"provider", "PostgresConfig", "store/v1", false, func() Object { return new(Provider) }},
	{"providers", "Provider", "secrets/v1", false, func() Object { return new(Provider) }},
	{"rolebindings", "RoleBinding", "core/v2", true, func() Object { return new(RoleBinding) }},
	{"roles", "Role", "core/v2", true, func() Object { return new(Role) }},
	{"rule-templates", "RuleTemplate", "bsm/v1", true, func() Object { return new(Provider) }},
	{"search", "Search", "searches/v1", true, func() Object { return new(Provider) }},
	{"secrets", "Secret", "secrets/v1", true, func() Object { return new(SecretSource) }},
	{"service-components", "ServiceComponent", "bsm/v1", true, func() Object { return new(Provider) }},
	{"settings", "Setting", "", false, func() Object { return new(Setting) }},
	{"silenced", "Silenced", "core/v2", true, func() Object { return new(Silenced) }},
	{"tcp-stream-handlers", StreamHandlerKind, "pipeline/v1", true, func() Object { return new(TCPStreamHandler) }},
	{"users", "User", "core/v2", false, func() Object { return new(User) }},
}

// own are types that the plane keeps for itself beside Types: nobody asks for them by their names.
var own = []Type{
	{ShardTableType, "ShardTable", "corbel/v1", false, func() Object { return new(ShardTable) }},
	{CopyType, "Copy", "corbel/v1", false, func() Object { return new(Copy) }},
}

// TypeOf returns the type of a name.
func TypeOf(name string) (Type, bool) {
	for _, list := range [][]Type{Types, own} {
		for _, t := range list {
			if t.Name == name {
				return t, true
			}
		}
	}
	return Type{}, false
}

// ShardTableType and ShardTableName are where the one ShardTable is.
const (
	ShardTableType = "shardtables"
	ShardTableName = "events"
)

// ShardTable says which server has which part of the events, as it is replicated.
type ShardTable struct {
	Meta   `pb:"1"`
	Shards []*ShardPlace  `pb:"2"`
	Extra  tagproto.Extra `json:"-"`
}

// Validate implements Object: nobody but the plane itself writes one.
func (t *ShardTable) Validate() error { return nil }

// ShardPlace is who has one part: ids of servers.
type ShardPlace struct {
	Owner   string `pb:"1"`
	Replica string `pb:"2"`
	Epoch   uint64 `pb:"3"`
	// Complete says that the replica has everything but what is on its way.
	Complete bool `pb:"4"`
	// Next is the server that gets everything, to be the replica once it has it.
	Next  string         `pb:"5"`
	Extra tagproto.Extra `json:"-"`
}

// Key returns the namespace and the name of an object.
func (m *Meta) Key() (namespace, name string) { return m.Namespace, m.Name }

// ObjectMeta returns the names, labels and annotations of an object that has them.
func (m *Meta) ObjectMeta() *Meta { return m }

// Key returns the namespace's name.
func (n *Namespace) Key() (namespace, name string) { return "", n.Name }

// Key returns the user's name.
func (u *User) Key() (namespace, name string) { return "", u.Username }
