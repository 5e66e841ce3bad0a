//! Links to the logs of containers, in one directory and by the names that collectors of logs look for:
//! `POD_NAMESPACE_CONTAINER-ID.log`.
//!
//! A link is made once its container has started, and goes with the log. DIFFERENCE: upstream removes any link there that
//! leads nowhere; here only those that lead below the directory of logs, and to no directory that another kubelet made.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cri::runtime as pb;

use crate::config::Config;
use crate::log_dirs::LogDirs;

/// The longest name of a file.
const LONGEST: usize = 255;
/// The end of the names.
const END: &str = ".log";
/// The fewest characters by which a container is known.
const SHORTEST_ID: usize = 6;

/// The links of a kubelet.
#[derive(Debug, Clone)]
pub(crate) struct LogLinks {
    /// Where they are.
    dir: PathBuf,
    /// Where the logs are.
    logs: LogDirs,
}

impl LogLinks {
    /// Where the settings say.
    pub(crate) fn new(config: &Config) -> Self {
        Self { dir: config.container_logs_dir.clone(), logs: LogDirs::new(config) }
    }

    /// Links a container's log, if it is there.
    pub(crate) fn make(&self, log: &Path, id: &str) -> io::Result<()> {
        let Some(link) = self.link(log, id).filter(|_| log.symlink_metadata().is_ok()) else { return Ok(()) };
        match symlink(log, link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// Removes the link to a container's log, if there is one.
    pub(crate) fn remove(&self, log: &Path, id: &str) -> io::Result<()> {
        self.link(log, id).map_or(Ok(()), |link| remove(&link))
    }

    /// Removes the links to logs that are gone, except those of containers that have not ended: their logs come back, since
    /// they are only being rotated.
    pub(crate) fn sweep(&self, containers: &[pb::Container]) -> io::Result<()> {
        for (path, log) in self.all()? {
            if !log.symlink_metadata().is_err_and(is_missing) || !self.logs.may_unlink(&log) {
                continue;
            }
            let id = path.file_name().and_then(|name| id_of(name.to_str()?));
            let goes_on = |c: &pb::Container| {
                c.state() != pb::ContainerState::ContainerExited && id.is_some_and(|id| c.id.starts_with(id))
            };
            if !containers.iter().any(goes_on) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes all links to logs of this kubelet, whether they are there or not.
    pub(crate) fn remove_all(&self) -> io::Result<()> {
        for (path, log) in self.all()? {
            if self.logs.may_unlink(&log) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// All links with what they lead to.
    fn all(&self) -> io::Result<Vec<(PathBuf, PathBuf)>> {
        let paths =
            std::fs::read_dir(&self.dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        let target = |path: PathBuf| Some((path.clone(), std::fs::read_link(&path).ok()?));
        Ok(paths.into_iter().filter_map(target).collect())
    }

    fn link(&self, log: &Path, id: &str) -> Option<PathBuf> {
        Some(self.dir.join(name(log, id)?))
    }
}

/// Removes a link, if it is there: others may remove it, too.
fn remove(link: &Path) -> io::Result<()> {
    match std::fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what an error is asked for")]
fn is_missing(error: io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// The name of the link to a log, which is at `NAMESPACE_POD_UID/CONTAINER/N.log`; none for a log that is elsewhere.
fn name(log: &Path, id: &str) -> Option<String> {
    let container = log.parent()?;
    let mut of_pod = container.parent()?.file_name()?.to_str()?.split('_');
    let (namespace, pod) = (of_pod.next()?, of_pod.next()?);
    let mut name = format!("{pod}_{namespace}_{}-{id}", container.file_name()?.to_str()?);
    name.truncate(name.floor_char_boundary(LONGEST - END.len()));
    Some(name + END)
}

/// The id of the container, or its beginning, in the name of a link.
fn id_of(name: &str) -> Option<&str> {
    let id = name.rsplit('-').next()?.strip_suffix(END)?;
    (id.len() >= SHORTEST_ID).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef";

    fn log_of(pod: &str, container: &str) -> PathBuf {
        PathBuf::from(format!("/logs/ns_{pod}_uid/{container}/0.log"))
    }

    /// Upstream's `TestLogSymLink` and `TestLegacyLogSymLink`: a name is cut at what a file system takes.
    #[test]
    fn links_have_the_names_that_collectors_look_for() {
        assert_eq!(name(&log_of("web-1", "app"), ID).unwrap(), format!("web-1_ns_app-{ID}.log"));
        let (pod, container, id) = ("p".repeat(128), "c".repeat(70), "i".repeat(80));
        let expected = &format!("{pod}_ns_{container}-{id}")[..251];
        assert_eq!(name(&log_of(&pod, &container), &id).unwrap(), format!("{expected}.log"));
        assert_eq!(name(Path::new("/0.log"), ID), None);
        assert_eq!(name(Path::new("/logs/odd/c/0.log"), ID), None);
    }

    /// Upstream's 4 cases of `TestGetContainerIDFromLegacyLogSymLink`.
    #[test]
    fn links_name_their_container() {
        let id = "i".repeat(80);
        let cut = &format!("{}_ns_{}-{id}", "p".repeat(128), "c".repeat(70))[..251];
        assert_eq!(id_of("dummy.log"), None);
        assert_eq!(id_of(&format!("{cut}.invalidsuffix")), None);
        assert_eq!(id_of("p_ns_c-iiiii.log"), None);
        let left = id_of(&format!("{cut}.log")).unwrap().to_owned();
        assert!(left.len() < id.len() && id.starts_with(&left), "{left}");
    }

    /// The links of a kubelet whose directories are below this one.
    fn links(dir: &Path, owner: Option<&str>) -> LogLinks {
        LogLinks::new(&Config {
            pod_logs_dir: dir.join("logs"),
            container_logs_dir: dir.join("links"),
            logs_owner: owner.map(str::to_owned),
            ..Config::new("node")
        })
    }

    /// The names of the links that are there.
    fn names(links: &LogLinks) -> Vec<String> {
        let entries = std::fs::read_dir(&links.dir).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The fate of a link depends on its log and the state of its container.
    #[test]
    fn links_that_lead_nowhere_go_unless_their_container_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let links = links(dir.path(), None);
        std::fs::create_dir(&links.dir).unwrap();
        let log = |pod: &str| dir.path().join(format!("logs/ns_{pod}_uid/c/0.log"));
        let states = [
            ("there", pb::ContainerState::ContainerExited),
            ("rotated", pb::ContainerState::ContainerRunning),
            ("unknown", pb::ContainerState::ContainerUnknown),
            ("ended", pb::ContainerState::ContainerExited),
            ("gone", pb::ContainerState::ContainerExited),
        ];
        let mut containers = Vec::new();
        for (at, (pod, state)) in states.into_iter().enumerate() {
            let (path, id) = (log(pod), format!("container{at}"));
            links.make(&path, &id).unwrap();
            assert!(!links.link(&path, &id).unwrap().is_symlink(), "a log that is not there has no link");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            links.make(&path, &id).unwrap();
            links.make(&path, &id).unwrap();
            assert_eq!(std::fs::read(links.link(&path, &id).unwrap()).unwrap(), b"");
            if pod != "there" {
                std::fs::remove_file(&path).unwrap();
            }
            if pod != "gone" {
                containers.push(pb::Container { id, state: state.into(), ..pb::Container::default() });
            }
        }
        symlink("/nowhere/of/others", links.dir.join("other-0123456.log")).unwrap();
        links.sweep(&containers).unwrap();
        assert_eq!(
            names(&links),
            [
                "other-0123456.log",
                "rotated_ns_c-container1.log",
                "there_ns_c-container0.log",
                "unknown_ns_c-container2.log"
            ]
        );
        links.remove(&log("there"), "container0").unwrap();
        links.remove(&log("there"), "container0").unwrap();
        assert!(!links.dir.join("there_ns_c-container0.log").is_symlink());
    }

    /// A log that is being rotated is not there, and only the kubelet of its container knows why.
    #[test]
    fn links_of_other_kubelets_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (links(dir.path(), Some("one")), links(dir.path(), Some("other")));
        std::fs::create_dir(&one.dir).unwrap();
        for (links, pod) in [(&one, "mine"), (&other, "theirs"), (&other, "gone")] {
            let of_pod = dir.path().join(format!("logs/ns_{pod}_uid"));
            links.logs.make(&of_pod).unwrap();
            let log = of_pod.join("c/0.log");
            std::fs::create_dir(log.parent().unwrap()).unwrap();
            std::fs::write(&log, "").unwrap();
            links.make(&log, ID).unwrap();
            std::fs::remove_file(&log).unwrap();
        }
        crate::files::remove_tree(&dir.path().join("logs/ns_gone_uid")).unwrap();
        symlink("/nowhere/of/others", one.dir.join("other-0123456.log")).unwrap();
        let link = |pod: &str| format!("{pod}_ns_c-{ID}.log");
        one.sweep(&[]).unwrap();
        assert_eq!(names(&one), ["other-0123456.log".to_owned(), link("theirs")]);
        // All of one's own go, whether their logs are there or not.
        std::fs::write(dir.path().join("logs/ns_theirs_uid/c/0.log"), "").unwrap();
        one.remove_all().unwrap();
        assert_eq!(names(&one), ["other-0123456.log".to_owned(), link("theirs")]);
        other.remove_all().unwrap();
        assert_eq!(names(&one), ["other-0123456.log"]);
    }
}
