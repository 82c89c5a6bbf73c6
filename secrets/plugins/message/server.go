package message

// Methods that a plug-in calls of the server.
const (
	StorageList   = "/pb.Storage/List"
	StorageGet    = "/pb.Storage/Get"
	StoragePut    = "/pb.Storage/Put"
	StorageDelete = "/pb.Storage/Delete"

	DefaultLeaseTTL  = "/pb.SystemView/DefaultLeaseTTL"
	MaxLeaseTTL      = "/pb.SystemView/MaxLeaseTTL"
	Tainted          = "/pb.SystemView/Tainted"
	CachingDisabled  = "/pb.SystemView/CachingDisabled"
	ReplicationState = "/pb.SystemView/ReplicationState"
	MlockEnabled     = "/pb.SystemView/MlockEnabled"
	LocalMount       = "/pb.SystemView/LocalMount"
	EntityInfo       = "/pb.SystemView/EntityInfo"
	GroupsForEntity  = "/pb.SystemView/GroupsForEntity"
	PluginEnv        = "/pb.SystemView/PluginEnv"
	GeneratePassword = "/pb.SystemView/GeneratePasswordFromPolicy"
	ClusterInfo      = "/pb.SystemView/ClusterInfo"
	ResponseWrapData = "/pb.SystemView/ResponseWrapData"

	SendEvent         = "/pb.Events/SendEvent"
	RecordObservation = "/pb.Observations/RecordObservation"
)

// Replicated is the state of replication of a server that has none: disabled for performance, and for recovery.
const Replicated = 1<<12 | 1<<13

// StorageEntry is a record.
type StorageEntry struct {
	Key      string `pb:"1"`
	Value    []byte `pb:"2"`
	SealWrap bool   `pb:"3"`
}

// StorageKey is the argument of List, Get and Delete: a prefix or a key.
type StorageKey struct {
	Key string `pb:"1"`
}

// StorageKeys is the answer to List.
type StorageKeys struct {
	Keys []string `pb:"1"`
	Err  string   `pb:"2"`
}

// StorageValue is the answer to Get; Entry is nil where there is nothing.
type StorageValue struct {
	Entry *StorageEntry `pb:"1"`
	Err   string        `pb:"2"`
}

// StorageWrite is the argument of Put.
type StorageWrite struct {
	Entry *StorageEntry `pb:"1"`
}

// StorageDone is the answer to Put and Delete.
type StorageDone struct {
	Err   string    `pb:"1"`
	Index *WALIndex `pb:"2"`
}

// WALIndex is where a write stands in the logs of replication, which there are none of.
type WALIndex struct {
	Local      uint64 `pb:"1"`
	Replicated uint64 `pb:"2"`
}

// TTLReply is a time to live in nanoseconds.
type TTLReply struct {
	TTL int64 `pb:"1"`
}

// BoolReply is yes or no.
type BoolReply struct {
	Yes bool `pb:"1"`
}

// StateReply is the answer to ReplicationState.
type StateReply struct {
	State int32 `pb:"1"`
}

// WrapReply is the answer to ResponseWrapData.
type WrapReply struct {
	Err string `pb:"2"`
}

// EntityArgs names an entity.
type EntityArgs struct {
	ID string `pb:"1"`
}

// Entity is one, with its aliases.
type Entity struct {
	ID       string            `pb:"1"`
	Name     string            `pb:"2"`
	Aliases  []*Alias          `pb:"3"`
	Metadata map[string]string `pb:"4"`
	Disabled bool              `pb:"5"`
}

// EntityReply is the answer to EntityInfo.
type EntityReply struct {
	Entity *Entity `pb:"1"`
	Err    string  `pb:"2"`
}

// Group is one that an entity is in.
type Group struct {
	ID       string            `pb:"1"`
	Name     string            `pb:"2"`
	Metadata map[string]string `pb:"3"`
}

// GroupsReply is the answer to GroupsForEntity.
type GroupsReply struct {
	Groups []*Group `pb:"1"`
	Err    string   `pb:"2"`
}

// Environment is what the server is.
type Environment struct {
	Version string `pb:"1"`
}

// EnvReply is the answer to PluginEnv.
type EnvReply struct {
	Environment *Environment `pb:"1"`
	Err         string       `pb:"2"`
}

// PasswordArgs is the argument of GeneratePassword.
type PasswordArgs struct {
	Policy string `pb:"1"`
}

// PasswordReply is its answer.
type PasswordReply struct {
	Password string `pb:"1"`
}

// ClusterReply is the answer to ClusterInfo.
type ClusterReply struct {
	Name string `pb:"1"`
	ID   string `pb:"2"`
	Err  string `pb:"3"`
}
