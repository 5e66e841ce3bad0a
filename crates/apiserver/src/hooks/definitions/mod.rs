//! CustomResourceDefinitions: their resources are served, their names are accepted, and their objects go with them.
//!
//! One task follows all definitions. The resources of a definition become a part of the catalog before its condition
//! `Established` says so; a change costs work for that definition only. The rules are those of upstream's controllers
//! (`apiextensions-apiserver/pkg/controller`), in one place: [`plan`].

mod in_use;
mod plan;
mod removal;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Object, Status, Text};
use client::Transport;
use futures::StreamExt;
use storage::{Batch, Cause, Event, Servers, Watcher};
use tokio::time::Instant;

use self::in_use::InUse;
use self::plan::Plan;
use self::state::{DEFINITIONS, Known};
use super::env::Env;
use crate::catalog::custom::CustomResource;
use crate::catalog::definitions::Change;
use crate::catalog::webhook_converter::ConversionWebhooks;
use crate::objects::Objects;
use component::Shutdown;

/// The time to wait after something failed.
const PAUSE: Duration = Duration::from_secs(2);
/// The time that other servers get to serve a definition before it is established; upstream's.
const OTHERS: Duration = Duration::from_secs(5);

/// All definitions, and what is served of them.
struct Definitions {
    objects: Arc<Objects>,
    transport: Arc<dyn Transport>,
    conversions: Arc<ConversionWebhooks>,
    shutdown: Shutdown,
    known: BTreeMap<Text, Known>,
    /// The definitions for which free names may change what is said, by group.
    wanting: BTreeSet<(Text, Text)>,
    served: BTreeMap<Text, Arc<CustomResource>>,
    /// The servers that are announced in a store that several share.
    servers: Option<Servers>,
    /// The address under which this one is among them.
    own: IpAddr,
    /// When definitions may be established that other servers should serve first.
    waiting: BTreeMap<Text, Instant>,
    /// When to look at definitions again.
    due: BTreeMap<Text, Instant>,
    /// The names that the definitions' groups use.
    in_use: InUse,
    removals: removal::Removals,
}

/// Serves the definitions that there are, and follows them until shutdown.
pub(super) async fn run(env: &Env) -> Result<(), Status> {
    let mut all = Definitions {
        objects: Arc::clone(&env.objects),
        transport: Arc::clone(&env.transport),
        conversions: Arc::clone(&env.conversions),
        shutdown: env.shutdown.clone(),
        known: BTreeMap::new(),
        wanting: BTreeSet::new(),
        served: BTreeMap::new(),
        servers: env.objects.store.servers(),
        own: env.advertised,
        waiting: BTreeMap::new(),
        due: BTreeMap::new(),
        in_use: InUse::default(),
        removals: removal::Removals::default(),
    };
    if all.objects.id(DEFINITIONS.names()).is_none() {
        return Ok(());
    }
    // A server is not ready before it serves the definitions that there are.
    let mut watcher = all.begin_at_last().await;
    let stop = env.shutdown.clone();
    env.shutdown.spawn(async move {
        let follow = async {
            loop {
                all.follow(&mut watcher).await;
                tokio::time::sleep(PAUSE).await;
                watcher = all.begin_at_last().await;
            }
        };
        stop.run(follow).await;
    });
    Ok(())
}

/// Names the resources that a definition has from now on.
fn change(of: &CustomResource, resource: Option<&Arc<CustomResource>>) -> Change {
    let (group, plural) = (of.definition.group.clone(), of.definition.names.plural.clone());
    Change { group, plural, resource: resource.cloned() }
}

impl Definitions {
    /// Reads all definitions anew, and serves them; tries again if the watch ends before all were seen.
    async fn begin_at_last(&mut self) -> Watcher {
        loop {
            if let Some(watcher) = self.begin().await {
                return watcher;
            }
            tracing::warn!(
                "the watch of CustomResourceDefinitions ended before all were seen; it begins again"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads all definitions anew, and serves them; `None` if the watch ended before all were seen.
    async fn begin(&mut self) -> Option<Watcher> {
        let mut watcher = self.objects.watch(DEFINITIONS.names())?;
        let mut gone: BTreeSet<Text> = self.known.keys().cloned().collect();
        let mut changed = Vec::new();
        loop {
            match watcher.next().await {
                Some(Ok(Batch::Events(events))) => {
                    for event in events {
                        gone.remove(&event.object.data.name);
                        changed.extend(self.take(&event));
                    }
                }
                Some(Ok(Batch::Synced(_))) => break,
                Some(Ok(Batch::Progress(_))) => {}
                Some(Err(_)) | None => return None,
            }
        }
        for name in gone {
            self.forget(&name);
            changed.push(name);
        }
        self.serve(&changed);
        Some(watcher)
    }

    /// Acts on every change until the watch ends.
    async fn follow(&mut self, watcher: &mut Watcher) {
        let mut pending: Vec<Text> = self.known.keys().cloned().collect();
        loop {
            self.reconcile(&pending).await;
            pending.clear();
            let next = self.due.values().min().copied();
            let wait = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                next = watcher.next() => match next {
                    Some(Ok(Batch::Events(events))) => {
                        let mut changed = Vec::new();
                        for event in &events {
                            changed.extend(self.take(event));
                        }
                        self.serve(&changed);
                        pending = self.affected(&changed);
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
                () = wait => {
                    let now = Instant::now();
                    let is_due = |(name, at): (&Text, &Instant)| (*at <= now).then(|| name.clone());
                    pending = self.due.iter().filter_map(is_due).collect();
                }
            }
        }
    }

    /// Takes a change over; returns the definition that changed.
    fn take(&mut self, event: &Arc<Event>) -> Option<Text> {
        let name = event.object.data.name.clone();
        if event.cause == Cause::Deleted {
            return self.forget(&name).then_some(name);
        }
        let object: &Object = &event.object;
        match state::read(&self.objects, object, self.known.get(&name)) {
            Ok(known) => {
                self.in_use.add(&known);
                if let Some(before) = self.known.insert(name.clone(), known) {
                    self.in_use.take_away(&before);
                }
                self.note_wants(&name);
            }
            Err(error) => {
                // A definition that cannot be read is not served.
                tracing::error!(%name, %error, "a CustomResourceDefinition cannot be read");
                self.forget(&name);
            }
        }
        Some(name)
    }

    /// Forgets a definition; whether it was known.
    fn forget(&mut self, name: &str) -> bool {
        self.waiting.remove(name);
        self.due.remove(name);
        let Some(known) = self.known.remove(name) else { return false };
        self.in_use.take_away(&known);
        self.wanting.remove(&(known.group().into(), name.into()));
        true
    }

    /// Notes whether names that become free may change what is said of a definition.
    fn note_wants(&mut self, name: &Text) {
        let Some(known) = self.known.get(name) else { return };
        let key = (Text::from(known.group()), name.clone());
        if known.wants_names() {
            self.wanting.insert(key);
        } else {
            self.wanting.remove(&key);
        }
    }

    /// The definitions that changed, and those of their groups that wait for a name to become free.
    fn affected(&self, changed: &[Text]) -> Vec<Text> {
        let groups: BTreeSet<&str> =
            changed.iter().filter_map(|name| name.split_once('.')).map(|(_, group)| group).collect();
        let changed_already: BTreeSet<&Text> = changed.iter().collect();
        let mut all = changed.to_vec();
        for group in groups {
            let waits = self.wanting.range((Text::from(group), Text::default())..);
            let waits = waits.take_while(|(of, _)| of == group).map(|(_, name)| name);
            all.extend(waits.filter(|name| !changed_already.contains(name)).cloned());
        }
        all
    }

    /// Notes the names that a definition was given.
    fn accept(&mut self, name: &Text, plan: &Plan) {
        if let Some(known) = self.known.get_mut(name) {
            self.in_use.take_away(known);
            known.accepted.clone_from(&plan.accepted);
            self.in_use.add(known);
        }
        self.note_wants(name);
    }

    fn plan(&self, name: &str) -> Option<Plan> {
        let known = self.known.get(name)?;
        let (group, plural) = (known.group(), &known.definition.names.plural);
        // Objects of a built-in resource are not a definition's.
        let is_built_in = self.objects.catalog().resources.is_built_in(group, plural);
        Some(plan::plan(known, self.in_use.of(group), is_built_in, !self.waits(name)))
    }

    /// Whether there are other servers. Upstream goes by its number of servers (`--apiserver-count`, 1 if nobody sets it).
    fn has_others(&self) -> bool {
        self.servers.as_ref().is_some_and(|servers| servers.addresses().iter().any(|a| *a != self.own))
    }

    /// Whether other servers are still to serve a definition before it is established.
    fn waits(&self, name: &str) -> bool {
        let now = Instant::now();
        self.waiting.get(name).map_or_else(|| self.has_others(), |until| *until > now)
    }

    /// Brings the catalog in step with the definitions that changed.
    fn serve(&mut self, changed: &[Text]) {
        // The last state of each counts.
        let mut changes: BTreeMap<Text, Change> = BTreeMap::new();
        for name in &self.affected(changed) {
            let plan = self.plan(name);
            let wanted = self
                .known
                .get(name)
                .filter(|known| known.is_established() || plan.as_ref().is_some_and(Plan::accepts_names));
            let Some(known) = wanted else {
                if let Some(former) = self.served.remove(name) {
                    changes.insert(name.clone(), change(&former, None));
                }
                continue;
            };
            let accepted = plan.map_or_else(|| known.accepted.clone(), |plan| plan.accepted);
            let served = self.served.get(name);
            if served.is_some_and(|s| known.is_served_by(s, &accepted)) {
                continue;
            }
            match known.resources(&self.objects.store, accepted, &self.conversions, &self.shutdown) {
                Ok(resource) => {
                    let resource = Arc::new(resource);
                    changes.insert(name.clone(), change(&resource, Some(&resource)));
                    self.served.insert(name.clone(), resource);
                }
                Err(error) => {
                    tracing::error!(%name, %error, "a CustomResourceDefinition cannot be served");
                    if let Some(former) = self.served.remove(name) {
                        changes.insert(name.clone(), change(&former, None));
                    }
                }
            }
        }
        if !changes.is_empty() {
            let changes: Vec<Change> = changes.into_values().collect();
            self.objects.serve_definitions(&changes);
        }
    }

    /// Writes the conditions of definitions, removes the objects of those that go, and notes when to look again.
    async fn reconcile(&mut self, names: &[Text]) {
        for name in names {
            self.due.remove(name);
            if self.has_others() && !self.waiting.contains_key(name) {
                // Those that are established already wait for nobody.
                let established = self.known.get(name).is_some_and(Known::is_established);
                let until = if established { Duration::ZERO } else { OTHERS };
                self.waiting.insert(name.clone(), Instant::now() + until);
            }
            let Some(plan) = self.plan(name) else { continue };
            if let Some(known) = self.known.get(name)
                && plan.differs(known)
            {
                let now = self.objects.now();
                let written = DEFINITIONS
                    .update_status(&*self.transport, name, |object| plan.apply(object, &now))
                    .await;
                match written {
                    // Names that are given away are used before the watch tells of it.
                    Ok(()) => self.accept(name, &plan),
                    Err(error) => {
                        tracing::warn!(%name, %error, "cannot write the conditions of a CustomResourceDefinition");
                        self.due.insert(name.clone(), Instant::now() + PAUSE);
                    }
                }
            }
            if self.known.get(name).is_some_and(|k| !k.is_established())
                && let Some(until) = self.waiting.get(name).copied().filter(|_| self.waits(name))
            {
                self.due.entry(name.clone()).and_modify(|at| *at = until.min(*at)).or_insert(until);
            }
            if let Some(known) = self.known.get(name).filter(|known| known.is_to_be_removed()) {
                let env = removal::Env {
                    objects: Arc::clone(&self.objects),
                    transport: Arc::clone(&self.transport),
                    shutdown: self.shutdown.clone(),
                };
                self.removals.begin(env, known);
            }
        }
    }
}
