//go:build !linux

package telemetry

func (h *hostSampler) disk() {}
