//! Keeps flow control in step with the store: with its flow schemas and priority levels, and with how much of each
//! resource there is.

use std::collections::HashMap;
use std::time::Duration;

use access::reader::Reader;
use storage::Scope;

use super::config::{Configs, LevelConfig, SchemaConfig};
use super::control::Flow;
use super::width::Stats;
use crate::hooks::{FLOW_CONTROL, FLOW_SCHEMAS, PRIORITY_LEVELS, changed};
use crate::objects::Objects;

/// How long to wait after a watch ended.
const PAUSE: Duration = Duration::from_millis(200);

/// How often seats are shared out anew; upstream's `borrowingAdjustmentPeriod`.
const ADJUSTMENT: Duration = Duration::from_secs(10);

/// How often objects are counted; upstream's `--etcd-count-metric-poll-period`.
const COUNTS: Duration = Duration::from_mins(1);

/// How many objects of a resource tell the size of all.
const SAMPLE: usize = 1000;

/// The flow schemas and priority levels of the store. Broken ones are left out.
fn stored(objects: &Objects) -> Configs {
    let levels = objects.list((FLOW_CONTROL, PRIORITY_LEVELS), "");
    let level = |object: &std::sync::Arc<api::Object>| {
        let name = &object.data.name;
        LevelConfig::stored(object)
            .inspect_err(|why| tracing::warn!(%name, why, "a PriorityLevelConfiguration is left out"))
            .ok()
    };
    let schemas = objects.list((FLOW_CONTROL, FLOW_SCHEMAS), "");
    Configs {
        levels: levels.iter().filter_map(level).collect(),
        schemas: schemas.iter().filter_map(|object| SchemaConfig::stored(object)).collect(),
    }
}

/// Puts the flow schemas and priority levels of the store in force, whenever one changes, and shares out seats now and
/// again. It ends only if they are not served.
pub(crate) async fn follow(flow: &Flow, objects: &Objects) {
    let mut last = None;
    let mut adjustments = tokio::time::interval_at(tokio::time::Instant::now() + ADJUSTMENT, ADJUSTMENT);
    adjustments.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let watch = |plural: &'static str| objects.watch((FLOW_CONTROL, plural));
        let (Some(mut schemas), Some(mut levels)) = (watch(FLOW_SCHEMAS), watch(PRIORITY_LEVELS)) else {
            // Those that every cluster begins with stay in force.
            loop {
                adjustments.tick().await;
                flow.adjust();
            }
        };
        let mut anew = false;
        loop {
            let configs = stored(objects);
            if anew || last.as_ref() != Some(&configs) {
                flow.live.configure(configs.clone());
                last = Some(configs);
            }
            anew = false;
            let goes_on = tokio::select! {
                on = changed(&mut schemas) => on,
                on = changed(&mut levels) => on,
                () = flow.live.idle.notified() => {
                    anew = true;
                    true
                }
                _ = adjustments.tick() => {
                    flow.adjust();
                    true
                }
            };
            if !goes_on {
                break;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Counts the objects of each resource, now and again.
pub(crate) async fn count_objects(flow: &Flow, objects: &Objects) {
    loop {
        flow.stats.store(std::sync::Arc::new(count(objects)));
        tokio::time::sleep(COUNTS).await;
    }
}

fn count(objects: &Objects) -> HashMap<storage::ResourceId, Stats> {
    let catalog = objects.catalog();
    let count = |id| {
        let snapshot = objects.store.snapshot(id);
        let everything = Scope::default();
        let some = snapshot.scan(&everything, None).take(SAMPLE).map(|object| object.data.body.len() as u64);
        let (seen, bytes) = some.fold((0_u64, 0_u64), |(seen, bytes), size| (seen + 1, bytes + size));
        let size = bytes.checked_div(seen).unwrap_or(0);
        (id, Stats { count: snapshot.count(&everything, None) as u64, size })
    };
    let stored = catalog.resources.all_stored().filter_map(|resource| Some(resource.stored.as_ref()?.id));
    stored.map(count).collect()
}
