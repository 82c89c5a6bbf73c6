package entry

import (
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
)

// Stored reads a config entry from a State, nil when it is not there.
func Stored(st *statestore.State, kind, name string) Entry {
	r := st.Record(catalog.RecordConfigEntry, Key(kind, name))
	if r == nil {
		return nil
	}
	e, err := Load(kind, r.Value)
	if err != nil {
		return nil // it was valid when it was stored
	}
	return e
}
