//! The checks of each level and version, and what they hold against a pod.

use super::pod::{Pod, Violation};
use super::policy::{Level, LevelVersion, Version};
use super::{baseline, restricted};

pub(super) type Judge = fn(&Pod<'_>) -> Option<Violation>;

/// A check, by the versions in which it came and changed.
pub(super) struct Check {
    pub(super) id: &'static str,
    level: Level,
    /// The first minor version of each form of it.
    versions: &'static [(i64, Judge)],
    /// The check of the baseline that it makes needless, "" for none.
    overrides: &'static str,
}

const fn baseline(id: &'static str, versions: &'static [(i64, Judge)]) -> Check {
    Check { id, level: Level::Baseline, versions, overrides: "" }
}

const fn restricted(id: &'static str, overrides: &'static str, versions: &'static [(i64, Judge)]) -> Check {
    Check { id, level: Level::Restricted, versions, overrides }
}

/// Upstream's checks in the order in which they are told: the baseline first, each level by name.
pub(super) const CHECKS: [Check; 19] = [
    baseline("appArmorProfile", &[(0, baseline::app_armor_profile)]),
    baseline("capabilities_baseline", &[(0, baseline::capabilities)]),
    baseline("hostNamespaces", &[(0, baseline::host_namespaces)]),
    baseline("hostPathVolumes", &[(0, baseline::host_path_volumes)]),
    baseline("hostPorts", &[(0, baseline::host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, baseline::host_probes_and_lifecycle)]),
    baseline("privileged", &[(0, baseline::privileged)]),
    baseline("procMount", &[(0, baseline::proc_mount), (35, baseline::proc_mount_1_35)]),
    baseline("seLinuxOptions", &[(0, baseline::se_linux_options), (31, baseline::se_linux_options_1_31)]),
    baseline(
        "seccompProfile_baseline",
        &[(0, baseline::seccomp_profile), (19, baseline::seccomp_profile_1_19)],
    ),
    baseline(
        "sysctls",
        &[
            (0, baseline::sysctls),
            (27, baseline::sysctls_1_27),
            (29, baseline::sysctls_1_29),
            (32, baseline::sysctls_1_32),
        ],
    ),
    baseline("windowsHostProcess", &[(0, baseline::windows_host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        "",
        &[(8, restricted::allow_privilege_escalation), (25, restricted::allow_privilege_escalation_1_25)],
    ),
    restricted(
        "capabilities_restricted",
        "capabilities_baseline",
        &[(22, restricted::capabilities), (25, restricted::capabilities_1_25)],
    ),
    // The baseline's became weaker then; this level keeps what it was.
    restricted("procMount_restricted", "procMount", &[(35, baseline::proc_mount)]),
    restricted("restrictedVolumes", "hostPathVolumes", &[(0, restricted::volumes)]),
    restricted(
        "runAsNonRoot",
        "",
        &[(0, restricted::run_as_non_root), (35, restricted::run_as_non_root_1_35)],
    ),
    restricted("runAsUser", "", &[(23, restricted::run_as_user), (35, restricted::run_as_user_1_35)]),
    restricted(
        "seccompProfile_restricted",
        "seccompProfile_baseline",
        &[(19, restricted::seccomp_profile), (25, restricted::seccomp_profile_1_25)],
    ),
];

impl Check {
    /// The form that a version has of it, if any.
    pub(super) fn at(&self, minor: i64) -> Option<Judge> {
        self.versions.iter().rev().find(|(since, _)| *since <= minor).map(|(_, judge)| *judge)
    }
}

/// The checks that a level has as of a version.
fn checks(of: LevelVersion) -> impl Iterator<Item = (&'static str, Judge)> {
    let minor = match of.version {
        Version::Minor(minor) => minor,
        Version::Latest => i64::MAX,
    };
    let overridden = move |id: &str| {
        of.level == Level::Restricted
            && CHECKS.iter().any(|check| check.overrides == id && check.at(minor).is_some())
    };
    let applying = CHECKS.iter().filter(move |c| c.level <= of.level && !overridden(c.id));
    applying.filter_map(move |check| Some((check.id, check.at(minor)?)))
}

/// The violations of a level in a pod, in the order of its checks.
#[derive(Debug, PartialEq)]
pub(super) struct Violations(Vec<Violation>);

impl Violations {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// `host namespaces, privileged`
    pub(super) fn reasons(&self) -> String {
        self.0.iter().map(|v| v.reason).collect::<Vec<_>>().join(", ")
    }
    /// `host namespaces (hostPID=true), privileged (container "c" must not set …)`
    pub(super) fn details(&self) -> String {
        self.0.iter().map(|v| format!("{} ({})", v.reason, v.detail)).collect::<Vec<_>>().join(", ")
    }
}

/// Checks a pod.
pub(super) fn evaluate(of: LevelVersion, pod: &Pod<'_>) -> Violations {
    if of.is_privileged() {
        return Violations(Vec::new());
    }
    Violations(checks(of).filter_map(|(_, judge)| judge(pod)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        for pair in CHECKS.windows(2) {
            assert!((pair[0].level, pair[0].id) < (pair[1].level, pair[1].id), "{}", pair[1].id);
        }
        for check in &CHECKS {
            assert!(check.versions.windows(2).all(|pair| pair[0].0 < pair[1].0), "{}", check.id);
            let overridden = CHECKS.iter().find(|c| c.id == check.overrides);
            assert_eq!(overridden.is_some(), !check.overrides.is_empty(), "{}", check.id);
            assert!(overridden.is_none_or(|c| c.level == Level::Baseline), "{}", check.id);
        }
    }

    #[test]
    fn each_version_has_its_checks() {
        let check = |level: Level, version: Version, added: &[&str], without: &[&str]| {
            let ids: Vec<&str> = checks(LevelVersion { level, version }).map(|(id, _)| id).collect();
            let base =
                CHECKS.iter().filter(|c| c.level == Level::Baseline && c.id != "hostProbesAndHostLifecycle");
            let mut want: Vec<&str> = base.map(|c| c.id).filter(|id| !without.contains(id)).collect();
            want.extend(added);
            want.sort_by_key(|id| CHECKS.iter().position(|c| c.id == *id));
            assert_eq!(ids, want, "{level:?} {version}");
        };
        check(Level::Baseline, Version::Minor(0), &[], &[]);
        check(Level::Baseline, Version::Minor(33), &[], &[]);
        check(Level::Baseline, Version::Minor(34), &["hostProbesAndHostLifecycle"], &[]);
        check(Level::Baseline, Version::Latest, &["hostProbesAndHostLifecycle"], &[]);
        let mut added = vec!["restrictedVolumes", "runAsNonRoot"];
        let mut without = vec!["hostPathVolumes"];
        check(Level::Restricted, Version::Minor(0), &added, &without);
        check(Level::Restricted, Version::Minor(7), &added, &without);
        added.push("allowPrivilegeEscalation");
        check(Level::Restricted, Version::Minor(8), &added, &without);
        added.push("seccompProfile_restricted");
        without.push("seccompProfile_baseline");
        check(Level::Restricted, Version::Minor(19), &added, &without);
        added.push("capabilities_restricted");
        without.push("capabilities_baseline");
        check(Level::Restricted, Version::Minor(22), &added, &without);
        added.push("runAsUser");
        check(Level::Restricted, Version::Minor(23), &added, &without);
        added.push("hostProbesAndHostLifecycle");
        check(Level::Restricted, Version::Minor(34), &added, &without);
        added.push("procMount_restricted");
        without.push("procMount");
        for version in [Version::Minor(35), Version::Minor(36), Version::Minor(9999), Version::Latest] {
            check(Level::Restricted, version, &added, &without);
        }
    }
}
