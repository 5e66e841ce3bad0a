#!/bin/sh
# The machine's part of the tests with systemd: gives its kubelet a way in, tells the second console of the kubeconfig, and
# then carries out the lines that come from there.
stty -F /dev/ttyS1 raw -echo
exec >/dev/ttyS1 2>&1 </dev/ttyS1
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
[ -e /swapfile ] || { dd if=/dev/zero of=/swapfile bs=1M count=256 && chmod 600 /swapfile && mkswap /swapfile; } >/dev/null 2>&1
swapon /swapfile
systemctl start ferrokube-server ferrokube-runtime
kubeconfig=/var/lib/ferrokube/admin.kubeconfig
until [ -s $kubeconfig ] && token=$(ferrokube token create --print-join-command=false 2>/dev/null); do sleep 1; done
cat >/etc/bootstrap.kubeconfig <<END
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", certificate-authority: /var/lib/ferrokube/pki/ca.crt}}]
users: [{name: u, user: {token: $token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
END
systemctl start kubelet
echo "$(systemctl --version | head -n 1), kernel $(uname -r), up $(cut -d ' ' -f 1 /proc/uptime) s, $(systemctl is-system-running)"
sed 's/^/KUBECONFIG /' $kubeconfig
echo
echo KUBECONFIG-END
while read -r line; do eval "$line"; done
