package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// claims is the directory in which the clusters of this machine claim a number
// each, by a lock on a file of that name. The file tells where the cluster's files
// are, so that whoever gets the lock of a dead one can clean up.
const claims = "/run/csiemu-e2e"

// most is how many clusters there can be at once.
const most = 32

// claim is a number that no other cluster has.
type claim struct {
	number int
	file   *os.File
}

// claimAny cleans up what clusters have left whose process has died, and claims a
// number for one whose files are in dir.
func claimAny(dir string) (*claim, error) {
	var mine *claim
	for number := range most {
		c, err := take(number)
		if err != nil {
			return nil, errors.Join(err, mine.release())
		}
		if c == nil {
			continue
		}
		if err := c.cleanUp(); err != nil {
			return nil, errors.Join(fmt.Errorf("clean up after cluster %d: %w", number, err), c.file.Close(), mine.release())
		}
		if mine == nil && network(number).free() {
			mine = c
		} else if err := c.release(); err != nil {
			return nil, errors.Join(err, mine.release())
		}
	}
	if mine == nil {
		return nil, fmt.Errorf("claim a number for a cluster: all %d are in use", most)
	}
	if _, err := mine.file.WriteString(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("claim a number for a cluster: %w", err), mine.release())
	}
	return mine, nil
}

// take gets the lock of a number; nil if another process has it.
func take(number int) (*claim, error) {
	path := filepath.Join(claims, strconv.Itoa(number))
	for {
		if err := os.MkdirAll(claims, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of claims: %w", err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			continue // the last cluster has just removed the directory
		}
		if err != nil {
			return nil, fmt.Errorf("claim number %d: %w", number, err)
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, nil
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		locked, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(there, locked) {
			return &claim{number: number, file: f}, nil
		}
		_ = f.Close() // its owner removed it as we waited
	}
}

// cleanUp removes what a cluster left that had the number, if there was one.
func (c *claim) cleanUp() error {
	dir, err := io.ReadAll(c.file)
	if err != nil || len(dir) == 0 {
		return err
	}
	if err := remove(c.number, strings.TrimSpace(string(dir))); err != nil {
		return err
	}
	if err := c.file.Truncate(0); err != nil {
		return err
	}
	_, err = c.file.Seek(0, io.SeekStart)
	return err
}

// release gives the number back. A nil claim has none.
func (c *claim) release() error {
	if c == nil {
		return nil
	}
	err := os.Remove(c.file.Name())
	_ = os.Remove(claims) // if this was the last
	return errors.Join(err, c.file.Close())
}
