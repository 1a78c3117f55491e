package record

import "os"

// maxFlushes bounds the flushes under way, as each of them holds a thread.
const maxFlushes = 64

// flusher brings files and directories to the disk.
//
// Callers share flushes through the journal of the file system: flushes that
// are asked for side by side become one commit. Eight callers are four to eight
// times as fast as one for that reason. A leader that flushed for a batch of
// callers was measured to be a quarter as fast, because a batch waits for the
// one before it, and sharing the flush of the directory that all records of a
// kind lie in changed nothing (BenchmarkPut; ext4, 1, 8 and 32 callers).
type flusher chan struct{}

func newFlusher() flusher { return make(flusher, maxFlushes) }

func (f flusher) file(file *os.File) error {
	f <- struct{}{}
	defer func() { <-f }()
	return file.Sync()
}

// dirs flushes directories in the order given, up to the first error.
func (f flusher) dirs(dirs ...string) error {
	f <- struct{}{}
	defer func() { <-f }()
	for _, dir := range dirs {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}
