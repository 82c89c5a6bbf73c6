package group

import (
	"encoding/binary"

	"corbel.dev/corbel/kit/errkind"
)

// A log entry of the group: version byte, number of commands, then each
// command with its length before it. Numbers are unsigned varints.
const entryVersion = 1

// commandOverheadBytes bounds what a command costs in an entry beside its bytes.
const commandOverheadBytes = binary.MaxVarintLen32

func beginEntry(b []byte, count int) []byte {
	return binary.AppendUvarint(append(b, entryVersion), uint64(count))
}

func appendCommand(b, cmd []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(cmd))), cmd...)
}

// splitEntry appends the entry's commands, which still belong to data, to cmds.
func splitEntry(cmds [][]byte, data []byte) ([][]byte, error) {
	bad := func(what string) ([][]byte, error) {
		return cmds, errkind.New(errkind.Corrupt, "log entry: "+what)
	}
	if len(data) == 0 {
		return bad("empty")
	}
	if data[0] != entryVersion {
		return cmds, errkind.Errorf(errkind.Invalid, "log entry: version %d was written by a newer program", data[0])
	}
	data = data[1:]
	count, n := binary.Uvarint(data)
	if n <= 0 || count > uint64(len(data)) {
		return bad("count does not fit")
	}
	data = data[n:]
	for range count {
		size, n := binary.Uvarint(data)
		if n <= 0 || size > uint64(len(data)-n) {
			return bad("command does not fit")
		}
		cmds = append(cmds, data[n:n+int(size):n+int(size)])
		data = data[n+int(size):]
	}
	if len(data) != 0 {
		return bad("bytes follow the last command")
	}
	return cmds, nil
}
