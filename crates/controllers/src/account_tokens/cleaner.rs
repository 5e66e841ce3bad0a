//! Legacy tokens: a token that upstream's older controllers made on their own, and that nobody has used for a year, is
//! first marked as invalid and removed a year later.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Client, Informer, Key, ListParams, Patch, resource_of};
use component::Clock;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use serde_json::{Value, json};

use super::plan::names;
use super::token_secrets;
use crate::host::{Controller, Host, Next, Wiring};

const PERIOD: Duration = Duration::from_hours(24);
/// The object in which the API server says since when it tracks the use of tokens.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
const SINCE: &str = "since";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// The cleaner.
pub(crate) struct LegacyTokens {
    client: Client,
    /// The client of the controllers' common user, which may read Pods.
    reader: Client,
    clock: Clock,
    /// The time without use after which a token goes.
    term: SignedDuration,
    accounts: Informer<ServiceAccount>,
    secrets: Informer<Secret>,
}

impl Controller for LegacyTokens {
    const NAME: &'static str = "legacy-serviceaccount-token-cleaner-controller";
    const ALIASES: &'static [&'static str] = &["legacy-service-account-token-cleaner"];
    const ACCOUNT: &'static str = "legacy-service-account-token-cleaner";
    const QUEUE: &'static str = "legacy_serviceaccount_token_cleaner";
    type Key = Key;

    fn new(host: &Host<Key>) -> Self {
        let term = host.config().legacy_token_clean_up_period;
        Self {
            client: host.client(),
            reader: host.factory().client(),
            clock: host.clock(),
            term: SignedDuration::try_from(term).unwrap_or(SignedDuration::MAX),
            accounts: host.informer(),
            secrets: token_secrets(host.factory()),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        // The one key stands for a look at all Secrets.
        wiring.queue().add(Key::new("", ""));
    }

    async fn sync(&self, _: Key) -> Result<Next, Status> {
        let now = self.clock.now();
        let candidates = self.candidates(now);
        if candidates.is_empty() || !self.is_tracked(now).await? {
            return Ok(Next::After(PERIOD));
        }
        let mut done = Ok(Next::After(PERIOD));
        // The Secrets that Pods mount are read when they matter, which is seldom: nothing keeps them.
        let mut mounted: HashMap<String, HashSet<String>> = HashMap::new();
        for secret in candidates {
            let text = |t: &Option<String>| t.clone().unwrap_or_default();
            let (namespace, name) = (text(&secret.metadata.namespace), text(&secret.metadata.name));
            if !mounted.contains_key(&namespace) {
                let pods = self.reader.resource::<Value>(resource_of::<Pod>(), &namespace);
                let pods = pods.list(&ListParams::default()).await?.items;
                let mut all = HashSet::new();
                for pod in &pods {
                    secrets_of(&pod["spec"], &mut all);
                }
                mounted.insert(namespace.clone(), all);
            }
            if mounted.get(&namespace).is_some_and(|all| all.contains(&name)) {
                continue;
            }
            if let Err(error) = self.execute(&secret, decide(&secret, now, self.term)).await {
                tracing::warn!(%error, namespace, name, "cannot clean up a legacy service account token");
                // DIFFERENCE: upstream tries again a day later.
                done = Err(error);
            }
        }
        done
    }
}

/// The fate of a token that nobody has used for long enough.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    /// It has been invalid for a short time.
    Wait,
    /// It becomes invalid on this day.
    Invalidate(String),
    Delete,
}

impl LegacyTokens {
    /// The Secrets that controllers made, and that nobody has used for long enough.
    fn candidates(&self, now: Timestamp) -> Vec<Arc<Secret>> {
        let mut all = self.secrets.list();
        all.retain(|secret| {
            let account = || {
                let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
                self.accounts.get(namespace, names(secret).0)
            };
            is_left(secret, now, self.term) && account().is_some_and(|a| is_made_for(secret, &a))
        });
        all
    }

    async fn is_tracked(&self, now: Timestamp) -> Result<bool, Status> {
        match self.client.api::<ConfigMap>("kube-system").get(TRACKING).await {
            Ok(map) => {
                let since = map.data.as_ref().and_then(|d| d.get(SINCE));
                Ok(is_tracked_for(since.map(String::as_str), now, self.term))
            }
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    async fn execute(&self, secret: &Secret, action: Action) -> Result<(), Status> {
        let meta = &secret.metadata;
        let (name, namespace) =
            (meta.name.as_deref().unwrap_or_default(), meta.namespace.as_deref().unwrap_or_default());
        let api = self.client.api::<Secret>(namespace);
        let done = match action {
            Action::Wait => return Ok(()),
            Action::Invalidate(day) => {
                // Somebody who uses it meanwhile changes it.
                let patch = json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version,
                    "labels": {INVALID_SINCE: day}}});
                api.patch(name, &Patch::Merge(patch)).await.map(drop)
            }
            Action::Delete => {
                let version = meta.resource_version.clone();
                let as_seen = Preconditions { resource_version: version, ..Preconditions::default() };
                let options = DeleteOptions { preconditions: Some(as_seen), ..DeleteOptions::default() };
                api.delete(name, Some(&options)).await
            }
        };
        match done {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }
}

fn day(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

/// Reads a day as upstream writes it.
fn parse(text: &str) -> Option<Date> {
    Date::strptime("%Y-%m-%d", text).ok().filter(|_| text.len() == 10)
}

fn label<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    secret.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether the use of tokens has been tracked for long enough: from the end of the first day on.
fn is_tracked_for(since: Option<&str>, now: Timestamp, term: SignedDuration) -> bool {
    let begun = since.and_then(parse).and_then(|day| day.tomorrow().ok());
    let begun = begun.and_then(|day| day.to_zoned(TimeZone::UTC).ok()).map(|day| day.timestamp());
    begun.is_some_and(|begun| now.duration_since(begun) >= term)
}

/// Whether nobody has used a Secret with a token for long enough. One whose last use cannot be read stays.
fn is_left(secret: &Secret, now: Timestamp, term: SignedDuration) -> bool {
    let meta = &secret.metadata;
    let Ok(earliest) = now.checked_sub(term) else { return false };
    let old = meta.creation_timestamp.as_ref().is_some_and(|t| t.0 < earliest);
    let unused = match label(secret, LAST_USED) {
        None => true,
        Some(text) => parse(text).is_some_and(|used| used < day(earliest)),
    };
    old && unused && meta.deletion_timestamp.is_none()
}

/// Whether a Secret was made by upstream's older controllers: the account that it names, and which is still the same,
/// names it.
fn is_made_for(secret: &Secret, account: &ServiceAccount) -> bool {
    let (name, uid) = names(secret);
    !name.is_empty()
        && (uid.is_empty() || account.metadata.uid.as_deref() == Some(uid))
        && account.secrets.iter().flatten().any(|s| s.name == secret.metadata.name)
}

fn decide(secret: &Secret, now: Timestamp, term: SignedDuration) -> Action {
    let Ok(earliest) = now.checked_sub(term) else { return Action::Wait };
    match label(secret, INVALID_SINCE).and_then(parse) {
        None => Action::Invalidate(day(now).to_string()),
        Some(since) if since >= day(earliest) => Action::Wait,
        Some(_) => Action::Delete,
    }
}

/// Collects the names of the Secrets that a Pod's spec names, by the fields that hold such names.
fn secrets_of(spec: &Value, names: &mut HashSet<String>) {
    match spec {
        Value::Array(all) => all.iter().for_each(|item| secrets_of(item, names)),
        Value::Object(fields) => {
            for (key, value) in fields {
                let name = match key.as_str() {
                    "secretName" => value.as_str(),
                    "secretRef" | "secretKeyRef" | "nodePublishSecretRef" | "secret" => {
                        value["name"].as_str()
                    }
                    _ => None,
                };
                names.extend(name.map(str::to_owned));
                if key == "imagePullSecrets" {
                    let pulls = value.as_array().into_iter().flatten().filter_map(|s| s["name"].as_str());
                    names.extend(pulls.map(str::to_owned));
                }
                secrets_of(value, names);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of all looks.
    const NOW: &str = "2026-07-02T12:00:00Z";

    /// Days with the meaning that they have in upstream's cases, in which the term began on a day of 2022.
    struct Case {
        tracked: Option<&'static str>,
        term_from: &'static str,
        used: &'static str,
        invalid: &'static str,
        created: &'static str,
        account: (&'static str, &'static str),
        deleting: bool,
        /// Whether there is such an account, and whether it names the Secret.
        known: (bool, bool),
        mounted: bool,
    }

    const PLAIN: Case = Case {
        tracked: Some("2022-12-27"),
        term_from: "2022-12-29",
        used: "2022-12-27",
        invalid: "",
        created: "2022-12-27",
        account: ("default", "12345"),
        deleting: false,
        known: (true, true),
        mounted: false,
    };

    fn run(case: &Case) -> Option<Action> {
        let now: Timestamp = NOW.parse().unwrap();
        let midnight = |day: &str| day.parse::<Date>().unwrap().to_zoned(TimeZone::UTC).unwrap().timestamp();
        let term = now.duration_since(midnight(case.term_from));
        let mut meta = json!({
            "name": "token-secret-1", "namespace": "default", "uid": "23456",
            "creationTimestamp": midnight(case.created).to_string(),
            "annotations": {"kubernetes.io/service-account.name": case.account.0,
                "kubernetes.io/service-account.uid": case.account.1},
        });
        for (key, value) in [(LAST_USED, case.used), (INVALID_SINCE, case.invalid)] {
            if !value.is_empty() {
                meta["labels"][key] = value.into();
            }
        }
        if case.deleting {
            meta["deletionTimestamp"] = NOW.into();
        }
        let secret: Secret = serde_json::from_value(json!({"metadata": meta})).unwrap();
        let mentions = if case.known.1 { json!([{"name": "token-secret-1"}]) } else { json!([]) };
        let account: ServiceAccount = serde_json::from_value(json!({
            "metadata": {"name": "default", "namespace": "default", "uid": "12345"}, "secrets": mentions,
        }))
        .unwrap();
        let is_known = case.known.0 && case.account.0 == "default";
        let goes = is_tracked_for(case.tracked, now, term)
            && is_left(&secret, now, term)
            && is_known
            && is_made_for(&secret, &account)
            && !case.mounted;
        goes.then(|| decide(&secret, now, term))
    }

    /// Upstream's 20 cases of `TestLegacyServiceAccountTokenCleanUp`; that of a Secret of another type is the
    /// informer's selection.
    #[test]
    fn upstreams_cases() {
        let invalidate = || Some(Action::Invalidate("2026-07-02".into()));
        let check = |name: &str, case: Case, want: Option<Action>| assert_eq!(run(&case), want, "{name}");
        check("no configmap", Case { tracked: None, ..PLAIN }, None);
        check("configmap without the day", Case { tracked: None, term_from: "2022-12-28", ..PLAIN }, None);
        check("tracked for too short a time", Case { tracked: Some("2022-12-29"), ..PLAIN }, None);
        check("the day cannot be read", Case { tracked: Some("2022-12-27-1"), ..PLAIN }, None);
        check("not named by its account", Case { known: (true, false), ..PLAIN }, None);
        check("created late", Case { created: "2022-12-30", ..PLAIN }, None);
        check("being deleted", Case { deleting: true, term_from: "2022-12-30", ..PLAIN }, None);
        check("used late", Case { used: "2022-12-30", ..PLAIN }, None);
        check("last use cannot be read", Case { used: "2022-12-27-1", ..PLAIN }, None);
        check("no account", Case { known: (false, false), ..PLAIN }, None);
        check("another account", Case { account: ("default", "123456"), ..PLAIN }, None);
        check("names no account", Case { account: ("", "12345"), ..PLAIN }, None);
        let later = Case { tracked: Some("2022-12-28"), term_from: "2022-12-30", used: "", ..PLAIN };
        check("never used", Case { ..later }, invalidate());
        check("invalid since cannot be read", Case { invalid: "2022-12-29-1", ..later }, invalidate());
        let early = Case { term_from: "2022-12-29", ..later };
        check("invalid for a short time", Case { invalid: "2023-01-01", ..early }, Some(Action::Wait));
        let long = Case { term_from: "2023-01-01", ..later };
        check("invalid for a long time", Case { invalid: "2022-12-29", ..long }, Some(Action::Delete));
        check("mounted", Case { mounted: true, tracked: Some("2022-12-28"), ..PLAIN }, None);
        let used = Case { used: "2022-12-27", ..later };
        check("used long ago", Case { ..used }, invalidate());
        check("used long ago, short", Case { invalid: "2023-05-01", ..used }, Some(Action::Wait));
        let used = Case { term_from: "2023-05-01", ..used };
        check("used long ago, long", Case { invalid: "2023-01-05", ..used }, Some(Action::Delete));
    }

    #[test]
    fn secrets_of_pods() {
        let spec = json!({
            "imagePullSecrets": [{"name": "a"}, {}],
            "containers": [{"envFrom": [{"secretRef": {"name": "b"}}],
                "env": [{"valueFrom": {"secretKeyRef": {"name": "c", "key": "k"}}}]}],
            "volumes": [
                {"secret": {"secretName": "d"}}, {"projected": {"sources": [{"secret": {"name": "e"}}]}},
                {"csi": {"nodePublishSecretRef": {"name": "f"}}}, {"azureFile": {"secretName": "g"}},
                {"configMap": {"name": "no"}},
            ],
        });
        let mut names = HashSet::new();
        secrets_of(&spec, &mut names);
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort();
        assert_eq!(names, ["a", "b", "c", "d", "e", "f", "g"]);
    }
}
