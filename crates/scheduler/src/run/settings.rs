//! This is what the scheduler is started with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::FeatureGates;

use crate::config::defaults;
use crate::config::document::Document;
use crate::extender::Extender;
use crate::framework::profile::{Profile, profiles};
use crate::framework::registry::Registry as Plugins;
use crate::framework::waiting::Waiting;
use crate::plugins::gang_scheduling::NAME as GANG;
use crate::plugins::{pod_group_pods_count, topology_placement};
use crate::queue::MAX_WAIT;

/// The settings of the scheduler: profiles, and how long Pods back off.
pub struct Settings {
    pub(super) profiles: BTreeMap<String, Profile>,
    pub(super) initial_backoff: Duration,
    pub(super) max_backoff: Duration,
    pub(super) max_wait: Duration,
    pub(super) waiting: Waiting,
    pub(super) extenders: Arc<[Extender]>,
    pub(super) gates: FeatureGates,
}

impl Settings {
    /// Puts together what a configuration says. It must be complete; `plugins` are those that it may name.
    ///
    /// # Errors
    /// In upstream's words, if a profile cannot be put together.
    pub fn new(config: &Document, plugins: &Plugins) -> Result<Self, String> {
        let seconds = |n: i64| Duration::from_secs(u64::try_from(n).unwrap_or(0));
        let extenders: Arc<[Extender]> =
            config.extenders.iter().map(Extender::new).collect::<Result<_, _>>()?;
        let mut config = config.clone();
        let hidden: Vec<String> = extenders.iter().flat_map(Extender::hidden).map(str::to_owned).collect();
        defaults::hide(&mut config, &hidden);
        // They are among the plugins only if their gates are on.
        for (name, weight) in [(GANG, 0), (topology_placement::NAME, 0), (pod_group_pods_count::NAME, 1)] {
            if plugins.get(name).is_some() {
                defaults::add(&mut config, name, weight);
            }
        }
        if plugins.get(topology_placement::NAME).is_none() {
            no_placements(&config)?;
        }
        Ok(Self {
            profiles: profiles(&config, plugins)?,
            extenders,
            initial_backoff: seconds(config.pod_initial_backoff_seconds),
            max_backoff: seconds(config.pod_max_backoff_seconds),
            max_wait: MAX_WAIT,
            waiting: Waiting::default(),
            gates: FeatureGates::default(),
        })
    }
    /// Those of upstream's default configuration.
    ///
    /// # Errors
    /// None: the default profile can be put together.
    pub fn standard() -> Result<Self, String> {
        Self::standard_with(FeatureGates::default())
    }
    /// The same, with other features.
    ///
    /// # Errors
    /// None: the default profile can be put together.
    pub fn standard_with(gates: FeatureGates) -> Result<Self, String> {
        let mut config = Document::default();
        defaults::complete(&mut config);
        defaults::complete_for(&mut config, gates);
        Ok(Self::new(&config, &crate::plugins::registry_with(gates)?)?.with_gates(gates))
    }
    /// Says which features are on; those of the plugins are the registry's.
    #[must_use]
    pub fn with_gates(mut self, gates: FeatureGates) -> Self {
        self.gates = gates;
        self
    }
    /// Says after what time a Pod that waits for a change is tried again although nothing happened (upstream's
    /// `--pod-max-in-unschedulable-pods-duration`).
    #[must_use]
    pub fn with_max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }
    /// Lets plugins decide about Pods that wait for a permission.
    #[must_use]
    pub fn with_waiting(mut self, waiting: Waiting) -> Self {
        self.waiting = waiting;
        self
    }
}

/// Refuses plugins that nothing would ask, since their gate is off.
fn no_placements(config: &Document) -> Result<(), String> {
    for (i, profile) in config.profiles.iter().enumerate() {
        for (point, set) in profile.plugins.iter().flat_map(|plugins| plugins.sets()) {
            if point.starts_with("placement") && !set.enabled.is_empty() {
                return Err(format!(
                    "profiles[{i}].plugins.{point}.enabled: Forbidden: the gate TopologyAwareWorkloadScheduling is off"
                ));
            }
        }
    }
    Ok(())
}
