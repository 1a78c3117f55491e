#!/bin/sh
# Says which Debian packages a task lacks on this machine, and installs them
# when it may: as root where there is apt-get. Task "test" only warns (tests say
# themselves what they skip and why), and so does "browser", which is for the tests
# of pages. Task "e2e" warns too: what needs no nodes runs without. Task "vm" fails.
#
#   tools/packages.sh test|vm|e2e|browser
PATH=$PATH:/usr/sbin:/sbin:/usr/lib/cni

case ${1-} in
test) need='mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs cc:gcc cc:libc6-dev' ;;
vm) need='mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio' ;;
e2e) need='containerd:containerd runc:runc host-local:containernetworking-plugins ip:iproute2 losetup:mount mkfs.ext4:e2fsprogs' ;;
browser) need='chromium:chromium' ;;
*) echo "usage: $0 test|vm|e2e|browser" >&2 && exit 2 ;;
esac

missing() {
	for pair in $need; do
		command -v "${pair%%:*}" >/dev/null || printf ' %s' "${pair#*:}"
	done
}

[ "$(uname)" = Linux ] || [ "$1" = vm ] || exit 0
packages=$(missing)
[ -n "$packages" ] || exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
	echo "installing$packages" >&2
	log=$(mktemp)
	# shellcheck disable=SC2086 # a list of words
	apt-get update -qq >"$log" 2>&1 &&
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >>"$log" 2>&1 ||
		cat "$log" >&2
	rm -f "$log"
	packages=$(missing)
	[ -n "$packages" ] || exit 0
fi
case $1 in vm) for='make test-vm' ;; browser) for='the tests of pages' ;; *) for="make $1" ;; esac
echo "missing for $for:$packages (sudo apt-get install$packages)" >&2
[ "$1" != vm ]
