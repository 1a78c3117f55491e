// Package kernel answers what this machine's kernel can do, and with which
// privileges, by trying it.
//
// Each ability is a Feature with a probe. A probe leaves nothing behind and
// changes nothing that others can see; it does the thing itself on a private
// object (a detached mount, an unnamed file) rather than compare version
// numbers, because containers, WSL2 and vendors' kernels make versions lie. What
// is missing is always a *NotSupportedError that names the feature, the reason
// and what to do. On systems other than Linux every probe says so.
package kernel
