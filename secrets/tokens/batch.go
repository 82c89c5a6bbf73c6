package tokens

// isBatch says of which kind a token becomes: what its mount says, else what was asked for, else
// what the mount says where nothing was.
func isBatch(asked, mount string) bool {
	switch {
	case mount == "service" || mount == "batch":
		return mount == "batch"
	case asked == "" || asked == "default":
		return mount == "default-batch"
	}
	return asked == "batch" || asked == "default-batch"
}
