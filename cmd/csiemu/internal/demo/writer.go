package demo

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	recordBytes = 4096
	// slots are the records that a log has room for; the newest overwrite the
	// oldest.
	slots    = 1024
	logBytes = recordBytes * slots
	// pause between two records, so that the writer leaves the machine to the
	// walk.
	pause = 2 * time.Millisecond
)

// writer is a workload that goes on while the walk works on its volume: it
// writes one numbered record after another and flushes each. A copy of the
// volume is one point in time only if it holds all records up to some number
// and none after it.
type writer struct {
	file *os.File
	at   place
	stop context.CancelFunc
	done chan struct{}

	// gate is held while a record is written.
	gate sync.Mutex

	mu      sync.Mutex
	changed *sync.Cond    // of what follows
	written uint64        // records that are flushed
	longest time.Duration // the longest that one record took
	err     error
}

// startWriter opens the log at p and writes on after the record last until the
// writer is ended.
func startWriter(ctx context.Context, p place, last uint64) (*writer, error) {
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the writer: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	w := &writer{file: f, at: p, stop: stop, done: make(chan struct{}), written: last}
	w.changed = sync.NewCond(&w.mu)
	go w.run(ctx, last+1)
	return w, nil
}

func (w *writer) run(ctx context.Context, first uint64) {
	defer close(w.done)
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for number := first; ; number++ {
		began := time.Now()
		err := w.write(number)
		w.mu.Lock()
		if w.err = err; err == nil {
			w.written = number
			w.longest = max(w.longest, time.Since(began))
		}
		w.changed.Broadcast()
		w.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *writer) write(number uint64) error {
	w.gate.Lock()
	defer w.gate.Unlock()
	if _, err := w.file.WriteAt(record(number), w.at.offset+slot(number)*recordBytes); err != nil {
		return err
	}
	return w.file.Sync()
}

// quiesce holds the writer between two records until resume is called, as an
// application does that is asked for a quiet moment.
func (w *writer) quiesce() (resume func()) {
	w.gate.Lock()
	return w.gate.Unlock
}

// end stops the writer and returns the error that it met.
func (w *writer) end() error {
	w.stop()
	<-w.done
	if err := errors.Join(w.err, w.file.Close()); err != nil {
		return fmt.Errorf("write beside the walk: %w", err)
	}
	return nil
}

// state returns how many records are flushed and the longest that one took
// since the last call.
func (w *writer) state() (written uint64, longest time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest, w.longest = w.longest, 0
	return w.written, longest, w.err
}

// await waits until n more records are flushed, or the writer fails.
func (w *writer) await(ctx context.Context, n uint64) error {
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed.Broadcast()
	})
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for want := w.written + n; w.written < want; w.changed.Wait() {
		if err := errors.Join(ctx.Err(), w.err); err != nil {
			return fmt.Errorf("wait for the writer: %w", err)
		}
	}
	return nil
}

func slot(number uint64) int64 { return int64(number % slots) }

// record is the record of a number: the number over and over.
func record(number uint64) []byte {
	var word [8]byte
	binary.BigEndian.PutUint64(word[:], number)
	return bytes.Repeat(word[:], recordBytes/len(word))
}

// checkLog reads the log at p and returns the number of the newest record. It
// fails if a record up to that number is missing, or if the newest is older
// than atLeast, which was flushed before the copy was asked for.
func checkLog(p place, atLeast uint64) (uint64, error) {
	f, err := os.Open(p.path)
	if err != nil {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	defer f.Close()
	found := make([]uint64, slots)
	newest, buffer := uint64(0), make([]byte, recordBytes)
	for i := range found {
		n, err := f.ReadAt(buffer, p.offset+int64(i)*recordBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("read the log: %w", err)
		}
		if n < recordBytes {
			break // the log has not been this long yet
		}
		found[i] = binary.BigEndian.Uint64(buffer)
		if !bytes.Equal(buffer, record(found[i])) {
			return 0, fmt.Errorf("check the log: slot %d is torn", i)
		}
		newest = max(newest, found[i])
	}
	if newest < atLeast {
		return 0, fmt.Errorf("check the log: record %d was flushed before the copy, but the newest is %d", atLeast, newest)
	}
	for number := newest; number > 0 && newest-number < slots; number-- {
		if at := found[slot(number)]; at != number {
			return 0, fmt.Errorf("check the log: record %d is missing beside %d, slot holds %d", number, newest, at)
		}
	}
	return newest, nil
}
