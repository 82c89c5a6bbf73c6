package sockets

import (
	"slices"
	"time"
)

// Established lists the connections to the given local ports.
func Established(ports ...uint16) ([]Conn, error) {
	var list []Conn
	if len(ports) == 0 {
		return nil, nil
	}
	err := Each(Which{Ports: ports, Figures: true}, func(s *Socket) {
		if s.Established && slices.Contains(ports, s.Local.Port()) {
			list = append(list, Conn{Local: s.Local, Remote: s.Remote, Sent: millis(s.SentMillis),
				Received: millis(s.ReceivedMillis), Unanswered: s.DataIn > 0 && s.DataOut == 0})
		}
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func millis(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
