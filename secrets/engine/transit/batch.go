package transit

import (
	"net/http"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// batchMost bounds the items of one request.
const batchMost = 100_000

// each lets do answer the request, or each item of its batch_input. An item that is refused has its
// error in its place; the whole is 400 then, or what the request says.
func (c *call) each(do func(f *secrets.Fields) (map[string]any, error)) (*secrets.Response, error) {
	input := c.f.Any("batch_input")
	if input == nil {
		out, err := do(c.f)
		if err != nil {
			return nil, err
		}
		return answer(out)
	}
	list, ok := input.([]any)
	if !ok || len(list) == 0 {
		return nil, invalid("missing batch input to process: field \"batch_input\" must be a list of objects")
	}
	if len(list) > batchMost {
		return nil, invalid("field \"batch_input\": has %d items, more than %d", len(list), batchMost)
	}
	failed := c.f.Int("partial_failure_response_code", http.StatusBadRequest)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if failed < 200 || failed > 599 {
		return nil, invalid("field \"partial_failure_response_code\": must be a status of HTTP")
	}
	results, wrong, status := make([]any, len(list)), 0, 0
	for i, one := range list {
		item, ok := one.(map[string]any)
		if !ok {
			return nil, invalid("field \"batch_input\": item %d is no object", i)
		}
		f := secrets.FieldsOf(item)
		out, err := do(&f)
		if err != nil {
			if !errkind.Is(err, errkind.Invalid) {
				return nil, err
			}
			wrong++
			out = map[string]any{"error": errkind.Text(err)}
		}
		if ref := f.String("reference"); ref != "" {
			out["reference"] = ref
		}
		results[i] = out
	}
	switch {
	case wrong == len(list):
		status = http.StatusBadRequest
	case wrong > 0:
		status = failed
	}
	resp, err := answer(map[string]any{"batch_results": results})
	if err == nil {
		resp.Status = status
	}
	return resp, err
}
