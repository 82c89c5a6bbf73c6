package sensuctl

import "strings"

// kind is a type of resources.
type kind struct {
	Command string // below sensuctl; "" has none
	Plural  string
	Short   string // in dump and describe-type
	API     string // core/v2
	Type    string // CheckConfig
	Path    string // core/v2/checks
	Global  bool   // of no namespace
	Columns string // "Head=path" with dots, separated by commas
	Names   int    // of how many words its name is made; 0 is one
}

var types = []kind{
	{Command: "api-key", Plural: "API keys", Short: "apikeys", API: "core/v2", Type: "APIKey", Path: "core/v2/apikeys",
		Global: true, Columns: "Name=metadata.name,Username=username,Created At=created_at"},
	{Command: "asset", Plural: "assets", Short: "assets", API: "core/v2", Type: "Asset", Path: "core/v2/assets",
		Columns: "Name=metadata.name,URL=url,Hash=sha512"},
	{Command: "auth", Plural: "authentication providers", Short: "authproviders", API: "authentication/v2", Type: "oidc",
		Path: "enterprise/authentication/v2/authproviders", Global: true,
		Columns: "Name=metadata.name,Type=type,Server=spec.server,Client ID=spec.client_id"},
	{Command: "check", Plural: "checks", Short: "checks", API: "core/v2", Type: "CheckConfig", Path: "core/v2/checks",
		Columns: "Name=metadata.name,Command=command,Interval=interval,Cron=cron,Timeout=timeout,TTL=ttl," +
			"Subscriptions=subscriptions,Handlers=handlers,Assets=runtime_assets,Publish?=publish,Stdin?=stdin"},
	{Command: "cluster-role", Plural: "cluster roles", Short: "clusterroles", API: "core/v2", Type: "ClusterRole",
		Path: "core/v2/clusterroles", Global: true, Columns: "Name=metadata.name,Rules=rules"},
	{Command: "cluster-role-binding", Plural: "cluster role bindings", Short: "clusterrolebindings", API: "core/v2",
		Type: "ClusterRoleBinding", Path: "core/v2/clusterrolebindings", Global: true,
		Columns: "Name=metadata.name,Cluster Role=role_ref.name,Subjects=subjects"},
	{Command: "entity", Plural: "entities", Short: "entities", API: "core/v2", Type: "Entity", Path: "core/v2/entities",
		Columns: "ID=metadata.name,Class=entity_class,OS=system.os,Subscriptions=subscriptions,Last Seen=last_seen"},
	{Command: "event", Plural: "events", Short: "events", API: "core/v2", Type: "Event", Path: "core/v2/events", Names: 2,
		Columns: "Entity=entity.metadata.name,Check=check.metadata.name,Output=check.output,Status=check.status," +
			"Silenced=check.is_silenced,Timestamp=timestamp,UUID=id"},
	{Command: "filter", Plural: "filters", Short: "filters", API: "core/v2", Type: "EventFilter", Path: "core/v2/filters",
		Columns: "Name=metadata.name,Action=action,Expressions=expressions"},
	{Command: "handler", Plural: "handlers", Short: "handlers", API: "core/v2", Type: "Handler", Path: "core/v2/handlers",
		Columns: "Name=metadata.name,Type=type,Timeout=timeout,Filters=filters,Mutator=mutator,Execute=command"},
	{Command: "hook", Plural: "hooks", Short: "hooks", API: "core/v2", Type: "HookConfig", Path: "core/v2/hooks",
		Columns: "Name=metadata.name,Command=command,Timeout=timeout,Stdin?=stdin"},
	{Command: "mutator", Plural: "mutators", Short: "mutators", API: "core/v2", Type: "Mutator", Path: "core/v2/mutators",
		Columns: "Name=metadata.name,Command=command,Timeout=timeout"},
	{Command: "namespace", Plural: "namespaces", Short: "namespaces", API: "core/v2", Type: "Namespace",
		Path: "core/v2/namespaces", Global: true, Columns: "Name=name"},
	{Command: "pipeline", Plural: "pipelines", Short: "pipelines", API: "core/v2", Type: "Pipeline",
		Path: "core/v2/pipelines", Columns: "Name=metadata.name,Workflows=workflows"},
	{Command: "role", Plural: "roles", Short: "roles", API: "core/v2", Type: "Role", Path: "core/v2/roles",
		Columns: "Name=metadata.name,Namespace=metadata.namespace,Rules=rules"},
	{Command: "role-binding", Plural: "role bindings", Short: "rolebindings", API: "core/v2", Type: "RoleBinding",
		Path: "core/v2/rolebindings", Columns: "Name=metadata.name,Role=role_ref.name,Subjects=subjects"},
	{Command: "silenced", Plural: "silences", Short: "silenced", API: "core/v2", Type: "Silenced",
		Path: "core/v2/silenced", Columns: "Name=metadata.name,Subscription=subscription,Check=check,Begin=begin," +
			"Expire=expire,ExpireOnResolve=expire_on_resolve,Creator=creator,Reason=reason,Namespace=metadata.namespace"},
	{Command: "user", Plural: "users", Short: "users", API: "core/v2", Type: "User", Path: "core/v2/users", Global: true,
		Columns: "Username=username,Groups=groups,Disabled=disabled"},
	{Plural: "entity configurations", Short: "entity_configs", API: "core/v3", Type: "EntityConfig",
		Path: "core/v3/entity-configs", Columns: "Name=metadata.name,Class=spec.entity_class"},
	{Command: "rule-template", Plural: "rule templates", Short: "rule-templates", API: "bsm/v1", Type: "RuleTemplate",
		Path:    "enterprise/bsm/v1/rule-templates",
		Columns: "Name=metadata.name,Namespace=metadata.namespace,Description=spec.description"},
	{Command: "service-component", Plural: "service components", Short: "service-components", API: "bsm/v1",
		Type: "ServiceComponent", Path: "enterprise/bsm/v1/service-components",
		Columns: "Name=metadata.name,Namespace=metadata.namespace,Services=spec.services,Interval=spec.interval," +
			"Cron=spec.cron,Handlers=spec.handlers,Rules=spec.rules"},
	{Command: "tcp-stream-handler", Plural: "TCP stream handlers", Short: "tcp_stream_handlers", API: "pipeline/v1",
		Type: "TCPStreamHandler", Path: "enterprise/pipeline/v1/tcp-stream-handlers", Columns: "Name=metadata.name"},
	{Plural: "saved searches", Short: "searches", API: "searches/v1", Type: "Search",
		Path:    "enterprise/searches/v1/search",
		Columns: "Name=metadata.name,Resource=spec.resource,Parameters=spec.parameters"},
	{Plural: "web UI configurations", Short: "web_configs", API: "web/v1", Type: "GlobalConfig",
		Path: "enterprise/web/v1/config", Global: true, Columns: "Name=metadata.name"},
	{Command: "secret", Plural: "secrets", Short: "secrets", API: "secrets/v1", Type: "Secret",
		Path: "enterprise/secrets/v1/secrets", Columns: "Name=metadata.name,Provider=spec.provider,ID=spec.id"},
}

// typeNamed finds a type by what people call it: its command, its short or its full name.
func typeNamed(name string) *kind {
	for i := range types {
		t := &types[i]
		for _, n := range []string{t.Command, t.Short, strings.TrimSuffix(t.Short, "s"), t.Type, t.API + "." + t.Type} {
			if n != "" && strings.EqualFold(n, name) {
				return t
			}
		}
	}
	return nil
}
