package rows

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// translates tells whether the addresses in an answer of another datacenter are to be those by which
// this one reaches it (translate_wan_addrs).
func translates(q *Request) bool {
	return q.TranslateWAN && q.R.Method == http.MethodGet &&
		(strings.HasPrefix(q.Row.Pattern, "/v1/catalog/") || strings.HasPrefix(q.Row.Pattern, "/v1/health/") || strings.HasPrefix(q.Row.Pattern, "/v1/query/"))
}

// translate puts the wan addresses of nodes and services in the place of their own. A body that is
// no JSON stays as it is.
func translate(body []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return body
	}
	translateValue(v)
	out, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return out
}

func translateValue(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			translateValue(item)
		}
	case map[string]any:
		useWAN(v, "TaggedAddresses", "Address", "Port")
		useWAN(v, "ServiceTaggedAddresses", "ServiceAddress", "ServicePort")
		for _, item := range v {
			translateValue(item)
		}
	}
}

// useWAN takes the wan address from an object's tagged ones: a text for nodes, an address with a port for services.
func useWAN(object map[string]any, tagged, address, port string) {
	all, _ := object[tagged].(map[string]any)
	if _, has := object[address]; !has {
		return
	}
	switch wan := all["wan"].(type) {
	case string:
		if wan != "" {
			object[address] = wan
		}
	case map[string]any:
		if a, ok := wan["Address"].(string); ok && a != "" {
			object[address], object[port] = a, wan["Port"]
		}
	}
}
