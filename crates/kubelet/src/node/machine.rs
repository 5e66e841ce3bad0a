//! The properties of this machine, read from the kernel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The properties that do not change while the machine runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Logical processors that are online, in thousandths.
    pub milli_cpus: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Preallocated huge pages: size of a page in bytes to bytes in all.
    pub hugepages: BTreeMap<u64, u64>,
    /// The machine's own, such as that of `/etc/machine-id`.
    pub machine_id: String,
    /// The firmware's UUID.
    pub system_uuid: String,
    /// The UUID of this boot.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// The operating system's name and version.
    pub os_image: String,
    /// Go's name of the processor architecture.
    pub architecture: &'static str,
    /// The machine's own name.
    pub hostname: String,
}

/// The files that have a machine's identities, of which the first counts that has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdFiles {
    /// Of the machine; upstream's `--machine-id-file`.
    pub machine: Vec<PathBuf>,
    /// Of its boot; upstream's `--boot-id-file`.
    pub boot: Vec<PathBuf>,
}

impl Default for IdFiles {
    /// Upstream's defaults.
    fn default() -> Self {
        Self {
            machine: vec!["/etc/machine-id".into(), "/var/lib/dbus/machine-id".into()],
            boot: vec!["/proc/sys/kernel/random/boot_id".into()],
        }
    }
}

/// The identity that the first of these files has; "" if none has one.
fn identity(files: &[PathBuf]) -> String {
    let text = |path: &PathBuf| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    files.iter().filter_map(text).find(|text| !text.is_empty()).unwrap_or_default()
}

impl Machine {
    /// Reads them. A property that cannot be read stays empty.
    pub fn read(ids: &IdFiles) -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let meminfo = text("/proc/meminfo");
        let uname = rustix::system::uname();
        let machine_id = identity(&ids.machine);
        let system_uuid = match text("/sys/class/dmi/id/product_uuid") {
            id if id.is_empty() => machine_id.clone(),
            id => id.to_lowercase(),
        };
        Self {
            milli_cpus: count_list(&text("/sys/devices/system/cpu/online")).max(1) * 1000,
            memory: meminfo_bytes(&meminfo, "MemTotal").unwrap_or_default(),
            swap: meminfo_bytes(&meminfo, "SwapTotal").unwrap_or_default(),
            hugepages: hugepages(Path::new("/sys/kernel/mm/hugepages")),
            machine_id,
            system_uuid,
            boot_id: identity(&ids.boot),
            kernel: uname.release().to_string_lossy().into_owned(),
            os_image: os_image(&text("/etc/os-release")),
            architecture: match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                "powerpc64" => "ppc64le",
                other => other,
            },
            hostname: uname.nodename().to_string_lossy().to_lowercase(),
        }
    }

    /// The part of each of `nodes` that share the machine alike. Memory is whole MiB, huge pages are whole pages.
    pub fn shared_by(mut self, nodes: u32) -> Self {
        const MIB: u64 = 1 << 20;
        let nodes = u64::from(nodes);
        if nodes > 1 {
            self.milli_cpus /= nodes;
            self.memory = self.memory / nodes / MIB * MIB;
            self.swap = self.swap / nodes / MIB * MIB;
            for (size, bytes) in &mut self.hugepages {
                *bytes = *bytes / nodes / *size * *size;
            }
        }
        self
    }
}

/// A line of `/proc/meminfo` in bytes.
pub fn meminfo_bytes(meminfo: &str, key: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| {
        let value = line.strip_prefix(key)?.strip_prefix(':')?;
        value.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
    })
}

/// How many numbers a kernel list such as `0-3,7` names.
fn count_list(list: &str) -> u64 {
    list.split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
            last.checked_sub(first).map(|n| n + 1)
        })
        .sum()
}

fn hugepages(dir: &Path) -> BTreeMap<u64, u64> {
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let size = name
            .to_str()
            .and_then(|n| n.strip_prefix("hugepages-"))
            .and_then(|n| n.strip_suffix("kB"))
            .and_then(|n| n.parse::<u64>().ok());
        let count = std::fs::read_to_string(entry.path().join("nr_hugepages"))
            .ok()
            .and_then(|n| n.trim().parse::<u64>().ok());
        if let (Some(kib), Some(count)) = (size, count) {
            pages.insert(kib * 1024, kib * 1024 * count);
        }
    }
    pages
}

fn os_image(os_release: &str) -> String {
    os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or_else(|| "Unknown".to_owned(), |name| name.trim_matches('"').to_owned())
}

/// Size and room of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// Size in bytes.
    pub capacity: u64,
    /// Bytes free for everybody.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

impl Filesystem {
    /// The file system that holds a path.
    pub fn of(path: &Path) -> Option<Self> {
        let fs = rustix::fs::statvfs(path).ok()?;
        Some(Self {
            capacity: fs.f_blocks * fs.f_frsize,
            available: fs.f_bavail * fs.f_frsize,
            inodes: fs.f_files,
            inodes_free: fs.f_ffree,
        })
    }
}

/// Process ids: how many there can be and how many there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pids {
    /// The most.
    pub max: u64,
    /// In use.
    pub used: u64,
}

impl Pids {
    /// Reads them.
    pub fn read() -> Option<Self> {
        let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let max = number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
        // "0.00 0.01 0.05 1/123 4567": the fourth field counts runnable and all tasks.
        let loadavg = std::fs::read_to_string("/proc/loadavg").ok()?;
        let used = loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()?;
        Some(Self { max, used })
    }
}

/// Memory that Pods can still get, in bytes: what is free, and the page cache that is not active.
pub fn memory_available(meminfo: &str) -> Option<u64> {
    Some(meminfo_bytes(meminfo, "MemFree")? + meminfo_bytes(meminfo, "Inactive(file)")?)
}

/// The local address by which this machine reaches others, from the routing table alone: no packet is sent.
pub fn default_address() -> Option<std::net::IpAddr> {
    let by = |local: &str, remote: &str| {
        let socket = std::net::UdpSocket::bind(local).ok()?;
        socket.connect(remote).ok()?;
        socket.local_addr().ok().map(|a| a.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
    };
    // Addresses for documentation: nobody's.
    by("0.0.0.0:0", "192.0.2.1:9").or_else(|| by("[::]:0", "[2001:db8::1]:9"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses() {
        assert_eq!(count_list("0-3,7\n"), 5);
        assert_eq!(count_list("0"), 1);
        assert_eq!(count_list("x,3-1"), 0);
        let meminfo = "MemTotal:  100 kB\nMemFree: 10 kB\nInactive(file): 5 kB\n";
        assert_eq!(meminfo_bytes(meminfo, "MemTotal"), Some(102_400));
        assert_eq!(memory_available(meminfo), Some(15 * 1024));
        assert_eq!(meminfo_bytes(meminfo, "Mem"), None);
        assert_eq!(os_image("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
        assert_eq!(os_image(""), "Unknown");
    }

    #[test]
    fn identities_are_of_the_first_file_that_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let [none, empty, one, two] = ["none", "empty", "one", "two"].map(|name| dir.path().join(name));
        std::fs::write(&empty, "\n").unwrap();
        std::fs::write(&one, " 1\n").unwrap();
        std::fs::write(&two, "2").unwrap();
        let ids = IdFiles { machine: vec![none.clone(), empty, one], boot: vec![two] };
        let machine = Machine::read(&ids);
        assert_eq!((machine.machine_id.as_str(), machine.boot_id.as_str()), ("1", "2"));
        assert_eq!(identity(&[none]), "");
    }

    #[test]
    fn this_machine() {
        let machine = Machine::read(&IdFiles::default());
        assert!(machine.milli_cpus > 0 && machine.memory > 0 && !machine.boot_id.is_empty());
        assert!(Filesystem::of(Path::new("/")).is_some_and(|fs| fs.capacity > fs.available));
        assert!(Pids::read().is_some_and(|p| p.max > p.used && p.used > 0));
    }
}
