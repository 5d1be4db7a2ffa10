#!/bin/bash
# The first process of the user-mode Linux that the tests of limits boot, on the host's own files, read-only. PROGRAM is
# the test program, TEST the one test to run; both come from the kernel's command line. Ends the machine.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o size=450M tmpfs /run
# Not over /tmp, where the project itself may lie.
mkdir /run/tmp
export TMPDIR=/run/tmp
# Where loop devices are a module; the kernel may have them built in.
insmod "$(find /usr/lib/uml/modules -name 'loop.ko' | head -n 1)" 2> /dev/null
cd /run/tmp
"$PROGRAM" --exact "$TEST" --nocapture 2>&1
mount -o remount,ro / 2> /dev/null
echo o > /proc/sysrq-trigger
sleep 60
