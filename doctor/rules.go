package doctor

// rules are all causes that are looked for, each with its own page in docs/runbook. Their order does not matter.
var rules = []rule{
	{"metrics-sink-blocks", sinkBlocks},
	{"disk-stalled", diskStalled},
	{"disk-slow", diskSlow},
	{"cpu-throttled", cpuThrottled},
	{"proxy-throttled", proxyThrottled},
	{"packet-loss", packetLoss},
	{"allowance-exceeded", allowanceExceeded},
	{"one-transmit-queue", oneTransmitQueue},
	{"packets-dropped", packetsDropped},
	{"conntrack-full", conntrackFull},
	{"clock-skew", clockSkew},
	{"descriptors-exhausted", descriptorsExhausted},
	{"memory-short", memoryShort},
	{"request-memory-full", requestMemoryFull},
	{"connections-refused", connectionsRefused},
	{"goroutines-grow", goroutinesGrow},
	{"garbage-collection", garbageCollection},
	{"no-leader", noLeader},
	{"no-spare-voter", noSpareVoter},
	{"storage-slow", storageSlow},
	{"storage-amplified", storageAmplified},
	{"revocation-storm", revocationStorm},
	{"noisy-tenant", noisyTenant},
	{"overloaded", overloaded},
	{"handler-hangs", handlerHangs},
	{"events-reach-nobody", eventsReachNobody},
	{"metrics-sink-deaf", sinkDeaf},
	{"subscriber-slow", subscriberSlow},
	{"terminating-instance", terminatingInstance},
	{"config-refused", configRefused},
	{"peering-failing", peeringFailing},
	{"lock-contended", lockContended},
	{"evaluations-pile-up", evaluationsPileUp},
	{"plans-rejected", plansRejected},
	{"nodes-unheard", nodesUnheard},
	{"work-blocked", workBlocked},
	{"tasks-start-slowly", tasksStartSlowly},
	{"tasks-restart", tasksRestart},
	{"usage-backlog", usageBacklog},
	{"usage-agent-behind", usageAgentBehind},
	{"usage-events-dropped", usageDropped},
	{"usage-part-unplaced", usagePartUnplaced},
	{"usage-part-alone", usagePartAlone},
	{"usage-warmup-bound", usageWarmupBound},
	{"usage-drain-waits", usageDrainWaits},
	{"usage-limit-unjudged", usageLimitUnjudged},
	{"usage-sender-clock", usageSenderClock},
	{"usage-identities-explode", usageIdentitiesExplode},
	{"usage-cache-small", usageCacheSmall},
	{"usage-cache-cold", usageCacheCold},
}

// Codes lists the codes of all findings that there can be, in the order of the documentation.
func Codes() []string {
	out := make([]string, 0, len(rules)+2)
	for _, r := range rules {
		out = append(out, r.code)
	}
	return append(out, "member-silent", "slow-requests")
}
