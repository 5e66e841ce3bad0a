//! Components that run alone, in a process of their own, and reach the API server by a kubeconfig.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use api::{FeatureGates, pem};
use client::config::ACCOUNT_DIR;
use client::{Client, Clients, Config, Election, Remote};
use component::{Clock, Shutdown};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use scheduler::config::document::{ClientConnection, Document};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli;
use crate::endpoints::{self, About, Reviewers, Telling};
use crate::say::{say, warn};
use crate::signing;
use crate::{flex_drivers, machine, manager_settings};

/// Runs the controllers; `told` are the flags with their values, for `/flagz`.
pub(crate) async fn controller_manager(
    flags: &cli::ControllerManager,
    told: BTreeMap<String, String>,
) -> Result<()> {
    const NAME: &str = "kube-controller-manager";
    let chosen = controllers::Choice::parse(&flags.controllers).context("invalid --controllers")?;
    let (election, lock) = election_of(&flags.component.electing, NAME)?;
    let reached = reach(flags.component.kubeconfig.as_deref(), &flags.component.master)?;
    let gates = gates(&flags.feature_gates)?;
    let clock = Clock::system();
    let config = controllers_config(flags, chosen, &reached, gates, clock)?;
    let clients = Clients::remote(reached, NAME, flags.use_service_account_credentials)
        .context("the API server cannot be asked")?;
    let telling = Telling::default();
    telling.metrics.choose(flags.component.metrics.shown()?);
    let mut values = told;
    values.extend(election_values(election.as_ref(), &lock));
    let about = About {
        name: NAME,
        settings: json!({ "kubecontrollermanager.config.k8s.io": manager_settings::settings(&values) }),
        flags: values,
        gates,
        tolerant: false,
    };
    let started = clients.clone();
    let reported = telling.clone();
    let work = async move |stop: Shutdown| {
        controllers::run(&config, &started, &reported.metrics, &reported.health, &stop)
            .context("the controllers cannot start")?;
        stop.wait().await;
        Ok(())
    };
    let limit = Some(flags.controller_shutdown_timeout).filter(|limit| !limit.is_zero());
    let part = Part { clients, election, limit, clock };
    run(about, &flags.component, part, &telling, work).await
}

/// The controllers' configuration, by the flags and what the kubeconfig trusts.
fn controllers_config(
    flags: &cli::ControllerManager,
    chosen: controllers::Choice,
    reached: &Config,
    gates: FeatureGates,
    clock: Clock,
) -> Result<controllers::Config> {
    let root_ca = match &flags.root_ca_file {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read --root-ca-file {}", path.display()))?,
        None => reached.authorities.iter().map(|der| pem::encode_certificate(der)).collect(),
    };
    let token_signer = match &flags.service_account_private_key_file {
        Some(path) => {
            let unusable = || format!("cannot use --service-account-private-key-file {}", path.display());
            let pem = std::fs::read_to_string(path).with_context(unusable)?;
            Some(signing::token_signer(&pem).with_context(unusable)?)
        }
        None => None,
    };
    let mut config = controllers::Config {
        token_signer,
        flex_drivers: Some(flex_drivers::in_dir(&flags.flex_volume_plugin_dir)),
        gates,
        legacy_token_clean_up_period: flags.legacy_service_account_token_clean_up_period,
        // Other API servers may share the store.
        namespace_delay: controllers::SEVERAL_SERVERS,
        controllers: chosen,
        garbage_collector: flags.enable_garbage_collector,
        start_interval: flags.controller_start_interval,
        signers: signing::signers(&flags.signing)?,
        ..controllers::Config::new(clock, root_ca)
    };
    flags.nodes.configure(&mut config)?;
    flags.endpoints.configure(&mut config);
    flags.workers.configure(&mut config);
    flags.autoscaling.configure(&mut config);
    Ok(config)
}

/// Runs the scheduler; `told` are the flags with their values, for `/flagz`.
pub(crate) async fn scheduler(flags: &cli::Scheduler, told: BTreeMap<String, String>) -> Result<()> {
    const NAME: &str = "kube-scheduler";
    let clock = Clock::system();
    let gates = gates(&flags.feature_gates)?;
    let (document, settings) = scheduler_settings(flags, gates)?;
    let election = scheduler_election(&document)?;
    for warning in without_effect(&document) {
        warn(&warning);
    }
    let reached = reach(kubeconfig_of(&document, flags), &flags.component.master)?;
    if let Some(file) = &flags.write_config_to {
        let text = scheduler::config::write::yaml(&document).map_err(Error::msg)?;
        return std::fs::write(file, text)
            .with_context(|| format!("cannot write --write-config-to {}", file.display()));
    }
    let clients = Clients::remote(reached, NAME, false).context("the API server cannot be asked")?;
    let telling = Telling::default();
    telling.metrics.choose(flags.component.metrics.shown()?);
    let mut values = told;
    values.extend(election_values(election.as_ref(), &document.leader_election.resource_lock));
    let about = About {
        name: NAME,
        settings: json!({ "componentconfig": scheduler::config::write::value(&document).map_err(Error::msg)? }),
        flags: values,
        gates,
        tolerant: true,
    };
    let (started, metrics) = (clients.clone(), telling.metrics.clone());
    let work = async move |stop: Shutdown| {
        scheduler::run::run_with(settings, started, clock, metrics, stop).await;
        Ok(())
    };
    let part = Part { clients, election, limit: None, clock };
    run(about, &flags.component, part, &telling, work).await
}

/// The features that are on.
fn gates(flags: &[String]) -> Result<FeatureGates> {
    FeatureGates::parse(flags.iter().map(String::as_str)).context("invalid --feature-gates")
}

/// The scheduler's whole configuration, of its file and of the flags that count more, and the settings that it makes.
fn scheduler_settings(
    flags: &cli::Scheduler,
    gates: FeatureGates,
) -> Result<(Document, scheduler::run::Settings)> {
    let (mut document, about) = match &flags.config {
        None => {
            let mut document = Document::default();
            scheduler::config::defaults::complete(&mut document);
            scheduler::config::defaults::complete_for(&mut document, gates);
            if let Some(file) = &flags.component.kubeconfig {
                document.client_connection.kubeconfig = file.display().to_string();
            }
            (document, "the scheduler cannot be configured".to_owned())
        }
        Some(file) => {
            let unusable = format!("--config {} cannot be used", file.display());
            let read = scheduler::config::read::read(file, gates).map_err(Error::msg);
            (read.with_context(|| unusable.clone())?, unusable)
        }
    };
    flags.component.electing.apply(&mut document.leader_election);
    scheduler::config::read::check(&document, gates).map_err(Error::msg)?;
    let plugins = scheduler::plugins::registry_with(gates).map_err(Error::msg)?;
    let settings = scheduler::run::Settings::new(&document, &plugins).map_err(Error::msg).context(about)?;
    Ok((document, settings.with_gates(gates).with_max_wait(flags.pod_max_in_unschedulable_pods_duration)))
}

/// The kubeconfig that the configuration names, or else a flag.
///
/// DIFFERENCE: with a file, upstream looks at no flag.
fn kubeconfig_of<'f>(document: &'f Document, flags: &'f cli::Scheduler) -> Option<&'f Path> {
    let said = Path::new(&document.client_connection.kubeconfig);
    Some(said).filter(|file| !file.as_os_str().is_empty()).or(flags.component.kubeconfig.as_deref())
}

/// The scheduler's election, if there is one, and the times fit together.
fn scheduler_election(document: &Document) -> Result<Option<Election>> {
    let said = &document.leader_election;
    let time = |text: &str| {
        let time = api::time::parse_duration(text).and_then(|time| Duration::try_from(time).ok());
        time.with_context(|| format!("{text:?} is no duration such as 15s"))
    };
    if !said.leader_elect {
        return Ok(None);
    }
    let election = Election {
        lease: time(&said.lease_duration)?,
        renew: time(&said.renew_deadline)?,
        retry: time(&said.retry_period)?,
        ..Election::new(&said.resource_namespace, &said.resource_name, &identity())
    };
    election.check().context("couldn't create leader elector")?;
    Ok(Some(election))
}

/// A sentence for each field about the client that has no effect here.
fn without_effect(document: &Document) -> Vec<String> {
    let (said, usual) = (&document.client_connection, ClientConnection::default());
    let fields = [
        ("qps", said.qps.to_bits() != usual.qps.to_bits(), "the API server says when it is busy"),
        ("burst", said.burst != usual.burst, "the API server says when it is busy"),
        ("contentType", said.content_type != usual.content_type, "components speak JSON"),
        ("acceptContentTypes", !said.accept_content_types.is_empty(), "components speak JSON"),
    ];
    let told = fields.into_iter().filter(|(_, changed, _)| *changed);
    told.map(|(field, _, why)| format!("clientConnection.{field} has no effect here: {why}")).collect()
}

/// This process among those that want to lead.
fn identity() -> String {
    format!("{}_{}", machine::hostname(), uuid::Uuid::new_v4())
}

/// The election that the flags of the controllers ask for, if there is one, and the type of its lock.
fn election_of(flags: &cli::Electing, name: &str) -> Result<(Option<Election>, String)> {
    let mut election = Election::new("kube-system", name, &identity());
    let lock = flags.leader_elect_resource_lock.clone().unwrap_or_else(|| "leases".to_owned());
    if !flags.configure(&mut election) {
        return Ok((None, lock));
    }
    if lock != "leases" {
        bail!("resourceLock value must be \"leases\"");
    }
    for (flag, value) in [("name", &election.name), ("namespace", &election.namespace)] {
        if value.is_empty() {
            bail!("--leader-elect-resource-{flag} must not be empty");
        }
    }
    election.check().context("the election cannot be held")?;
    Ok((Some(election), lock))
}

/// The election as its flags have it.
fn election_values(election: Option<&Election>, lock: &str) -> Vec<(String, String)> {
    let mut values = vec![("leader-elect".to_owned(), election.is_some().to_string())];
    let Some(election) = election else { return values };
    let time = |time: Duration| {
        let time = jiff::SignedDuration::try_from(time).unwrap_or(jiff::SignedDuration::MAX);
        api::time::format_duration(time).to_string()
    };
    let named = [
        ("lease-duration", time(election.lease)),
        ("renew-deadline", time(election.renew)),
        ("retry-period", time(election.retry)),
        ("resource-lock", lock.to_owned()),
        ("resource-name", election.name.clone()),
        ("resource-namespace", election.namespace.clone()),
    ];
    values.extend(named.map(|(flag, value)| (format!("leader-elect-{flag}"), value)));
    values
}

/// The way to the API server: by a kubeconfig, or as a Pod of the cluster; `master` is another address, "" for none.
fn reach(kubeconfig: Option<&Path>, master: &str) -> Result<Config> {
    let config = match kubeconfig.filter(|file| !file.as_os_str().is_empty()) {
        Some(file) => of_file("--kubeconfig", file)?,
        // DIFFERENCE: upstream tries the address alone; nobody would answer who has an authority that is known.
        None if !master.is_empty() => {
            bail!("--master needs --kubeconfig, which has the API server's authority and the credentials")
        }
        None => {
            let variable = |name: &str| std::env::var(name).unwrap_or_default();
            let [host, port] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"].map(variable);
            if host.is_empty() || port.is_empty() {
                bail!("there is no way to the API server; give --kubeconfig");
            }
            Config::in_cluster(&host, &port, Path::new(ACCOUNT_DIR))
                .context("the account of this Pod cannot be used")?
        }
    };
    Ok(if master.is_empty() { config } else { config.with_server(master) })
}

/// The configuration of a kubeconfig that a flag names.
fn of_file(flag: &str, file: &Path) -> Result<Config> {
    Config::from_kubeconfig(file, None).with_context(|| format!("{flag} {} cannot be used", file.display()))
}

/// Clients by a kubeconfig; with `accounts`, each service account has a token of its own.
pub(crate) fn clients(kubeconfig: &Path, name: &'static str, accounts: bool) -> Result<Clients> {
    let config = of_file("--kubeconfig", kubeconfig)?;
    Clients::remote(config, name, accounts)
        .with_context(|| format!("--kubeconfig {} cannot be used", kubeconfig.display()))
}

/// The authorities of client certificates in a file; none without a file.
pub(crate) fn authorities_of_clients(file: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = file {
        let unusable = || format!("cannot use --client-ca-file {}", path.display());
        for certificate in CertificateDer::pem_file_iter(path).with_context(unusable)? {
            roots.add(certificate.with_context(unusable)?).with_context(unusable)?;
        }
    }
    Ok(roots)
}

/// A component that runs alone, besides its work.
struct Part {
    clients: Clients,
    /// The election in which it takes part.
    election: Option<Election>,
    /// How long it may take to end; any time without it.
    limit: Option<Duration>,
    clock: Clock,
}

/// The clients with which an endpoint asks about its callers: those of the flags, or the component's own.
fn reviewers(flags: &cli::Serving, own: &Client, name: &'static str) -> Result<Reviewers> {
    let of = |flag: &str, file: Option<&PathBuf>| -> Result<Client> {
        let Some(file) = file.filter(|file| !file.as_os_str().is_empty()) else { return Ok(own.clone()) };
        let remote = Remote::new(of_file(flag, file)?);
        let remote = remote.with_context(|| format!("{flag} {} cannot be used", file.display()))?;
        Ok(Client::new(Arc::new(remote), name))
    };
    Ok(Reviewers {
        authentication: of("--authentication-kubeconfig", flags.authentication_kubeconfig.as_ref())?,
        authorization: of("--authorization-kubeconfig", flags.authorization_kubeconfig.as_ref())?,
    })
}

/// Serves a component's endpoint, and lets it work once it is elected, until a signal stops it.
async fn run<W, R>(about: About, flags: &cli::Component, part: Part, telling: &Telling, work: W) -> Result<()>
where
    W: FnOnce(Shutdown) -> R,
    R: Future<Output = Result<()>>,
{
    let name = about.name;
    let Part { clients, election, limit, clock } = part;
    let shutdown = Shutdown::new();
    let own = clients.of(&format!("system:{name}"));
    let requests = clients.requests().clone();
    telling.metrics.register("rest-client", move |page| requests.write(page));
    if flags.secure_port != 0 {
        let asked = reviewers(&flags.serving, &own, name)?;
        let serving = endpoints::serve(about, telling, asked, flags, clock, &shutdown);
        let address = tokio::select! {
            address = serving => address?,
            signal = a_signal() => return signal,
        };
        say(&format!("{name}: https://{address}"));
    }
    let working = async {
        let Some(election) = election else { return Box::pin(work(shutdown.child())).await };
        let told = election.clone();
        telling.metrics.register("leader-election", move |page| told.report(page));
        let mut result = Ok(());
        let outcome = election.lead(&own, clock, &shutdown, async |stop| result = work(stop).await).await;
        result?;
        match outcome {
            // As in upstream, another instance leads now, and this one is started anew.
            client::Outcome::Lost => bail!("leaderelection lost"),
            _ => Ok(()),
        }
    };
    until_ended(Box::pin(working), limit, &shutdown).await
}

/// Works until a signal stops the process, and lets the work end by itself then, so that a Lease is given up; and ends
/// everything that `shutdown` began.
async fn until_ended(
    mut working: impl Future<Output = Result<()>> + Unpin,
    limit: Option<Duration>,
    shutdown: &Shutdown,
) -> Result<()> {
    let early = tokio::select! {
        result = &mut working => Some(result),
        signal = a_signal() => signal.err().map(Err),
        lost = shutdown.panicked() => {
            Some(Err(anyhow::anyhow!("{lost}; that is a defect of FerroKube, please report it")))
        }
    };
    ended(working, early, limit, shutdown).await
}

/// Ends the work, unless its result is there already, and what `shutdown` began, within a time.
async fn ended(
    working: impl Future<Output = Result<()>>,
    early: Option<Result<()>>,
    limit: Option<Duration>,
    shutdown: &Shutdown,
) -> Result<()> {
    shutdown.stop();
    let ending = async {
        let result = match early {
            Some(result) => result,
            None => working.await,
        };
        shutdown.finish().await;
        result
    };
    match limit {
        None => ending.await,
        Some(limit) => tokio::time::timeout(limit, ending)
            .await
            .unwrap_or_else(|_| bail!("controller shutdown timeout reached")),
    }
}

/// Resolves once a signal asks the process to end.
pub(crate) async fn a_signal() -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
    Ok(())
}

/// Works until a signal stops the process, and ends everything that `shutdown` began.
pub(crate) async fn until_signal(
    working: impl Future<Output = Result<()>>,
    shutdown: &Shutdown,
) -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let result = tokio::select! {
        result = working => result,
        _ = term.recv() => Ok(()),
        _ = int.recv() => Ok(()),
        lost = shutdown.panicked() => Err(anyhow::anyhow!("{lost}; that is a defect of FerroKube, please report it")),
    };
    shutdown.finish().await;
    result
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn scheduler_flags(flags: &[&str], file: &Path) -> cli::Scheduler {
        let mut arguments = vec!["ferrokube".to_owned(), "kube-scheduler".to_owned()];
        arguments.extend(flags.iter().map(|f| f.replace("FILE", &file.display().to_string())));
        let cli::Command::Scheduler(flags) = cli::Cli::parse_from(arguments).command else {
            panic!("another command");
        };
        flags
    }

    fn manager_flags(flags: &[&str]) -> cli::ControllerManager {
        let arguments = ["ferrokube", "kube-controller-manager"].iter().chain(flags);
        let cli::Command::ControllerManager(flags) = cli::Cli::parse_from(arguments).command else {
            panic!("another command");
        };
        flags
    }

    /// The scheduler's whole configuration by a file's fields and flags, its kubeconfig and its election.
    fn scheduled(config: &str, flags: &[&str]) -> Result<(Document, PathBuf, Option<Election>)> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("scheduler.yaml");
        let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        std::fs::write(&file, format!("{head}{config}\n")).unwrap();
        let flags = scheduler_flags(flags, &file);
        let (document, _) = scheduler_settings(&flags, gates(&flags.feature_gates)?)?;
        let kubeconfig = kubeconfig_of(&document, &flags).unwrap_or(Path::new("")).to_owned();
        let election = scheduler_election(&document)?;
        Ok((document, kubeconfig, election))
    }

    /// The configuration file, further flags, and the kubeconfig and election that they make, or the error.
    fn check(config: &str, flags: &[&str], expected: Result<(&str, bool), &str>) {
        let got = scheduled(config, flags).map(|(_, kubeconfig, election)| (kubeconfig, election.is_some()));
        match (got, expected) {
            (Ok(got), Ok((kubeconfig, elect))) => assert_eq!(got, (kubeconfig.into(), elect), "{config}"),
            (Err(e), Err(why)) => assert!(format!("{e:#}").contains(why), "{e:#}"),
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn a_file_configures_the_scheduler() {
        check("", &["--kubeconfig=k"], Ok(("k", true)));
        check("", &["--kubeconfig=k", "--config=FILE"], Ok(("k", true)));
        check("", &["--kubeconfig=k", "--config=FILE", "--leader-elect=false"], Ok(("k", false)));
        let own = "clientConnection: {kubeconfig: own}\nleaderElection: {leaderElect: false}";
        check(own, &["--kubeconfig=k", "--config=FILE"], Ok(("own", false)));
        check(own, &["--config=FILE", "--leader-elect"], Ok(("own", true)));
        check("parallelism: 0", &["--kubeconfig=k", "--config=FILE"], Err("parallelism: Invalid value: 0"));
        let missing = "profiles: [{plugins: {filter: {enabled: [{name: Gone}]}}}]";
        check(missing, &["--kubeconfig=k", "--config=FILE"], Err("FilterPlugin \"Gone\" does not exist"));
    }

    /// The lease, renewal and retry of an election in seconds, and its namespace and name.
    fn times(election: &Election) -> ([u64; 3], String) {
        let seconds = [election.lease, election.renew, election.retry].map(|time| time.as_secs());
        (seconds, format!("{}/{}", election.namespace, election.name))
    }

    #[test]
    fn an_election_has_the_times_of_its_flags() {
        let flags = [
            "--leader-elect-lease-duration=60s",
            "--leader-elect-renew-deadline=40s",
            "--leader-elect-retry-period=5s",
            "--leader-elect-resource-name=mine",
            "--leader-elect-resource-namespace=ns",
        ];
        let of = |flags: &[&str]| {
            let flags = manager_flags(flags);
            let elected = election_of(&flags.component.electing, "kube-controller-manager");
            elected.map(|(election, _)| election).map_err(|e| format!("{e:#}"))
        };
        let (usual, tuned) = (of(&[]).unwrap().unwrap(), of(&flags).unwrap().unwrap());
        assert_eq!(times(&usual), ([15, 10, 2], "kube-system/kube-controller-manager".to_owned()));
        assert_eq!(times(&tuned), ([60, 40, 5], "ns/mine".to_owned()));
        assert!(of(&["--leader-elect=false", "--leader-elect-lease-duration=1s"]).unwrap().is_none());
        for (flag, why) in [
            ("--leader-elect-lease-duration=10s", "leaseDuration must be greater than renewDeadline"),
            (
                "--leader-elect-renew-deadline=2s",
                "renewDeadline must be greater than retryPeriod*JitterFactor",
            ),
            ("--leader-elect-resource-lock=endpoints", "resourceLock value must be \"leases\""),
            ("--leader-elect-resource-name=", "--leader-elect-resource-name must not be empty"),
        ] {
            assert!(of(&[flag]).unwrap_err().contains(why), "{flag}");
        }
        let file = "leaderElection: {leaseDuration: 30s, renewDeadline: 20s, resourceName: two}";
        let (_, _, election) = scheduled(file, &["--config=FILE", "--leader-elect-retry-period=3s"]).unwrap();
        assert_eq!(times(&election.unwrap()), ([30, 20, 3], "kube-system/two".to_owned()));
        let (document, _, election) = scheduled("", &flags).unwrap();
        assert_eq!(times(&election.unwrap()), ([60, 40, 5], "ns/mine".to_owned()));
        assert_eq!(document.leader_election.lease_duration, "1m0s");
        check("", &["--leader-elect-lease-duration=10s"], Err("must be greater than `RenewDeadline`"));
        check("", &["--leader-elect-retry-period=9s"], Err("renewDeadline must be greater than retryPeriod"));
        check("", &["--leader-elect-resource-lock="], Err("leaderElection.resourceLock: Required value"));
    }

    #[test]
    fn the_client_of_a_file_is_told_of() {
        let fields =
            "clientConnection: {qps: 7, burst: 9, contentType: application/json, acceptContentTypes: a}";
        let (document, _, _) = scheduled(fields, &["--config=FILE"]).unwrap();
        assert_eq!(without_effect(&document).len(), 4);
        let (document, _, _) = scheduled("", &["--config=FILE"]).unwrap();
        assert_eq!(without_effect(&document), [""; 0]);
    }

    /// The controllers' configuration by flags.
    fn managed(flags: &[&str]) -> Result<controllers::Config, String> {
        let flags = manager_flags(flags);
        let (all, none) = (controllers::Choice::default(), Config::default());
        let made = controllers_config(&flags, all, &none, FeatureGates::default(), Clock::system());
        made.map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn flags_configure_the_controllers() {
        let usual = managed(&["--cluster-cidr=10.0.0.0/16"]).unwrap();
        assert_eq!(usual.cluster_cidr, "", "nobody said that nodes get their parts");
        assert_eq!((usual.node_monitor.grace.as_secs(), usual.terminated_pods), (50, 12_500));
        let tuned = managed(&[
            "--node-monitor-period=2s",
            "--node-monitor-grace-period=20s",
            "--node-startup-grace-period=30s",
            "--node-eviction-rate=1",
            "--secondary-node-eviction-rate=0.5",
            "--large-cluster-size-threshold=10",
            "--unhealthy-zone-threshold=0.7",
            "--allocate-node-cidrs",
            "--cluster-cidr=10.0.0.0/16,fd00::/48",
            "--node-cidr-mask-size-ipv4=25",
            "--node-cidr-mask-size-ipv6=60",
            "--service-cluster-ip-range=10.96.0.0/16,fd01::/108",
            "--terminated-pod-gc-threshold=-1",
            "--enable-garbage-collector=false",
            "--controller-start-interval=3s",
            "--concurrent-rc-syncs=7",
            "--concurrent-gc-syncs=8",
        ])
        .unwrap();
        let monitor = tuned.node_monitor;
        let times = [monitor.period, monitor.grace, monitor.startup_grace].map(|time| time.as_secs());
        let rates = (monitor.rates.normal, monitor.rates.secondary, monitor.rates.unhealthy);
        assert_eq!((times, rates, monitor.rates.large), ([2, 20, 30], (1.0, 0.5, 0.7), 10));
        assert_eq!((tuned.node_prefix_v4, tuned.node_prefix_v6), (25, 60));
        assert_eq!((tuned.cluster_cidr.as_str(), tuned.service_cidrs.len()), ("10.0.0.0/16,fd00::/48", 2));
        assert_eq!((tuned.terminated_pods, tuned.garbage_collector), (0, false));
        assert_eq!((tuned.workers.replication_controllers, tuned.workers.garbage), (7, 8));
        assert_eq!(tuned.start_interval.as_secs(), 3);
        let refused = |flags: &[&str], why: &str| {
            let got = managed(flags).unwrap_err();
            assert!(got.contains(why), "{flags:?}: {got}");
        };
        refused(&["--allocate-node-cidrs"], "Must specify --cluster-cidr if --allocate-node-cidrs is set");
        refused(
            &["--cidr-allocator-type=CloudAllocator"],
            "built-in cloud providers are disabled. The ipam CloudAllocator is not available",
        );
        refused(
            &["--service-cluster-ip-range=10.0.0.0/24,fd00::/108,10.1.0.0/24"],
            "--service-cluster-ip-range can not contain more than two entries",
        );
        let both = "--cluster-cidr=10.0.0.0/16,fd00::/48";
        refused(
            &["--allocate-node-cidrs", both, "--node-cidr-mask-size=24"],
            "usage of --node-cidr-mask-size is not allowed with dual-stack clusters",
        );
    }

    #[test]
    fn features_bring_plugins() {
        let both = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true";
        let one = "--feature-gates=TopologyAwareWorkloadScheduling=true";
        let file = ["--kubeconfig=k", "--config=FILE"];
        let with = |gates| [file[0], file[1], gates];
        let config =
            "profiles: [{plugins: {placementScore: {enabled: [{name: PodGroupPodsCount, weight: 5}]}}}]";
        check(config, &with(both), Ok(("k", true)));
        check(config, &file, Err("the gate TopologyAwareWorkloadScheduling is off"));
        let why = "TopologyAwareWorkloadScheduling is enabled, but depends on features that are disabled: [GenericWorkload]";
        check("", &with(one), Err(why));
        check("", &["--kubeconfig=k", "--feature-gates=Nothing=true"], Err("invalid --feature-gates"));
    }

    /// The address of the API server is the flag's; the name of the kubeconfig's server counts no more.
    #[test]
    fn the_way_to_the_api_server() {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let ca = dir.path().join("ca.crt");
        std::fs::write(&ca, made.cert.pem()).unwrap();
        let file = dir.path().join("kubeconfig");
        let text = "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {token: t}}], \
                    clusters: [{name: a, cluster: {server: 'https://1.2.3.4:6443', tls-server-name: other, certificate-authority: ca.crt}}]}";
        std::fs::write(&file, text).unwrap();
        let check = |master: &str, server: &str, name: Option<&str>| {
            let config = reach(Some(&file), master).unwrap();
            assert_eq!((config.server.as_str(), config.server_name.as_deref()), (server, name), "{master}");
        };
        check("", "https://1.2.3.4:6443", Some("other"));
        check("https://5.6.7.8:6443", "https://5.6.7.8:6443", None);
        check("5.6.7.8:6443", "https://5.6.7.8:6443", None);
        assert!(reach(None, "https://5.6.7.8").is_err());
        let in_cluster = |host: &str| Config::in_cluster(host, "443", dir.path());
        assert!(in_cluster("10.0.0.1").is_err(), "there is no token");
        std::fs::write(dir.path().join("token"), "t").unwrap();
        assert_eq!(in_cluster("10.0.0.1").unwrap().server, "https://10.0.0.1:443");
        assert_eq!(in_cluster("fd00::1").unwrap().server, "https://[fd00::1]:443");
    }

    /// The controllers' end may take its time, and no longer.
    #[tokio::test(start_paused = true)]
    async fn an_end_has_a_limit() {
        let check = async |takes: u64, limit: Option<u64>, want: Result<u64, &str>| {
            let began = tokio::time::Instant::now();
            let shutdown = Shutdown::new();
            let stop = shutdown.clone();
            let working = async {
                stop.wait().await;
                tokio::time::sleep(Duration::from_secs(takes)).await;
                Ok(())
            };
            let got = ended(working, None, limit.map(Duration::from_secs), &shutdown).await;
            let got = got.map(|()| began.elapsed().as_secs()).map_err(|e| e.to_string());
            assert_eq!(got, want.map_err(str::to_owned), "{takes} {limit:?}");
        };
        check(3, Some(10), Ok(3)).await;
        check(30, Some(10), Err("controller shutdown timeout reached")).await;
        check(30, None, Ok(30)).await;
    }
}
