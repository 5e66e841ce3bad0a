//! Namespaces of Pods and containers, and the mappings of user namespaces.

use std::path::PathBuf;

use cri::runtime as pb;
use oci_spec::runtime::{LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceType};
use pb::NamespaceMode as Mode;

use super::error::TranslateError;

/// The place of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Place {
    /// The machine's.
    #[default]
    Host,
    /// A new one.
    New,
    /// The one of this file.
    At(PathBuf),
}

/// The namespaces of a container. Its mounts are always its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// The network.
    pub network: Place,
    /// System V and POSIX objects.
    pub ipc: Place,
    /// The host name.
    pub uts: Place,
    /// Processes.
    pub pid: Place,
    /// Users.
    pub user: Place,
    /// Cgroups.
    pub cgroup: Place,
}

/// The namespaces as OCI has them.
pub(super) fn list(all: &Namespaces) -> Vec<LinuxNamespace> {
    let host = |kind| {
        let mut made = LinuxNamespace::default();
        made.set_typ(kind).set_path(None);
        made
    };
    let mut made = vec![host(LinuxNamespaceType::Mount)];
    for (kind, place) in [
        (LinuxNamespaceType::User, &all.user),
        (LinuxNamespaceType::Network, &all.network),
        (LinuxNamespaceType::Ipc, &all.ipc),
        (LinuxNamespaceType::Uts, &all.uts),
        (LinuxNamespaceType::Pid, &all.pid),
        (LinuxNamespaceType::Cgroup, &all.cgroup),
    ] {
        match place {
            Place::Host => {}
            Place::New => made.push(host(kind)),
            Place::At(path) => {
                let mut one = host(kind);
                one.set_path(Some(path.clone()));
                made.push(one);
            }
        }
    }
    made
}

/// The mappings of a user namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mappings {
    /// Users.
    pub uids: Vec<LinuxIdMapping>,
    /// Groups.
    pub gids: Vec<LinuxIdMapping>,
}

/// The mappings of a Pod's user namespace; none if its users are the machine's. As elsewhere, there is one mapping for
/// users and groups each.
pub fn mappings(options: &pb::NamespaceOption) -> Result<Option<Mappings>, TranslateError> {
    let Some(asked) = &options.userns_options else { return Ok(None) };
    match asked.mode() {
        Mode::Node if asked.uids.is_empty() && asked.gids.is_empty() => Ok(None),
        Mode::Node => {
            Err(TranslateError::UserNamespace("can't use more than one mapping with the host's users"))
        }
        Mode::Pod => {
            let (uids, gids) = (made(&asked.uids)?, made(&asked.gids)?);
            if uids != gids {
                return Err(TranslateError::UserNamespace("users and groups are mapped differently"));
            }
            Ok(Some(Mappings { uids, gids }))
        }
        Mode::Container | Mode::Target => {
            Err(TranslateError::UserNamespace("only the modes POD and NODE are supported"))
        }
    }
}

fn made(asked: &[pb::IdMapping]) -> Result<Vec<LinuxIdMapping>, TranslateError> {
    let [one] = asked else {
        return Err(TranslateError::UserNamespace("exactly one mapping of users and of groups is wanted"));
    };
    let ends = |from: u32| from.checked_add(one.length).is_some();
    if one.length == 0 || !ends(one.host_id) || !ends(one.container_id) {
        return Err(TranslateError::UserNamespace("a mapping is empty or too long"));
    }
    Ok(vec![id_mapping(one)?])
}

/// A mapping as OCI has it.
pub(crate) fn id_mapping(one: &pb::IdMapping) -> Result<LinuxIdMapping, TranslateError> {
    let made = LinuxIdMappingBuilder::default()
        .host_id(one.host_id)
        .container_id(one.container_id)
        .size(one.length)
        .build()?;
    Ok(made)
}

/// Whether a container's user namespace is the Pod's, as it must be.
pub(crate) fn same_users(
    pod: &pb::NamespaceOption,
    container: &pb::NamespaceOption,
) -> Result<(), TranslateError> {
    let (pod, container) = (mappings(pod)?, mappings(container)?);
    if pod == container { Ok(()) } else { Err(TranslateError::OtherUserNamespace) }
}

/// Whether a Pod has a namespace of its own, by its mode; `container` says whether CONTAINER has a meaning there.
pub(crate) fn is_own(namespace: &'static str, mode: Mode, container: bool) -> Result<bool, TranslateError> {
    match mode {
        Mode::Pod => Ok(true),
        Mode::Node => Ok(false),
        Mode::Container if container => Ok(true),
        other => Err(TranslateError::Namespace { namespace, mode: other.as_str_name().to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(mode: Mode, uids: &[(u32, u32, u32)], gids: &[(u32, u32, u32)]) -> pb::NamespaceOption {
        let all = |of: &[(u32, u32, u32)]| {
            of.iter()
                .map(|(host_id, container_id, length)| pb::IdMapping {
                    host_id: *host_id,
                    container_id: *container_id,
                    length: *length,
                })
                .collect()
        };
        let users = pb::UserNamespace { mode: mode.into(), uids: all(uids), gids: all(gids) };
        pb::NamespaceOption { userns_options: Some(users), ..Default::default() }
    }

    #[test]
    fn user_namespaces() {
        let good = [(65536, 0, 65536)];
        let check = |options: &pb::NamespaceOption, expected: Option<usize>| {
            let got = mappings(options).ok().map(|all| all.map_or(0, |all| all.uids.len()));
            assert_eq!(got, expected, "{options:?}");
        };
        check(&pb::NamespaceOption::default(), Some(0));
        check(&options(Mode::Node, &[], &[]), Some(0));
        check(&options(Mode::Node, &good, &good), None);
        check(&options(Mode::Pod, &good, &good), Some(1));
        check(&options(Mode::Pod, &good, &[]), None);
        check(&options(Mode::Pod, &good, &[(1, 0, 65536)]), None);
        check(&options(Mode::Pod, &[(1, 0, 0)], &[(1, 0, 0)]), None);
        check(&options(Mode::Pod, &[(1, 0, u32::MAX)], &[(1, 0, u32::MAX)]), None);
        check(&options(Mode::Target, &good, &good), None);
        let pod = options(Mode::Pod, &good, &good);
        assert!(same_users(&pod, &pod).is_ok());
        assert!(matches!(
            same_users(&pod, &pb::NamespaceOption::default()),
            Err(TranslateError::OtherUserNamespace)
        ));
    }

    #[test]
    fn lists() {
        let all = Namespaces { network: Place::At("/n".into()), pid: Place::New, ..Namespaces::default() };
        let made = list(&all);
        let shown: Vec<_> = made.iter().map(|one| (one.typ(), one.path().clone())).collect();
        assert_eq!(
            shown,
            [
                (LinuxNamespaceType::Mount, None),
                (LinuxNamespaceType::Network, Some("/n".into())),
                (LinuxNamespaceType::Pid, None),
            ]
        );
        assert!(is_own("pid", Mode::Container, true).unwrap());
        assert!(!is_own("ipc", Mode::Node, false).unwrap());
        assert!(is_own("ipc", Mode::Container, false).is_err());
    }
}
