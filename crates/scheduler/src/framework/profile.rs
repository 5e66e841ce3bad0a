//! A profile: the plugins of each extension point, in order, for Pods that name this scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::args::PluginArgs;
use crate::config::document::{self, Document, Named, PluginSet, Plugins};
use crate::events::Events;
use crate::framework::hint::Hint;
use crate::framework::plugin::{Plugin, Points};
use crate::framework::points::{
    Bind, Filter, MAX_SCORE, Permit, PlacementGenerate, PlacementScore, PostBind, PostFilter, PreBind,
    PreEnqueue, PreFilter, PreScore, QueueSort, Reserve, Score,
};
use crate::framework::registry::Registry;

/// A plugin at one of its points.
pub struct At<P: ?Sized> {
    /// The plugin's name.
    pub name: &'static str,
    /// The weight of its scores.
    pub weight: i64,
    /// The plugin.
    pub plugin: Arc<P>,
}

/// The events that may lift a plugin's refusals.
pub struct Waits {
    /// Events of these kinds.
    pub lifted_by: Events,
    /// Says which of them may; all, if there is none.
    pub hint: Option<Arc<dyn Hint>>,
}

/// The plugins of a profile, by point.
#[allow(missing_docs, reason = "each field has the name of its trait")]
pub struct Profile {
    /// The scheduler's name.
    pub name: String,
    /// The percentage of nodes that are enough if they fit; 0: all nodes are looked at.
    ///
    /// DIFFERENCE: upstream's 0 stands for a number that depends on the size of the cluster.
    pub percentage: i32,
    pub queue_sort: Arc<dyn QueueSort>,
    pub pre_enqueue: Vec<At<dyn PreEnqueue>>,
    pub pre_filter: Vec<At<dyn PreFilter>>,
    pub filter: Vec<At<dyn Filter>>,
    pub post_filter: Vec<At<dyn PostFilter>>,
    pub pre_score: Vec<At<dyn PreScore>>,
    pub score: Vec<At<dyn Score>>,
    pub reserve: Vec<At<dyn Reserve>>,
    pub permit: Vec<At<dyn Permit>>,
    pub pre_bind: Vec<At<dyn PreBind>>,
    pub bind: Vec<At<dyn Bind>>,
    pub post_bind: Vec<At<dyn PostBind>>,
    pub placement_generate: Option<At<dyn PlacementGenerate>>,
    pub placement_score: Vec<At<dyn PlacementScore>>,
    waits: BTreeMap<&'static str, Waits>,
}

impl Profile {
    /// Puts a profile together. The configuration must be complete.
    ///
    /// # Errors
    /// In upstream's words, if the plugins make no scheduler.
    pub fn new(config: &document::Profile, percentage: i32, registry: &Registry) -> Result<Self, String> {
        let name = config.scheduler_name.clone().unwrap_or_default();
        let none = Plugins::default();
        let sets = config.plugins.as_ref().unwrap_or(&none);
        let plugins = made(config, sets, registry)?;
        let with = With { plugins: &plugins, multi_point: &sets.multi_point };
        let sorts = with.at("QueueSortPlugin", &sets.queue_sort, |p| p.queue_sort.clone())?;
        let queue_sort = match sorts.as_slice() {
            [only] => only.plugin.clone(),
            many => {
                let name = api::go::quote(&name);
                let n = many.len();
                return Err(format!(
                    "only one queue sort plugin required for profile with scheduler name {name}, but got {n}"
                ));
            }
        };
        let point = "PlacementGeneratePlugin";
        let mut generates = with.at(point, &sets.placement_generate, |p| p.placement_generate.clone())?;
        if generates.len() > 1 {
            let name = api::go::quote(&name);
            return Err(format!(
                "at most one placement generate plugin is allowed for profile with scheduler name {name}"
            ));
        }
        let point = "PlacementScorePlugin";
        let placement_score = with.at(point, &sets.placement_score, |p| p.placement_score.clone())?;
        let profile = Self {
            percentage: config.percentage_of_nodes_to_score.unwrap_or(percentage),
            queue_sort,
            pre_enqueue: with.at("PreEnqueuePlugin", &sets.pre_enqueue, |p| p.pre_enqueue.clone())?,
            pre_filter: with.at("PreFilterPlugin", &sets.pre_filter, |p| p.pre_filter.clone())?,
            filter: with.at("FilterPlugin", &sets.filter, |p| p.filter.clone())?,
            post_filter: with.at("PostFilterPlugin", &sets.post_filter, |p| p.post_filter.clone())?,
            pre_score: with.at("PreScorePlugin", &sets.pre_score, |p| p.pre_score.clone())?,
            score: with.at("ScorePlugin", &sets.score, |p| p.score.clone())?,
            reserve: with.at("ReservePlugin", &sets.reserve, |p| p.reserve.clone())?,
            permit: with.at("PermitPlugin", &sets.permit, |p| p.permit.clone())?,
            pre_bind: with.at("PreBindPlugin", &sets.pre_bind, |p| p.pre_bind.clone())?,
            bind: with.at("BindPlugin", &sets.bind, |p| p.bind.clone())?,
            post_bind: with.at("PostBindPlugin", &sets.post_bind, |p| p.post_bind.clone())?,
            placement_generate: generates.pop(),
            placement_score,
            waits: plugins
                .values()
                .map(|p| (p.name, Waits { lifted_by: p.lifted_by, hint: p.hint.clone() }))
                .collect(),
            name,
        };
        if profile.bind.is_empty() {
            let name = api::go::quote(&profile.name);
            return Err(format!("at least one bind plugin is needed for profile with scheduler name {name}"));
        }
        weighable(&profile.score).map_err(|e| format!("score plugins: {e}"))?;
        weighable(&profile.placement_score).map_err(|e| format!("placement score plugins: {e}"))?;
        Ok(profile)
    }

    /// Whether the profile names a plugin at any point.
    pub fn has(&self, plugin: &str) -> bool {
        self.waits.contains_key(plugin)
    }

    /// The events that may lift a plugin's refusals; `None` if nobody knows the plugin.
    pub fn waits(&self, plugin: &str) -> Option<&Waits> {
        self.waits.get(plugin)
    }

    /// The events that may lift one of the refusals; if nobody refused (there are no nodes), any may.
    pub fn lift<'p>(&self, plugins: impl IntoIterator<Item = &'p str>) -> Events {
        let each = plugins.into_iter().map(|p| self.waits.get(p).map_or(Events::ALL, |w| w.lifted_by));
        each.reduce(std::ops::BitOr::bitor).unwrap_or(Events::ALL)
    }
}

/// Checks that the sum of all scores cannot be too large.
fn weighable<P: ?Sized>(all: &[At<P>]) -> Result<(), &'static str> {
    let mut room = i64::MAX;
    for at in all {
        room = at
            .weight
            .checked_mul(MAX_SCORE)
            .and_then(|most| room.checked_sub(most))
            .filter(|r| *r >= 0)
            .ok_or("total score of Score plugins could overflow")?;
    }
    Ok(())
}

/// Makes every profile of a configuration, by the name of its scheduler.
///
/// # Errors
/// In upstream's words, if one cannot be put together.
pub fn profiles(config: &Document, registry: &Registry) -> Result<BTreeMap<String, Profile>, String> {
    let mut all = BTreeMap::new();
    for profile in &config.profiles {
        let name = profile.scheduler_name.clone().unwrap_or_default();
        let made = Profile::new(profile, config.percentage_of_nodes_to_score, registry)
            .map_err(|e| format!("initializing profiles: creating profile for scheduler name {name}: {e}"))?;
        all.insert(name, made);
    }
    if all.is_empty() { Err("at least one profile is required".to_owned()) } else { Ok(all) }
}

/// Makes every plugin that is named, once.
fn made(
    config: &document::Profile,
    sets: &Plugins,
    registry: &Registry,
) -> Result<BTreeMap<String, Plugin>, String> {
    let mut plugins = BTreeMap::new();
    for plugin in sets.sets().into_iter().flat_map(|(_, set)| &set.enabled) {
        let Some(factory) = registry.get(&plugin.name) else { continue };
        if plugins.contains_key(&plugin.name) {
            continue;
        }
        let said = config.plugin_config.iter().find(|c| c.name == plugin.name);
        let args = said.map_or_else(|| PluginArgs::of(&plugin.name), |c| c.args.clone());
        let made = factory(&args)
            .map_err(|e| format!("initializing plugin {}: {e}", api::go::quote(&plugin.name)))?;
        plugins.insert(plugin.name.clone(), made);
    }
    Ok(plugins)
}

struct With<'a> {
    plugins: &'a BTreeMap<String, Plugin>,
    multi_point: &'a PluginSet,
}

impl With<'_> {
    /// The plugins of a point, in upstream's order: those of `multiPoint` that are named here again, as they are named
    /// here; the others of `multiPoint`; the others that are named here.
    fn at<P: ?Sized>(
        &self,
        point: &str,
        set: &PluginSet,
        get: impl Fn(&Points) -> Option<Arc<P>>,
    ) -> Result<Vec<At<P>>, String> {
        let missing = |name: &str| format!("{point} {} does not exist", api::go::quote(name));
        let twice = |name: &str| {
            format!("plugin {} already registered as {}", api::go::quote(name), api::go::quote(point))
        };
        let made = |named: &Named| -> Result<Option<At<P>>, String> {
            let plugin = self.plugins.get(&named.name).ok_or_else(|| missing(&named.name))?;
            let weight = i64::from(if named.weight == 0 { 1 } else { named.weight });
            Ok(get(&plugin.points).map(|p| At { name: plugin.name, weight, plugin: p }))
        };
        let mut named_here = BTreeSet::new();
        let mut here = Vec::new();
        for named in &set.enabled {
            let (quoted, at) = (api::go::quote(&named.name), made(named)?);
            here.push(at.ok_or_else(|| format!("plugin {quoted} does not extend {point} plugin"))?);
            if !named_here.insert(named.name.as_str()) {
                return Err(twice(&named.name));
            }
        }
        if set.disabled.iter().any(|d| d.name == "*") {
            return Ok(here);
        }
        let mut everywhere = BTreeSet::new();
        let mut multi = Vec::new();
        let mut again = BTreeSet::new();
        for named in &self.multi_point.enabled {
            let Some(at) = made(named)? else { continue };
            if set.disabled.iter().any(|d| d.name == named.name) {
                continue;
            }
            if named_here.contains(named.name.as_str()) {
                again.insert(at.name);
                continue;
            }
            if !everywhere.insert(named.name.as_str()) {
                return Err(twice(&named.name));
            }
            multi.push(at);
        }
        let (mut all, rest): (Vec<_>, Vec<_>) = here.into_iter().partition(|at| again.contains(at.name));
        all.extend(multi);
        all.extend(rest);
        Ok(all)
    }
}
