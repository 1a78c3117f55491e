//go:build linux

package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// make runs mkfs and keeps what it wrote.
func (m *Maker) make(ctx context.Context, s shape) (*template, error) {
	select {
	case m.running <- struct{}{}:
		defer func() { <-m.running }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	file, err := m.scratchFile()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := runMkfs(ctx, file, s); err != nil {
		return nil, err
	}
	t, err := readTemplate(file, s)
	if err != nil {
		return nil, fmt.Errorf("keep what mkfs.%s wrote: %w", s.fs, err)
	}
	return t, nil
}

func readTemplate(file *os.File, s shape) (*template, error) {
	extents, err := dataExtents(file, s.size)
	if err != nil {
		return nil, err
	}
	data, err := readData(file, extents)
	if err != nil {
		return nil, err
	}
	marks, err := marksOf(file, s.fs, s.size)
	if err != nil {
		return nil, err
	}
	return newTemplate(data, marks)
}

// scratchFile makes a file that vanishes with its last descriptor.
func (m *Maker) scratchFile() (*os.File, error) {
	if m.tempDir != "" {
		fd, err := unix.Open(m.tempDir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return os.NewFile(uintptr(fd), m.tempDir), nil
		}
		// EISDIR is what file systems and kernels without O_TMPFILE answer.
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
			return nil, fmt.Errorf("make a file for mkfs in %s: %w", m.tempDir, err)
		}
	}
	fd, err := unix.MemfdCreate("csiemu-mkfs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file for mkfs in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), "csiemu-mkfs"), nil
}

// runMkfs makes the file system with the first set of arguments that this
// version of mkfs takes.
func runMkfs(ctx context.Context, file *os.File, s shape) error {
	var failures []error
	for _, arguments := range s.mkfsArguments() {
		// A new length of zero drops what an earlier attempt wrote.
		for _, size := range []int64{0, s.size} {
			if err := file.Truncate(size); err != nil {
				return fmt.Errorf("make a file of %d bytes for mkfs: %w", s.size, err)
			}
		}
		_, err := tool{name: "mkfs." + string(s.fs), feature: s.fs.feature()}.run(ctx, file, arguments...)
		if err == nil {
			return nil
		}
		failures = append(failures, err)
		if exit := exitCode(err); exit <= 0 {
			break // it is missing, or was killed: other arguments change nothing
		}
	}
	return errors.Join(failures...)
}

// mkfsArguments are the arguments to try, in this order. They name every feature
// that matters, so that neither /etc/mke2fs.conf nor the version of the tool
// decides what a volume looks like and which kernels mount it. Newer tools have
// features to be switched off that older ones refuse to hear of.
func (s shape) mkfsArguments() [][]string {
	switch s.fs {
	case XFS:
		return xfsArguments(s)
	case Btrfs:
		return btrfsArguments()
	default:
		return [][]string{extArguments(s)}
	}
}

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
	tebibyte = 1 << 40
)

// extArguments follow mke2fs in the size of blocks and the number of inodes, and
// the kubelet in reserving nothing for root.
func extArguments(s shape) []string {
	block, bytesPerInode := int64(4096), 16384
	switch {
	case s.size < 512*mebibyte:
		block, bytesPerInode = max(1024, s.sector), 4096
	case s.size >= 16*tebibyte:
		bytesPerInode = 65536
	case s.size >= 4*tebibyte:
		bytesPerInode = 32768
	}
	// Group descriptors are reserved for growth to this size. mke2fs would
	// reserve for 1024 times the size, most of what it writes.
	limit := max(100*gibibyte, 16*s.size)
	if block == 1024 && s.size < 32*mebibyte {
		// The kernel puts all that is reserved into one transaction when it
		// grows the file system, and one of the smallest journal (1024 blocks)
		// does not take the 256 blocks that this would be: ENOSPC. This is 128.
		limit = 16 * gibibyte
	}
	return []string{
		"-F", "-q",
		"-b", strconv.FormatInt(block, 10),
		"-I", "256",
		"-i", strconv.Itoa(bytesPerInode),
		"-G", "16",
		"-m", "0",
		"-O", "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg," +
			"metadata_csum,metadata_csum_seed,sparse_super,large_file,huge_file,dir_nlink,extra_isize",
		"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0," +
			"resize=" + strconv.FormatInt(limit/1024, 10) + "K",
	}
}

// xfsArguments ask for the features of Linux 5.10 and for the smallest log.
func xfsArguments(s shape) [][]string {
	sector := strconv.FormatInt(s.sector, 10)
	with := func(inode string, more ...string) []string {
		return append([]string{
			"-f", "-q", "-K",
			"-b", "size=4096",
			"-s", "size=" + sector,
			"-m", "crc=1,finobt=1,rmapbt=0,reflink=1,bigtime=1,inobtcount=1",
			"-d", "noalign",
			"-l", "size=64m",
			"-i", "size=512,sparse=1" + inode,
		}, more...)
	}
	return [][]string{
		with(",nrext64=0,exchange=0", "-n", "parent=0"), // xfsprogs 6.10
		with(",nrext64=0"), // xfsprogs 5.19
		with(""),
	}
}

// btrfsArguments ask for the features of Linux 5.15.
func btrfsArguments() [][]string {
	with := func(features string, more ...string) []string {
		return append([]string{
			"-f", "-q", "-K",
			"-d", "single", "-m", "dup",
			"-s", "4096", "-n", "16384",
			"--csum", "crc32c",
			"-O", "extref,skinny-metadata,no-holes" + features,
		}, more...)
	}
	return [][]string{
		with(",free-space-tree,^block-group-tree"), // btrfs-progs 6.3
		with("", "-R", "free-space-tree"),
	}
}
