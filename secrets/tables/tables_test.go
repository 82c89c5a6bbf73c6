package tables

import (
	"fmt"
	"testing"
)

// CVE-2023-5954: what requests made the server remember grew without bound.
func TestCVE_2023_5954_ACLsAreBounded(t *testing.T) {
	st := &Tables{Scope: Scope{ACLs: NewACLs()}}
	for i := range 3 * aclCacheCount {
		st.Shared([]string{fmt.Sprint("policy-", i)})
	}
	if n := len(st.ACLs.ACLs); n > aclCacheCount {
		t.Errorf("%d sets of policies are remembered", n)
	}
}

// A set of policies is compiled once, in whatever order its names come.
func TestSharedACLs(t *testing.T) {
	st := &Tables{Scope: Scope{ACLs: NewACLs()}}
	one, _ := st.Shared([]string{"a", "b", "a"})
	if other, _ := st.Shared([]string{"b", "a"}); one != other {
		t.Error("the same policies were compiled twice")
	}
}
