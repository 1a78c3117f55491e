package scale_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func openLoop(b *testing.B, dir string) backends.Backend {
	b.Helper()
	backend, err := loop.New(loop.Options{Dir: dir})
	require.NoError(b, err)
	return backend
}

// BenchmarkVolumesOfLoop is BenchmarkVolumesOfMemory with images and records on a
// tmpfs.
func BenchmarkVolumesOfLoop(b *testing.B) {
	for _, fsType := range []string{"ext4", block} {
		b.Run("volume="+fsType, func(b *testing.B) {
			testenv.Need(b, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
			benchmarkVolumes(b, fsType, func() (backends.Backend, string) {
				dir := testenv.TmpfsDir(b)
				return openLoop(b, dir), dir
			})
		})
	}
}

// BenchmarkAttached compares calls beside 2,000 attached loop devices with calls
// beside 100. The kernel has one table of them, so that there are no turns.
func BenchmarkAttached(b *testing.B) {
	testenv.Need(b, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
	const few, many, lives = 100, 2000, 100
	store := testenv.TmpfsDir(b)
	d := start(b, openLoop(b, store), store)
	attached := d.attach(b, 0, few)
	b.Cleanup(func() { d.detach(b, attached) })
	beside := map[string]took{"ext4": {}, block: {}}
	for fsType, times := range beside {
		took{}.live(b.Context(), b, d, "first-"+fsType, fsType)
		for i := range lives {
			times.live(b.Context(), b, d, fmt.Sprintf("few-%s-%d", fsType, i), fsType)
		}
	}
	attached = append(attached, d.attach(b, few, many)...)
	for _, fsType := range []string{"ext4", block} {
		b.Run("volume="+fsType, func(b *testing.B) {
			times, i := took{}, 0
			for b.Loop() {
				times.live(b.Context(), b, d, fmt.Sprintf("many-%s-%d", fsType, i), fsType)
				i++
			}
			report(b, beside[fsType], times)
		})
	}
}

// attachment is a volume that is attached, and the loop device's index.
type attachment struct {
	id    string
	index int
}

func (d *driver) attach(b *testing.B, from, to int) []attachment {
	b.Helper()
	all := make([]attachment, to-from)
	many(b, len(all), func(i int) error {
		id, err := d.create(b.Context(), fmt.Sprintf("attached-%d", from+i), block)
		if err != nil {
			return err
		}
		reply, err := d.ControllerPublishVolume(b.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: nodeName, VolumeCapability: capability(block)})
		if err != nil {
			return err
		}
		number, _ := strings.CutPrefix(reply.GetPublishContext()[loop.DeviceKey], "7:")
		index, err := strconv.Atoi(number)
		all[i] = attachment{id, index}
		return err
	})
	return all
}

// detach gives back what attach took, and the devices, which would be there until
// the machine ends.
func (d *driver) detach(b *testing.B, all []attachment) {
	b.Helper()
	ctx := context.WithoutCancel(b.Context())
	many(b, len(all), func(i int) error {
		if _, err := d.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: all[i].id}); err != nil {
			return err
		}
		_, err := d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: all[i].id})
		return err
	})
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	require.NoError(b, err)
	defer control.Close()
	many(b, len(all), func(i int) error {
		// One that another program has taken by now is busy, and stays.
		_ = unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, all[i].index)
		return nil
	})
}

// BenchmarkStart starts an emulator over the records of 10,000 volumes, and of
// 1,000.
func BenchmarkStart(b *testing.B) {
	testenv.Need(b, kernel.Root, kernel.Loop, kernel.Tmpfs)
	for _, records := range []int{1000, manyVolumes} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			dir := testenv.TmpfsDir(b)
			d := start(b, openLoop(b, dir), dir)
			d.fill(b, 0, records, block)
			d.stop()
			var starts, busy []time.Duration
			for b.Loop() {
				begin, used := time.Now(), processorTime(b)
				d := start(b, openLoop(b, dir), dir)
				starts, busy = append(starts, time.Since(begin)), append(busy, processorTime(b)-used)
				volumes, err := d.ListVolumes(b.Context(), &csi.ListVolumesRequest{MaxEntries: int32(records) + 1})
				require.NoError(b, err)
				require.Len(b, volumes.GetEntries(), records)
				d.stop()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(starts).Seconds()*1e3, "ms")
			b.ReportMetric(median(busy).Seconds()*1e3, "cpu-ms")
			b.ReportMetric(median(starts).Seconds()*1e6/float64(records), "us/record")
		})
	}
}

// processorTime is what the process has used, which a busy machine changes less
// than the time on the wall.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
