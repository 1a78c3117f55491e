package lifecycle

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/journal"
)

// retry is a call that failed in a way that asks for a back-off.
type retry struct {
	failed *journal.Entry
	ended  time.Time
	// waited is how long the caller waited before that call, 0 for the first.
	waited time.Duration
}

// longestBackoff is where callers may stop waiting longer each time.
const longestBackoff = time.Second

// checkRetry finds retries that come too soon, and waits that become shorter
// instead of longer. Half a wait is left for jitter.
func (c *Checker) checkRetry(e *journal.Entry) []Finding {
	last, retried := c.retries[e.Subject()]
	if !retried || c.o.MinBackoff < 0 {
		return nil
	}
	if !proto.Equal(e.Request, last.failed.Request) {
		return nil // another request, which the answer asked for
	}
	waited, least := e.Time.Sub(last.ended), max(c.o.MinBackoff, min(last.waited, longestBackoff)/2)
	if waited >= least {
		return nil
	}
	return []Finding{{
		Rule: RetryTooSoon, Call: e, Earlier: last.failed,
		What: fmt.Sprintf("it is tried again %s after it had failed; a back-off waits %s here, or longer", waited.Round(time.Millisecond), least),
	}}
}

// mostRetries bounds what is kept of calls that nobody tries again.
const mostRetries = 10_000

func (c *Checker) learnRetry(e *journal.Entry) {
	k := e.Subject()
	last, retried := c.retries[k]
	switch e.Code {
	case codes.Aborted, codes.Unavailable, codes.ResourceExhausted, codes.Internal: // those that may pass by themselves
		next := retry{failed: e, ended: e.Time.Add(e.Duration)}
		if retried {
			next.waited = e.Time.Sub(last.ended)
		}
		if len(c.retries) >= mostRetries {
			clear(c.retries)
		}
		c.retries[k] = next
	default:
		// Also where the caller gave up waiting (DEADLINE_EXCEEDED, CANCELLED):
		// "Timeouts" lets it call again at once. Its next call is often ABORTED, by
		// the first one that goes on, and that asks for a back-off.
		delete(c.retries, k)
	}
}
