//! A node with Pods and a client outside: network namespaces joined by veth.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use netlink::namespace;
use netlink::nft::Filter;
use proxy::{Changes, Proxier};
use testkit::Host;

/// How long an answer is waited for, and how long one that should not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
pub(crate) const SHORT: Duration = Duration::from_millis(250);

/// The end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// A server answered: its name, and the client's address as it saw it.
    From(String, IpAddr),
    Refused,
    Silence,
}

/// Hosts that the node joins.
pub(crate) struct Network {
    pub(crate) node: Host,
    others: Vec<(Host, IpAddr)>,
}

/// The node's address on the link to the client outside.
pub(crate) const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The client outside.
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

impl Network {
    /// A node, a client outside, and Pods with these addresses.
    pub(crate) fn new(pods: &[&str]) -> Self {
        let mut all = Self { node: host("node"), others: Vec::new() };
        all.ip(&["address", "add", &format!("{NODE}/32"), "dev", "lo"]);
        all.join(&[&OUTSIDE.to_string(), "2001:db8::9"]);
        for pod in pods {
            all.join(&[pod]);
        }
        // Clients send to addresses of Services, which need a way before they are rewritten.
        all.ip(&["route", "add", "default", "dev", "v0"]);
        all.ip(&["-6", "route", "add", "default", "dev", "v0"]);
        for (name, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/conf/all/route_localnet", "1"),
            // Every refusal is to be told, however many there are.
            ("ipv4/icmp_ratelimit", "0"),
            ("ipv6/icmp/ratelimit", "0"),
        ] {
            within(&all.node, || std::fs::write(format!("/proc/sys/net/{name}"), value)).unwrap();
        }
        all
    }

    pub(crate) fn ip(&self, arguments: &[&str]) {
        ip(&self.node, arguments);
    }

    /// Joins a host to the node.
    fn join(&mut self, addresses: &[&str]) {
        let host = host("other");
        let link = format!("v{}", self.others.len());
        let path = host.network();
        let pid = path.to_str().unwrap().split('/').nth(2).unwrap().to_owned();
        self.ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &pid]);
        self.ip(&["link", "set", &link, "up"]);
        // An IPv6 address is found only on the link that it belongs to.
        self.ip(&["address", "add", "2001:db8::1/128", "dev", &link, "nodad"]);
        ip(&host, &["link", "set", "eth0", "up"]);
        for address in addresses {
            let (family, width, gateway) =
                if address.contains(':') { ("-6", 128, "2001:db8::1") } else { ("-4", 32, "192.0.2.1") };
            let own = format!("{address}/{width}");
            let mut add = vec!["address", "add", &own, "dev", "eth0"];
            if width == 128 {
                add.push("nodad");
            }
            ip(&host, &add);
            ip(&host, &[family, "route", "add", gateway, "dev", "eth0"]);
            ip(&host, &[family, "route", "add", "default", "via", gateway, "dev", "eth0"]);
            self.ip(&[family, "route", "add", &own, "dev", &link]);
        }
        self.others.push((host, addresses[0].parse().unwrap()));
    }

    /// The host with an address, or the node.
    pub(crate) fn host(&self, address: IpAddr) -> &Host {
        self.others.iter().find(|(_, of)| *of == address).map_or(&self.node, |(host, _)| host)
    }

    /// Serves TCP and UDP at an address and port; the server tells its name.
    pub(crate) fn serve(&self, at: SocketAddr, name: &'static str) {
        let host = self.host(at.ip());
        let (tcp, udp) = within(host, || (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap()));
        std::thread::spawn(move || {
            for mut connection in tcp.incoming().flatten() {
                let Ok(peer) = connection.peer_addr() else { continue };
                let _ = connection.write_all(format!("{name} {}", peer.ip()).as_bytes());
            }
        });
        std::thread::spawn(move || {
            let mut room = [0; 64];
            while let Ok((_, peer)) = udp.recv_from(&mut room) {
                let _ = udp.send_to(format!("{name} {}", peer.ip()).as_bytes(), peer);
            }
        });
    }

    /// Opens a TCP connection from a host.
    pub(crate) fn connect(&self, from: IpAddr, to: SocketAddr, patience: Duration) -> Answer {
        within(self.host(from), || {
            let mut text = String::new();
            let answer = TcpStream::connect_timeout(&to, patience).and_then(|mut stream| {
                stream.set_read_timeout(Some(patience))?;
                stream.read_to_string(&mut text)
            });
            answer_of(answer.map(|_| text.as_str()))
        })
    }

    /// Sends a datagram from a host, and waits for the answer.
    pub(crate) fn ask(&self, from: IpAddr, to: SocketAddr, patience: Duration) -> Answer {
        Self::ask_by(&self.client(from, to), patience)
    }

    /// A socket of a host for datagrams.
    pub(crate) fn client(&self, from: IpAddr, to: SocketAddr) -> UdpSocket {
        /// A port that was used before may have a tracked connection, which goes on as it began. The kernel gives no
        /// such ports away.
        static PORT: AtomicU16 = AtomicU16::new(20_000);
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        within(self.host(from), || {
            let socket = UdpSocket::bind((any, port)).unwrap();
            socket.connect(to).unwrap();
            socket
        })
    }

    /// Sends a datagram by a socket, and waits for the answer.
    pub(crate) fn ask_by(socket: &UdpSocket, patience: Duration) -> Answer {
        socket.set_read_timeout(Some(patience)).unwrap();
        let mut room = [0; 64];
        // A refusal of the own machine makes sending fail as a silent drop does; the answer says which it was.
        let answer = match socket.send(b"?") {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Err(error),
            _ => socket.recv(&mut room),
        };
        let text = String::from_utf8_lossy(&room).into_owned();
        answer_of(answer.map(|length| &text[..length]))
    }

    /// Writes the table of the node.
    pub(crate) fn sync(&self, proxier: &mut Proxier) -> Changes {
        within(&self.node, || proxier.sync(&mut Filter::open().unwrap())).unwrap()
    }
}

/// A host whose IPv6 addresses work at once, and which sends no redirects: those count among the answers to a client
/// that the kernel limits.
fn host(name: &str) -> Host {
    let host = Host::new(name).unwrap();
    for of in [
        "ipv6/conf/all/accept_dad",
        "ipv6/conf/default/accept_dad",
        "ipv4/conf/all/send_redirects",
        "ipv4/conf/default/send_redirects",
    ] {
        within(&host, || std::fs::write(format!("/proc/sys/net/{of}"), "0")).unwrap();
    }
    host
}

fn answer_of(answer: std::io::Result<&str>) -> Answer {
    match answer {
        Ok(text) => {
            let (name, address) = text.split_once(' ').unwrap();
            Answer::From(name.to_owned(), address.parse().unwrap())
        }
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset) => {
            Answer::Refused
        }
        // A packet that is dropped before it leaves is an error of its sender.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::PermissionDenied
            ) =>
        {
            Answer::Silence
        }
        Err(error) => panic!("{error}"),
    }
}

fn ip(host: &Host, arguments: &[&str]) {
    // The network namespace alone: ids of processes are those outside.
    let network = format!("--net={}", host.network().display());
    let out = Command::new("nsenter").arg(network).args(["--", "ip"]).args(arguments).output().unwrap();
    assert!(out.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Does work in the network namespace of a host.
pub(crate) fn within<T: Send>(host: &Host, work: impl FnOnce() -> T + Send) -> T {
    let network: File = namespace::open(&host.network()).unwrap();
    namespace::within(network.as_fd(), work).unwrap()
}
