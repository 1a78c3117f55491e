package registrar

// latest hands the newest value from one goroutine to another: one that was not
// taken yet is replaced. nil takes values and keeps none.
type latest[T any] struct{ c chan T }

func newLatest[T any]() *latest[T] { return &latest[T]{c: make(chan T, 1)} }

func (l *latest[T]) put(v T) {
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
