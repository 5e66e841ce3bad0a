//! Mounts of a container.

use std::path::{Component, Path, PathBuf};

use cri::runtime as pb;
use oci_spec::runtime::{LinuxIdMapping, Mount};

use super::error::TranslateError;

/// How a volume takes part in mounts that are made later on the host or in the container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Propagation {
    /// Not at all.
    #[default]
    Private,
    /// It takes those of the host.
    Slave,
    /// Both ways.
    Shared,
}

/// A file or directory that a container sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volume {
    /// The path in the container.
    pub destination: String,
    /// The path on the host, without links.
    pub source: PathBuf,
    /// Whether it is read-only.
    pub readonly: bool,
    /// Whether all mounts below it are, too.
    pub recursive: bool,
    /// How it takes part in later mounts.
    pub propagation: Propagation,
    /// The users that it shows, for a user namespace.
    pub uids: Vec<LinuxIdMapping>,
    /// The groups that it shows.
    pub gids: Vec<LinuxIdMapping>,
}

/// The surroundings on which a container's mounts depend.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Around {
    /// Whether the container is privileged.
    pub(super) privileged: bool,
    /// Whether the container has a user namespace, but the machine's network.
    pub(super) sys_of_host: bool,
    /// Whether its user namespace has no group 5.
    pub(super) no_tty_group: bool,
}

/// A path in a container in its shortest form.
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => parts.extend(name.to_str()),
            Component::ParentDir => {
                parts.pop();
            }
            _ => {}
        }
    }
    format!("/{}", parts.join("/"))
}

fn mount(to: &str, kind: &str, source: &str, options: &[&str]) -> Mount {
    let mut made = Mount::default();
    made.set_destination(to.into())
        .set_typ(Some(kind.to_owned()))
        .set_source(Some(source.into()))
        .set_options(Some(options.iter().map(ToString::to_string).collect()));
    made
}

/// The mounts that every container has.
fn usual(around: Around) -> Vec<Mount> {
    let write = if around.privileged { "rw" } else { "ro" };
    let mut terminals = vec!["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"];
    if !around.no_tty_group {
        terminals.push("gid=5");
    }
    // The kernel mounts no sysfs for a user namespace that does not own the network.
    let sys = if around.sys_of_host {
        mount("/sys", "bind", "/sys", &["rbind", "rro", "nosuid", "nodev", "noexec"])
    } else {
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", write])
    };
    vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", "devpts", &terminals),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        sys,
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", write]),
    ]
}

/// All mounts of a container in the order in which they are made, and how its root takes part in those of the host.
/// `own` are the Pod's files and the image's volumes, which `volumes` go before.
pub(super) fn mounts(
    own: &[Volume],
    volumes: &[Volume],
    around: Around,
) -> (Vec<Mount>, Option<&'static str>) {
    let mut all: Vec<&Volume> = volumes.iter().collect();
    let taken = |one: &&Volume| {
        let at = clean(&one.destination);
        volumes.iter().all(|other| clean(&other.destination) != at)
    };
    all.extend(own.iter().filter(taken));
    // Deeper ones come later, so that none is hidden.
    all.sort_by_key(|one| clean(&one.destination).matches('/').count());
    let has = |path: &str| all.iter().any(|one| clean(&one.destination) == path);
    let whole_dev = has("/dev");
    let mut made = usual(around);
    made.retain(|one| {
        let at = one.destination().to_string_lossy();
        let hidden = whole_dev && at.starts_with("/dev/");
        !(hidden || has(&at))
    });
    made.extend(all.iter().map(|one| bind(one)));
    let root = match all.iter().map(|one| one.propagation).max().unwrap_or_default() {
        Propagation::Private => None,
        Propagation::Slave => Some("rslave"),
        Propagation::Shared => Some("rshared"),
    };
    (made, root)
}

fn bind(volume: &Volume) -> Mount {
    let propagation = match volume.propagation {
        Propagation::Private => "rprivate",
        Propagation::Slave => "rslave",
        Propagation::Shared => "rshared",
    };
    let write = match (volume.readonly, volume.recursive) {
        (true, true) => "rro",
        (true, false) => "ro",
        (false, _) => "rw",
    };
    let mut made = mount(
        &clean(&volume.destination),
        "bind",
        &volume.source.to_string_lossy(),
        &["rbind", propagation, write],
    );
    if !volume.uids.is_empty() {
        made.set_uid_mappings(Some(volume.uids.clone())).set_gid_mappings(Some(volume.gids.clone()));
    }
    made
}

/// Checks a volume as CRI describes it.
pub(crate) fn check(asked: &pb::Mount) -> Result<Propagation, TranslateError> {
    let relative = |what, path: &str| TranslateError::Relative { what, path: path.to_owned() };
    if asked.container_path.is_empty() {
        return Err(relative("container path", &asked.container_path));
    }
    if asked.image.is_none() && !asked.host_path.starts_with('/') {
        return Err(relative("host path", &asked.host_path));
    }
    let propagation = match asked.propagation() {
        pb::MountPropagation::PropagationPrivate => Propagation::Private,
        pb::MountPropagation::PropagationHostToContainer => Propagation::Slave,
        pb::MountPropagation::PropagationBidirectional => Propagation::Shared,
    };
    if asked.recursive_read_only {
        if !asked.readonly {
            return Err(TranslateError::RecursiveWritable(asked.host_path.clone()));
        }
        if propagation != Propagation::Private {
            return Err(TranslateError::RecursivePropagation(asked.host_path.clone()));
        }
    }
    Ok(propagation)
}

/// A mount of `/proc/self/mountinfo`: its place and its optional fields.
struct Known {
    at: PathBuf,
    tags: String,
}

/// Checks that the mount on which a volume lies lets mounts through, by the text of `/proc/self/mountinfo`.
pub(crate) fn check_shared(
    path: &Path,
    propagation: Propagation,
    mountinfo: &str,
) -> Result<(), TranslateError> {
    if propagation == Propagation::Private {
        return Ok(());
    }
    let all = mountinfo.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let at = PathBuf::from(unescape(fields.nth(4)?));
        fields.next()?;
        let tags: Vec<&str> = fields.take_while(|field| *field != "-").collect();
        Some(Known { at, tags: tags.join(" ") })
    });
    // The last one of several at one place is on top.
    let on =
        all.filter(|known| path.starts_with(&known.at)).max_by_key(|known| known.at.components().count());
    let slave = propagation == Propagation::Slave;
    let fits = |known: &Known| {
        known.tags.split(' ').any(|tag| tag.starts_with("shared:") || (slave && tag.starts_with("master:")))
    };
    match on {
        Some(known) if fits(&known) => Ok(()),
        other => Err(TranslateError::NotShared {
            path: path.to_owned(),
            at: other.map(|known| known.at).unwrap_or_default(),
            slave,
        }),
    }
}

/// A path of `mountinfo`, in which four characters are written in octal.
fn unescape(text: &str) -> String {
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    plain.iter().fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(to: &str) -> Volume {
        Volume { destination: to.into(), source: format!("/host{to}").into(), ..Volume::default() }
    }

    fn places(own: &[Volume], volumes: &[Volume]) -> Vec<String> {
        let (all, _) = mounts(own, volumes, Around::default());
        all.iter().map(|one| one.destination().display().to_string()).collect()
    }

    #[test]
    fn order_and_replacement() {
        let usual = ["/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys", "/sys/fs/cgroup"];
        let check = |own: &[&str], volumes: &[&str], expected: &[&str]| {
            let all = |paths: &[&str]| paths.iter().map(|path| volume(path)).collect::<Vec<_>>();
            assert_eq!(places(&all(own), &all(volumes)), expected);
        };
        check(&[], &[], &usual);
        check(&["/etc/hosts"], &["/a/b/c", "/a/"], &[&usual[..], &["/a", "/etc/hosts", "/a/b/c"]].concat());
        check(&["/etc/hosts"], &["/etc//hosts"], &[&usual[..], &["/etc/hosts"]].concat());
        check(&["/dev/shm"], &["/dev"], &["/proc", "/sys", "/sys/fs/cgroup", "/dev", "/dev/shm"]);
        check(&[], &["/sys"], &["/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys/fs/cgroup", "/sys"]);
    }

    #[test]
    fn options() {
        let check = |one: Volume, expected: &str, root: Option<&str>| {
            let (all, got) = mounts(&[], &[one], Around::default());
            let last = all.last().unwrap().options().clone().unwrap_or_default();
            assert_eq!((&last.join(",")[..], got), (expected, root));
        };
        check(volume("/a"), "rbind,rprivate,rw", None);
        check(Volume { readonly: true, ..volume("/a") }, "rbind,rprivate,ro", None);
        check(Volume { readonly: true, recursive: true, ..volume("/a") }, "rbind,rprivate,rro", None);
        check(Volume { propagation: Propagation::Slave, ..volume("/a") }, "rbind,rslave,rw", Some("rslave"));
        check(
            Volume { propagation: Propagation::Shared, ..volume("/a") },
            "rbind,rshared,rw",
            Some("rshared"),
        );
        let (all, _) = mounts(&[], &[], Around { privileged: true, sys_of_host: true, no_tty_group: true });
        let options = |at: &str| {
            let one = all.iter().find(|one| one.destination() == Path::new(at)).unwrap();
            one.options().clone().unwrap_or_default().join(",")
        };
        assert!(options("/sys/fs/cgroup").ends_with("rw") && options("/sys").starts_with("rbind,rro"));
        assert!(!options("/dev/pts").contains("gid"));
    }

    #[test]
    fn checks() {
        let asked = pb::Mount { container_path: "/a".into(), host_path: "/b".into(), ..Default::default() };
        assert_eq!(check(&asked).unwrap(), Propagation::Private);
        let relative = pb::Mount { host_path: "b".into(), ..asked.clone() };
        assert!(check(&relative).unwrap_err().to_string().contains("is not an absolute path"));
        let recursive = pb::Mount { recursive_read_only: true, ..asked.clone() };
        let said = check(&recursive).unwrap_err().to_string();
        assert_eq!(said, "recursive read-only mount conflicts with RW mount (hostPath=\"/b\")");
        let both = pb::Mount { readonly: true, propagation: 1, ..recursive };
        assert!(matches!(check(&both), Err(TranslateError::RecursivePropagation(_))));
        let table = "22 1 8:1 / / rw shared:1 - ext4 x rw\n\
                     30 22 0:5 / /mnt/a\\040b rw master:1 - tmpfs x rw\n\
                     31 22 0:6 / /mnt/private rw - tmpfs x rw\n";
        let check = |path: &str, propagation, expected: bool| {
            let got = check_shared(Path::new(path), propagation, table);
            assert_eq!(got.is_ok(), expected, "{path} {got:?}");
        };
        check("/srv", Propagation::Shared, true);
        check("/mnt/a b/c", Propagation::Shared, false);
        check("/mnt/a b/c", Propagation::Slave, true);
        check("/mnt/private", Propagation::Slave, false);
        check("/mnt/private", Propagation::Private, true);
    }
}
