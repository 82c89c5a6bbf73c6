package transit

import (
	"encoding/json"
	"testing"
)

// TestKeyRecord holds what is stored of a key: the groups of its fields are no level of the record.
func TestKeyRecord(t *testing.T) {
	k := key{Name: "k", Type: "aes256-gcm96", exits: exits{Exportable: true, PlainBackup: true, Deletable: true},
		window: window{Latest: 4, MinDecrypt: 1, MinEncrypt: 2, MinHere: 3}, Size: 32}
	got, err := json.Marshal(k)
	const want = `{"name":"k","type":"aes256-gcm96","exportable":true,"allow_plaintext_backup":true,"deletion_allowed":true,` +
		`"latest":4,"min_decryption":1,"min_encryption":2,"min_available":3,"size":32,"versions":null}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}
