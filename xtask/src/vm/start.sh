#!/bin/busybox sh
# The first process of a machine with a disk: loads the modules, and goes on there.
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
for module in /modules/*.ko; do
    $b insmod "$module" || echo "no module: $module"
done
$b mount -t ext4 -o noatime /dev/vda /root
exec $b switch_root /root /init
