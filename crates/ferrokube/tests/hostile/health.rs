//! The checks of the health endpoints, by upstream's names and in its order.

use anyhow::{Result, ensure};
use testkit::Server;

const EVERYWHERE: [&str; 29] = [
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter",
    "storage-object-count-tracker-hook",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector",
    "storage-readiness",
    "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
    "start-kubernetes-service-cidr-controller",
    "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-registration-controller",
    "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
    REGISTERED,
    "apiservice-openapi-controller",
    "apiservice-openapiv3-controller",
];

/// The check that is no hook's.
const REGISTERED: &str = "autoregister-completion";

/// The checks of an endpoint, by their names.
fn names(endpoint: &str) -> Vec<String> {
    let ready = endpoint == "readyz";
    let first = ["ping", "log", "etcd"].into_iter().chain(ready.then_some("etcd-readiness"));
    let first = first.chain(ready.then_some("informer-sync")).map(str::to_owned);
    let hooks = EVERYWHERE.iter().map(|hook| match *hook {
        REGISTERED => REGISTERED.to_owned(),
        hook => format!("poststarthook/{hook}"),
    });
    first.chain(hooks).chain(ready.then(|| "shutdown".to_owned())).collect()
}

#[test]
fn every_check_has_upstreams_name_and_place() -> Result<()> {
    let server = Server::start(&[])?;
    for endpoint in ["healthz", "livez", "readyz"] {
        let all = names(endpoint);
        let shown = |line: &dyn Fn(&String) -> String| {
            let lines: Vec<String> = all.iter().map(line).collect();
            format!("{}\n{endpoint} check passed\n", lines.join("\n"))
        };
        let answer = server.get(&format!("/{endpoint}?verbose")).send()?.expect(200)?;
        ensure!(answer.text() == shown(&|name| format!("[+]{name} ok")), "{endpoint}:\n{}", answer.text());
        let excluding = format!("/{endpoint}?verbose&exclude=etcd&exclude=log");
        let answer = server.get(&excluding).send()?.expect(200)?;
        let excluded = |name: &String| {
            let out = matches!(name.as_str(), "etcd" | "log");
            if out { format!("[+]{name} excluded: ok") } else { format!("[+]{name} ok") }
        };
        ensure!(answer.text() == shown(&excluded), "{endpoint}:\n{}", answer.text());
        let unknown = format!("/{endpoint}?verbose&exclude=y&exclude=x&exclude=y");
        let text = server.get(&unknown).send()?.expect(200)?.text();
        let warning = "warn: some health checks cannot be excluded: no matches for \"x\", \"y\"\n";
        ensure!(text.contains(warning), "{text}");
        for name in &all {
            let answer = server.get(&format!("/{endpoint}/{name}")).send()?.expect(200)?;
            ensure!(answer.text() == "ok", "{endpoint}/{name}: {}", answer.text());
        }
        let plain = server.get(&format!("/{endpoint}")).send()?.expect(200)?;
        ensure!(plain.text() == "ok", "{}", plain.text());
    }
    for missing in ["/livez/etcd-readiness", "/livez/shutdown", "/healthz/informer-sync", "/readyz/nonsense"]
    {
        server.get(missing).send()?.expect(404)?;
    }
    Ok(())
}
