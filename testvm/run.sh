#!/usr/bin/env bash
# Runs tests of this module, in the packages given, in a virtual machine with
# Debian's kernel and every capability: what a container or an unusual kernel
# cannot do (online growth of ext4), and an older kernel than the host's, is
# tested there. qemu interprets the machine's code (TCG), so no /dev/kvm is
# needed. The last line is "testvm: N passed, N failed, N skipped", and the exit
# status is 0 only if none failed.
#
#   testvm/run.sh ./internal/loopdev ./internal/mount …
#
# Environment: TESTVM_TIMEOUT (seconds for all, 1500), TESTVM_LIMIT (seconds for a
# package, 400), TESTVM_FLAGS (flags of the test binaries, -test.short),
# TESTVM_CACHE (the user's cache directory).
set -euo pipefail
cd "$(dirname "$0")/.."

timeout=${TESTVM_TIMEOUT:-1500}
limit=${TESTVM_LIMIT:-400}
flags="-test.timeout=${limit}s ${TESTVM_FLAGS:--test.short}"
cache=${TESTVM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/csiemu/testvm}
modules=(virtio_pci virtio_blk loop xfs btrfs fuse overlay)
tools=(mkfs.ext4 mke2fs e2fsck resize2fs dumpe2fs tune2fs debugfs mkfs.xfs xfs_repair xfs_db mkfs.btrfs btrfs blkid)
# The features of internal/kernel that a test must not skip for in there.
require=root,loop,loop-configure,mknod,ext4,xfs,btrfs,tmpfs,fsmount,mount-setattr,openat2,statx-mount-id,freeze,copy-file-range,sys-resource,fuse

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH=$PATH:/usr/sbin:/sbin
say() { printf 'testvm: %s\n' "$*"; }

# kernel prints the directory that holds Debian's kernel package, unpacked, not
# installed: the newest that is cached, else the one that apt offers.
kernel() {
	local name
	name=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image/ {print $2; exit}')
	if [ -z "$name" ] || [ ! -d "$cache/$name" ]; then
		name=${name:-$(ls "$cache" 2>/dev/null | grep -x 'linux-image-.*-cloud-amd64' | sort -V | tail -n 1)}
	fi
	[ -n "$name" ] || { echo "testvm: find a kernel: apt knows no linux-image-cloud-amd64; run apt-get update" >&2; return 1; }
	if [ ! -d "$cache/$name" ]; then
		(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$name" && dpkg-deb -x ./*.deb kernel) >&2
		busybox depmod -b "$work/kernel" "${name#linux-image-}"
		mkdir -p "$cache"
		mv "$work/kernel" "$cache/$name"
	fi
	echo "$cache/$name"
}

# archive packs the directory $1 into the initramfs archive $2.
archive() { (cd "$1" && find . | sort | cpio --quiet -o -H newc -R 0:0) >"$2"; }

# system makes the part of the initramfs that tests do not change: busybox, the
# modules, and the tools with their libraries. It is cached by what it holds.
system() {
	local kernel=$1 root=$work/system version key tool module
	version=$(basename "$kernel/lib/modules/"*)
	key=$(cat "$(command -v busybox)" $(command -v "${tools[@]}") | cat - <(echo "$version" "${modules[@]}") | sha256sum | cut -c1-16)
	if [ ! -f "$cache/system-$key.cpio" ]; then
		mkdir -p "$root"/{bin,sbin,usr/sbin,etc/testvm} "$root/lib/modules/$version"
		cp "$(command -v busybox)" "$root/bin/busybox"
		for tool in $(command -v "${tools[@]}"); do
			cp -L "$tool" "$root/sbin/"
			ldd "$tool" | grep -o '/[^ ]*' | while read -r library; do
				mkdir -p "$root$(dirname "$library")" && cp -nL "$library" "$root$library"
			done
		done
		[ ! -f /etc/mke2fs.conf ] || cp /etc/mke2fs.conf "$root/etc/"
		cp "$kernel/lib/modules/$version/"modules.{dep,alias,symbols,builtin,order} "$root/lib/modules/$version/" 2>/dev/null || true
		for module in "${modules[@]}"; do needs "$kernel/lib/modules/$version" "$module"; done | sort -u | while read -r module; do
			install -D "$kernel/lib/modules/$version/$module" "$root/lib/modules/$version/$module"
		done
		archive "$root" "$work/system.cpio"
		mv "$work/system.cpio" "$cache/system-$key.cpio"
	fi
	echo "$cache/system-$key.cpio"
}

# needs prints the files of a module and of what it depends on.
needs() { sed -n "s|^\(.*/$2\.ko\): *\(.*\)|\1 \2|p" "$1/modules.dep" | tr ' ' '\n' | grep .; }

# tests makes the part with the test binaries, each in its package's place
# beside its testdata.
tests() {
	local root=$work/tests package dir
	mkdir -p "$root/etc/testvm"
	for package in "$@"; do
		dir=$root/tests/${package#./}
		mkdir -p "$dir"
		CGO_ENABLED=0 go test -c -ldflags='-s -w' -o "$dir/$(basename "$package").test" "$package"
		[ ! -d "$package/testdata" ] || cp -r "$package/testdata" "$dir/"
	done
	printf '%s\n' "${modules[@]}" >"$root/etc/testvm/modules"
	printf 'export CSIEMU_REQUIRE=%s\nTEST_FLAGS="%s"\nLIMIT=%d\n' "$require" "$flags" $((limit + 10)) >"$root/etc/testvm/env"
	install -m 755 testvm/init.sh "$root/init"
	archive "$root" "$work/tests.cpio"
}

[ $# -gt 0 ] || { echo "usage: testvm/run.sh PACKAGE…" >&2; exit 2; }
kernel=$(kernel)
system=$(system "$kernel")
tests "$@"
cat "$system" "$work/tests.cpio" >"$work/initramfs"
say "$(basename "$kernel"), $# packages, at most $timeout s"

# The tests' files lie on a disk, as the host's do: tmpfs has no direct I/O.
truncate --size=8G "$work/disk"

# A kernel that panics ends (panic=-1 with -no-reboot), one that hangs is ended.
timeout --kill-after=5 "$timeout" qemu-system-x86_64 \
	-accel tcg,thread=multi -cpu max -smp 2 -m 4096 -nodefaults -no-reboot -display none \
	-serial stdio -serial "file:$work/log" -kernel "$kernel"/boot/vmlinuz-* -initrd "$work/initramfs" \
	-drive "file=$work/disk,format=raw,if=virtio,cache=unsafe,discard=unmap" \
	-append 'console=ttyS0 panic=-1 loglevel=2' </dev/null | tr -d '\r' | tee "$work/console" || true
verdict=$(grep -aE '^testvm: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$work/console" | tail -n 1)
if [ -z "$verdict" ]; then
	tail -n 100 "$work/log" | tr -d '\r'
	say "FAIL the machine came to no verdict within $timeout s; above is the end of what the tests printed"
	exit 1
fi
[[ $verdict == *' 0 failed,'* ]]
