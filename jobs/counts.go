package jobs

// Counts are allocations by what their nodes say of them (NO-26). One that is not wanted any more before its node said
// anything is in none.
type Counts struct{ Starting, Running, Complete, Failed, Lost, Unknown int }

// Add counts a, n times: -1 takes it out again.
func (c *Counts) Add(a *Allocation, n int) {
	switch a.Client.Status {
	case ClientRunning:
		c.Running += n
	case ClientComplete:
		c.Complete += n
	case ClientFailed:
		c.Failed += n
	case ClientLost:
		c.Lost += n
	case ClientUnknown:
		c.Unknown += n
	default: // the node has not said anything
		if a.Desired.Status == Run {
			c.Starting += n
		}
	}
}
