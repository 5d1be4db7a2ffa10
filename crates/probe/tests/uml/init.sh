#!/bin/bash
# The first process of the user-mode Linux that uml.rs boots, on the host's own files, read-only. DUMP, the example
# dump_host, comes from the kernel's command line. A server's group without limits of its own lies in one with limits
# on I/O and memory; its process writes far faster than the limits allow.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
set -eu
mount -t proc proc /proc
mount -t sysfs sysfs /sys
[ -e /dev/ubda ] || mount -t devtmpfs devtmpfs /dev
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /mnt
mkdir /mnt/data
mount -t ext4 /dev/ubda /mnt/data

dev=$(cat /sys/class/block/ubda/dev)
groups=/sys/fs/cgroup
echo "+io +memory" > $groups/cgroup.subtree_control
mkdir $groups/db
echo "$dev wbps=4194304 wiops=400" > $groups/db/io.max
echo 48M > $groups/db/memory.max
echo "+io +memory" > $groups/db/cgroup.subtree_control
mkdir $groups/db/pg

# The server waits at one pipe until it has been moved into its group, and says at the other that it then writes.
mkfifo /mnt/moved /mnt/writes
bash -c "read -r < /mnt/moved
(exec -a 'postgres: checkpointer' dd if=/dev/zero of=/mnt/data/file bs=64k count=3000 2> /dev/null) &
echo > /mnt/writes
wait" &
server=$!
echo $server > $groups/db/pg/cgroup.procs
grep -qx "0::/db/pg" /proc/$server/cgroup
echo > /mnt/moved
read -r < /mnt/writes
# Looked at only once the limit is what it waits for: on a busy host the guest may take long to get there.
wrote() { sed -n "s/^$dev .*wbytes=\([0-9]*\).*/\1/p" $groups/db/pg/io.stat; }
until [ "$(wrote || true)" -ge 4194304 ] 2> /dev/null; do sleep 0.1; done
"$DUMP" 8 "$dev" "main=$server"
echo GUEST DONE
