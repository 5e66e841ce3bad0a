//! The settings of controllers and scheduler that run in one process with the API server: those that the components
//! alone would have by upstream's flags.

use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::{Context, Error, Result};
use clap::{Args, Command};
use scheduler::config::document::Document;
use serde_json::{Value, json};

use crate::{cli, flags, manager_settings};

/// A component's settings, as `/configz` and `/flagz` have them.
pub(crate) struct PartSettings {
    /// By the name of a kind of settings.
    pub(crate) settings: Value,
    /// The flags with their values.
    pub(crate) flags: BTreeMap<String, String>,
}

/// The controllers' settings by the flags that differ from the defaults.
pub(crate) fn of_controllers(given: &[(&str, String)]) -> Result<PartSettings> {
    let flags = values("kube-controller-manager", cli::ControllerManager::augment_args, given)?;
    let settings = json!({ "kubecontrollermanager.config.k8s.io": manager_settings::settings(&flags) });
    Ok(PartSettings { settings, flags })
}

/// The scheduler's settings by the flags that differ from the defaults; `elected` says whether it takes part in an
/// election.
pub(crate) fn of_scheduler(given: &[(&str, String)], elected: bool) -> Result<PartSettings> {
    let flags = values("kube-scheduler", cli::Scheduler::augment_args, given)?;
    let mut document = Document::default();
    scheduler::config::defaults::complete(&mut document);
    document.leader_election.leader_elect = elected;
    let document = scheduler::config::write::value(&document).map_err(Error::msg)?;
    Ok(PartSettings { settings: json!({ "componentconfig": document }), flags })
}

/// All flags of a component with their values.
fn values(
    name: &'static str,
    arguments: impl FnOnce(Command) -> Command,
    given: &[(&str, String)],
) -> Result<BTreeMap<String, String>> {
    let given = given.iter().map(|(flag, value)| OsString::from(format!("--{flag}={value}")));
    let line = flags::read([OsString::from("ferrokube"), name.into()].into_iter().chain(given))?;
    let command = arguments(Command::new(name));
    let matches = command.clone().try_get_matches_from(line.arguments.into_iter().skip(1));
    let matches = matches.with_context(|| format!("the settings of {name} cannot be told"))?;
    Ok(flags::values_of(&command, &matches, line.others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_parts() {
        let check = |part: &PartSettings, path: &str, expected: Value| {
            assert_eq!(part.settings.pointer(path), Some(&expected), "{path} in {}", part.settings);
        };
        let given = [
            ("cluster-cidr", "10.1.0.0/16,fd00::/48".to_owned()),
            ("allocate-node-cidrs", "true".to_owned()),
            ("controllers", "*,-ttl".to_owned()),
            ("leader-elect", "false".to_owned()),
        ];
        let manager = of_controllers(&given).unwrap();
        let of = |field: &str| format!("/kubecontrollermanager.config.k8s.io/{field}");
        check(&manager, &of("KubeCloudShared/ClusterCIDR"), json!("10.1.0.0/16,fd00::/48"));
        check(&manager, &of("KubeCloudShared/AllocateNodeCIDRs"), json!(true));
        check(&manager, &of("Generic/Controllers"), json!(["*", "-ttl"]));
        check(&manager, &of("Generic/LeaderElection/leaderElect"), json!(false));
        check(&manager, &of("NodeLifecycleController/NodeMonitorGracePeriod"), json!("50s"));
        assert_eq!(manager.flags["node-monitor-period"], "5s");
        for elected in [false, true] {
            let scheduler = of_scheduler(&[("leader-elect", elected.to_string())], elected).unwrap();
            check(&scheduler, "/componentconfig/leaderElection/leaderElect", json!(elected));
            assert_eq!(scheduler.flags["leader-elect"], elected.to_string());
        }
    }
}
