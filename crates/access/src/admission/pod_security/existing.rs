//! The pods that a namespace has when more is to be enforced: whoever asks for that is told what they violate.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::codec::json;
use api::go::quote;
use api::view::View;
use api::{Gvk, Object, Schema, Text};
use serde::Deserialize;
use tokio::time::Instant;

use super::checks;
use super::config::Exemptions;
use super::pod::Pod;
use super::policy::LevelVersion;

use crate::reader::read;

/// How much is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) pods: usize,
    pub(super) time: Duration,
}

impl Limits {
    /// Upstream's.
    pub(super) const DEFAULT: Self = Self { pods: 3000, time: Duration::from_secs(1) };
}

/// How many pods are looked at before others get their turn.
const TURN: usize = 64;

#[derive(Deserialize)]
struct Classed {
    spec: Option<ClassedSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClassedSpec {
    runtime_class_name: Option<String>,
}

fn is_exempt(pod: &Object, classes: &[String]) -> bool {
    let class = || read::<Classed>(pod)?.spec?.runtime_class_name;
    !classes.is_empty() && class().is_some_and(|class| Exemptions::has(classes, &class))
}

/// Without those of exempt classes, and with one of each controller before any further ones of it.
pub(super) fn prioritize(pods: Vec<Arc<Object>>, exempt_classes: &[String]) -> Vec<Arc<Object>> {
    let mut controllers: HashSet<Text> = HashSet::new();
    let (mut first, mut further) = (Vec::with_capacity(pods.len()), Vec::new());
    for pod in pods.into_iter().filter(|pod| !is_exempt(pod, exempt_classes)) {
        let controller = pod.data.owners.iter().find(|owner| owner.controller);
        let is_first = controller.is_none_or(|owner| controllers.insert(owner.uid.clone()));
        (if is_first { &mut first } else { &mut further }).push(pod);
    }
    first.append(&mut further);
    first
}

/// The pods that have the same violations.
#[derive(Default)]
struct Violators {
    /// The first of them by name.
    first: Text,
    count: usize,
}

/// Warnings about pods that violate a level: which, and how many of them were looked at if not all.
pub(super) async fn warnings(
    schema: &'static Schema,
    namespace: &str,
    pods: Vec<Arc<Object>>,
    enforce: LevelVersion,
    limits: Limits,
) -> Vec<String> {
    let deadline = Instant::now() + limits.time;
    let total = pods.len();
    let Some(root) = schema.kind(&Gvk::new("", "v1", "Pod")) else { return Vec::new() };
    let (mut checked, mut found) = (0, BTreeMap::<String, Violators>::new());
    for object in pods.iter().take(limits.pods) {
        checked += 1;
        match json::decode(schema, root, &object.data.body) {
            Ok(decoded) => {
                let violations = checks::evaluate(enforce, &Pod::of(View::new(schema, &decoded.tree)));
                if !violations.is_empty() {
                    let violators = found.entry(violations.reasons()).or_default();
                    violators.count += 1;
                    if violators.count == 1 || object.data.name < violators.first {
                        violators.first.clone_from(&object.data.name);
                    }
                }
            }
            Err(error) => tracing::error!(%namespace, name = %object.data.name, %error, "unreadable pod"),
        }
        if Instant::now() >= deadline {
            break;
        }
        if checked % TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
    let mut warnings = Vec::new();
    if checked < total {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {} violate the new PodSecurity enforce level {}",
            quote(namespace),
            quote(&enforce.to_string())
        ));
    }
    let mut of_pods: Vec<String> = found
        .into_iter()
        .map(|(reasons, Violators { first, count })| match count {
            1 => format!("{first}: {reasons}"),
            2 => format!("{first} (and 1 other pod): {reasons}"),
            _ => format!("{first} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    of_pods.sort();
    warnings.append(&mut of_pods);
    warnings
}
