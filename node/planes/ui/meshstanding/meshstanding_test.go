package meshstanding

import (
	"encoding/json"
	"reflect"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

// asked answers paths, and refuses all others as to somebody without the right.
func asked(answers map[string]string) func(string, any) error {
	return func(path string, into any) error {
		switch text, ok := answers[path]; {
		case !ok:
			return errkind.New(errkind.Denied, "Permission denied")
		case text == "":
			return errkind.New(errkind.NotFound, "no proxy")
		default:
			return json.Unmarshal([]byte(text), into)
		}
	}
}

func TestOf(t *testing.T) {
	const leaves = `{"Services":{"db":{"valid":1,"ended":1}},"More":3,"List":[{"Node":"n1","Service":"db",` +
		`"SerialNumber":"aa","State":"ended"}],"Silent":[{"Node":"n3","Error":"gone"}]}`
	operator := Of("", asked(map[string]string{
		"/v1/internal/mesh/status?services": `{"Services":{"db":{"synced":2,"refused":1}},"List":[{"Node":"n1","ID":"p",` +
			`"Service":"db","State":"refused","Refusal":{"Words":"no"}}],"Silent":[{"Node":"n3","Error":"gone"}]}`,
		"/v1/internal/mesh/certificates": leaves}))
	if operator.Proxies["db"]["synced"] != 2 || operator.List[0].Refusal.Words != "no" || operator.Partly ||
		operator.Leaves["db"]["ended"] != 1 || operator.More != 3 || len(operator.Silent) != 1 ||
		len(operator.Problems) != 0 {
		t.Errorf("an operator: %+v", operator)
	}
	reader := Of("", asked(map[string]string{"/v1/internal/mesh/proxies?all": `{"List":[{"ID":"a","Service":"db",` +
		`"State":"synced"},{"ID":"b","Service":"db","State":"pending"}]}`}))
	if !reader.Partly || !reflect.DeepEqual(reader.Proxies["db"], map[string]int{"synced": 1, "pending": 1}) ||
		reader.List[0].ID != "b" || len(reader.Certs) != 0 || len(reader.Problems) != 0 {
		t.Errorf("a reader: %+v", reader)
	}
	one := Of("d/b", asked(map[string]string{"/v1/internal/mesh/find/d%2Fb": "",
		"/v1/internal/mesh/certificates?service=d%2Fb": leaves}))
	if len(one.List) != 0 || len(one.Certs) != 1 || len(one.Problems) != 0 {
		t.Errorf("one service: %+v", one)
	}
	if none := Of("db", asked(nil)); len(none.Problems) != 1 || len(none.Certs) != 0 {
		t.Errorf("nothing may be seen: %+v", none)
	}
}
