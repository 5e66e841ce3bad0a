//! The kernel's limits and times for tracked connections, as upstream's proxy sets them.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// The directory of the kernel's settings.
const SETTINGS: &str = "/proc/sys/net/netfilter";
/// The size of the table in which connections are found.
const BUCKETS: &str = "/sys/module/nf_conntrack/parameters/hashsize";

/// Limits and times; zero leaves the kernel's own (upstream: `conntrack`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conntrack {
    /// `maxPerCore`: the tracked connections for each processor.
    pub max_per_core: u32,
    /// `min`: the least limit, whatever `max_per_core` comes to.
    pub min: u32,
    /// `tcpEstablishedTimeout`
    pub tcp_established: Duration,
    /// `tcpCloseWaitTimeout`
    pub tcp_close_wait: Duration,
    /// `tcpBeLiberal`: packets out of a connection's window are let through.
    pub tcp_be_liberal: bool,
    /// `udpTimeout`: for connections without an answer.
    pub udp: Duration,
    /// `udpStreamTimeout`: for connections with an answer.
    pub udp_stream: Duration,
}

impl Default for Conntrack {
    /// Upstream's.
    fn default() -> Self {
        Self {
            max_per_core: 32 << 10,
            min: 128 << 10,
            tcp_established: Duration::from_hours(24),
            tcp_close_wait: Duration::from_hours(1),
            tcp_be_liberal: false,
            udp: Duration::ZERO,
            udp_stream: Duration::ZERO,
        }
    }
}

/// A setting of the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    path: PathBuf,
    value: u64,
    /// Whether a larger value stays.
    at_least: bool,
}

impl Conntrack {
    /// The settings for a machine with so many processors.
    fn settings(&self, processors: usize) -> Vec<Setting> {
        let at = |name: &str| Path::new(SETTINGS).join(name);
        let mut all = Vec::new();
        if self.max_per_core > 0 {
            let each = u64::from(self.max_per_core) * processors as u64;
            let max = each.max(self.min.into());
            // DIFFERENCE: upstream lowers a limit that somebody raised.
            all.push(Setting { path: at("nf_conntrack_max"), value: max, at_least: true });
            all.push(Setting { path: BUCKETS.into(), value: max / 4, at_least: true });
        }
        for (name, time) in [
            ("nf_conntrack_tcp_timeout_established", self.tcp_established),
            ("nf_conntrack_tcp_timeout_close_wait", self.tcp_close_wait),
            ("nf_conntrack_udp_timeout", self.udp),
            ("nf_conntrack_udp_timeout_stream", self.udp_stream),
        ] {
            if time.as_secs() > 0 {
                all.push(Setting { path: at(name), value: time.as_secs(), at_least: false });
            }
        }
        if self.tcp_be_liberal {
            all.push(Setting { path: at("nf_conntrack_tcp_be_liberal"), value: 1, at_least: false });
        }
        all
    }

    /// Sets the limits. One that cannot be set is told, since Services work without.
    pub(crate) fn set(&self) {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for setting in self.settings(processors) {
            if let Err(error) = setting.set() {
                let (path, value) = (setting.path.display(), setting.value);
                tracing::warn!("{path} stays as it is, {value} was wanted: {error}");
            }
        }
    }
}

impl Setting {
    fn set(&self) -> io::Result<()> {
        let present = fs::read_to_string(&self.path)?.trim().parse::<u64>().ok();
        let fits = |present: u64| if self.at_least { present >= self.value } else { present == self.value };
        if present.is_some_and(fits) {
            return Ok(());
        }
        fs::write(&self.path, self.value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_as_upstream_computes_them() {
        let check = |conntrack: Conntrack, processors, expected: &[(&str, u64)]| {
            let got = conntrack.settings(processors);
            let got: Vec<_> = got
                .iter()
                .map(|s| (s.path.file_name().and_then(|n| n.to_str()).unwrap_or_default(), s.value))
                .collect();
            assert_eq!(got, expected, "{conntrack:?}");
        };
        let times =
            [("nf_conntrack_tcp_timeout_established", 86400), ("nf_conntrack_tcp_timeout_close_wait", 3600)];
        let with = |max: u64| [("nf_conntrack_max", max), ("hashsize", max / 4), times[0], times[1]];
        check(Conntrack::default(), 1, &with(131_072));
        check(Conntrack::default(), 64, &with(2_097_152));
        check(Conntrack { max_per_core: 0, ..Conntrack::default() }, 64, &times);
        let udp = Duration::from_secs(30);
        let own = Conntrack {
            max_per_core: 0,
            tcp_established: Duration::ZERO,
            tcp_close_wait: Duration::ZERO,
            tcp_be_liberal: true,
            udp,
            udp_stream: udp * 2,
            ..Conntrack::default()
        };
        check(
            own,
            1,
            &[
                ("nf_conntrack_udp_timeout", 30),
                ("nf_conntrack_udp_timeout_stream", 60),
                ("nf_conntrack_tcp_be_liberal", 1),
            ],
        );
    }

    #[test]
    fn a_larger_limit_stays() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let check = |before: &str, value, at_least, after: &str| {
            fs::write(file.path(), before).unwrap();
            Setting { path: file.path().into(), value, at_least }.set().unwrap();
            assert_eq!(fs::read_to_string(file.path()).unwrap(), after);
        };
        check("5\n", 4, true, "5\n");
        check("5\n", 4, false, "4");
        check("3\n", 4, true, "4");
        check("4\n", 4, false, "4\n");
    }
}
