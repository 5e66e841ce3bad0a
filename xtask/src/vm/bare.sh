#!/bin/busybox sh
# The first process of a machine with nothing but a kernel: a cluster of one binary, watched by the kernel's own trace of
# the programs that are executed. The second console has the cluster's kubeconfig, and then, when a line was written to
# it, the trace.
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mkdir -p /dev/pts /dev/shm /dev/mqueue
$b mount -t devpts devpts /dev/pts
$b mount -t mqueue mqueue /dev/mqueue
$b mount -t tracefs tracefs /sys/kernel/tracing
$b mount -t cgroup2 cgroup2 /sys/fs/cgroup
$b mount -t tmpfs run /run
$b ip link set lo up
$b ip link set eth0 up
$b ip address add 10.0.2.15/24 dev eth0
$b ip route add default via 10.0.2.2
$b hostname bare
$b stty -F /dev/ttyS1 raw -echo
exec >/dev/ttyS1 2>&1 </dev/ttyS1

t=/sys/kernel/tracing
echo 1 >$t/options/event-fork
echo "up after $($b cut -d ' ' -f 1 /proc/uptime) s"
# The trace follows this process, which becomes the cluster, and all that come of it.
$b sh -c 'cd /sys/kernel/tracing; echo $$ >set_event_pid; echo 1 >events/sched/sched_process_exec/enable
cd /; exec /ferrokube up --images /images' >/up.log 2>&1 </dev/null &
cluster=$!
kubeconfig=/var/lib/ferrokube/admin.kubeconfig
until [ -s $kubeconfig ]; do
    [ -d /proc/$cluster ] || { $b cat /up.log; $b poweroff -f; }
    $b sleep 1
done
$b sed 's/^/KUBECONFIG /' $kubeconfig
echo
echo KUBECONFIG-END
read -r line
$b sed 's/^/| /' /up.log | $b tail -n 40
$b sed -n 's/.*sched_process_exec: filename=\([^ ]*\) pid=.*/EXECUTED \1/p' $t/trace | $b sort | $b uniq -c
$b kill -TERM $cluster
wait $cluster
echo "the cluster ended with $?"
$b find / -xdev -type f -perm -100 | $b grep -v '^/var/' | $b sort | $b sed 's/^/PROGRAM /'
echo VM-END
$b poweroff -f
