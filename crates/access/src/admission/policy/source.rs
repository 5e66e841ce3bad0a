//! The policies and bindings of now: compiled once for each change, and shared by all requests.
//!
//! A request looks at when policies and bindings changed last, so it sees every write that was answered before it came,
//! and nobody polls.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::{Gvk, Object};
use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use super::params::ParamSource;
use super::stored::{BindingSpec, PolicySpec, Stored};
use crate::admission::matching::Criteria;
use crate::admission::plugin::Env;
use crate::auth::Eventual;
use crate::reader::{ResourceName, read};

/// Makes the expressions of a policy ready.
pub(super) trait Compiled: Sized + Send + Sync + 'static {
    /// The policies.
    const POLICIES: ResourceName;
    /// The bindings.
    const BINDINGS: ResourceName;
    /// Compiles a policy.
    fn new(name: &str, spec: &PolicySpec) -> Self;
}

/// A policy with its bindings.
pub(super) struct Hook<C> {
    pub(super) policy: Arc<Policy<C>>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

/// A policy that is ready.
pub(super) struct Policy<C> {
    pub(super) name: String,
    pub(super) criteria: Criteria,
    pub(super) param_kind: Option<Gvk>,
    /// Whether what goes wrong fails the request; it is ignored otherwise.
    pub(super) fails: bool,
    pub(super) compiled: C,
    revision: u64,
}

/// A binding that is ready.
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    /// The requests among the policy's; all of them if there are none.
    pub(super) criteria: Option<Criteria>,
    pub(super) params: Option<ParamSource>,
    pub(super) actions: Vec<api::Text>,
    revision: u64,
}

/// The policies that have a binding, as of the last changes.
pub(super) struct Hooks<C> {
    of: (u64, u64),
    pub(super) all: Vec<Hook<C>>,
}

/// The policies of one kind.
pub(super) struct Source<C> {
    now: ArcSwap<Hooks<C>>,
    renewed: Mutex<()>,
}

impl<C> Default for Source<C> {
    fn default() -> Self {
        let none = Hooks { of: (0, 0), all: Vec::new() };
        Self { now: ArcSwap::from_pointee(none), renewed: Mutex::default() }
    }
}

impl<C: Compiled> Source<C> {
    /// The policies of now, which are waited for where they have changed; `None` if there are none.
    pub(super) fn of<'a>(&'a self, env: &'a Env) -> Option<Eventual<'a, Arc<Hooks<C>>>> {
        let now = self.now.load();
        if now.of != changed::<C>(env) {
            return Some(Eventual::later(self.hooks(env)));
        }
        (!now.all.is_empty()).then(|| Eventual::Now(Arc::clone(&now)))
    }
    /// The policies of now. The first request after a change makes them ready, others wait for it.
    pub(super) async fn hooks(&self, env: &Env) -> Arc<Hooks<C>> {
        if let Some(now) = self.current(env) {
            return now;
        }
        let _renewed = self.renewed.lock().await;
        if let Some(now) = self.current(env) {
            return now;
        }
        let before = self.now.load_full();
        // Before the objects: what changes meanwhile is looked at again.
        let of = changed::<C>(env);
        let hooks = Arc::new(Hooks { of, all: renew(env, &before).await });
        self.now.store(Arc::clone(&hooks));
        hooks
    }
    fn current(&self, env: &Env) -> Option<Arc<Hooks<C>>> {
        let now = self.now.load_full();
        (now.of == changed::<C>(env)).then_some(now)
    }
}

fn changed<C: Compiled>(env: &Env) -> (u64, u64) {
    (env.reader.changed(C::POLICIES), env.reader.changed(C::BINDINGS))
}

async fn renew<C: Compiled>(env: &Env, before: &Hooks<C>) -> Vec<Hook<C>> {
    let known = before.all.iter().map(|hook| (&*hook.policy.name, &hook.policy));
    let known: HashMap<&str, &Arc<Policy<C>>> = known.collect();
    let bindings = before.all.iter().flat_map(|hook| &hook.bindings);
    let known_bindings: HashMap<&str, &Arc<Binding>> = bindings.map(|b| (&*b.name, b)).collect();
    let mut bound: BTreeMap<String, Vec<Arc<Binding>>> = BTreeMap::new();
    for object in env.reader.list(C::BINDINGS, "") {
        let same = known_bindings.get(&*object.data.name).filter(|b| b.revision == object.revision);
        let binding = match same {
            Some(binding) => Arc::clone(binding),
            None => match Binding::new(&object) {
                Some(binding) => Arc::new(binding),
                None => continue,
            },
        };
        bound.entry(binding.policy.clone()).or_default().push(binding);
    }
    let mut all = Vec::with_capacity(bound.len());
    for (name, bindings) in bound {
        // A binding may be made before its policy, and outlive it.
        let Some(object) = env.reader.get(C::POLICIES, "", &name) else { continue };
        let same = known.get(&*name).filter(|policy| policy.revision == object.revision);
        let policy = if let Some(policy) = same {
            Arc::clone(policy)
        } else {
            tokio::task::yield_now().await;
            let Some(policy) = Policy::new(&object) else { continue };
            Arc::new(policy)
        };
        all.push(Hook { policy, bindings });
    }
    all
}

impl<C: Compiled> Policy<C> {
    fn new(object: &Object) -> Option<Self> {
        let Stored::<PolicySpec> { metadata, spec } = read(object)?;
        let param_kind = spec.param_kind.as_ref().map(|p| {
            let (group, version) = p.api_version.split_once('/').unwrap_or(("", &p.api_version));
            Gvk::new(group, version, &p.kind)
        });
        let constraints = spec.match_constraints.as_ref();
        Some(Self {
            criteria: constraints.map(Criteria::of_policy).unwrap_or_default(),
            param_kind,
            fails: spec.fails(),
            compiled: C::new(&metadata.name, &spec),
            name: metadata.name,
            revision: object.revision,
        })
    }
}

impl PolicySpec {
    /// Whether the failure policy is `Fail`, as it is by default.
    pub(super) fn fails(&self) -> bool {
        self.failure_policy.as_deref() != Some("Ignore")
    }
}

impl Binding {
    fn new(object: &Object) -> Option<Self> {
        let Stored::<BindingSpec> { metadata, spec } = read(object)?;
        Some(Self {
            name: metadata.name,
            policy: spec.policy_name,
            criteria: spec.match_resources.as_ref().map(Criteria::of_policy),
            params: spec.param_ref.map(ParamSource::new),
            actions: spec.validation_actions,
            revision: object.revision,
        })
    }
}
