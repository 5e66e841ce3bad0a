//! EventRateLimit: no source of Events writes more of them than it may.

use std::collections::{BTreeMap, HashMap};

use api::status::{FieldError, FieldErrorKind};
use api::{Status, Struct};
use client::rate::{self, Rate};
use parking_lot::Mutex;
use serde::Deserialize;

use super::config::{self, Unknown};
use super::plugin::{Env, Plugin};
use super::{AdmissionConfig, AdmissionRequest, Operation};

/// The number of keys that a limit remembers, unless it says otherwise; upstream's.
const DEFAULT_KEYS: usize = 4096;
const KINDS: [&str; 4] = ["Namespace", "Server", "SourceAndObject", "User"];

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    limits: Option<Vec<Entry>>,
    #[serde(flatten)]
    _unknown: Unknown,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    qps: i32,
    #[serde(default)]
    burst: i32,
    #[serde(default)]
    cache_size: i32,
}

/// The plugin.
pub(super) struct EventRateLimit {
    limits: Vec<Limit>,
}

/// A limit of Events by their server, namespace, user, or source and object.
struct Limit {
    kind: String,
    rate: Rate,
    keys: usize,
    buckets: Mutex<Buckets>,
}

/// The buckets of the keys that were used last.
#[derive(Default)]
struct Buckets {
    by_key: HashMap<String, Bucket>,
    by_use: BTreeMap<u64, String>,
    uses: u64,
}

struct Bucket {
    turns: rate::Bucket,
    used: u64,
}

impl Limit {
    /// Takes an Event, if the limit of its key leaves room.
    fn takes(&self, key: &str) -> bool {
        let mut buckets = self.buckets.lock();
        buckets.uses += 1;
        let used = buckets.uses;
        let Buckets { by_key, by_use, .. } = &mut *buckets;
        let bucket = by_key
            .entry(key.to_owned())
            .or_insert_with(|| Bucket { turns: rate::Bucket::new(self.rate), used });
        by_use.remove(&bucket.used);
        by_use.insert(used, key.to_owned());
        bucket.used = used;
        let takes = bucket.turns.try_turn();
        if by_key.len() > self.keys
            && let Some((_, oldest)) = by_use.pop_first()
        {
            by_key.remove(&oldest);
        }
        takes
    }
}

impl EventRateLimit {
    /// Makes the plugin from its configuration.
    pub(super) fn made(config: &AdmissionConfig) -> Result<Box<dyn Plugin>, String> {
        Ok(Box::new(Self::parse(config.of("EventRateLimit"))?))
    }

    fn parse(text: Option<&[u8]>) -> Result<Self, String> {
        const VERSIONS: [&str; 1] = ["eventratelimit.admission.k8s.io/v1alpha1"];
        let failed = |why: String| format!("couldn't init admission plugin \"EventRateLimit\": {why}");
        let document: Option<Document> = text
            .map(|text| config::document(text, "Configuration", &VERSIONS))
            .transpose()
            .map_err(failed)?;
        let entries = document.and_then(|d| d.limits).unwrap_or_default();
        let errors: Vec<String> = check(&entries).iter().map(FieldError::to_string).collect();
        match errors.as_slice() {
            [] => {}
            [one] => return Err(failed(one.clone())),
            many => return Err(failed(format!("[{}]", many.join(", ")))),
        }
        let limit = |entry: Entry| Limit {
            keys: match (entry.kind.as_str(), usize::try_from(entry.cache_size)) {
                ("Server", _) => 1,
                (_, Ok(keys)) if keys > 0 => keys,
                _ => DEFAULT_KEYS,
            },
            rate: Rate {
                per_second: entry.qps.into(),
                burst: u32::try_from(entry.burst).unwrap_or_default(),
            },
            kind: entry.kind,
            buckets: Mutex::default(),
        };
        Ok(Self { limits: entries.into_iter().map(limit).collect() })
    }
}

/// Upstream's errors about limits.
fn check(entries: &[Entry]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut error = |field: String, kind, value: String, detail: &str| {
        errors.push(FieldError { kind, field, value: Some(value), detail: detail.to_owned() });
    };
    let invalid = FieldErrorKind::Invalid;
    if entries.is_empty() {
        error("limits".to_owned(), invalid, "null".to_owned(), "must not be empty");
    }
    for (i, entry) in entries.iter().enumerate() {
        let at = |field: &str| format!("limits[{i}].{field}");
        if !KINDS.contains(&entry.kind.as_str()) {
            let all = KINDS.map(api::go::quote).join(", ");
            let detail = format!("supported values: {all}");
            error(at("type"), FieldErrorKind::NotSupported, api::go::quote(&entry.kind), &detail);
        }
        if entry.burst <= 0 {
            error(at("burst"), invalid, entry.burst.to_string(), "must be positive");
        }
        if entry.qps <= 0 {
            error(at("qps"), invalid, entry.qps.to_string(), "must be positive");
        }
        if entry.kind != "Server" && entry.cache_size < 0 {
            error(at("cacheSize"), invalid, entry.cache_size.to_string(), "must not be negative");
        }
    }
    errors
}

/// The key of an Event for a kind of limit.
fn key(env: &Env, request: &AdmissionRequest<'_>, event: &Struct, kind: &str) -> String {
    match kind {
        "Namespace" => request.namespace.to_owned(),
        "User" => request.user.name.to_string(),
        "SourceAndObject" => {
            let event = env.view(event);
            let (source, object) = (event.st("source"), event.st("involvedObject"));
            let parts = [
                source.str("component"),
                source.str("host"),
                object.str("kind"),
                object.str("namespace"),
                object.str("name"),
                object.str("uid"),
                object.str("apiVersion"),
            ];
            parts.concat()
        }
        _ => String::new(),
    }
}

impl Plugin for EventRateLimit {
    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        if !matches!(request.operation, Operation::Create | Operation::Update)
            || !request.is("", "events")
            || request.dry_run
        {
            return Ok(());
        }
        // Every limit counts, also after one that is reached.
        let reached = |limit: &Limit| {
            let key = key(env, request, object, &limit.kind);
            let text = || format!("limit reached on type {} for key {key}", limit.kind);
            (!limit.takes(&key)).then(text)
        };
        let reached: Vec<String> = self.limits.iter().filter_map(reached).collect();
        let text = match reached.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        Err(Status::failure(429, "TooManyRequests", text))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits(list: &str) -> Result<EventRateLimit, String> {
        let document = format!(
            "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits: {list}\n"
        );
        EventRateLimit::parse(Some(document.as_bytes()))
    }

    /// Upstream's cases of `TestValidateConfiguration`.
    #[test]
    fn documents() {
        let check = |list: &str, want: Option<&str>| {
            let got = limits(list).err();
            let got = got
                .as_deref()
                .and_then(|why| why.strip_prefix("couldn't init admission plugin \"EventRateLimit\": "));
            assert_eq!(got, want, "{list}");
        };
        check("[{type: Server, qps: 1, burst: 5}]", None);
        check("[{type: Namespace, qps: 1, burst: 5, cacheSize: 10}]", None);
        check("[{type: Server, qps: 1, burst: 5, cacheSize: -1}]", None);
        check("[]", Some("limits: Invalid value: null: must not be empty"));
        check("[{type: Server, qps: 1}]", Some("limits[0].burst: Invalid value: 0: must be positive"));
        check("[{type: Server, burst: 1}]", Some("limits[0].qps: Invalid value: 0: must be positive"));
        check(
            "[{type: User, qps: 1, burst: 5, cacheSize: -1}]",
            Some("limits[0].cacheSize: Invalid value: -1: must not be negative"),
        );
        check(
            "[{type: x, qps: 1, burst: -1}]",
            Some(
                "[limits[0].type: Unsupported value: \"x\": supported values: \"Namespace\", \"Server\", \
                 \"SourceAndObject\", \"User\", limits[0].burst: Invalid value: -1: must be positive]",
            ),
        );
        assert!(EventRateLimit::parse(None).is_err(), "there is no limit without a configuration");
    }

    /// Upstream's cases of `TestEventRateLimiting`, as far as the time goes.
    #[tokio::test(start_paused = true)]
    async fn buckets_fill_again() {
        let plugin = limits("[{type: Namespace, qps: 1, burst: 2, cacheSize: 2}]").unwrap();
        let limit = &plugin.limits[0];
        let take = |keys: &[&str]| keys.iter().map(|key| limit.takes(key)).collect::<Vec<_>>();
        assert_eq!(take(&["a", "a", "a", "b", "b", "b"]), [true, true, false, true, true, false]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(take(&["a", "a", "b"]), [true, false, true]);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(take(&["a", "a", "a"]), [true, true, false]);
        // A third key takes the place of the one that was used first.
        assert_eq!(take(&["c", "a", "b", "b", "b"]), [true, false, true, true, false]);
        assert_eq!(limit.buckets.lock().by_key.len(), 2);
    }
}
