#!/bin/busybox sh
# The first process of the virtual machine: it runs every test binary under
# /tests and says how each went on the console, the first serial line, which
# run.sh shows. What the tests print goes to the second one, so that it is there
# even if the machine hangs. It never returns: switching off ends the machine.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root

/bin/busybox mkdir -p /bin /sbin /proc /sys /dev /tmp /run /root
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
ip link set lo up
while read -r module; do
	modprobe "$module" || echo "testvm: no module $module"
done </etc/testvm/modules
mkfs.ext4 -q /dev/vda && mount -t ext4 /dev/vda /tmp && chmod 1777 /tmp
mount --make-rshared / && mount --make-rshared /tmp

. /etc/testvm/env # CSIEMU_REQUIRE, TEST_FLAGS, LIMIT

passed=0 failed=0 skipped=0
count() { grep -c "^--- $1:" /run/log; }
seconds() { cut -d. -f1 /proc/uptime; }

# run_test runs one test binary and leaves its exit status in $status; one that
# hangs in the kernel cannot be killed, so it is left behind.
run_test() {
	rm -f /run/status
	(
		"$1" -test.v $TEST_FLAGS 2>&1
		echo $? >/run/status
	) | tee /run/log >/dev/ttyS1 &
	deadline=$(($(seconds) + LIMIT))
	while [ ! -s /run/status ] && [ "$(seconds)" -lt $deadline ]; do sleep 0.1; done
	if [ -s /run/status ]; then
		wait
		status=$(cat /run/status)
		return
	fi
	status=hung
	echo w >/proc/sysrq-trigger # where the hung tasks are
}

echo "testvm: Linux $(uname -r), up after $(seconds) s"
for binary in $(find /tests -name '*.test' | sort); do
	package=${binary#/tests/} package=${package%/*} began=$(seconds)
	cd "${binary%/*}" || exit 1
	echo "== $package" >/dev/ttyS1
	kernel_lines=$(dmesg | wc -l)
	run_test "$binary"
	passed=$((passed + $(count PASS))) failed=$((failed + $(count FAIL))) skipped=$((skipped + $(count SKIP)))
	verdict=ok
	if [ "$status" != 0 ]; then
		verdict="FAIL ($status)"
		# A process that died, hung or leaked has no test to blame.
		[ "$(count FAIL)" -ne 0 ] || failed=$((failed + 1))
		cat /run/log
		dmesg | tail -n +$((kernel_lines + 1)) | tail -n 100
	fi
	echo "testvm: $verdict $package: $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped in $(($(seconds) - began)) s"
	grep -B1 '^--- SKIP:' /run/log | grep -v '^--$' | sed 's/^/testvm:     /'
done

[ $((passed + failed)) -ne 0 ] || failed=1
echo "testvm: $passed passed, $failed failed, $skipped skipped"
poweroff -n -f
