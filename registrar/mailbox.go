package registrar

// mailbox hands the newest value from one goroutine to another: one that was not
// taken yet is replaced. nil takes values and keeps none.
type mailbox[T any] struct{ c chan T }

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{c: make(chan T, 1)} }

func (l *mailbox[T]) put(v T) {
	if l == nil {
		return
	}
	for {
		select {
		case l.c <- v:
			return
		default:
		}
		select {
		case <-l.c:
		default:
		}
	}
}
