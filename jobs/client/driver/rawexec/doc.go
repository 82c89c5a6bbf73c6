// Package rawexec starts tasks as processes of the host, without isolation, as the agent's user or another. Its name in
// job files is raw_exec. An operator turns it on: a job that may use it may do on the host whatever its user may.
package rawexec
