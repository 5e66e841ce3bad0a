//! The command line as upstream's components take it: a component's name may stand in place of the program's, and each
//! of its flags is honoured, accepted with a warning, or refused.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use clap::{ArgMatches, Command, CommandFactory};
use component::Table;

use crate::cli::Cli;
use crate::version_flag::{self, Question};

/// The flags of upstream's components that are not honoured here.
const TABLES: [(&str, &str); 5] = [
    ("kube-apiserver", include_str!("flags/kube-apiserver.tsv")),
    ("kube-controller-manager", include_str!("flags/kube-controller-manager.tsv")),
    ("kube-proxy", include_str!("flags/kube-proxy.tsv")),
    ("kube-scheduler", include_str!("flags/kube-scheduler.tsv")),
    ("kubelet", include_str!("flags/kubelet.tsv")),
];

/// A command line, read by upstream's rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The arguments for [`crate::cli::Cli`].
    pub(crate) arguments: Vec<OsString>,
    /// A sentence for each flag that has no effect.
    pub(crate) warnings: Vec<String>,
    /// How a component is asked for its version, which is that of Kubernetes.
    pub(crate) version: Option<Question>,
    /// The component's flags that are not honoured, with their values as far as they are known.
    pub(crate) others: BTreeMap<String, String>,
}

/// Reads a command line, the program's name first.
///
/// # Errors
/// A flag of upstream's asks for a guard or a behaviour that is not there.
pub(crate) fn read(all: impl IntoIterator<Item = OsString>) -> Result<Line> {
    let mut all: Vec<_> = all.into_iter().collect();
    let name = all.first().and_then(|program| Path::new(program).file_name()).map(ToOwned::to_owned);
    if let Some(component) = name.filter(|n| is_component(n)) {
        all.insert(1, component);
    }
    let table = all.get(1).and_then(|command| TABLES.iter().find(|(name, _)| command == name));
    let Some((name, text)) = table else { return Ok(Line { arguments: all, ..Line::default() }) };
    let table = Table::parse(text).map_err(|line| anyhow!("line {line} of the table is none"));
    let table = table.with_context(|| format!("the flags of {name}"))?;
    let sifted = table.sift(all.split_off(2))?;
    let mut own = sifted.arguments;
    let version = version_flag::take(&mut own)?;
    all.extend(own);
    let mut others: BTreeMap<_, _> = table.fixed().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    others.extend(sifted.given);
    Ok(Line { arguments: all, warnings: sifted.warnings, version, others })
}

/// All flags of a command with their values, as `/flagz` has them.
pub(crate) fn values(matches: &ArgMatches, others: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let whole = Cli::command();
    let Some((name, matches)) = matches.subcommand() else { return others };
    match whole.find_subcommand(name) {
        Some(command) => values_of(command, matches, others),
        None => others,
    }
}

/// All flags of a command with their values, where the command line is that of the command alone.
pub(crate) fn values_of(
    command: &Command,
    matches: &ArgMatches,
    others: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = others;
    for argument in command.get_arguments() {
        let Some(long) = argument.get_long().filter(|long| !["help", "version"].contains(long)) else {
            continue;
        };
        let given = matches.try_get_raw(argument.get_id().as_str()).ok().flatten();
        let given: Vec<String> =
            given.into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect();
        all.insert(long.to_owned(), given.join(","));
    }
    all
}

/// Whether a subcommand is a component, by upstream's names.
fn is_component(name: &OsStr) -> bool {
    TABLES.iter().any(|(component, _)| *component == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn links_by_the_names_of_components() {
        for name in ["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet"] {
            assert!(is_component(name.as_ref()), "{name}");
            let line = read([format!("/usr/bin/{name}").into(), "--kubeconfig=k".into()]).unwrap();
            assert_eq!(line.arguments[1..], [OsString::from(name), "--kubeconfig=k".into()]);
            assert_eq!(line.version, None);
            let asked = read([name.into(), "--version".into()]).unwrap().version;
            assert_eq!(asked, Some(Question::Line));
        }
        for name in ["ferrokube", "up", "server", "kube-", "kubectl"] {
            assert!(!is_component(name.as_ref()), "{name}");
        }
    }

    /// A flag that becomes honoured leaves its table.
    #[test]
    fn a_flag_is_honoured_or_in_a_table() {
        for (name, text) in TABLES {
            let table = Table::parse(text).unwrap();
            let command = Cli::command();
            let command = command.find_subcommand(name).unwrap();
            let honoured: BTreeSet<_> = command.get_arguments().filter_map(|a| a.get_long()).collect();
            let both: Vec<_> = table.names().filter(|n| honoured.contains(n)).collect();
            assert_eq!(both, [""; 0], "{name}");
            // v1.36's count; `help` and `version` are clap's, and four flags are our own.
            let upstream = |n: &&&str| {
                !["data-dir", "durability", "quota-backend-bytes", "write-kubeconfig"].contains(*n)
            };
            let count = table.names().count() + honoured.iter().filter(upstream).count() + 2;
            let expected = match name {
                "kube-apiserver" => 177,
                "kube-controller-manager" => 150,
                "kubelet" => 150,
                "kube-proxy" => 59,
                _ => 62,
            };
            assert_eq!(count, expected, "{name}");
        }
    }

    fn check(command: &str, expected: Result<&[&str], &str>) {
        let sifted = read(format!("ferrokube {command}").split(' ').map(Into::into));
        let sifted = sifted.map(|line| line.warnings).map_err(|e| e.to_string());
        assert_eq!(
            sifted,
            expected.map(|w| w.iter().map(|s| (*s).to_owned()).collect()).map_err(str::to_owned)
        );
    }

    #[test]
    fn guards_are_refused_and_the_rest_is_told() {
        let api = "kube-apiserver --secure-port=6443";
        check(&format!("{api} --authorization-mode=Node,RBAC --enable-priority-and-fairness"), Ok(&[]));
        check(&format!("{api} -v 2"), Ok(&[]));
        let audit = "--audit-log-path=/a cannot be had: audit logs are not there yet; leave it out";
        check(&format!("{api} --audit-log-path=/a"), Err(audit));
        let one_store = "--etcd-servers-overrides=/events#http://b cannot be had: all objects are in one store; leave it out";
        check(&format!("{api} --etcd_servers_overrides=/events#http://b"), Err(one_store));
        check("kube-scheduler --kubeconfig=k --leader-elect-lease-duration=60s", Ok(&[]));
        check("up --audit-log-path=/a", Ok(&[]));
        check("kubelet --kubeconfig=k --authorization-mode=Webhook --anonymous-auth=false", Ok(&[]));
        let qps = "--kube-api-qps has no effect here: the API server says when it is busy";
        check("kubelet --kubeconfig=k --kube-api-qps=50", Ok(&[qps]));
        let dsr = "--ipvs-scheduler has no effect here: there is no IPVS";
        check("kube-proxy --kubeconfig=k --ipvs-scheduler=rr --masquerade-all", Ok(&[dsr]));
        let mounter =
            "--experimental-mounter-path=/m cannot be had: the kubelet mounts by itself; leave it out";
        check("kubelet --kubeconfig=k --experimental-mounter-path=/m", Err(mounter));
    }

    /// Each flag of upstream's is shown, whether it was given or not.
    #[test]
    fn flagz_has_all_flags() {
        let line =
            "kube-controller-manager --kubeconfig=k --node-monitor-period=2s --leader-elect --cluster-name=c";
        let line = read(format!("ferrokube {line} --controllers=*,-ttl").split(' ').map(Into::into)).unwrap();
        let matches = Cli::command().get_matches_from(line.arguments);
        let all = values(&matches, line.others);
        for (name, value) in [
            ("kubeconfig", "k"),
            ("node-monitor-period", "2s"),
            ("node-monitor-grace-period", "50s"),
            ("leader-elect", "true"),
            ("leader-elect-lease-duration", ""),
            ("controllers", "*,-ttl"),
            ("cluster-name", "c"),
            ("tls-sni-cert-key", ""),
            ("client-ca-file", ""),
        ] {
            assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!all.contains_key("help"));
    }
}
