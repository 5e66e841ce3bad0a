//! API servers among themselves: their identity Leases, and what is tracked of tokens in Secrets.

use std::time::Duration;

use anyhow::Result;
use client::{Patch, Verb};
use ferrokube_simulation::Cluster;
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::{MINUTE, Signer, bare, eventually, pod};

const SYSTEM: &str = "kube-system";
const IDENTITY: &str = "apiserver.kubernetes.io/identity";

async fn identities(cluster: &Cluster) -> Result<Vec<Lease>> {
    let mut all = cluster.list::<Lease>(SYSTEM).await?;
    let of_server = |l: &Lease| l.metadata.labels.as_ref().is_some_and(|l| l.get(IDENTITY).is_some());
    all.retain(of_server);
    Ok(all)
}

fn renewed(lease: &Lease) -> jiff::Timestamp {
    lease.spec.as_ref().and_then(|s| s.renew_time.clone()).map(|t| t.0).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_server_is_known_by_its_lease() -> Result<()> {
    let cluster = Cluster::start().await?;
    let all = identities(&cluster).await?;
    assert_eq!(all.len(), 1);
    let (meta, spec) = (&all[0].metadata, all[0].spec.clone().unwrap_or_default());
    let labels = meta.labels.clone().unwrap_or_default();
    assert_eq!(labels[IDENTITY], "kube-apiserver");
    assert_eq!(labels["kubernetes.io/hostname"], "simulation");
    let name = meta.name.clone().unwrap_or_default();
    assert!(name.starts_with("apiserver-") && name.len() == 36, "{name}");
    assert!(spec.holder_identity.unwrap_or_default().starts_with(&format!("{name}_")));
    assert_eq!(spec.lease_duration_seconds, Some(3600));
    let before = renewed(&all[0]);
    sleep(MINUTE).await;
    let after = renewed(&identities(&cluster).await?[0]);
    assert!(after.duration_since(before).as_secs() >= 45, "{before} {after}");
    // Somebody takes it away, or takes it over: it is the server's again.
    cluster.take::<Lease>(SYSTEM, &name).await?;
    eventually("it is there again", MINUTE, async || Ok(identities(&cluster).await?.len() == 1)).await?;
    let theirs = json!({"spec": {"holderIdentity": "another"}, "metadata": {"labels": {IDENTITY: "else"}}});
    cluster.admin().api::<Lease>(SYSTEM).patch(&name, &Patch::Merge(theirs)).await?;
    eventually("it is ours again", MINUTE, async || {
        let lease = cluster.get::<Lease>(SYSTEM, &name).await?.unwrap_or_default();
        let holder = lease.spec.and_then(|s| s.holder_identity).unwrap_or_default();
        Ok(holder.starts_with(&name)
            && lease.metadata.labels.unwrap_or_default()[IDENTITY] == "kube-apiserver")
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn leases_of_servers_that_are_gone_go() -> Result<()> {
    let cluster = Cluster::start().await?;
    let now = cluster.clock().now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = |name: &str, label: &str, spec: Value| json!({"metadata": {"name": name, "namespace": SYSTEM, "labels": {IDENTITY: label}}, "spec": spec});
    let spec = json!({"renewTime": now, "leaseDurationSeconds": 3600});
    cluster.create::<Lease>(&lease("apiserver-old", "kube-apiserver", spec.clone())).await?;
    cluster.create::<Lease>(&lease("apiserver-empty", "kube-apiserver", json!({}))).await?;
    cluster.create::<Lease>(&lease("others", "other-apiserver", spec)).await?;
    sleep(50 * MINUTE).await;
    assert!(cluster.get::<Lease>(SYSTEM, "apiserver-old").await?.is_some());
    sleep(100 * MINUTE).await;
    assert!(cluster.get::<Lease>(SYSTEM, "apiserver-old").await?.is_none());
    assert!(cluster.get::<Lease>(SYSTEM, "apiserver-empty").await?.is_none());
    assert!(cluster.get::<Lease>(SYSTEM, "others").await?.is_some(), "it is no server's of this kind");
    assert_eq!(identities(&cluster).await?.len(), 2, "its own, and the other's");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn it_is_told_since_when_tokens_are_tracked() -> Result<()> {
    const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
    let cluster = Cluster::start().await?;
    let since = async || {
        let map = cluster.get::<ConfigMap>(SYSTEM, NAME).await?;
        Ok::<_, anyhow::Error>(map.and_then(|m| m.data?.remove("since")))
    };
    eventually("it is told", MINUTE, async || Ok(since().await?.as_deref() == Some("2026-01-01"))).await?;
    let nonsense = Patch::Merge(json!({"data": {"since": "long ago"}}));
    cluster.admin().api::<ConfigMap>(SYSTEM).patch(NAME, &nonsense).await?;
    eventually("it is put right", MINUTE, async || Ok(since().await?.as_deref() == Some("2026-01-01")))
        .await?;
    cluster.take::<ConfigMap>(SYSTEM, NAME).await?;
    sleep(20 * MINUTE).await;
    assert_eq!(since().await?, None, "others may not want it: it is not made at once");
    sleep(15 * MINUTE).await;
    assert_eq!(since().await?.as_deref(), Some("2026-01-01"));
    Ok(())
}

const CONTROLLER: &str = "serviceaccount-token-controller";

async fn with_tokens() -> Result<Cluster> {
    let cluster = bare().await?;
    cluster.controllers_with(&[CONTROLLER], |c| c.token_signer = Some(std::sync::Arc::new(Signer)))?;
    Ok(cluster)
}

fn secret(name: &str, account: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default",
        "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token"})
}

fn data(secret: &Secret, key: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|d| d.get(key)).map(|b| b.0.clone()).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// A Secret gets a token, the authorities and its namespace, gets them again when somebody takes them, and goes with its
/// account, or if there never was one.
#[tokio::test(start_paused = true)]
async fn secrets_get_tokens() -> Result<()> {
    let cluster = with_tokens().await?;
    let account = cluster
        .create::<ServiceAccount>(&json!({"metadata": {"name": "robot", "namespace": "default"}}))
        .await?;
    let uid = account.metadata.uid.unwrap_or_default();
    cluster.create::<Secret>(&secret("s", "robot")).await?;
    let get = async || Ok::<_, anyhow::Error>(cluster.get::<Secret>("default", "s").await?);
    let whole = async || {
        Ok::<_, anyhow::Error>(get().await?.is_some_and(|s| {
            data(&s, "token") == format!("default/robot/{uid}/s")
                && data(&s, "namespace") == "default"
                && data(&s, "ca.crt").starts_with("-----BEGIN CERTIFICATE")
                && s.metadata.annotations.unwrap_or_default()["kubernetes.io/service-account.uid"] == uid
        }))
    };
    eventually("it is filled", MINUTE, async || whole().await).await?;
    let lost = Patch::Merge(json!({"data": {"token": null, "ca.crt": "eA=="}}));
    cluster.admin().api::<Secret>("default").patch("s", &lost).await?;
    eventually("it is filled again", MINUTE, async || whole().await).await?;
    cluster.admin().api::<ServiceAccount>("default").delete("robot", None).await?;
    eventually("it goes with its account", MINUTE, async || Ok(get().await?.is_none())).await?;
    cluster.create::<Secret>(&secret("orphan", "nobody")).await?;
    eventually("it has no account", MINUTE, async || {
        Ok(cluster.get::<Secret>("default", "orphan").await?.is_none())
    })
    .await
}

/// A Secret that tells no more which account of its name it is of goes with the account, too.
#[tokio::test(start_paused = true)]
async fn tokens_without_a_uid_go() -> Result<()> {
    let cluster = with_tokens().await?;
    let account = json!({"metadata": {"name": "robot", "namespace": "default"}});
    cluster.create::<ServiceAccount>(&account).await?;
    cluster.create::<Secret>(&secret("s", "robot")).await?;
    sleep(MINUTE).await;
    let bare =
        Patch::Merge(json!({"metadata": {"annotations": {"kubernetes.io/service-account.uid": null}}}));
    cluster.admin().api::<Secret>("default").patch("s", &bare).await?;
    sleep(MINUTE).await;
    cluster.admin().api::<ServiceAccount>("default").delete("robot", None).await?;
    eventually("it goes", MINUTE, async || Ok(cluster.get::<Secret>("default", "s").await?.is_none())).await
}

/// An account that is made anew has another uid: tokens of the old one go.
#[tokio::test(start_paused = true)]
async fn tokens_are_of_one_account() -> Result<()> {
    let cluster = with_tokens().await?;
    let account = json!({"metadata": {"name": "robot", "namespace": "default"}});
    cluster.create::<ServiceAccount>(&account).await?;
    cluster.create::<Secret>(&secret("s", "robot")).await?;
    let filled = async || {
        Ok::<_, anyhow::Error>(
            cluster.get::<Secret>("default", "s").await?.is_some_and(|s| !data(&s, "token").is_empty()),
        )
    };
    eventually("it is filled", MINUTE, async || filled().await).await?;
    cluster.faults().hold_events("serviceaccounts");
    cluster.take::<ServiceAccount>("default", "robot").await?;
    cluster.create::<ServiceAccount>(&account).await?;
    sleep(Duration::from_secs(5)).await;
    cluster.faults().let_events_come("serviceaccounts");
    eventually("it goes", MINUTE, async || Ok(cluster.get::<Secret>("default", "s").await?.is_none()))
        .await?;
    // The mention of a Secret that is gone goes, too.
    let mention = Patch::Merge(json!({"secrets": [{"name": "t"}, {"name": "other"}]}));
    cluster.create::<Secret>(&secret("t", "robot")).await?;
    cluster.admin().api::<ServiceAccount>("default").patch("robot", &mention).await?;
    sleep(Duration::from_secs(5)).await;
    cluster.take::<Secret>("default", "t").await?;
    eventually("the mention goes", MINUTE, async || {
        let account = cluster.get::<ServiceAccount>("default", "robot").await?.unwrap_or_default();
        let names: Vec<_> = account.secrets.into_iter().flatten().filter_map(|s| s.name).collect();
        Ok(names == ["other"])
    })
    .await
}

/// A token that upstream's older controllers made is invalid after a year in which nobody used it, and goes after another.
/// One that a Pod mounts stays.
#[tokio::test(start_paused = true)]
async fn legacy_tokens_go_in_the_end() -> Result<()> {
    const CLEANER: &str = "legacy-serviceaccount-token-cleaner-controller";
    const INVALID: &str = "kubernetes.io/legacy-token-invalid-since";
    let cluster = bare().await?;
    let names = ["left", "used", "mounted"];
    let mentions = names.map(|name| json!({ "name": name }));
    let account = json!({"metadata": {"name": "robot", "namespace": "default"}, "secrets": mentions});
    let uid = cluster.create::<ServiceAccount>(&account).await?.metadata.uid;
    for name in names {
        let mut secret = secret(name, "robot");
        secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] = json!(uid);
        cluster.create::<Secret>(&secret).await?;
    }
    // One of a user's, which no account names.
    cluster.create::<Secret>(&secret("own", "robot")).await?;
    let volume = json!({"name": "v", "secret": {"secretName": "mounted"}});
    cluster.create::<Pod>(&pod("p", json!({"spec": {"volumes": [volume]}}))).await?;
    // The cleaner looks once a day, and when it starts.
    let look = async || -> Result<Vec<(String, Option<String>)>> {
        let stop = cluster.shutdown().child();
        cluster.controllers_until(&stop, &[CLEANER], |_| {})?;
        sleep(MINUTE).await;
        stop.finish().await;
        let all = cluster.list::<Secret>("default").await?.into_iter().map(|s| s.metadata);
        Ok(all.map(|m| (m.name.unwrap_or_default(), m.labels.unwrap_or_default().remove(INVALID))).collect())
    };
    let days = |n: i64| cluster.clock().step(SignedDuration::from_hours(24 * n));
    let state = |left: Option<Option<&str>>, used: Option<&str>| {
        let mut all =
            vec![("left", left), ("mounted", Some(None)), ("own", Some(None)), ("used", Some(used))];
        all.retain(|(_, state)| state.is_some());
        let text = |t: Option<&str>| t.map(str::to_owned);
        all.into_iter().map(|(name, state)| (name.to_owned(), text(state.flatten()))).collect::<Vec<_>>()
    };
    assert_eq!(look().await?, state(Some(None), None));
    days(300);
    let used =
        Patch::Merge(json!({"metadata": {"labels": {"kubernetes.io/legacy-token-last-used": "2026-10-01"}}}));
    cluster.admin().api::<Secret>("default").patch("used", &used).await?;
    assert_eq!(look().await?, state(Some(None), None));
    days(67);
    let (first, second) = (Some("2027-01-03"), Some("2027-11-09"));
    assert_eq!(look().await?, state(Some(first), None));
    days(310);
    assert_eq!(look().await?, state(Some(first), second));
    days(60);
    assert_eq!(look().await?, state(None, second));
    Ok(())
}

/// Upstream's case of `TestCleanerExpiredAt`, beside a token that lasts: one goes when its time is over.
#[tokio::test(start_paused = true)]
async fn bootstrap_tokens_go_in_time() -> Result<()> {
    let cluster = bare().await?;
    cluster.controllers(&["token-cleaner-controller"])?;
    let make = async |id: &str, seconds: Option<i64>| -> Result<()> {
        let at = seconds.map(|s| (cluster.clock().now() + SignedDuration::from_secs(s)).to_string());
        let secret = json!({
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": SYSTEM},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {"token-id": id, "token-secret": "0123456789abcdef", "expiration": at.unwrap_or_default()},
        });
        cluster.create::<Secret>(&secret).await.map(drop)
    };
    make("aaaaaa", Some(2)).await?;
    make("bbbbbb", None).await?;
    make("cccccc", Some(3600)).await?;
    let left = async || -> Result<usize> { Ok(cluster.list::<Secret>(SYSTEM).await?.len()) };
    sleep(Duration::from_secs(1)).await;
    assert_eq!(left().await?, 3);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(left().await?, 2);
    sleep(60 * MINUTE).await;
    assert_eq!(left().await?, 1);
    Ok(())
}

/// The changes that a case of upstream's tokens makes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    /// The account is there before the controller, or is changed later.
    Account,
    /// The account is deleted.
    NoAccount,
    /// The Secret comes, or is changed.
    Secret,
    /// The Secret is deleted.
    NoSecret,
}

/// 18 of upstream's 30 cases of `TestTokenCreation`: whether there is an account and what it mentions, what a Secret is,
/// what happens, the number of the controller's writes, whether the Secret is there then, and what the account mentions.
/// The controller's own table has 10 more, about what a Secret is filled with. One is about a resource conflict of a time
/// when accounts got tokens; in the last a Secret without an account is deleted, which the controller does itself here.
#[tokio::test(start_paused = true)]
async fn upstreams_tokens() -> Result<()> {
    type Case<'a> = (Option<&'a str>, Option<&'a str>, Change, usize, bool, Option<&'a str>);
    const TOKEN: Option<&str> = Some("token");
    let cluster = with_tokens().await?;
    let check = async |(mentions, kind, change, writes, there, left): Case<'_>, again: bool| -> Result<()> {
        let case = format!("{mentions:?} {kind:?} {change:?} {again}");
        let accounts = cluster.admin().api::<ServiceAccount>("default");
        let secrets = cluster.admin().api::<Secret>("default");
        let metadata = json!({"name": "robot", "namespace": "default"});
        let refs: Vec<Value> =
            mentions.iter().filter(|m| !m.is_empty()).map(|m| json!({"name": m})).collect();
        let account = json!({"metadata": metadata, "secrets": refs});
        let of = |kind: &str| match kind {
            "token" => secret("token", "robot"),
            other => json!({"metadata": {"name": other, "namespace": "default"}}),
        };
        if mentions.is_some() {
            cluster.create::<ServiceAccount>(&account).await?;
        }
        if let Some(kind) = kind {
            cluster.create::<Secret>(&of(kind)).await?;
        }
        // Requests before the change are not counted.
        if again || matches!(change, Change::NoAccount | Change::NoSecret) {
            sleep(MINUTE).await;
            cluster.faults().record();
        }
        let labelled = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        match change {
            Change::Account if again => drop(accounts.patch("robot", &labelled).await?),
            Change::Secret if again && there => {
                drop(secrets.patch(kind.unwrap_or_default(), &labelled).await?);
            }
            Change::NoAccount => accounts.delete("robot", None).await?,
            Change::NoSecret => secrets.delete(kind.unwrap_or_default(), None).await?,
            Change::Account | Change::Secret => {}
        }
        sleep(MINUTE).await;
        let seen = cluster.faults().seen();
        let changes = seen.iter().filter(|c| {
            let written = !matches!(c.verb, Verb::Get | Verb::List | Verb::Watch);
            written && matches!(c.resource.plural.as_str(), "secrets" | "serviceaccounts")
        });
        assert_eq!(changes.count(), writes, "{case}");
        let secret = cluster.get::<Secret>("default", kind.unwrap_or("token")).await?;
        assert_eq!(secret.is_some(), there, "{case}");
        let account = cluster.get::<ServiceAccount>("default", "robot").await?;
        let mentioned = account.map(|a| a.secrets.unwrap_or_default());
        let mentioned =
            mentioned.map(|all| all.into_iter().filter_map(|s| s.name).collect::<Vec<_>>().join(" "));
        assert_eq!(mentioned.as_deref(), left, "{case}");
        for name in ["token", "opaque"] {
            if cluster.get::<Secret>("default", name).await?.is_some() {
                secrets.delete(name, None).await?;
            }
        }
        if cluster.get::<ServiceAccount>("default", "robot").await?.is_some() {
            accounts.delete("robot", None).await?;
        }
        sleep(MINUTE).await;
        cluster.faults().record();
        Ok(())
    };
    cluster.faults().record();
    for again in [false, true] {
        // An account that comes or changes: no secrets, missing ones, another one, a token.
        check((Some(""), None, Change::Account, 0, false, Some("")), again).await?;
        check((Some("token"), None, Change::Account, 0, false, Some("token")), again).await?;
        check((Some("opaque"), Some("opaque"), Change::Account, 0, true, Some("opaque")), again).await?;
        let filled = usize::from(!again);
        check((Some("token"), TOKEN, Change::Account, filled, true, Some("token")), again).await?;
        // A Secret that comes or changes, without and with an account.
        check((None, TOKEN, Change::Secret, usize::from(!again), false, None), again).await?;
        check((Some("token"), TOKEN, Change::Secret, filled, true, Some("token")), again).await?;
    }
    // An account that is deleted.
    check((Some(""), None, Change::NoAccount, 0, false, None), true).await?;
    check((Some("token"), None, Change::NoAccount, 0, false, None), true).await?;
    check((Some("opaque"), Some("opaque"), Change::NoAccount, 0, true, None), true).await?;
    check((Some("token"), TOKEN, Change::NoAccount, 1, false, None), true).await?;
    // A Secret that is deleted, with an account that mentions it, and with one that does not.
    check((Some("token"), TOKEN, Change::NoSecret, 1, false, Some("")), true).await?;
    check((Some(""), TOKEN, Change::NoSecret, 0, false, Some("")), true).await
}
