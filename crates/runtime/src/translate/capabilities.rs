//! Capabilities.

use std::collections::HashSet;
use std::str::FromStr;

use cri::runtime as pb;
use oci_spec::runtime::{Capability, LinuxCapabilities};

use super::error::TranslateError;

/// The capabilities of a container that asks for nothing.
const DEFAULT: [Capability; 14] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fsetid,
    Capability::Fowner,
    Capability::Mknod,
    Capability::NetRaw,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setfcap,
    Capability::Setpcap,
    Capability::NetBindService,
    Capability::SysChroot,
    Capability::Kill,
    Capability::AuditWrite,
];

/// Reads a capability's name, with or without `CAP_`, in any case.
pub(crate) fn read(name: &str) -> Result<Capability, TranslateError> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    Capability::from_str(bare).map_err(|_| TranslateError::Capability(name.to_owned()))
}

/// The capabilities of a container's process; `all` are those that this machine's runtime has itself.
///
/// `ALL` comes first, as elsewhere: a capability that is added beside `ALL` among those to drop is there.
pub(super) fn capabilities(
    context: &pb::LinuxContainerSecurityContext,
    all: &HashSet<Capability>,
) -> Result<LinuxCapabilities, TranslateError> {
    let mut set: HashSet<Capability> =
        if context.privileged { all.clone() } else { DEFAULT.into_iter().collect() };
    let mut ambient = HashSet::new();
    if !context.privileged
        && let Some(asked) = &context.capabilities
    {
        let is_all = |name: &String| name.eq_ignore_ascii_case("ALL");
        if asked.add_capabilities.iter().any(is_all) {
            set.clone_from(all);
        }
        if asked.drop_capabilities.iter().any(is_all) {
            set.clear();
        }
        for name in asked.add_capabilities.iter().filter(|name| !is_all(name)) {
            set.insert(read(name)?);
        }
        for name in asked.drop_capabilities.iter().filter(|name| !is_all(name)) {
            set.remove(&read(name)?);
        }
        for name in &asked.add_ambient_capabilities {
            let capability = read(name)?;
            // The kernel gives no ambient capability that is not permitted.
            set.insert(capability);
            ambient.insert(capability);
        }
    }
    let mut made = LinuxCapabilities::default();
    made.set_bounding(Some(set.clone()))
        .set_effective(Some(set.clone()))
        .set_permitted(Some(set))
        // Ambient capabilities must be inheritable; others are not, or an executable's file could take them.
        .set_inheritable(Some(ambient.clone()))
        .set_ambient(Some(ambient));
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let all: HashSet<_> = [Capability::SysAdmin, Capability::NetAdmin, Capability::Chown].into();
        let check =
            |add: &[&str], drop: &[&str], ambient: &[&str], expected: &dyn Fn(&mut Vec<Capability>)| {
                let text = |names: &[&str]| names.iter().map(ToString::to_string).collect();
                let context = pb::LinuxContainerSecurityContext {
                    capabilities: Some(pb::Capability {
                        add_capabilities: text(add),
                        drop_capabilities: text(drop),
                        add_ambient_capabilities: text(ambient),
                    }),
                    ..Default::default()
                };
                let made = capabilities(&context, &all).unwrap();
                let mut want = DEFAULT.to_vec();
                expected(&mut want);
                let want: HashSet<_> = want.into_iter().collect();
                assert_eq!(made.bounding().as_ref(), Some(&want), "{add:?} {drop:?}");
                assert_eq!((made.effective(), made.permitted()), (made.bounding(), made.bounding()));
                assert_eq!(made.ambient().as_ref().unwrap().len(), ambient.len());
                assert_eq!(made.inheritable(), made.ambient());
            };
        check(&[], &[], &[], &|_| {});
        check(&["sys_time", "CAP_SYS_ADMIN"], &["Kill"], &[], &|set| {
            set.extend([Capability::SysTime, Capability::SysAdmin]);
            set.retain(|one| *one != Capability::Kill);
        });
        check(&["ALL"], &["CHOWN"], &[], &|set| *set = vec![Capability::SysAdmin, Capability::NetAdmin]);
        check(&["NET_RAW"], &["all"], &[], &|set| *set = vec![Capability::NetRaw]);
        check(&["ALL"], &["ALL"], &[], &Vec::clear);
        check(&[], &["ALL"], &["NET_BIND_SERVICE"], &|set| *set = vec![Capability::NetBindService]);
        let privileged = pb::LinuxContainerSecurityContext { privileged: true, ..Default::default() };
        assert_eq!(capabilities(&privileged, &all).unwrap().bounding().as_ref(), Some(&all));
        assert!(read("nonsense").is_err());
    }
}
