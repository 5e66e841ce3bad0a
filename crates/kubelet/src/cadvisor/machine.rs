//! The machine, its disks and its file systems.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::sample::Mounted;

/// The most file systems that one scrape tells of.
const MOST: usize = 128;
/// Kinds of file systems that have no room of their own, and those behind a network, whose server may never answer.
const WITHOUT: [&str; 24] = [
    "cgroup",
    "cgroup2",
    "cpuset",
    "mqueue",
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "securityfs",
    "debugfs",
    "tracefs",
    "pstore",
    "configfs",
    "fusectl",
    "hugetlbfs",
    "autofs",
    "binfmt_misc",
    "efivarfs",
    "rpc_pipefs",
    "nsfs",
    "bpf",
    "nfs",
    "nfs4",
    "cifs",
];

/// How many cores and sockets the machine's processors have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    /// Cores, each counted once however many threads it has.
    pub(crate) cores: u64,
    /// Sockets.
    pub(crate) sockets: u64,
    /// Books, which mainframes have.
    pub(crate) books: u64,
    /// Drawers, which mainframes have.
    pub(crate) drawers: u64,
}

/// Reads `/sys/devices/system/cpu`.
pub(crate) fn topology(cpus: &Path) -> Topology {
    let (mut cores, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    let (mut books, mut drawers) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(cpus).into_iter().flatten().flatten() {
        let dir = entry.path().join("topology");
        let id = |file: &str| std::fs::read_to_string(dir.join(file)).ok().map(|id| id.trim().to_owned());
        let Some(socket) = id("physical_package_id") else { continue };
        cores.extend(id("core_id").map(|core| (socket.clone(), core)));
        sockets.insert(socket);
        books.extend(id("book_id"));
        drawers.extend(id("drawer_id"));
    }
    Topology {
        cores: cores.len() as u64,
        sockets: sockets.len() as u64,
        books: books.len() as u64,
        drawers: drawers.len() as u64,
    }
}

/// The disks by their numbers, with the names below `/dev` and their work.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disks(HashMap<(u64, u64), (String, [u64; 11])>);

impl Disks {
    /// Reads `/proc/diskstats`.
    pub(crate) fn parse(diskstats: &str) -> Self {
        let line = |line: &str| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (major, minor) = (fields.first()?.parse().ok()?, fields.get(1)?.parse().ok()?);
            let mut work = [0; 11];
            for (value, field) in work.iter_mut().zip(fields.get(3..)?) {
                *value = field.parse().ok()?;
            }
            Some(((major, minor), (format!("/dev/{}", fields.get(2)?), work)))
        };
        Self(diskstats.lines().filter_map(line).collect())
    }

    /// The name of a disk, empty for one that is not known.
    pub(crate) fn name(&self, major: u64, minor: u64) -> &str {
        self.0.get(&(major, minor)).map_or("", |(name, _)| name)
    }

    fn work(&self, major: u64, minor: u64) -> [u64; 11] {
        self.0.get(&(major, minor)).map(|(_, work)| *work).unwrap_or_default()
    }
}

/// A mount that is told of.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    at: PathBuf,
    major: u64,
    minor: u64,
}

/// The file systems of `/proc/self/mountinfo`, each once, by the names that upstream has for them. Those below the
/// directories `without` belongs to Pods.
fn places(mountinfo: &str, without: &[&Path]) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    for line in mountinfo.lines() {
        if places.len() == MOST {
            break;
        }
        let fields: Vec<&str> = line.split(' ').collect();
        let Some(dash) = fields.iter().position(|f| *f == "-") else { continue };
        let (Some(device), Some(at)) = (fields.get(2), fields.get(4)) else { continue };
        let (Some(kind), Some(source)) = (fields.get(dash + 1), fields.get(dash + 2)) else { continue };
        let Some((major, minor)) = device.split_once(':') else { continue };
        let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) else { continue };
        let at = PathBuf::from(unescape(at));
        if WITHOUT.contains(kind) || kind.starts_with("fuse") || without.iter().any(|dir| at.starts_with(dir))
        {
            continue;
        }
        let name = match *kind {
            "tmpfs" => at.to_string_lossy().into_owned(),
            "overlay" => format!("overlay_{major}-{minor}"),
            _ => unescape(source),
        };
        places.entry(name).or_insert(Place { at, major, minor });
    }
    places
}

/// A path of a mount table, in which some characters are three octal digits.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// The room of the machine's file systems, but for those below `without`.
pub(crate) fn file_systems(mountinfo: &str, without: &[&Path], disks: &Disks) -> Vec<Mounted> {
    let of = |(device, place): (String, Place)| {
        let fs = rustix::fs::statvfs(&place.at).ok()?;
        Some(Mounted {
            device,
            capacity: fs.f_blocks.saturating_mul(fs.f_frsize),
            free: fs.f_bfree.saturating_mul(fs.f_frsize),
            inodes: fs.f_files,
            inodes_free: fs.f_ffree,
            work: disks.work(place.major, place.minor),
        })
    };
    places(mountinfo, without).into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors() {
        let dir = tempfile::tempdir().unwrap();
        for (cpu, core, socket) in
            [("cpu0", "0", "0"), ("cpu1", "0", "0"), ("cpu2", "0", "1"), ("cpu3", "1", "1")]
        {
            let at = dir.path().join(cpu).join("topology");
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join("core_id"), format!("{core}\n")).unwrap();
            std::fs::write(at.join("physical_package_id"), format!("{socket}\n")).unwrap();
        }
        std::fs::create_dir(dir.path().join("cpufreq")).unwrap();
        assert_eq!(topology(dir.path()), Topology { cores: 3, sockets: 2, ..Topology::default() });
        assert_eq!(topology(Path::new("/missing")), Topology::default());
    }

    #[test]
    fn disks_and_file_systems() {
        let disks = Disks::parse(" 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13\n bad\n 7 0 loop0 0 0 0 0\n");
        assert_eq!((disks.name(254, 0), disks.name(8, 0)), ("/dev/vda", ""));
        assert_eq!(disks.work(254, 0), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        let mountinfo = "\
            22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            23 22 254:0 /x /bind\\040mount rw - ext4 /dev/vda rw\n\
            24 22 0:22 / /proc rw - proc proc rw\n\
            25 22 0:23 / /run rw - tmpfs tmpfs rw\n\
            26 22 0:24 / /var/lib/kubelet/pods/u/volumes/s rw - tmpfs tmpfs rw\n\
            27 22 0:25 / /mnt rw - nfs4 server:/ rw\n\
            28 22 0:26 / /o rw - overlay overlay rw\n\
            bad\n";
        let found = places(mountinfo, &[Path::new("/var/lib/kubelet")]);
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["/dev/vda", "/run", "overlay_0-26"]);
        assert_eq!(found["/dev/vda"], Place { at: "/".into(), major: 254, minor: 0 });
        let many: Vec<String> = (0..1000).map(|n| format!("1 1 0:{n} / / rw - overlay o rw")).collect();
        let many = many.join("\n");
        assert_eq!(places(&many, &[]).len(), MOST);
    }
}
