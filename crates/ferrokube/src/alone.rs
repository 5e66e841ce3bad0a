//! Components that run alone, in a process of their own, and reach the API server by a kubeconfig.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use api::{FeatureGates, pem};
use client::{Clients, Config, Election};
use component::{Clock, Shutdown};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli;
use crate::endpoints::{self, About, Telling};
use crate::machine;
use crate::say::say;
use crate::signing;

/// Runs the controllers.
pub(crate) async fn controller_manager(flags: &cli::ControllerManager) -> Result<()> {
    const NAME: &str = "kube-controller-manager";
    let chosen = controllers::Choice::parse(&flags.controllers).context("invalid --controllers")?;
    let root_ca = match &flags.root_ca_file {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read --root-ca-file {}", path.display()))?,
        None => authorities(&flags.component.kubeconfig)?,
    };
    let token_signer = match &flags.service_account_private_key_file {
        Some(path) => {
            let unusable = || format!("cannot use --service-account-private-key-file {}", path.display());
            let pem = std::fs::read_to_string(path).with_context(unusable)?;
            Some(signing::token_signer(&pem).with_context(unusable)?)
        }
        None => None,
    };
    let gates = FeatureGates::parse(flags.feature_gates.iter().map(String::as_str))
        .context("invalid --feature-gates")?;
    let clock = Clock::system();
    let mut config = controllers::Config {
        token_signer,
        gates,
        legacy_token_clean_up_period: flags.legacy_service_account_token_clean_up_period,
        cluster_cidr: flags.cluster_cidr.clone(),
        service_cidrs: flags.service_cluster_ip_range.clone(),
        // Other API servers may share the store.
        namespace_delay: controllers::SEVERAL_SERVERS,
        controllers: chosen,
        signers: signing::signers(&flags.signing)?,
        ..controllers::Config::new(clock, root_ca)
    };
    flags.endpoints.configure(&mut config);
    flags.workers.configure(&mut config);
    flags.autoscaling.configure(&mut config);
    let clients = clients(&flags.component.kubeconfig, NAME, flags.use_service_account_credentials)?;
    let telling = Telling::default();
    let about = About {
        name: NAME,
        settings: "kubecontrollermanager.config.k8s.io",
        flags: BTreeMap::from([
            ("cluster-cidr".to_owned(), flags.cluster_cidr.clone()),
            ("controllers".to_owned(), flags.controllers.join(",")),
            ("service-cluster-ip-range".to_owned(), flags.service_cluster_ip_range.join(",")),
            ("use-service-account-credentials".to_owned(), flags.use_service_account_credentials.to_string()),
        ]),
    };
    let started = clients.clone();
    let told = telling.clone();
    let work = async move |stop: Shutdown| {
        controllers::run(&config, &started, &told.metrics, &told.health, &stop)
            .context("the controllers cannot start")?;
        stop.wait().await;
        Ok(())
    };
    run(about, &flags.component, clients, clock, &telling, work).await
}

/// Runs the scheduler.
pub(crate) async fn scheduler(flags: &cli::Scheduler) -> Result<()> {
    const NAME: &str = "kube-scheduler";
    let clock = Clock::system();
    let (settings, component) = scheduler_settings(flags)?;
    let clients = clients(&component.kubeconfig, NAME, false)?;
    let telling = Telling::default();
    let told = flags.config.iter().map(|file| ("config".to_owned(), file.display().to_string())).collect();
    let about = About { name: NAME, settings: "kubescheduler.config.k8s.io", flags: told };
    let (started, metrics) = (clients.clone(), telling.metrics.clone());
    let work = async move |stop: Shutdown| {
        scheduler::run::run_with(settings, started, clock, metrics, stop).await;
        Ok(())
    };
    run(about, &component, clients, clock, &telling, work).await
}

/// The scheduler's settings, and the flags that it has in common with others, as the configuration file changes them.
fn scheduler_settings(flags: &cli::Scheduler) -> Result<(scheduler::run::Settings, cli::Component)> {
    let mut component = flags.component.clone();
    let gates = FeatureGates::parse(flags.feature_gates.iter().map(String::as_str))
        .context("invalid --feature-gates")?;
    let settings = match &flags.config {
        None => scheduler::run::Settings::standard_with(gates).map_err(Error::msg)?,
        Some(file) => {
            let unusable = || format!("--config {} cannot be used", file.display());
            let config = scheduler::config::read::read(file).map_err(Error::msg).with_context(unusable)?;
            component.leader_elect &= config.leader_election.leader_elect;
            if !config.client_connection.kubeconfig.is_empty() {
                component.kubeconfig = config.client_connection.kubeconfig.clone().into();
            }
            let plugins = scheduler::plugins::registry_with(gates).map_err(Error::msg)?;
            let settings = scheduler::run::Settings::new(&config, &plugins);
            settings.map_err(Error::msg).with_context(unusable)?.with_gates(gates)
        }
    };
    Ok((settings, component))
}

/// Clients by a kubeconfig; with `accounts`, each service account has a token of its own.
pub(crate) fn clients(kubeconfig: &Path, name: &'static str, accounts: bool) -> Result<Clients> {
    let read = || {
        let config = Config::from_kubeconfig(kubeconfig, None)?;
        Clients::remote(config, name, accounts)
    };
    read().with_context(|| format!("--kubeconfig {} cannot be used", kubeconfig.display()))
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

/// The PEM of the authorities that a kubeconfig trusts.
fn authorities(kubeconfig: &Path) -> Result<String> {
    let config = Config::from_kubeconfig(kubeconfig, None)
        .with_context(|| format!("--kubeconfig {} cannot be used", kubeconfig.display()))?;
    Ok(config.authorities.iter().map(|der| pem::encode_certificate(der)).collect())
}

/// Serves a component's endpoint, and lets it work once it is elected, until a signal stops it.
async fn run<W, R>(
    about: About,
    flags: &cli::Component,
    clients: Clients,
    clock: Clock,
    telling: &Telling,
    work: W,
) -> Result<()>
where
    W: FnOnce(Shutdown) -> R,
    R: Future<Output = Result<()>>,
{
    let name = about.name;
    let shutdown = Shutdown::new();
    let own = clients.of(&format!("system:{name}"));
    if flags.secure_port != 0 {
        let address = SocketAddr::new(flags.bind_address, flags.secure_port);
        let roots = authorities_of_clients(flags.client_ca_file.as_deref())?;
        let client = own.clone();
        let address = endpoints::serve(about, telling, client, address, roots, clock, &shutdown).await?;
        say(&format!("{name}: https://{address}"));
    }
    let working = async {
        if !flags.leader_elect {
            return Box::pin(work(shutdown.child())).await;
        }
        let identity = format!("{}_{}", machine::hostname(), uuid::Uuid::new_v4());
        let election = Election::new("kube-system", name, &identity);
        let mut result = Ok(());
        let outcome = election.lead(&own, clock, &shutdown, async |stop| result = work(stop).await).await;
        result?;
        match outcome {
            // As in upstream, another instance leads now, and this one is started anew.
            client::Outcome::Lost => bail!("leaderelection lost"),
            _ => Ok(()),
        }
    };
    until_signal(Box::pin(working), &shutdown).await
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

    /// The configuration file, further flags, and the kubeconfig and election that they make, or the error.
    fn check(config: &str, flags: &[&str], expected: Result<(&str, bool), &str>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("scheduler.yaml");
        let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        std::fs::write(&file, format!("{head}{config}\n")).unwrap();
        let mut arguments = vec!["ferrokube".to_owned(), "kube-scheduler".to_owned()];
        arguments.extend(flags.iter().map(|f| f.replace("FILE", &file.display().to_string())));
        let cli::Command::Scheduler(flags) = cli::Cli::parse_from(arguments).command else {
            panic!("another command");
        };
        let got = scheduler_settings(&flags).map(|(_, c)| (c.kubeconfig, c.leader_elect));
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
        check("parallelism: 0", &["--kubeconfig=k", "--config=FILE"], Err("parallelism: Invalid value: 0"));
        let missing = "profiles: [{plugins: {filter: {enabled: [{name: Gone}]}}}]";
        check(missing, &["--kubeconfig=k", "--config=FILE"], Err("FilterPlugin \"Gone\" does not exist"));
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
}
