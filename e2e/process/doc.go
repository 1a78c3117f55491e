// Package process runs programs, in the namespaces of this process or in others,
// so that none outlives the process that started it.
package process
