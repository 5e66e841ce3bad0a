//! Links to the logs of containers, in one directory and by the names that collectors of logs look for:
//! `POD_NAMESPACE_CONTAINER-ID.log`.
//!
//! A link is made once its container has started, and goes with the log. DIFFERENCE: upstream removes any link there that
//! leads nowhere; here only those that lead below the directory of this kubelet's logs.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cri::runtime as pb;

use crate::config::Config;

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
    logs: PathBuf,
}

impl LogLinks {
    /// Where the settings say.
    pub(crate) fn new(config: &Config) -> Self {
        Self { dir: config.container_logs_dir.clone(), logs: config.pod_logs_dir.clone() }
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
        match self.link(log, id).map(std::fs::remove_file) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the links to logs that are gone, except those of containers that have not ended: their logs come back, since
    /// they are only being rotated.
    pub(crate) fn sweep(&self, containers: &[pb::Container]) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let Ok(log) = std::fs::read_link(&path) else { continue };
            if !log.starts_with(&self.logs) || !log.symlink_metadata().is_err_and(is_missing) {
                continue;
            }
            let id = path.file_name().and_then(|name| id_of(name.to_str()?));
            let goes_on = |c: &pb::Container| {
                c.state() != pb::ContainerState::ContainerExited && id.is_some_and(|id| c.id.starts_with(id))
            };
            if !containers.iter().any(goes_on) {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn link(&self, log: &Path, id: &str) -> Option<PathBuf> {
        Some(self.dir.join(name(log, id)?))
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

    /// The fate of a link depends on its log and the state of its container.
    #[test]
    fn links_that_lead_nowhere_go_unless_their_container_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let links = LogLinks { dir: dir.path().join("links"), logs: dir.path().join("logs") };
        std::fs::create_dir(&links.dir).unwrap();
        let log = |pod: &str| links.logs.join(format!("ns_{pod}_uid/c/0.log"));
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
        let mut left: Vec<String> = std::fs::read_dir(&links.dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
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
}
