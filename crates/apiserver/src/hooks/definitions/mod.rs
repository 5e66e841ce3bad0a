//! CustomResourceDefinitions: their resources are served, their names are accepted, and their objects go with them.
//!
//! One task follows all definitions. The resources of a definition become a part of the catalog before its condition
//! `Established` says so; a change costs work for that definition only. The rules are those of upstream's controllers
//! (`apiextensions-apiserver/pkg/controller`), in one place: [`plan`].

mod calls;
mod plan;
mod removal;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Object, Status, Text};
use client::Transport;
use futures::StreamExt;
use storage::{Batch, Cause, Event, Watcher};

use self::calls::{GROUP, PLURAL, update_status};
use self::plan::Plan;
use self::state::Known;
use super::env::Env;
use crate::catalog::custom::CustomResource;
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
    served: BTreeMap<Text, Arc<CustomResource>>,
    /// When definitions may be established that other servers should serve first.
    waiting: BTreeMap<Text, tokio::time::Instant>,
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
        served: BTreeMap::new(),
        waiting: BTreeMap::new(),
        removals: removal::Removals::default(),
    };
    let Some(mut watcher) = all.begin().await else { return Ok(()) };
    let stop = env.shutdown.clone();
    env.shutdown.spawn(async move {
        let follow = async {
            loop {
                all.follow(&mut watcher).await;
                tokio::time::sleep(PAUSE).await;
                match all.begin().await {
                    Some(next) => watcher = next,
                    None => return,
                }
            }
        };
        stop.run(follow).await;
    });
    Ok(())
}

impl Definitions {
    /// Reads all definitions anew, and serves them; `None` if definitions are not served here.
    async fn begin(&mut self) -> Option<Watcher> {
        let mut watcher = self.objects.watch((GROUP, PLURAL))?;
        let mut gone: std::collections::BTreeSet<Text> = self.known.keys().cloned().collect();
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
            self.known.remove(&name);
            changed.push(name);
        }
        self.serve(&changed);
        Some(watcher)
    }

    /// Acts on every change until the watch ends.
    async fn follow(&mut self, watcher: &mut Watcher) {
        let mut pending: Vec<Text> = self.known.keys().cloned().collect();
        loop {
            let again = self.reconcile(&pending).await;
            pending.clear();
            let wait = async {
                match again {
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
                        pending = changed;
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
                () = wait => pending = self.known.keys().cloned().collect(),
            }
        }
    }

    /// Takes a change over; returns the definition that changed.
    fn take(&mut self, event: &Arc<Event>) -> Option<Text> {
        let name = event.object.data.name.clone();
        if event.cause == Cause::Deleted {
            self.known.remove(&name)?;
            self.waiting.remove(&name);
            return Some(name);
        }
        let object: &Object = &event.object;
        match state::read(&self.objects, object, self.known.get(&name)) {
            Ok(known) => {
                self.known.insert(name.clone(), known);
            }
            Err(error) => {
                // A definition that cannot be read is not served.
                tracing::error!(%name, %error, "a CustomResourceDefinition cannot be read");
                self.known.remove(&name);
            }
        }
        Some(name)
    }

    /// The definitions that may be affected by changes: those, and the others of their groups.
    fn affected(&self, changed: &[Text]) -> Vec<Text> {
        let groups: std::collections::BTreeSet<&str> =
            changed.iter().filter_map(|name| name.split_once('.')).map(|(_, group)| group).collect();
        let of = |name: &&Text| name.split_once('.').is_some_and(|(_, group)| groups.contains(group));
        self.known.keys().filter(of).cloned().collect()
    }

    fn plan(&self, name: &str) -> Option<Plan> {
        let known = self.known.get(name)?;
        let others = self.known.values().filter(|k| k.group() == known.group());
        Some(plan::plan(known, others, !self.waits(name)))
    }

    /// Whether other servers are still to serve a definition before it is established.
    fn waits(&self, name: &str) -> bool {
        let now = tokio::time::Instant::now();
        self.objects.store.capabilities().others_write
            && self.waiting.get(name).is_none_or(|until| *until > now)
    }

    /// Brings the catalog in step with the definitions that changed.
    fn serve(&mut self, changed: &[Text]) {
        let mut differs = false;
        for name in self.affected(changed).iter().chain(changed) {
            let wanted = self.known.get(name).filter(|known| {
                known.is_established() || self.plan(name).is_some_and(|plan| plan.accepts_names())
            });
            let Some(known) = wanted else {
                differs |= self.served.remove(name).is_some();
                continue;
            };
            let accepted = self.plan(name).map_or_else(|| known.accepted.clone(), |plan| plan.accepted);
            let served = self.served.get(name);
            if served.is_some_and(|s| known.is_served_by(s, &accepted)) {
                continue;
            }
            match known.resources(&self.objects.store, accepted, &self.conversions, &self.shutdown) {
                Ok(resource) => {
                    self.served.insert(name.clone(), Arc::new(resource));
                }
                Err(error) => {
                    tracing::error!(%name, %error, "a CustomResourceDefinition cannot be served");
                    self.served.remove(name);
                }
            }
            differs = true;
        }
        if differs {
            let all: Vec<Arc<CustomResource>> = self.served.values().cloned().collect();
            self.objects.serve_custom(&all);
        }
    }

    /// Writes the conditions of definitions, and removes the objects of those that go. Returns when to look again.
    async fn reconcile(&mut self, changed: &[Text]) -> Option<tokio::time::Instant> {
        let mut again: Option<tokio::time::Instant> = None;
        let mut at = |time: tokio::time::Instant| again = Some(again.map_or(time, |a| a.min(time)));
        for name in self.affected(changed) {
            if self.objects.store.capabilities().others_write && !self.waiting.contains_key(&name) {
                // Those that are established already wait for nobody.
                let established = self.known.get(&name).is_some_and(Known::is_established);
                let until = if established { Duration::ZERO } else { OTHERS };
                self.waiting.insert(name.clone(), tokio::time::Instant::now() + until);
            }
            let Some(plan) = self.plan(&name) else { continue };
            if let Some(known) = self.known.get(&name)
                && plan.differs(known)
            {
                let now = self.objects.now();
                let written = update_status(&*self.transport, &name, |object| plan.apply(object, &now)).await;
                if let Err(error) = written {
                    tracing::warn!(%name, %error, "cannot write the conditions of a CustomResourceDefinition");
                    at(tokio::time::Instant::now() + PAUSE);
                }
            }
            if self.known.get(&name).is_some_and(|k| !k.is_established())
                && let Some(until) = self.waiting.get(&name).filter(|_| self.waits(&name))
            {
                at(*until);
            }
            if let Some(known) = self.known.get(&name).filter(|known| known.is_to_be_removed()) {
                let env = removal::Env {
                    objects: Arc::clone(&self.objects),
                    transport: Arc::clone(&self.transport),
                    shutdown: self.shutdown.clone(),
                };
                self.removals.begin(env, known);
            }
        }
        again
    }
}
