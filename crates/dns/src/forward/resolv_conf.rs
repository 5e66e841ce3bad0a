//! The servers that the machine asks.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};

/// The most servers that are taken from a file; CoreDNS'.
const MAX_SERVERS: usize = 15;
/// Docker's resolver, which is on no other address, and of which no file tells.
const DOCKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));
/// The files that tell of the servers behind a stub on a loopback address.
const BEHIND: [&str; 4] = [
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
    "/run/resolvconf/interface/systemd-resolved",
    "/var/run/dnsmasq/resolv.conf",
];

/// A `resolv.conf`, and the files to look into where it names a stub.
#[derive(Debug, Clone)]
pub struct ResolvConf {
    /// The file.
    pub path: PathBuf,
    /// The files that tell of the servers behind a stub.
    pub behind: Vec<PathBuf>,
}

impl Default for ResolvConf {
    fn default() -> Self {
        Self::at("/etc/resolv.conf")
    }
}

/// The marks by which a file's state is known.
pub(crate) type Stamp = Option<(std::time::SystemTime, u64, u64)>;

impl ResolvConf {
    /// A file with the usual ones behind it.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), behind: BEHIND.iter().map(PathBuf::from).collect() }
    }

    /// The states of all files.
    pub(crate) fn stamps(&self) -> Vec<Stamp> {
        use std::os::unix::fs::MetadataExt;
        let stamp = |path: &PathBuf| {
            let meta = fs::metadata(path).ok()?;
            Some((meta.modified().ok()?, meta.ino(), meta.len()))
        };
        std::iter::once(&self.path).chain(&self.behind).map(stamp).collect()
    }

    /// The servers to ask: none of them is a stub on a loopback address, nor one of `own`, where this server listens.
    pub fn servers(&self, own: &[SocketAddr]) -> Vec<SocketAddr> {
        let text = read(&self.path);
        if text.is_none() {
            tracing::warn!(file = %self.path.display(), "there is no such file; questions for names outside are refused");
        }
        let named = parse(&text.unwrap_or_default());
        let (stubs, mut servers): (Vec<_>, Vec<_>) = named.into_iter().partition(is_stub);
        if !stubs.is_empty() {
            let behind = self.behind.iter().filter(|p| **p != self.path).filter_map(|p| read(p));
            let mut behind = behind.map(|t| parse(&t)).map(|mut all| {
                all.retain(|s| !is_stub(s));
                all
            });
            let found = behind.find(|all| !all.is_empty()).unwrap_or_default();
            if found.is_empty() {
                tracing::warn!(
                    ?stubs,
                    file = %self.path.display(),
                    "the servers behind these stubs are not known, so they are left out: name servers that can be reached"
                );
            }
            servers.extend(found);
        }
        servers.retain(|server| {
            let ours = own.contains(server);
            if ours {
                tracing::warn!(%server, "this is our own address, so it is not asked");
            }
            !ours
        });
        let mut seen = Vec::new();
        servers.retain(|s| {
            !seen.contains(s) && seen.len() < MAX_SERVERS && {
                seen.push(*s);
                true
            }
        });
        servers
    }
}

fn read(path: &Path) -> Option<String> {
    /// No such file is longer.
    const LONGEST: u64 = 1 << 16;
    use std::io::Read;
    let mut text = Vec::new();
    fs::File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn is_stub(server: &SocketAddr) -> bool {
    let ip = server.ip().to_canonical();
    (ip.is_loopback() || ip.is_unspecified()) && ip != DOCKER
}

/// The servers that a text names.
fn parse(text: &str) -> Vec<SocketAddr> {
    let lines = text.lines().map(|l| l.split(['#', ';']).next().unwrap_or_default());
    let words = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()).flatten()
    });
    words.filter_map(server).collect()
}

/// The server of an address, which may have a zone.
fn server(text: &str) -> Option<SocketAddr> {
    let Some((address, zone)) = text.split_once('%') else {
        return text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 53));
    };
    let address: Ipv6Addr = address.parse().ok()?;
    let index = || {
        let safe = !zone.contains('/') && zone != "." && zone != "..";
        let path = format!("/sys/class/net/{zone}/ifindex");
        safe.then(|| fs::read_to_string(path).ok()).flatten()?.trim().parse().ok()
    };
    let scope: u32 = zone.parse().ok().or_else(index)?;
    Some(SocketAddr::V6(SocketAddrV6::new(address, 53, 0, scope)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = "# nameserver 1.1.1.1\nnameserver 10.0.0.1\n nameserver\t10.0.0.2 # two\nnameserver x\nsearch nameserver 10.0.0.9\nnameserver fd00::1\nnameserver fe80::1%7\nnameserver fe80::1%../x\nnameserver";
        let got: Vec<String> = parse(text).iter().map(ToString::to_string).collect();
        assert_eq!(got, ["10.0.0.1:53", "10.0.0.2:53", "[fd00::1]:53", "[fe80::1%7]:53"]);
    }

    #[test]
    fn stubs_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let check = |text: &str, behind: &[&str], want: &[&str]| {
            let behind = behind.iter().enumerate().map(|(n, t)| file(&format!("behind-{n}"), t)).collect();
            let conf = ResolvConf { path: file("resolv.conf", text), behind };
            let got = conf.servers(&["10.96.0.10:53".parse().unwrap()]);
            assert_eq!(got.iter().map(|s| s.ip().to_string()).collect::<Vec<_>>(), want, "{text:?}");
        };
        check("nameserver 10.0.0.1", &["nameserver 10.0.0.2"], &["10.0.0.1"]);
        check("nameserver 127.0.0.53", &["nameserver 127.0.0.1", "nameserver 10.0.0.2"], &["10.0.0.2"]);
        check(
            "nameserver 127.0.0.53\nnameserver 10.0.0.1",
            &["nameserver 10.0.0.2"],
            &["10.0.0.1", "10.0.0.2"],
        );
        check("nameserver ::1\nnameserver 0.0.0.0", &[], &[]);
        check("nameserver ::ffff:127.0.0.1", &[], &[]);
        check("nameserver 127.0.0.11", &[], &["127.0.0.11"]);
        check("nameserver 10.96.0.10\nnameserver 10.0.0.1\nnameserver 10.0.0.1", &[], &["10.0.0.1"]);
        let missing = ResolvConf { path: dir.path().join("none"), behind: Vec::new() };
        assert!(missing.servers(&[]).is_empty());
    }
}
