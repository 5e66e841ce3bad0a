//! The directories of Pods' logs: made, told from those of others, removed.
//!
//! Several kubelets may have their Pods' logs in one directory. A kubelet that may not be alone there marks each directory
//! that it makes by an empty file with its name, and removes no others.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::config::Config;
use crate::files::{self, Links};

/// The directories of a kubelet's Pods.
#[derive(Debug, Clone)]
pub(crate) struct LogDirs {
    /// Where they are.
    dir: PathBuf,
    /// Where an earlier version of this kubelet, which was alone there, had them.
    former: Option<PathBuf>,
    /// The name of the file that marks this kubelet's; none if all are its own.
    mark: Option<String>,
}

impl LogDirs {
    /// Where the settings say.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            dir: config.pod_logs_dir.clone(),
            former: config.former_pod_logs_dir.clone(),
            mark: config.logs_owner.as_ref().map(|owner| format!(".{owner}")),
        }
    }

    /// Makes a Pod's directory, unless it is there.
    pub(crate) fn make(&self, path: &Path) -> io::Result<()> {
        let Some(mark) = &self.mark else { return fs::create_dir_all(path) };
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        if self.is_own(&name) {
            return Ok(());
        }
        // It appears with its mark: one without would be nobody's if this process ended now.
        let new = self.dir.join(format!("{mark}_{}", uid_of(&name)));
        fs::create_dir_all(&new)?;
        File::create(new.join(mark))?;
        match fs::rename(&new, path) {
            Err(e) if matches!(e.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {
                File::create(path.join(mark))?;
                files::remove_tree(&new)
            }
            renamed => renamed,
        }
    }

    /// The directories that this kubelet may remove once their Pods are gone.
    pub(crate) fn own(&self) -> io::Result<Vec<PathBuf>> {
        let names = |dir: &Path| {
            let entries = fs::read_dir(dir)?.flatten();
            Ok::<_, io::Error>(entries.filter_map(|e| e.file_name().into_string().ok()).collect::<Vec<_>>())
        };
        let mut all = names(&self.dir)?;
        all.retain(|name| self.is_own(name));
        let mut all: Vec<PathBuf> = all.iter().map(|name| self.dir.join(name)).collect();
        if let Some(former) = &self.former {
            match names(former) {
                Ok(names) => all.extend(names.iter().map(|name| former.join(name))),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(all)
    }

    /// Whether this kubelet may remove the link to a log that is not there: it leads to a directory of this kubelet's, or to
    /// one that is gone, so that nobody writes logs there any more.
    pub(crate) fn may_unlink(&self, log: &Path) -> bool {
        let Ok(below) = log.strip_prefix(&self.dir) else { return false };
        let Some(name) = below.iter().next() else { return false };
        let gone = || {
            self.dir.join(name).symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        self.mark.is_none() || self.is_own(&name.to_string_lossy()) || gone()
    }

    /// Whether the directory with this name is this kubelet's.
    fn is_own(&self, name: &str) -> bool {
        let Some(mark) = &self.mark else { return true };
        let is_marked = || {
            let root = files::root(&self.dir).ok()?;
            files::open(root, &Path::new(name).join(mark), OFlags::PATH, Links::None).ok()
        };
        name.strip_prefix(mark.as_str()).is_some_and(|rest| rest.starts_with('_')) || is_marked().is_some()
    }
}

/// The Pod's uid in the name of its directory of logs, `NAMESPACE_NAME_UID`.
pub(crate) fn uid_of(name: &str) -> &str {
    name.rsplit('_').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs(dir: &Path, owner: Option<&str>) -> LogDirs {
        let mark = owner.map(|owner| format!(".{owner}"));
        LogDirs { dir: dir.join("pods"), former: Some(dir.join("former")), mark }
    }

    /// The names of the directories that a kubelet may remove.
    fn own(dirs: &LogDirs) -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<String> = dirs.own().unwrap().into_iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn logs_name_their_pod() {
        assert_eq!(uid_of("ns_name_1234-5"), "1234-5");
        assert_eq!(uid_of(".owner_1234-5"), "1234-5");
        assert_eq!(uid_of("odd"), "odd");
    }

    #[test]
    fn kubelets_that_share_a_directory_have_only_what_they_made() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other, alone) =
            (dirs(dir.path(), Some("k-1")), dirs(dir.path(), Some("k-10")), dirs(dir.path(), None));
        let at = |name: &str| one.dir.join(name);
        assert_eq!(one.own().unwrap_err().kind(), io::ErrorKind::NotFound);
        for _ in 0..2 {
            one.make(&at("ns_a_1")).unwrap();
            other.make(&at("ns_b_2")).unwrap();
        }
        alone.make(&at("ns_c_3")).unwrap();
        assert_eq!(fs::read_dir(&one.dir).unwrap().count(), 3, "nothing is left beside them");
        // A link does not make another's directory its own.
        std::os::unix::fs::symlink("ns_a_1", at("ns_link_4")).unwrap();
        fs::write(at("file"), "").unwrap();
        assert_eq!(own(&one), ["ns_a_1"]);
        assert_eq!(own(&other), ["ns_b_2"]);
        assert_eq!(own(&alone), ["file", "ns_a_1", "ns_b_2", "ns_c_3", "ns_link_4"]);
        // One that is there already becomes its own, with what it holds.
        fs::write(at("ns_c_3/log"), "line").unwrap();
        one.make(&at("ns_c_3")).unwrap();
        assert_eq!((own(&one), own(&other)), (vec!["ns_a_1".into(), "ns_c_3".into()], vec!["ns_b_2".into()]));
        assert_eq!(fs::read_to_string(at("ns_c_3/log")).unwrap(), "line");
    }

    #[test]
    fn an_end_between_two_steps_leaves_nothing_that_is_nobodys() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dirs(dir.path(), Some("k-1")), dirs(dir.path(), Some("k-10")));
        for (step, marked) in [("made", false), ("marked", true)] {
            let new = one.dir.join(format!(".k-1_{step}"));
            fs::create_dir_all(&new).unwrap();
            if marked {
                File::create(new.join(".k-1")).unwrap();
            }
            assert_eq!((own(&one), own(&other)), (vec![format!(".k-1_{step}")], vec![]));
            one.make(&one.dir.join(format!("ns_a_{step}"))).unwrap();
            assert_eq!((own(&one), own(&other)), (vec![format!("ns_a_{step}")], vec![]));
            files::remove_tree(&one.dir.join(format!("ns_a_{step}"))).unwrap();
        }
    }

    #[test]
    fn logs_of_an_earlier_version_are_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let one = dirs(dir.path(), Some("k-1"));
        fs::create_dir_all(&one.dir).unwrap();
        assert_eq!(own(&one), Vec::<String>::new());
        fs::create_dir_all(dir.path().join("former/ns_old_9/c")).unwrap();
        assert_eq!(one.own().unwrap(), [dir.path().join("former/ns_old_9")]);
    }

    #[test]
    fn links_are_removed_by_those_who_may() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other, alone) =
            (dirs(dir.path(), Some("k-1")), dirs(dir.path(), Some("k-10")), dirs(dir.path(), None));
        one.make(&one.dir.join("ns_a_1")).unwrap();
        let check = |log: &Path, expected: [bool; 3]| {
            assert_eq!(
                [&one, &other, &alone].map(|dirs| dirs.may_unlink(log)),
                expected,
                "{}",
                log.display()
            );
        };
        check(&one.dir.join("ns_a_1/c/0.log"), [true, false, true]);
        check(&one.dir.join("ns_gone_2/c/0.log"), [true, true, true]);
        check(&dir.path().join("elsewhere/ns_gone_2/c/0.log"), [false, false, false]);
        check(&one.dir, [false, false, false]);
    }
}
