//go:build !unix

package conformance

// groupOfFile is not known here.
func groupOfFile(string) (group int, ok bool) { return 0, false }
