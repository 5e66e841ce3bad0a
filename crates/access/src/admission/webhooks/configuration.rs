//! The configurations of webhooks, as they are stored.

use std::sync::Arc;
use std::time::Duration;

use api::Object;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::admission::expressions::{Condition, Conditions};
use crate::admission::matching::{Criteria, LabelSelector, Rule};
use crate::reader::{Reader, ResourceName, read};
use crate::webhook::ClientConfig;

/// The time that a webhook has where its configuration names none.
const TIMEOUT: u64 = 10;

#[derive(Deserialize)]
struct Configuration {
    metadata: Metadata,
    #[serde(default)]
    webhooks: Vec<Wire>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

/// `MutatingWebhook`, and `ValidatingWebhook`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    name: String,
    client_config: ClientConfig,
    #[serde(default)]
    rules: Vec<Rule>,
    failure_policy: Option<String>,
    match_policy: Option<String>,
    namespace_selector: Option<LabelSelector>,
    object_selector: Option<LabelSelector>,
    side_effects: Option<String>,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    admission_review_versions: Vec<String>,
    reinvocation_policy: Option<String>,
    #[serde(default)]
    match_conditions: Vec<Condition>,
}

/// A webhook's effects besides its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SideEffects {
    /// There are none in a dry run.
    NoneInDryRun,
    /// There may be some.
    Some,
    /// The configuration does not say.
    Unsaid,
}

/// A webhook.
pub(super) struct Hook {
    /// The name of its configuration.
    pub(super) configuration: String,
    pub(super) name: String,
    pub(super) client: ClientConfig,
    pub(super) criteria: Criteria,
    pub(super) conditions: Conditions,
    /// Whether a request goes on where the webhook does not answer.
    pub(super) ignores_failures: bool,
    pub(super) side_effects: SideEffects,
    pub(super) timeout: Duration,
    /// The version of reviews: the first in its list that the server knows.
    pub(super) version: Option<&'static str>,
    /// Whether it is asked again after others have changed the object.
    pub(super) reinvoked: bool,
}

impl Hook {
    fn new(configuration: &str, of: Wire) -> Self {
        let ignores_failures = of.failure_policy.as_deref() == Some("Ignore");
        let known = |v: &String| ["v1", "v1beta1"].into_iter().find(|known| v == known);
        let selectors = (of.namespace_selector.as_ref(), of.object_selector.as_ref());
        Self {
            configuration: configuration.to_owned(),
            name: of.name,
            client: of.client_config,
            criteria: Criteria::of_webhook(selectors.0, selectors.1, of.rules, of.match_policy.as_deref()),
            conditions: Conditions::of_webhook(&of.match_conditions, !ignores_failures),
            ignores_failures,
            side_effects: match of.side_effects.as_deref() {
                Some("None" | "NoneOnDryRun") => SideEffects::NoneInDryRun,
                Some(_) => SideEffects::Some,
                None => SideEffects::Unsaid,
            },
            timeout: Duration::from_secs(of.timeout_seconds.unwrap_or(TIMEOUT)),
            version: of.admission_review_versions.iter().find_map(known),
            reinvoked: of.reinvocation_policy.as_deref() == Some("IfNeeded"),
        }
    }
}

type Compiled = Arc<[Arc<Hook>]>;

/// All configurations of a resource. An object is compiled when a request first finds it.
pub(super) struct Configurations {
    resource: ResourceName,
    known: ArcSwap<Known>,
    renewed: Mutex<()>,
}

/// The configurations of one time.
#[derive(Default)]
struct Known {
    /// The revision of the last change, if they were ever looked at.
    of: Option<u64>,
    compiled: Vec<(Arc<Object>, Compiled)>,
    all: Arc<[Arc<Hook>]>,
}

impl Configurations {
    pub(super) fn new(resource: ResourceName) -> Self {
        Self { resource, known: ArcSwap::default(), renewed: Mutex::default() }
    }

    /// The webhooks of all configurations, by the names of these and then in their order, as stored now.
    pub(super) fn hooks(&self, reader: &dyn Reader) -> Arc<[Arc<Hook>]> {
        let now = Some(reader.changed(self.resource));
        let known = self.known.load();
        if known.of == now {
            return Arc::clone(&known.all);
        }
        let _renewed = self.renewed.lock();
        let known = self.known.load();
        // Before the objects: what changes meanwhile is looked at again.
        let of = Some(reader.changed(self.resource));
        if known.of == of {
            return Arc::clone(&known.all);
        }
        let compiled: Vec<(Arc<Object>, Compiled)> = reader
            .list(self.resource, "")
            .into_iter()
            .map(|object| {
                let before = known.compiled.iter().find(|(before, _)| Arc::ptr_eq(before, &object));
                let hooks = before.map_or_else(|| compile(&object), |(_, hooks)| Arc::clone(hooks));
                (object, hooks)
            })
            .collect();
        let all: Arc<[_]> = compiled.iter().flat_map(|(_, hooks)| hooks.iter().cloned()).collect();
        self.known.store(Arc::new(Known { of, compiled, all: Arc::clone(&all) }));
        all
    }
}

fn compile(object: &Object) -> Compiled {
    let Some(configuration) = read::<Configuration>(object) else {
        tracing::error!(name = %object.data.name, "a configuration of webhooks cannot be read");
        return Arc::from([]);
    };
    let name = configuration.metadata.name;
    configuration.webhooks.into_iter().map(|hook| Arc::new(Hook::new(&name, hook))).collect()
}
