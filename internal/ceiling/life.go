//go:build linux

package ceiling

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Kind is a kind of volume.
type Kind int

// The kinds that a life can have.
const (
	// Ext4 is a formatted image under a loop device.
	Ext4 Kind = iota
	// Block is an image under a loop device, bound as a device.
	Block
	// Tmpfs is a tmpfs, bound from where it was mounted at its creation.
	Tmpfs
)

// Config describes the lives of a benchmark.
type Config struct {
	Kind Kind
	// Store holds records and images, Targets the mount points.
	Store, Targets string
	SizeBytes      int64
	Sync           bool
	// Blocks are the non-zero blocks of an empty ext4 of SizeBytes.
	Blocks []Block4K
	// Call makes one empty RPC.
	Call func(context.Context) error
	// Record is what a record holds, in bytes.
	Record []byte
}

// Block4K is a range of a formatted device.
type Block4K struct {
	Offset int64
	Data   []byte
}

// Lives walks volumes through their lives. It is safe for concurrent use.
type Lives struct {
	c       Config
	control int
	mu      sync.Mutex
	// free are indexes of loop devices that are used again.
	free []int
}

// New opens what all lives share; Close closes it.
func New(c Config) (*Lives, error) {
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"volumes", "node"} {
		if err := os.MkdirAll(filepath.Join(c.Store, dir), 0o700); err != nil {
			return nil, err
		}
	}
	return &Lives{c: c, control: control}, nil
}

// Close ends the lives.
func (l *Lives) Close() error { return unix.Close(l.control) }

// life is one volume.
type life struct {
	*Lives
	dir, node, staging, target string
	index                      int
}

// Live walks a volume of a name that nobody else uses through its life.
func (l *Lives) Live(ctx context.Context, name string) error {
	v := &life{
		Lives: l, dir: filepath.Join(l.c.Store, "volumes", name), node: filepath.Join(l.c.Store, "node", name),
		staging: filepath.Join(l.c.Targets, name+"-s"), target: filepath.Join(l.c.Targets, name+"-t"),
	}
	if err := unix.Mkdir(v.staging, 0o700); err != nil {
		return err
	}
	for _, step := range []func() error{v.create, v.attach, v.stage, v.publish, v.unpublish, v.unstage, v.detach, v.remove} {
		if err := errors.Join(l.c.Call(ctx), step()); err != nil {
			return err
		}
	}
	return unix.Rmdir(v.staging)
}

func (v *life) image() string { return filepath.Join(v.dir, "image") }

func (v *life) create() error {
	if err := errors.Join(unix.Mkdir(v.dir, 0o700), v.record(v.dir, true)); err != nil {
		return err
	}
	if v.c.Kind == Tmpfs {
		data := filepath.Join(v.dir, "data")
		options := fmt.Sprintf("size=%d,mode=0755", v.c.SizeBytes)
		return errors.Join(unix.Mkdir(data, 0o700), unix.Mount("csiemu", data, "tmpfs", 0, options), v.record(v.dir, false))
	}
	fd, err := unix.Open(v.image()+".tmp", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(unix.Ftruncate(fd, v.c.SizeBytes), v.flush(fd), unix.Close(fd), unix.Rename(v.image()+".tmp", v.image()), v.flushDir(v.dir))
	return errors.Join(err, v.record(v.dir, false))
}

func (v *life) attach() error {
	err := v.record(v.dir, false)
	if v.c.Kind == Tmpfs || err != nil {
		return err
	}
	backing, err := unix.Open(v.image(), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	v.index, err = v.bind(backing)
	return errors.Join(err, unix.Close(backing))
}

func (v *life) device() string { return fmt.Sprintf("/dev/loop%d", v.index) }

// bind configures a loop device that was used before, or a new one.
func (v *life) bind(backing int) (int, error) {
	for {
		index, err := v.pick()
		if err != nil {
			return 0, err
		}
		fd, err := unix.Open(fmt.Sprintf("/dev/loop%d", index), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		config := unix.LoopConfig{Fd: uint32(backing)}
		copy(config.Info.File_name[:], "ceiling")
		err = unix.IoctlLoopConfigure(fd, &config)
		_ = unix.Close(fd)
		if err == nil || !errors.Is(err, unix.EBUSY) {
			return index, err
		}
	}
}

func (l *Lives) pick() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		index := l.free[n-1]
		l.free = l.free[:n-1]
		return index, nil
	}
	return unix.IoctlRetInt(l.control, unix.LOOP_CTL_GET_FREE)
}

func (v *life) stage() error {
	if err := errors.Join(unix.Mkdir(v.node, 0o700), v.record(v.node, true)); err != nil {
		return err
	}
	switch v.c.Kind {
	case Tmpfs:
		return errors.Join(bindMount(filepath.Join(v.dir, "data"), v.staging), v.record(v.node, false))
	case Block:
		return v.record(v.node, false)
	}
	fd, err := unix.Open(v.device(), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// A device is looked at before it is written to.
	head := make([]byte, 256<<10)
	_, err = unix.Pread(fd, head, 0)
	if err == nil {
		_, err = unix.Pread(fd, head[:128<<10], v.c.SizeBytes-128<<10)
	}
	if err == nil {
		err = v.format(fd)
	}
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return err
	}
	return errors.Join(unix.Mount(v.device(), v.staging, "ext4", 0, "noinit_itable"), v.record(v.node, false))
}

// format writes a mark, the blocks, the superblock and the boot sector, in four
// steps that are flushed with Sync. Without it the cache is written out after
// the blocks and at the end.
func (v *life) format(fd int) error {
	sector := v.c.Blocks[0].Data[:512]
	for step := range 4 {
		blocks := []Block4K{{0, sector}}
		if step == 1 {
			blocks = v.c.Blocks
		}
		for _, b := range blocks {
			if _, err := unix.Pwrite(fd, b.Data, b.Offset); err != nil {
				return err
			}
		}
		err := v.flush(fd)
		if !v.c.Sync && step%2 == 1 {
			err = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *life) publish() error {
	if v.c.Kind == Block {
		return errors.Join(v.record(v.node, false), unix.Mknod(v.target, unix.S_IFREG|0o600, 0), bindMount(v.device(), v.target))
	}
	return errors.Join(v.record(v.node, false), unix.Mkdir(v.target, 0o700), bindMount(v.staging, v.target))
}

func (v *life) unpublish() error {
	err := unix.Unmount(v.target, 0)
	if v.c.Kind == Block {
		return errors.Join(err, unix.Unlink(v.target), v.record(v.node, false))
	}
	return errors.Join(err, unix.Rmdir(v.target), v.record(v.node, false))
}

func (v *life) unstage() error {
	var err error
	if v.c.Kind != Block {
		err = unix.Unmount(v.staging, 0)
	}
	return errors.Join(err, v.forget(v.node))
}

func (v *life) detach() error {
	err := v.record(v.dir, false)
	if v.c.Kind == Tmpfs || err != nil {
		return err
	}
	fd, err := unix.Open(v.device(), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = errors.Join(unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0), unix.Close(fd))
	v.mu.Lock()
	defer v.mu.Unlock()
	v.free = append(v.free, v.index)
	return err
}

func (v *life) remove() error {
	err := v.record(v.dir, false)
	if v.c.Kind == Tmpfs {
		data := filepath.Join(v.dir, "data")
		err = errors.Join(err, unix.Unmount(data, 0), unix.Rmdir(data))
	} else {
		err = errors.Join(err, unix.Unlink(v.image()))
	}
	return errors.Join(err, v.forget(v.dir))
}

func bindMount(from, to string) error { return unix.Mount(from, to, "", unix.MS_BIND, "") }
