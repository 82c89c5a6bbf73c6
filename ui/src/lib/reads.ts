// What a screen shows, as the plane's own API tells it: the command is beside each screen, to copy.
import { curl, type PlaneName } from "./act";

const q = encodeURIComponent;

const below = (path: string): string => path.split("/").map(q).join("/");

/** read is what the screen at a path, below /ui, is made of; the greatest part of it where it is made of several. */
function read(path: string, param: (name: string) => string): [PlaneName, string] {
  const [, first = "", ...rest] = path.split("/");
  const name = rest.map(decodeURIComponent).join("/");
  switch (first) {
    case "services":
      return ["catalog", name === "" ? "/v1/health/counts/services" : `/v1/health/service/${q(name)}`];
    case "instances":
      return ["catalog", "/v1/health/state/any"];
    case "nodes":
      return ["catalog", "/v1/health/counts/nodes"];
    case "topology":
      return ["catalog", param("s") === "" ? "/v1/internal/mesh/topology" : `/v1/internal/mesh/certificates?service=${q(param("s"))}`];
    case "propagation":
      return ["catalog", "/v1/internal/mesh/status"];
    case "federation":
      return ["catalog", "/v1/catalog/datacenters"];
    case "kv":
      return ["catalog", param("key") === "" ? `/v1/kv/${below(name)}?keys` : `/v1/kv/${below(name)}`];
    case "entries":
      return ["catalog", name === "" ? "/v1/config/service-defaults" : `/v1/config/${below(name)}`];
    case "queries":
      return ["catalog", name === "" || name === "new" ? "/v1/query" : `/v1/query/${q(name)}`];
    case "secrets":
      if (param("mount") === "") return ["secrets", "/v1/sys/leases/attribution"];
      if (param("key") !== "") return ["secrets", `/v1/${below(`${param("mount")}metadata/${param("key")}`)}`];
      return ["secrets", `/v1/${below(`${param("mount")}metadata/${param("path")}`)}?list=true`];
    case "incidents":
      if (param("entity") === "") return ["monitor", "/api/core/v2/events"];
      return ["monitor", `/api/core/v2/namespaces/${q(param("ns") || "default")}/events/${q(param("entity"))}/${q(param("check"))}`];
    case "jobs": {
      if (param("node") !== "") return ["jobs", `/v1/node/${q(param("node"))}`];
      const [namespace = "", ...id] = name.split("/");
      return ["jobs", name === "" ? "/v1/jobs?namespace=*" : `/v1/job/${q(id.join("/"))}?namespace=${q(namespace)}`];
    }
    case "usage":
      return ["catalog", param("product") === "" ? "/v1/usage/limits" : `/v1/usage/estimates?product=${q(param("product"))}&window=24h`];
    case "cluster":
      return ["catalog", "/v1/operator/autopilot/health"];
    default:
      return ["catalog", "/v1/doctor"];
  }
}

/** reading is the command that reads what the screen at a path shows. */
export function reading(path: string, param: (name: string) => string): string {
  const [plane, at] = read(path, param);
  return curl({ plane, method: "GET", path: at }).replace("curl -X GET", "curl");
}
