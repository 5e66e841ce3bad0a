//! Removes Jobs some time after their end (upstream: `pkg/controller/ttlafterfinished`).

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Client, Informer, Key};
use component::Clock;
use component::metrics::Histogram;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use parking_lot::Mutex;

use crate::common::{deleting, retry};
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use crate::jobs::rules::finished;

/// Upstream's buckets of seconds: 0.1, 0.2, 0.4 and so on.
const SECONDS: &[f64] = &[0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];

/// The controller of Jobs that are removed some time after their end.
pub(crate) struct TtlAfterFinished {
    client: Client,
    clock: Clock,
    jobs: Informer<Job>,
    late: Arc<Mutex<Histogram>>,
}

impl Controller for TtlAfterFinished {
    const NAME: &'static str = "ttl-after-finished-controller";
    const ALIASES: &'static [&'static str] = &["ttl-after-finished"];
    const ACCOUNT: &'static str = "ttl-after-finished-controller";
    const QUEUE: &'static str = "ttl_jobs_to_delete";
    type Key = Key;

    fn workers(config: &Config) -> usize {
        config.workers.ttl_after_finished
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let late = Arc::new(Mutex::new(Histogram::new(SECONDS)));
        let told = late.clone();
        host.metrics().register("ttl-after-finished-controller/late", move |page| {
            let name = "ttl_after_finished_controller_job_deletion_duration_seconds";
            let help = "[ALPHA] The time it took to delete the job since it became eligible for deletion";
            page.metric(name, "histogram", help).histogram(name, &[], &told.lock());
        });
        Self { client: host.client(), clock: host.clock(), jobs: host.informer(), late }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.jobs, false);
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(job) = self.jobs.get_key(&key) else { return Ok(Next::Done) };
        match self.due(&job)? {
            Due::Never => return Ok(Next::Done),
            Due::In(left) => return Ok(Next::After(left)),
            Due::Since(_) => {}
        }
        // The cache may be late.
        let api = self.client.api::<Job>(&key.namespace);
        let fresh = match api.get(&key.name).await {
            Ok(fresh) => fresh,
            Err(e) if e.is_not_found() => return Ok(Next::Done),
            Err(e) => return Err(e),
        };
        let late = match self.due(&fresh)? {
            Due::Never => return Ok(Next::Done),
            Due::In(left) => return Ok(Next::After(left)),
            Due::Since(late) => late,
        };
        let options = DeleteOptions {
            propagation_policy: Some("Foreground".to_owned()),
            preconditions: Some(Preconditions { uid: fresh.metadata.uid, resource_version: None }),
            ..DeleteOptions::default()
        };
        match api.delete(&key.name, Some(&options)).await {
            Err(e) if !e.is_not_found() => return Err(e),
            _ => {}
        }
        self.late.lock().observe(late.as_secs_f64());
        Ok(Next::Done)
    }
}

/// The time at which a Job is removed.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    Never,
    In(Duration),
    /// It is time, for so long.
    Since(Duration),
}

impl TtlAfterFinished {
    fn due(&self, job: &Job) -> Result<Due, Status> {
        due(job, self.clock.now()).map_err(retry)
    }
}

fn due(job: &Job, now: Timestamp) -> Result<Due, String> {
    let limit = job.spec.as_ref().and_then(|s| s.ttl_seconds_after_finished);
    let (Some(limit), Some(end), false) = (limit, finished(job), deleting(&job.metadata)) else {
        return Ok(Due::Never);
    };
    let Some(time) = &end.last_transition_time else {
        let name = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (name(&job.metadata.namespace), name(&job.metadata.name));
        return Err(format!("unable to find the time when the Job {namespace}/{name} finished"));
    };
    let left = SignedDuration::from_secs(limit.into()) - now.duration_since(time.0);
    Ok(match Duration::try_from(left) {
        Ok(left) if !left.is_zero() => Due::In(left),
        _ => Due::Since(left.unsigned_abs()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 100_000;

    fn at(second: i64) -> String {
        Timestamp::from_second(second).unwrap().to_string()
    }

    /// Upstream's 9 cases of `TestTimeLeft`, and more: times in seconds before now.
    #[test]
    fn times() {
        let check = |ttl: Option<i32>, kind: &str, ago: Option<i64>, want: Result<Due, &str>| {
            let mut condition = json!({"type": kind, "status": "True"});
            if let Some(ago) = ago {
                condition["lastTransitionTime"] = json!(at(NOW - ago));
            }
            let spec = json!({"ttlSecondsAfterFinished": ttl, "template": {}});
            let job: Job = serde_json::from_value(json!({
                "metadata": {"name": "j", "namespace": "n"}, "spec": spec, "status": {"conditions": [condition]},
            }))
            .unwrap();
            let got = due(&job, Timestamp::from_second(NOW).unwrap());
            assert_eq!(got, want.map_err(str::to_owned), "{ttl:?} {kind} {ago:?}");
        };
        let (left, since) =
            (|s| Ok(Due::In(Duration::from_secs(s))), |s| Ok(Due::Since(Duration::from_secs(s))));
        check(Some(100), "Suspended", None, Ok(Due::Never));
        check(None, "Complete", Some(0), Ok(Due::Never));
        check(Some(10), "Complete", Some(0), left(10));
        check(None, "Failed", Some(0), Ok(Due::Never));
        check(Some(0), "Failed", Some(0), since(0));
        check(Some(10), "Failed", Some(0), left(10));
        check(Some(10), "Suspended", Some(3), Ok(Due::Never));
        check(None, "Complete", Some(10), Ok(Due::Never));
        check(Some(10), "Complete", None, Err("unable to find the time when the Job n/j finished"));
        check(Some(0), "Complete", Some(0), since(0));
        check(Some(15), "Complete", Some(10), left(5));
        check(Some(15), "Complete", Some(16), since(1));
        check(Some(10), "Failed", Some(10), since(0));
        check(Some(15), "Failed", Some(10), left(5));
        check(Some(600), "Failed", Some(-60), left(660));
        check(Some(i32::MAX), "Complete", Some(0), left(2_147_483_647));
    }

    #[test]
    fn what_is_going_already_is_left_alone() {
        let check = |meta: Value, want: Due| {
            let job: Job = serde_json::from_value(json!({
                "metadata": meta, "spec": {"ttlSecondsAfterFinished": 0, "template": {}},
                "status": {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": at(NOW)}]},
            }))
            .unwrap();
            assert_eq!(due(&job, Timestamp::from_second(NOW).unwrap()), Ok(want));
        };
        check(json!({}), Due::Since(Duration::ZERO));
        check(json!({"deletionTimestamp": at(NOW)}), Due::Never);
    }
}
