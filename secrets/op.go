package secrets

// Op is one change of a record. A nil Value deletes the key; deleting what is not there is no error.
type Op struct {
	Key   string
	Value []byte
}

// Record is a key with its value.
type Record struct {
	Key   string
	Value []byte
}
