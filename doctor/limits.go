package doctor

// Absolute limits: they hold whatever is usual. Milliseconds unless the name says otherwise.
const (
	// commitLimit is the mean of a commit; a healthy cluster of the published kind takes 7 to 9.
	commitLimit = 30
	// registerLimit is the mean of a registration, from proposal to applied.
	registerLimit = 20
	// secretsLimit is the mean of a secrets request, logins apart: hashing a password is meant to be slow.
	secretsLimit = 10
	// eventLimit is the p99 from an event's arrival to its being stored.
	eventLimit = 100
	// changeLimit is the mean from a change's commit to its being acknowledged by a proxy. It is taken by the clocks of
	// two hosts.
	changeLimit = 1000
	// requestLimit is the mean of any other request that does not block on purpose.
	requestLimit = 50
	// fsyncLimit is the mean of an append with its sync, where the machine's floor does not ask for more patience.
	fsyncLimit = 20
	// fsyncFloors is how many times the machine's own floor a sync may take.
	fsyncFloors = 10
	// usualTimes is from how many times its usual level on something counts as slow, above a quarter of its limit.
	usualTimes = 5
	// stallLimit is for how long one write may be in flight.
	stallLimit = 1000
	// offsetLimit is how far apart the clocks of two members may be.
	offsetLimit = 500
	// cpuUsedUp is which part of a machine's CPU is in use when work waits for it.
	cpuUsedUp = 0.9
	// cpuWaited is in which part of the time, in percent, some work waits for the CPU of a machine that is short of it
	// (PSI).
	cpuWaited = 60
	// fewest is from how many observations in a window on a mean is believed.
	fewest = 5
)
