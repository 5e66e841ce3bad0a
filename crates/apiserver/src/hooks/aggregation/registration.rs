//! The APIServices of what this server answers itself: made at the start for what is built in, and kept for the
//! versions of definitions. One that somebody else wrote is left alone. The rules are those of upstream's
//! `autoregister` and `crdregistration` controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{Status, Text};
use client::{Transport, Verb};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use storage::{Batch, Cause, Watcher};
use tokio::time::Instant;

use super::super::env::Env;
use super::calls::API_SERVICES;
use super::state::{ApiService, MANAGED, Spec};
use crate::aggregated::{COMPUTED, Priority, of_builtin, of_definition};
use crate::objects::Objects;
use access::webhook::Trust;

/// Writes under way at once.
const AT_ONCE: usize = 64;
/// The time to wait after something failed.
const PAUSE: Duration = Duration::from_secs(2);
/// The time that other servers get to know a definition that this one knows, and this one to know theirs.
const OTHERS: Duration = Duration::from_secs(5);

/// How an APIService is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// It is put right once, at the start.
    OnStart,
    /// It is put right whenever it changes.
    Always,
}

impl Keep {
    /// The value of the label.
    fn label(self) -> &'static str {
        match self {
            Self::OnStart => "onstart",
            Self::Always => "true",
        }
    }
    fn of(label: &str) -> Option<Self> {
        [Self::OnStart, Self::Always].into_iter().find(|keep| keep.label() == label)
    }
}

/// An APIService that should be there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    spec: Spec,
    keep: Keep,
}

impl Wanted {
    fn new(group: &Text, version: &Text) -> Self {
        let (priority, keep) = match of_builtin(group, version) {
            Some(priority) => (priority, Keep::OnStart),
            None => (of_definition(), Keep::Always),
        };
        let (group, version, trust) = (group.clone(), version.clone(), Trust::Authorities(Vec::new()));
        Self { spec: Spec { group, version, priority, service: None, trust }, keep }
    }
    fn spec_json(&self) -> Value {
        let Spec { group, version, priority, .. } = &self.spec;
        let Priority { group: group_priority, version: version_priority } = priority;
        let mut spec = json!({
            "version": version.as_str(),
            "groupPriorityMinimum": group_priority,
            "versionPriority": version_priority,
        });
        if !group.is_empty() {
            spec["group"] = group.as_str().into();
        }
        spec
    }
    fn object(&self, name: &str) -> Value {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": name, "labels": {MANAGED: self.keep.label()}},
            "spec": self.spec_json(),
        })
    }
}

/// The next step for an APIService.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Nothing,
    Create,
    Update,
    Delete,
}

/// Decides. `synced` says that it was right once, `at_start` that it was there at the start.
fn plan(wanted: Option<&Wanted>, there: Option<&ApiService>, synced: bool, at_start: bool) -> Step {
    let once = wanted.is_some_and(|w| w.keep == Keep::OnStart);
    let Some(there) = there else {
        return if wanted.is_none() || once && synced { Step::Nothing } else { Step::Create };
    };
    if once && synced {
        return Step::Nothing;
    }
    match (there.managed.as_deref().and_then(Keep::of), wanted) {
        (None, _) => Step::Nothing,
        (Some(Keep::OnStart), _) if !at_start || synced => Step::Nothing,
        (Some(_), None) => Step::Delete,
        (Some(_), Some(wanted)) if wanted.spec == there.spec => Step::Nothing,
        (Some(_), Some(_)) => Step::Update,
    }
}

/// The APIServices that should be there, by name.
fn wanted(objects: &Objects) -> BTreeMap<Text, Wanted> {
    let mut all = BTreeMap::new();
    for (group, versions) in
        objects.catalog().resources.groups().iter().filter(|g| g.0 != API_SERVICES.group && g.0 != COMPUTED)
    {
        for version in versions {
            all.insert(Text::from(format!("{version}.{group}")), Wanted::new(group, version));
        }
    }
    all
}

/// All APIServices as they are, and as they should be.
struct Registration {
    objects: Arc<Objects>,
    transport: Arc<dyn Transport>,
    wanted: BTreeMap<Text, Wanted>,
    known: BTreeMap<Text, ApiService>,
    at_start: BTreeSet<Text>,
    synced: BTreeSet<Text>,
    /// When to look at some again.
    due: BTreeMap<Text, Instant>,
}

/// Makes the APIServices, and keeps them from then on.
pub(crate) async fn run(env: &Env) -> Result<(), Status> {
    if env.objects.id(API_SERVICES.names()).is_none() {
        return Ok(());
    }
    let mut served = env.objects.served();
    let mut all = Registration {
        objects: Arc::clone(&env.objects),
        transport: Arc::clone(&env.transport),
        wanted: wanted(&env.objects),
        known: BTreeMap::new(),
        at_start: BTreeSet::new(),
        synced: BTreeSet::new(),
        due: BTreeMap::new(),
    };
    let mut watcher = all.begin_at_last().await;
    all.due.clear();
    all.at_start = all.known.keys().cloned().collect();
    let names: BTreeSet<Text> = all.wanted.keys().chain(all.known.keys()).cloned().collect();
    all.sync(names).await;
    let stop = env.shutdown.clone();
    env.shutdown.spawn(async move {
        let follow = async {
            loop {
                all.follow(&mut watcher, &mut served).await;
                tokio::time::sleep(PAUSE).await;
                watcher = all.begin_at_last().await;
            }
        };
        stop.run(follow).await;
    });
    Ok(())
}

impl Registration {
    async fn begin_at_last(&mut self) -> Watcher {
        loop {
            if let Some(watcher) = self.begin().await {
                return watcher;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads all APIServices anew; `None` if the watch ended before all were seen.
    async fn begin(&mut self) -> Option<Watcher> {
        let mut watcher = self.objects.watch(API_SERVICES.names())?;
        let mut known = BTreeMap::new();
        loop {
            match watcher.next().await {
                Some(Ok(Batch::Events(events))) => {
                    let read = events
                        .iter()
                        .filter_map(|e| Some((e.object.data.name.clone(), ApiService::of(&e.object)?)));
                    known.extend(read);
                }
                Some(Ok(Batch::Synced(_))) => break,
                Some(Ok(Batch::Progress(_))) => {}
                Some(Err(_)) | None => return None,
            }
        }
        let now = Instant::now();
        // Changes of the meantime are looked at once more.
        self.due.extend(self.known.keys().chain(known.keys()).map(|name| (name.clone(), now)));
        self.known = known;
        Some(watcher)
    }

    async fn follow(&mut self, watcher: &mut Watcher, served: &mut tokio::sync::watch::Receiver<()>) {
        loop {
            let next = self.due.values().min().copied();
            let wait = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let names: BTreeSet<Text> = tokio::select! {
                next = watcher.next() => match next {
                    Some(Ok(Batch::Events(events))) => events.iter().map(|event| {
                        let name = event.object.data.name.clone();
                        match ApiService::of(&event.object).filter(|_| event.cause != Cause::Deleted) {
                            Some(api) => drop(self.known.insert(name.clone(), api)),
                            None => drop(self.known.remove(&name)),
                        }
                        name
                    }).collect(),
                    Some(Ok(_)) => BTreeSet::new(),
                    Some(Err(_)) | None => return,
                },
                Ok(()) = served.changed() => {
                    let before = std::mem::replace(&mut self.wanted, wanted(&self.objects));
                    let differs = |name: &&Text| before.get(*name) != self.wanted.get(*name);
                    before.keys().chain(self.wanted.keys()).filter(differs).cloned().collect()
                }
                () = wait => {
                    let now = Instant::now();
                    let due = self.due.iter().filter(|(_, at)| **at <= now);
                    due.map(|(name, _)| name.clone()).collect()
                }
            };
            self.sync(names).await;
        }
    }

    /// Takes the next step for each of these, many at once.
    async fn sync(&mut self, names: BTreeSet<Text>) {
        let mut steps = Vec::new();
        for name in names {
            let asked_before = self.due.remove(&name).is_some();
            let (wanted, there) = (self.wanted.get(&name), self.known.get(&name));
            let step = plan(wanted, there, self.synced.contains(&name), self.at_start.contains(&name));
            // Another server may know a definition that this one does not know yet.
            if step == Step::Delete && self.objects.store.capabilities().others_write && !asked_before {
                self.due.insert(name, Instant::now() + OTHERS);
                continue;
            }
            steps.push((name, step));
        }
        let this = &*self;
        let taken = stream::iter(steps).map(|(name, step)| async move {
            let done = this.take(&name, step).await;
            (name, done)
        });
        let taken: Vec<(Text, Result<(), Status>)> = taken.buffer_unordered(AT_ONCE).collect().await;
        for (name, done) in taken {
            match done {
                Ok(()) => {
                    self.synced.insert(name);
                }
                Err(error) => {
                    tracing::warn!(%name, %error, "cannot keep up an APIService");
                    self.due.insert(name, Instant::now() + PAUSE);
                }
            }
        }
    }

    async fn take(&self, name: &Text, step: Step) -> Result<(), Status> {
        let (wanted, there) = (self.wanted.get(name), self.known.get(name));
        let answer = match (step, wanted, there) {
            (Step::Create, Some(wanted), _) => {
                let object = wanted.object(name);
                self.transport.call(API_SERVICES.call(Verb::Create, "", "", Some(&object))).await
            }
            (Step::Update, Some(wanted), Some(there)) => {
                let uid = there.uid.as_str();
                let mut spec = wanted.spec_json();
                // These go if they are there.
                for other in ["service", "caBundle", "insecureSkipTLSVerify"] {
                    spec[other] = Value::Null;
                }
                let patch = json!({"metadata": {"uid": uid}, "spec": spec});
                self.transport.call(API_SERVICES.call(Verb::MergePatch, name, "", Some(&patch))).await
            }
            (Step::Delete, _, Some(there)) => {
                let options = json!({"preconditions": {"uid": there.uid.as_str()}});
                self.transport.call(API_SERVICES.call(Verb::Delete, name, "", Some(&options))).await
            }
            _ => return Ok(()),
        };
        match answer {
            // Somebody else was faster; the watch tells.
            Err(e) if e.is_already_exists() || e.is_not_found() || e.is_conflict() => Ok(()),
            other => other.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_table() {
        let (apps, things) = ((&"apps".into(), &"v1".into()), (&"w.example".into(), &"v1".into()));
        let on_start = Wanted::new(apps.0, apps.1);
        let always = Wanted::new(things.0, things.1);
        assert_eq!((on_start.keep, always.keep), (Keep::OnStart, Keep::Always));
        let there = |managed: Option<&str>, right: bool| {
            let mut spec = always.spec.clone();
            if !right {
                spec.priority.group += 1;
            }
            ApiService { uid: "u".into(), managed: managed.map(Text::from), spec, condition: None }
        };
        let starting = Wanted { keep: Keep::OnStart, ..always.clone() };
        let wants = [None, Some(&starting), Some(&always)];
        use Step::{Create, Delete, Nothing, Update};
        // The APIService that is there, whether it was right once, whether it was there at the start; a step for each of `wants`.
        let check = |there: Option<ApiService>, synced: bool, at_start: bool, steps: [Step; 3]| {
            let got = wants.map(|wanted| plan(wanted, there.as_ref(), synced, at_start));
            assert_eq!(got, steps, "{there:?} synced {synced} at start {at_start}");
        };
        check(None, false, false, [Nothing, Create, Create]);
        check(None, true, false, [Nothing, Nothing, Create]);
        for (synced, at_start) in [(false, false), (false, true), (true, false), (true, true)] {
            check(Some(there(None, false)), synced, at_start, [Nothing; 3]);
            check(Some(there(Some("odd"), false)), synced, at_start, [Nothing; 3]);
        }
        let onstart = |right| Some(there(Some("onstart"), right));
        check(onstart(false), false, false, [Nothing; 3]);
        check(onstart(false), false, true, [Delete, Update, Update]);
        check(onstart(true), false, true, [Delete, Nothing, Nothing]);
        check(onstart(false), true, true, [Nothing; 3]);
        let kept = |right| Some(there(Some("true"), right));
        check(kept(false), false, false, [Delete, Update, Update]);
        check(kept(false), true, false, [Delete, Nothing, Update]);
        check(kept(true), true, true, [Delete, Nothing, Nothing]);
    }
}
