//go:build !unix

package notify

// rights passes nothing on: no manager here takes descriptors.
func rights(int) []byte { return nil }

func closeOnExec(int) {}
