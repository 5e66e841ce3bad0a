//! Tokens in Secrets: since when their use is tracked, which the ConfigMap
//! `kube-apiserver-legacy-service-account-token-tracking` tells, and on which day each was used last, which is a label of
//! its Secret.

use std::sync::Arc;
use std::time::Duration;

use access::auth::token::{LAST_USED, Used, Uses};
use client::{Client, Patch, resource_of};
use component::Clock;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::env::Env;
use super::system_map::SystemMap;

const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
const SINCE: &str = "since";
/// How often the object is made at most: a server of an older version, for which nobody tracks anything, removes it.
const MAKE_EVERY: Duration = Duration::from_mins(30);
/// The time to wait after a write failed.
const PAUSE: Duration = Duration::from_secs(2);

/// Keeps the object, and writes labels, until shutdown.
pub(super) fn run(env: &Env) {
    env.metrics.register(|registry| metrics::register(registry, &env.token_uses));
    if let Some(used) = env.token_uses.take() {
        let client = Client::new(Arc::clone(&env.transport), "kube-apiserver");
        let (uses, stop) = (Arc::clone(&env.token_uses), env.shutdown.clone());
        env.shutdown.spawn(async move {
            stop.run(label(used, &uses, &client)).await;
        });
    }
    let (map, clock, stop) = (SystemMap::new(env, NAME), env.objects.clock, env.shutdown.clone());
    env.shutdown.spawn(async move {
        stop.run(keep(map, clock)).await;
    });
}

/// Whether an object tells a day.
fn tells(object: &Value) -> bool {
    let since = object["data"][SINCE].as_str().unwrap_or_default();
    since.len() == 10 && Date::strptime("%Y-%m-%d", since).is_ok()
}

async fn keep(mut map: SystemMap, clock: Clock) {
    let mut made: Option<Instant> = None;
    loop {
        let known = match map.get().await {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(%error, name = NAME, "cannot read since when legacy tokens are tracked");
                tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await;
                continue;
            }
        };
        if known.as_ref().is_some_and(tells) {
            map.changed().await;
            continue;
        }
        let wait = made.filter(|_| known.is_none()).map(|made| made + MAKE_EVERY);
        if let Some(until) = wait.filter(|until| *until > Instant::now()) {
            tokio::select! {
                () = map.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
            continue;
        }
        let mut data =
            known.as_ref().map(|k| k["data"].clone()).filter(Value::is_object).unwrap_or_else(|| json!({}));
        data[SINCE] = clock.now().to_zoned(TimeZone::UTC).date().to_string().into();
        let is_new = known.is_none();
        match map.write(known, data).await {
            Ok(written) => made = (written && is_new).then(Instant::now).or(made),
            Err(error) => {
                tracing::warn!(%error, name = NAME, "cannot write since when legacy tokens are tracked");
                tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await;
            }
        }
    }
}

/// Writes the day of its last use into each Secret. One that cannot be written waits for its next use.
async fn label(mut used: mpsc::Receiver<Used>, uses: &Uses, client: &Client) {
    while let Some(one) = used.recv().await {
        let patch = json!({"metadata": {"uid": one.uid, "labels": {LAST_USED: one.day}}});
        let api = client.resource::<Value>(resource_of::<Secret>(), &one.namespace);
        match api.patch(&one.name, &Patch::Merge(patch)).await {
            // Gone, or another Secret by now.
            Err(e) if e.is_not_found() || e.is_conflict() => {}
            Err(error) => {
                let (namespace, name) = (&one.namespace, &one.name);
                tracing::warn!(%error, %namespace, %name, "cannot note the last use of a legacy token");
                uses.forget(&one);
            }
            Ok(_) => {}
        }
    }
}

mod metrics {
    use std::fmt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use access::auth::token::{Counts, Uses};
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
    use prometheus_client::metrics::counter::ConstCounter;
    use prometheus_client::registry::{Registry, Unit};

    #[derive(Debug)]
    struct Numbers(Arc<Uses>);

    type Number = (&'static str, &'static str, fn(&Counts) -> &AtomicU64);

    const NUMBERS: [Number; 6] = [
        ("legacy_tokens", "[ALPHA] Cumulative legacy service account tokens used", |c| &c.legacy),
        ("stale_tokens", "[ALPHA] Cumulative stale projected service account tokens used", |c| &c.stale),
        ("valid_tokens", "[ALPHA] Cumulative valid projected service account tokens used", |c| &c.valid),
        ("legacy_manual_token_uses", "[ALPHA] Cumulative manually created legacy tokens used", |c| &c.manual),
        ("legacy_auto_token_uses", "[ALPHA] Cumulative auto-generated legacy tokens used", |c| &c.automatic),
        (
            "invalid_legacy_auto_token_uses",
            "[ALPHA] Cumulative invalid auto-generated legacy tokens used",
            |c| &c.invalid,
        ),
    ];

    impl Collector for Numbers {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            for (name, help, of) in NUMBERS {
                let counter = ConstCounter::new(of(self.0.counts()).load(Ordering::Relaxed));
                let name = format!("serviceaccount_{name}");
                let metric = encoder.encode_descriptor(&name, help, None::<&Unit>, counter.metric_type())?;
                counter.encode(metric)?;
            }
            Ok(())
        }
    }

    pub(super) fn register(registry: &mut Registry, uses: &Arc<Uses>) {
        registry.register_collector(Box::new(Numbers(Arc::clone(uses))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        let check = |data: Value, want: bool| assert_eq!(tells(&json!({ "data": data })), want, "{data}");
        check(json!({"since": "2026-01-31"}), true);
        check(json!({"since": "2026-02-31"}), false);
        check(json!({"since": "2026-1-1"}), false);
        check(json!({"since": "2026-01-31T00:00:00Z"}), false);
        check(json!({"other": "2026-01-31"}), false);
        check(Value::Null, false);
    }
}
