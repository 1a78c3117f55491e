package process

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNothingRunsOnTheMainThread(t *testing.T) {
	t.Parallel()
	const times = 200
	on := make(chan int, times)
	for range times {
		onThread(func() {
			runtime.Gosched()
			on <- syscall.Gettid()
		})
	}
	for range times {
		require.NotEqual(t, syscall.Getpid(), <-on)
	}
}
