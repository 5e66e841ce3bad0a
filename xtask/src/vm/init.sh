#!/bin/busybox sh
# The first process of a machine for tests: mounts what a machine has, and runs the tests of /tests/list, each in a process
# of its own. Their results are lines of the second console; the first one is the kernel's.
export PATH=/tools:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t tmpfs run /run
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
mount --make-rshared /
ip link set lo up
hostname vm
stty -F /dev/ttyS1 raw -echo
exec >/dev/ttyS1 2>&1 </dev/null
echo "kernel $(uname -r), controllers $(cat /sys/fs/cgroup/cgroup.controllers), up $(cut -d ' ' -f 1 /proc/uptime) s"
. /tests/environment
cd /tmp
xargs -n 3 -P "$(nproc)" /tests/one </tests/list
sync
echo VM-END
poweroff -f
