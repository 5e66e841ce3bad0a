//! The clusters of this machine: a thing that one of them holds, another cannot have. (Ports aside: the system gives
//! one to one program only.)
//!
//! Each `ferrokube up` writes a claim with the things that it holds below `/run/ferrokube` before it starts anything.
//! It holds them while it runs, and its Pods' range as long as links to Pods are there: containers outlive the process. A
//! restart of the machine empties `/run`.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use objects::Cidr;
use serde::{Deserialize, Serialize};

use crate::footprint::DIR;

/// The things that a cluster holds on its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Claim {
    /// The cluster's data directory.
    pub(crate) data_dir: PathBuf,
    /// The Pods' ranges.
    pub(crate) cluster_cidrs: Vec<String>,
    /// The Services' ranges.
    pub(crate) service_cidrs: Vec<String>,
    /// The beginning of the names of the links to its Pods.
    #[serde(alias = "bridge")]
    pub(crate) links: String,
    /// The runtime's socket.
    pub(crate) runtime_endpoint: String,
    /// The directory in which the runtime looks for the pod network's configuration.
    pub(crate) cni_conf_dir: PathBuf,
}

/// A claim that nobody else has; it ends with the process.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "its lock tells others that this process lives")] File);

/// Claims the things that the cluster of this name needs of this machine.
///
/// # Errors
/// One sentence that names the other cluster, and the flag that avoids the conflict.
pub(crate) fn claim(id: &str, claim: &Claim) -> Result<Held> {
    claim_in(Path::new(DIR), id, claim, &has_link)
}

/// Whether a link of this machine has a name that begins so.
fn has_link(prefix: &str) -> bool {
    let links = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names = links.map(|link| link.file_name());
    !prefix.is_empty() && names.any(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
}

/// Forgets a cluster's claim, once all that it made is removed.
pub(crate) fn forget(id: &str) -> Result<()> {
    match fs::remove_file(Path::new(DIR).join(file_name(id))) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).context("its claim can't be removed"),
        _ => Ok(()),
    }
}

/// Whether the process of the cluster of this name runs.
pub(crate) fn runs(id: &str) -> bool {
    read(&Path::new(DIR).join(file_name(id))).is_some_and(|(_, runs)| runs)
}

fn file_name(id: &str) -> String {
    format!("{id}.json")
}

fn claim_in(at: &Path, id: &str, claim: &Claim, is_there: &dyn Fn(&str) -> bool) -> Result<Held> {
    let shown = at.display();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(at);
    made.with_context(|| format!("{shown} can't be made; run as root"))?;
    // Claims are made one after the other: two clusters that start at once must not both find the place free.
    let turn = File::create(at.join("lock")).with_context(|| format!("{shown} can't be written to"))?;
    turn.lock().with_context(|| format!("{shown} can't be locked"))?;
    for entry in fs::read_dir(at)? {
        let path = entry?.path();
        let other = path.extension().is_some_and(|e| e == "json") && !path.ends_with(file_name(id));
        if let Some((theirs, runs)) = other.then(|| read(&path)).flatten()
            && let Some((what, flag)) = conflict(claim, &theirs, runs, runs || is_there(&theirs.links))
        {
            let (whose, remedy) = (theirs.data_dir.display(), if runs { "runs" } else { "has Pods" });
            bail!(
                "the cluster of {whose}, which {remedy} on this machine, has {what}: choose another with {flag}, or remove that cluster with `ferrokube down --data-dir {whose}`"
            );
        }
    }
    let path = at.join(file_name(id));
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
    // Nobody else has it, since the data directory is locked, unless somebody removed that under a running cluster.
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let whose = claim.data_dir.display();
            bail!("another FerroKube runs on {whose}, although its files were removed; stop it first")
        }
        Err(TryLockError::Error(e)) => {
            return Err(e).with_context(|| format!("{} can't be locked", path.display()));
        }
    }
    file.set_len(0)?;
    file.write_all(&serde_json::to_vec_pretty(claim)?)?;
    Ok(Held(file))
}

/// The claim of another cluster, and whether its process runs.
fn read(path: &Path) -> Option<(Claim, bool)> {
    let file = File::open(path).ok()?;
    let claim = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    Some((claim, matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))))
}

/// The first thing that both want, and the flag to choose another one. `runs` tells that the other's process runs,
/// `pods` that its Pods may.
fn conflict(ours: &Claim, theirs: &Claim, runs: bool, pods: bool) -> Option<(String, &'static str)> {
    let shared = |ours: &[String], theirs: &[String]| {
        ours.iter().find_map(|o| theirs.iter().find(|t| overlap(o, t)).cloned())
    };
    if pods && let Some(range) = shared(&ours.cluster_cidrs, &theirs.cluster_cidrs) {
        return Some((format!("{range} for its Pods"), "--cluster-cidr"));
    }
    if pods && let Some(range) = shared(&ours.service_cidrs, &theirs.cluster_cidrs) {
        return Some((format!("{range} for its Pods"), "--service-cidr"));
    }
    if pods && ours.links == theirs.links {
        return Some((format!("links whose names begin with {}", ours.links), "--data-dir"));
    }
    if !runs {
        return None;
    }
    if let Some(range) = shared(&ours.cluster_cidrs, &theirs.service_cidrs) {
        return Some((format!("{range} for its Services"), "--cluster-cidr"));
    }
    if let Some(range) = shared(&ours.service_cidrs, &theirs.service_cidrs) {
        return Some((format!("{range} for its Services"), "--service-cidr"));
    }
    if ours.runtime_endpoint == theirs.runtime_endpoint {
        return Some((
            format!("the container runtime at {}", ours.runtime_endpoint),
            "--container-runtime-endpoint",
        ));
    }
    if ours.cni_conf_dir == theirs.cni_conf_dir {
        return Some((
            format!("its pod network's configuration in {}", ours.cni_conf_dir.display()),
            "--cni-conf-dir",
        ));
    }
    None
}

/// Whether two ranges have an address in common. A text that is no range is refused elsewhere.
fn overlap(a: &str, b: &str) -> bool {
    matches!((a.parse::<Cidr>(), b.parse::<Cidr>()), (Ok(a), Ok(b)) if a.overlaps(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Claim {
        let owned = |ranges: &[&str]| ranges.iter().map(|r| (*r).to_owned()).collect();
        Claim {
            data_dir: "/var/lib/one".into(),
            cluster_cidrs: owned(&["10.244.0.0/16", "fd00:1::/48"]),
            service_cidrs: owned(&["10.96.0.0/16"]),
            links: "fk-1".into(),
            runtime_endpoint: "/run/one.sock".into(),
            cni_conf_dir: "/etc/one".into(),
        }
    }

    fn two() -> Claim {
        Claim {
            data_dir: "/var/lib/two".into(),
            cluster_cidrs: vec!["10.245.0.0/16".into()],
            service_cidrs: vec!["10.97.0.0/16".into()],
            links: "fk-2".into(),
            runtime_endpoint: "/run/two.sock".into(),
            cni_conf_dir: "/etc/two".into(),
        }
    }

    #[test]
    fn ranges() {
        for (a, b, expected) in [
            ("10.0.0.0/8", "10.96.0.0/16", true),
            ("10.96.0.0/16", "10.0.0.0/8", true),
            ("10.96.0.0/16", "10.97.0.0/16", false),
            ("0.0.0.0/0", "192.0.2.1/32", true),
            ("fd00::/48", "fd00::1:0/112", true),
            ("fd00::/48", "fd00:0:1::/48", false),
            ("0.0.0.0/0", "::/0", false),
            ("x", "10.0.0.0/8", false),
        ] {
            assert_eq!(overlap(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn what_two_cannot_have() {
        let check = |change: fn(&mut Claim), runs: bool, pods: bool, expected: Option<&str>| {
            let mut ours = two();
            change(&mut ours);
            let found = conflict(&ours, &one(), runs, pods).map(|(what, flag)| format!("{what} {flag}"));
            assert_eq!(found.as_deref(), expected);
        };
        check(|_| {}, true, true, None);
        let pods: fn(&mut Claim) = |c| c.cluster_cidrs = vec!["10.244.3.0/24".into()];
        check(pods, true, true, Some("10.244.0.0/16 for its Pods --cluster-cidr"));
        check(pods, false, true, Some("10.244.0.0/16 for its Pods --cluster-cidr"));
        check(pods, false, false, None);
        let second: fn(&mut Claim) = |c| c.cluster_cidrs.push("fd00:1::/64".into());
        check(second, true, true, Some("fd00:1::/48 for its Pods --cluster-cidr"));
        let services: fn(&mut Claim) = |c| c.service_cidrs = vec!["10.96.0.0/12".into()];
        check(services, true, true, Some("10.96.0.0/16 for its Services --service-cidr"));
        check(services, false, true, None);
        check(
            |c| c.service_cidrs = vec!["10.244.0.0/24".into()],
            true,
            true,
            Some("10.244.0.0/16 for its Pods --service-cidr"),
        );
        check(
            |c| c.cluster_cidrs = vec!["10.96.0.0/24".into()],
            true,
            true,
            Some("10.96.0.0/16 for its Services --cluster-cidr"),
        );
        check(|c| c.links = "fk-1".into(), false, true, Some("links whose names begin with fk-1 --data-dir"));
        check(
            |c| c.runtime_endpoint = "/run/one.sock".into(),
            true,
            true,
            Some("the container runtime at /run/one.sock --container-runtime-endpoint"),
        );
        check(
            |c| c.cni_conf_dir = "/etc/one".into(),
            true,
            true,
            Some("its pod network's configuration in /etc/one --cni-conf-dir"),
        );
    }

    #[test]
    fn a_claim_lasts_as_long_as_its_process_or_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("run");
        let mut like_one = two();
        like_one.cluster_cidrs = one().cluster_cidrs;
        let first = claim_in(&at, "1", &one(), &|_| false).unwrap();
        let refused = claim_in(&at, "2", &like_one, &|_| false).unwrap_err().to_string();
        let expected = "the cluster of /var/lib/one, which runs on this machine, has 10.244.0.0/16 for its Pods: choose another with --cluster-cidr, or ";
        assert!(refused.starts_with(expected), "{refused}");
        drop(first);
        let refused = claim_in(&at, "2", &like_one, &|links| links == "fk-1").unwrap_err().to_string();
        assert!(refused.contains("which has Pods on this machine"), "{refused}");
        // The same cluster may start again, and the other one once nothing is left of it.
        drop(claim_in(&at, "1", &one(), &|_| true).unwrap());
        let second = claim_in(&at, "2", &like_one, &|_| false).unwrap();
        assert!(claim_in(&at, "1", &one(), &|_| false).is_err());
        drop(second);
        // A file that cannot be read holds nothing.
        fs::write(at.join("3.json"), "{").unwrap();
        assert!(claim_in(&at, "4", &Claim::default(), &|_| false).is_ok());
    }
}
