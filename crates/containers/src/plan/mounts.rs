//! A container's mounts, as steps.

use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::Mount;

use super::{Bind, Plan, Source, attribute, fields};
use crate::error::{Error, Result};
use crate::raw::{Change, attr, propagation};
use crate::shim::wire::{MAX_MADE, flag, step};
use crate::spec::IdMappings;

/// The cgroups that a container sees.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CgroupView {
    /// Whether the container has a cgroup namespace.
    pub(crate) namespace: bool,
    /// Hierarchies: the name of the directory, the mount option (`memory`, `name=systemd`; none for v2), and the
    /// container's own directory on the host.
    pub(crate) hierarchies: Vec<Hierarchy>,
}

/// A hierarchy of cgroups.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hierarchy {
    pub(crate) name: String,
    pub(crate) option: Option<String>,
    pub(crate) path: PathBuf,
}

/// The options of a mount, sorted.
#[derive(Debug, Default, PartialEq)]
struct Options {
    set: u32,
    clear: u32,
    /// Attributes of what is mounted below, too.
    all_set: u32,
    all_clear: u32,
    propagation: Option<(u32, bool)>,
    bind: Option<bool>,
    map_all: bool,
    data: Vec<(String, String)>,
}

fn options(mount: &Mount) -> Result<Options> {
    let mut out = Options::default();
    for option in mount.options().iter().flatten() {
        if let Some((set, clear)) = attribute(option) {
            (out.set, out.clear) = (out.set & !clear | set, out.clear & !set | clear);
            continue;
        }
        if let Some((set, clear)) = option.strip_prefix('r').and_then(attribute) {
            (out.all_set, out.all_clear) = (out.all_set & !clear | set, out.all_clear & !set | clear);
            continue;
        }
        let spread = |flags, all| Some((flags, all));
        match option.as_str() {
            "bind" => out.bind = Some(false),
            "rbind" => out.bind = Some(true),
            "private" => out.propagation = spread(propagation::PRIVATE, false),
            "rprivate" => out.propagation = spread(propagation::PRIVATE, true),
            "slave" => out.propagation = spread(propagation::SLAVE, false),
            "rslave" => out.propagation = spread(propagation::SLAVE, true),
            "shared" => out.propagation = spread(propagation::SHARED, false),
            "rshared" => out.propagation = spread(propagation::SHARED, true),
            "unbindable" => out.propagation = spread(propagation::UNBINDABLE, false),
            "runbindable" => out.propagation = spread(propagation::UNBINDABLE, true),
            // The mappings say the rest.
            "idmap" => {}
            "ridmap" => out.map_all = true,
            "remount" | "tmpcopyup" => {
                let at = mount.destination().display();
                return Err(Error::Invalid(format!(
                    "the mount at {at} has the option {option:?}, which is not supported"
                )));
            }
            _ => {
                let (key, value) = option.split_once('=').unwrap_or((option, ""));
                out.data.push((key.to_owned(), value.to_owned()));
            }
        }
    }
    if mount.typ().as_deref() == Some("bind") {
        out.bind.get_or_insert(false);
    }
    Ok(out)
}

impl Options {
    /// The changes of a bound mount, in their order.
    fn changes(&self) -> Vec<Change> {
        let mut out = Vec::new();
        let (how, recursive) = self.propagation.unwrap_or((propagation::PRIVATE, true));
        out.push(Change { propagation: how, recursive, ..Change::default() });
        if self.set | self.clear != 0 {
            out.push(Change { set: self.set, clear: self.clear, ..Change::default() });
        }
        if self.all_set | self.all_clear != 0 {
            out.push(Change { set: self.all_set, clear: self.all_clear, recursive: true, propagation: 0 });
        }
        out
    }
}

/// Refuses places in `/proc`: there something mounted would pass for the kernel's word (CVE-2019-16884). The files that
/// lxcfs provides may be, as in runc.
fn allowed(destination: &Path, typ: &str, source: Option<&Path>) -> Result<()> {
    const FILES: [&str; 11] = [
        "cpuinfo",
        "diskstats",
        "loadavg",
        "meminfo",
        "net/dev",
        "slabinfo",
        "stat",
        "swaps",
        "sys/crypto/fips_enabled",
        "sys/kernel/ns_last_pid",
        "uptime",
    ];
    let Ok(below) = destination.strip_prefix("/proc") else { return Ok(()) };
    let whole = below.as_os_str().is_empty() && (typ == "proc" || source == Some(Path::new("/proc")));
    if whole || FILES.iter().any(|f| below == Path::new(f)) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{:?} cannot be mounted because it is inside /proc",
        destination.display().to_string()
    )))
}

/// A destination in normal form: absolute, without `.` and `..`, which never lead above the root.
pub(crate) fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            _ => {}
        }
    }
    out
}

fn text(path: &Path) -> Result<&str> {
    let text = path.to_str().filter(|t| !t.contains('\0'));
    text.ok_or_else(|| Error::Invalid(format!("the path {} is not text", path.display())))
}

/// Whether a mount's file system is made before the old root goes.
fn early(mount: &Mount) -> bool {
    matches!(mount.typ().as_deref(), Some("proc" | "sysfs"))
}

/// Makes the file systems that must be made before the old root goes, in the order of their mounts.
pub(super) fn make_early(plan: &mut Plan, mounts: &[Mount], given: impl Fn(&Mount) -> bool) -> Result<()> {
    let all: Vec<&Mount> = mounts.iter().filter(|m| early(m) && !given(m)).collect();
    if all.len() > MAX_MADE {
        return Err(Error::Invalid(format!("the container has {} mounts of proc and sysfs", all.len())));
    }
    for mount in all {
        let options = options(mount)?;
        let typ = mount.typ().as_deref().unwrap_or_default();
        let mut values = fields().text(typ).u32(options.set).u32(options.data.len() as u32 + 1);
        for (key, value) in &options.data {
            values = values.text(key).text(value);
        }
        values = values.text("source").text(typ);
        let deed =
            format!("error mounting {typ:?} to rootfs at {:?}", mount.destination().display().to_string());
        plan.push(step::MAKE_FS, 0, values, deed);
    }
    Ok(())
}

/// The steps of one mount. `given` is the place of the descriptor that the caller has for it.
pub(super) fn mount(
    plan: &mut Plan,
    mount: &Mount,
    given: Option<usize>,
    view: &CgroupView,
    label: Option<&str>,
    made: &mut u32,
) -> Result<()> {
    let destination = clean(mount.destination());
    let at = text(&destination)?;
    let typ = mount.typ().as_deref().unwrap_or_default();
    let source = mount.source().as_deref();
    let options = options(mount)?;
    if destination == Path::new("/") {
        return Err(Error::Invalid("nothing can be mounted at the root of a container".to_owned()));
    }
    allowed(&destination, typ, source)?;
    let from = source.map_or_else(|| typ.to_owned(), |s| s.display().to_string());
    let deed = format!("error mounting {from:?} to rootfs at {at:?}");
    if let Some(place) = given {
        let source =
            Source::Given(place, Change { set: options.set, clear: options.clear, ..Change::default() });
        let fd = plan.source(source);
        plan.push(step::MOUNT_FD, 0, fields().u32(fd).text(at), deed);
        return Ok(());
    }
    if let Some(recursive) = options.bind {
        let Some(path) = source else {
            return Err(Error::Invalid(format!("the mount at {at} has no source")));
        };
        text(path)?;
        let idmap = match (mount.uid_mappings(), mount.gid_mappings()) {
            (Some(uids), Some(gids)) => {
                Some((IdMappings { uids: uids.clone(), gids: gids.clone() }, options.map_all))
            }
            (None, None) => None,
            _ => {
                return Err(Error::Invalid(format!(
                    "the mount at {at} has mappings of users or groups alone"
                )));
            }
        };
        let bind = Bind { path: path.to_owned(), recursive, changes: options.changes(), idmap };
        let fd = plan.source(Source::Bind(bind));
        plan.push(step::MOUNT_FD, 0, fields().u32(fd).text(at), deed);
        return Ok(());
    }
    if typ == "cgroup" || typ == "cgroup2" {
        cgroups(plan, at, &options, view, &deed);
        return Ok(());
    }
    if typ.is_empty() || typ.contains('\0') {
        return Err(Error::Invalid(format!("the mount at {at} has no type")));
    }
    let mut data = options.data.clone();
    if let Some(label) = label.filter(|_| matches!(typ, "tmpfs" | "devpts" | "mqueue")) {
        data.push(("context".to_owned(), label.to_owned()));
    }
    if !from.is_empty() && !from.contains('\0') {
        data.push(("source".to_owned(), from));
    }
    // The file systems of which later steps and the container's programs expect the kernel's word.
    let flags = if early(mount) || at == "/dev" { flag::NO_SYMLINKS } else { 0 };
    if early(mount) {
        let values = fields().u32(*made).text(at);
        *made += 1;
        plan.push(step::MOUNT_MADE, flags, values, deed);
    } else {
        new_fs(plan, typ, options.set, at, &data, flags, deed);
    }
    if let Some((how, _)) = options.propagation {
        plan.push(
            step::ATTR,
            0,
            fields().text(at).u32(0).u32(how),
            format!("change the propagation of {at:?}"),
        );
    }
    Ok(())
}

fn new_fs(
    plan: &mut Plan,
    typ: &str,
    attributes: u32,
    at: &str,
    data: &[(String, String)],
    flags: u16,
    deed: String,
) {
    let mut values = fields().text(typ).u32(attributes).text(at).u32(data.len() as u32);
    for (key, value) in data {
        values = values.text(key).text(value);
    }
    plan.push(step::MOUNT_FS, flags, values, deed);
}

/// The steps of the mount of cgroups: the container's own ones, whatever the mount's options say of the file system.
fn cgroups(plan: &mut Plan, at: &str, options: &Options, view: &CgroupView, deed: &str) {
    let one = |plan: &mut Plan, at: &str, hierarchy: &Hierarchy| {
        if view.namespace {
            let (typ, data) = match &hierarchy.option {
                None => ("cgroup2", Vec::new()),
                Some(option) => {
                    let (key, value) = option.split_once('=').unwrap_or((option, ""));
                    let flags = option.split(',').map(|o| (o.to_owned(), String::new()));
                    let named = vec![("none".to_owned(), String::new()), (key.to_owned(), value.to_owned())];
                    ("cgroup", if value.is_empty() { flags.collect() } else { named })
                }
            };
            new_fs(plan, typ, options.set, at, &data, 0, deed.to_owned());
        } else {
            let changes = Options { propagation: None, bind: None, data: Vec::new(), ..*options }.changes();
            let bind = Bind { path: hierarchy.path.clone(), recursive: false, changes, idmap: None };
            let fd = plan.source(Source::Bind(bind));
            plan.push(step::MOUNT_FD, 0, fields().u32(fd).text(at), deed);
        }
    };
    if let [only] = &view.hierarchies[..]
        && only.option.is_none()
    {
        return one(plan, at, only);
    }
    let data = [("mode".to_owned(), "755".to_owned()), ("source".to_owned(), "tmpfs".to_owned())];
    new_fs(plan, "tmpfs", options.set & !attr::RDONLY, at, &data, 0, deed.to_owned());
    for hierarchy in view.hierarchies.iter().filter(|h| h.option.is_some()) {
        let name = &hierarchy.name;
        one(plan, &format!("{at}/{name}"), hierarchy);
        for single in name.split(',').filter(|single| single != name) {
            let values = fields().text(name).text(format!("{at}/{single}"));
            plan.push(step::SYMLINK, 0, values, deed);
        }
    }
    if options.set & attr::RDONLY != 0 {
        plan.push(step::ATTR, 0, fields().text(at).u32(attr::RDONLY).u32(0), deed);
    }
}
