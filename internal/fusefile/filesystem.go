//go:build linux

package fusefile

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	// fileName is the name of the one file.
	fileName = "image"
	// fileInode is its inode number, in every mount.
	fileInode = 2
)

// forEver is how long the kernel may believe what it was told. Nothing changes
// but the size, for which Refresh asks.
const forEver = 100 * 365 * 24 * time.Hour

// filesystem is a directory with one file, whose bytes are those of image.
type filesystem struct {
	fuse.RawFileSystem // refuses everything that is not below
	image              *os.File
	conduct            *conduct
	users              *users
}

func newFilesystem(image *os.File, c *conduct, u *users) *filesystem {
	return &filesystem{RawFileSystem: fuse.NewDefaultRawFileSystem(), image: image, conduct: c, users: u}
}

// String is what the kernel calls the file system.
func (f *filesystem) String() string { return subtype }

// Lookup finds the file.
func (f *filesystem) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if header.NodeId != fuse.FUSE_ROOT_ID || name != fileName {
		return fuse.ENOENT
	}
	out.NodeId = fileInode
	out.SetEntryTimeout(forEver)
	out.SetAttrTimeout(forEver)
	return f.attributes(fileInode, &out.Attr)
}

// GetAttr tells the size that the image has now.
func (f *filesystem) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.SetTimeout(forEver)
	return f.attributes(in.NodeId, &out.Attr)
}

func (f *filesystem) attributes(node uint64, out *fuse.Attr) fuse.Status {
	out.Ino, out.Nlink, out.Blksize = node, 1, 4096
	if node == fuse.FUSE_ROOT_ID {
		out.Mode = syscall.S_IFDIR | 0o500
		return fuse.OK
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.image.Fd()), &st); err != nil {
		return fuse.ToStatus(err)
	}
	out.Mode = syscall.S_IFREG | 0o600
	out.Size, out.Blocks = uint64(st.Size), uint64(st.Blocks)
	out.Mtime, out.Mtimensec = uint64(st.Mtim.Sec), uint32(st.Mtim.Nsec)
	out.Ctime, out.Ctimensec = uint64(st.Ctim.Sec), uint32(st.Ctim.Nsec)
	return fuse.OK
}

// Open opens the file so that each read and write comes here as it was made.
func (f *filesystem) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.NodeId != fileInode {
		return fuse.EPERM
	}
	f.users.add(1)
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES | fuse.FOPEN_NOFLUSH
	return fuse.OK
}

// Read reads from the image.
func (f *filesystem) Read(cancel <-chan struct{}, in *fuse.ReadIn, buffer []byte) (fuse.ReadResult, fuse.Status) {
	buffer = buffer[:min(len(buffer), int(in.Size))]
	v, err := f.conduct.meet(reading, int64(in.Offset), int64(len(buffer)), cancel)
	if err == nil && v.errno != 0 {
		err = v.errno
	}
	if err != nil {
		return nil, fuse.ToStatus(err)
	}
	n, err := f.image.ReadAt(buffer, int64(in.Offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, statusOf(err)
	}
	for _, c := range v.corrupt {
		corrupt(c, buffer[:n], int64(in.Offset))
	}
	return fuse.ReadResultData(buffer[:n]), fuse.OK
}

// Write writes to the image.
func (f *filesystem) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	v, leave, err := f.enter(cancel, int64(in.Offset), int64(len(data)))
	if err != nil {
		return 0, fuse.ToStatus(err)
	}
	defer leave()
	written := data
	if v.torn != nil {
		written = data[:min(int64(len(data)), v.torn.Keep)]
	}
	if _, err := f.image.WriteAt(written, int64(in.Offset)); err != nil {
		return 0, statusOf(err)
	}
	return uint32(len(data)), fuse.OK
}

// enter makes a write wait for its turn and until none are held, and fails it if
// it is to fail. leave is to be called when it is done.
func (f *filesystem) enter(cancel <-chan struct{}, offset, length int64) (v verdict, leave func(), err error) {
	v, err = f.conduct.meet(writing, offset, length, cancel)
	if err == nil && v.errno != 0 {
		err = v.errno
	}
	if err == nil {
		err = f.conduct.gate.enter(cancel)
	}
	return v, f.conduct.gate.leave, err
}

// Fallocate frees or zeroes a range of the image, for discards of the device.
func (f *filesystem) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	const known = unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_ZERO_RANGE
	if in.Mode&^known != 0 {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	// It moves no bytes.
	_, leave, err := f.enter(cancel, int64(in.Offset), 0)
	if err != nil {
		return fuse.ToStatus(err)
	}
	defer leave()
	for {
		err := unix.Fallocate(int(f.image.Fd()), in.Mode, int64(in.Offset), int64(in.Length))
		if !errors.Is(err, unix.EINTR) {
			return fuse.ToStatus(err)
		}
	}
}

// Fsync brings to the disk what was written. It does not wait while writes are
// held: what was acknowledged is in the image.
func (f *filesystem) Fsync(cancel <-chan struct{}, _ *fuse.FsyncIn) fuse.Status {
	v, err := f.conduct.meet(flushing, 0, 0, cancel)
	if err == nil && v.errno != 0 {
		err = v.errno
	}
	if err == nil {
		err = f.image.Sync()
	}
	return statusOf(err)
}

// Flush is what close(2) asks for on kernels before 5.18; nothing is kept back.
func (f *filesystem) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

// Release is the last close of what was opened.
func (f *filesystem) Release(<-chan struct{}, *fuse.ReleaseIn) { f.users.add(-1) }

// StatFs tells the space of the file system that the image lies on. A loop
// device takes the unit of its discards from it.
func (f *filesystem) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.image.Fd()), &st); err != nil {
		return fuse.ToStatus(err)
	}
	out.Bsize, out.Frsize = uint32(st.Bsize), uint32(st.Bsize)
	out.Blocks, out.Bfree, out.Bavail = st.Blocks, st.Bfree, st.Bavail
	out.NameLen = uint32(st.Namelen)
	return fuse.OK
}

// statusOf finds the error number in an error of package os.
func statusOf(err error) fuse.Status {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return fuse.ToStatus(errno)
	}
	return fuse.ToStatus(err)
}
