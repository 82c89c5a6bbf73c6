// Package proxy knows what one proxy must be told: its registration and the
// values of the subjects that it follows go in, resources and further subjects
// come out.
//
// What always holds:
//   - A proxy has nothing until every first value is there; then it has all at once.
//   - A listener or route is there only when the clusters that it refers to are,
//     and a cluster only when it is known where its instances are. While the
//     values of a new chain are still coming, the upstream stays as it was.
//   - What could not be built stays as it was, too, and is named by Problems.
//   - Equal content keeps the same *mesh.Resource, within a proxy over time and
//     between all proxies that share a Cache.
//   - The resources depend on the newest values alone, not on how they came.
//
// A Proxy and its Cache have no lock: all proxies of one Cache belong to one
// goroutine at a time. The resources and sets that come out are immutable.
package proxy
