//! The APIServices of what this server answers itself: made at the start for what is built in, and kept for the
//! versions that definitions serve, whether their names were accepted or not. One that somebody else wrote is left alone. The rules are those of upstream's
//! `autoregister` and `crdregistration` controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use access::reader::read;
use api::{Object, Status, Text};
use client::{Transport, Verb};
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use storage::{Batch, Cause, WatchEnd, Watcher};
use tokio::time::Instant;

use super::super::env::Env;
use super::super::status::Kind;
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

/// The APIServices of what is built in, by name.
fn built_in(objects: &Objects) -> BTreeMap<Text, Wanted> {
    let mut all = BTreeMap::new();
    for (group, versions) in &objects.catalog().resources.groups() {
        if group == API_SERVICES.group || group == COMPUTED {
            continue;
        }
        for version in versions.iter().filter(|version| of_builtin(group, version).is_some()) {
            all.insert(Text::from(format!("{version}.{group}")), Wanted::new(group, version));
        }
    }
    all
}

/// The group of a definition, and its versions that are served.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Definition {
    group: Text,
    served: Vec<Text>,
}

impl Definition {
    /// Reads a stored one; `None` if it is none.
    fn of(object: &Object) -> Option<Self> {
        #[derive(Deserialize)]
        struct Wire {
            spec: Versions,
        }
        #[derive(Deserialize)]
        struct Versions {
            group: Text,
            #[serde(default)]
            versions: Vec<Version>,
        }
        #[derive(Deserialize)]
        struct Version {
            name: Text,
            #[serde(default)]
            served: bool,
        }
        let Wire { spec } = read(object)?;
        let served = spec.versions.into_iter().filter(|v| v.served).map(|v| v.name).collect();
        Some(Self { group: spec.group, served })
    }
    /// Its versions that are not built in, by the names of their APIServices.
    ///
    /// DIFFERENCE: in upstream the APIService of a built-in version gets the places of definitions as soon as a definition
    /// has that version, and goes with it.
    fn services(&self) -> BTreeMap<Text, &Text> {
        let own = self.served.iter().filter(|version| of_builtin(&self.group, version).is_none());
        own.map(|version| (Text::from(format!("{version}.{}", self.group)), version)).collect()
    }
}

/// The definitions by their names, and how many of them serve each version.
#[derive(Debug, Default)]
struct Definitions {
    all: BTreeMap<Text, Definition>,
    /// By the names of the APIServices.
    serving: BTreeMap<Text, usize>,
}

impl Definitions {
    /// Takes a definition's state, and notes what should be there of its versions; the names of the APIServices that may
    /// differ. It costs work for this definition alone.
    fn follow(
        &mut self,
        wanted: &mut BTreeMap<Text, Wanted>,
        name: &Text,
        now: Option<Definition>,
    ) -> BTreeSet<Text> {
        let before = self.all.remove(name);
        let [former, present] =
            [&before, &now].map(|d| d.as_ref().map(Definition::services).unwrap_or_default());
        let mut names = BTreeSet::new();
        for service in former.keys().filter(|service| !present.contains_key(*service)) {
            let count = self.serving.get(service).copied().unwrap_or_default();
            if count > 1 {
                self.serving.insert(service.clone(), count - 1);
            } else {
                self.serving.remove(service);
                wanted.remove(service);
            }
            names.insert(service.clone());
        }
        for (service, version) in present.iter().filter(|(service, _)| !former.contains_key(*service)) {
            *self.serving.entry(service.clone()).or_default() += 1;
            if let Some(Definition { group, .. }) = &now {
                wanted.entry(service.clone()).or_insert_with(|| Wanted::new(group, version));
            }
            names.insert(service.clone());
        }
        if let Some(now) = now {
            self.all.insert(name.clone(), now);
        }
        names
    }
}

/// All APIServices as they are, and as they should be.
struct Registration {
    objects: Arc<Objects>,
    transport: Arc<dyn Transport>,
    wanted: BTreeMap<Text, Wanted>,
    definitions: Definitions,
    known: BTreeMap<Text, ApiService>,
    at_start: BTreeSet<Text>,
    synced: BTreeSet<Text>,
    /// When to look at some again.
    due: BTreeMap<Text, Instant>,
}

/// The kind of definitions.
const DEFINITIONS: Kind = Kind { group: "apiextensions.k8s.io", plural: "customresourcedefinitions" };

/// The watches of APIServices, and of definitions where these are served.
struct Watchers {
    services: Watcher,
    definitions: Option<Watcher>,
}

/// The next batch of a watch that there may be.
async fn next_of(watcher: &mut Option<Watcher>) -> Option<Result<Batch, WatchEnd>> {
    match watcher {
        Some(watcher) => watcher.next().await,
        None => std::future::pending().await,
    }
}

/// Reads all that a watch begins with, by name; `None` if it ended before.
async fn all_of<T>(watcher: &mut Watcher, read: fn(&Object) -> Option<T>) -> Option<BTreeMap<Text, T>> {
    let mut all = BTreeMap::new();
    loop {
        match watcher.next().await {
            Some(Ok(Batch::Events(events))) => {
                let read = events.iter().filter_map(|e| Some((e.object.data.name.clone(), read(&e.object)?)));
                all.extend(read);
            }
            Some(Ok(Batch::Synced(_))) => return Some(all),
            Some(Ok(Batch::Progress(_))) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// Makes the APIServices, and keeps them from then on.
pub(crate) async fn run(env: &Env) -> Result<(), Status> {
    if env.objects.id(API_SERVICES.names()).is_none() {
        return Ok(());
    }
    let mut all = Registration {
        objects: Arc::clone(&env.objects),
        transport: Arc::clone(&env.transport),
        wanted: built_in(&env.objects),
        definitions: Definitions::default(),
        known: BTreeMap::new(),
        at_start: BTreeSet::new(),
        synced: BTreeSet::new(),
        due: BTreeMap::new(),
    };
    let mut watchers = all.begin_at_last().await;
    all.due.clear();
    all.at_start = all.known.keys().cloned().collect();
    let names: BTreeSet<Text> = all.wanted.keys().chain(all.known.keys()).cloned().collect();
    all.sync(names).await;
    let stop = env.shutdown.clone();
    env.shutdown.spawn(async move {
        let follow = async {
            loop {
                all.follow(&mut watchers).await;
                tokio::time::sleep(PAUSE).await;
                watchers = all.begin_at_last().await;
            }
        };
        stop.run(follow).await;
    });
    Ok(())
}

impl Registration {
    async fn begin_at_last(&mut self) -> Watchers {
        loop {
            if let Some(watchers) = self.begin().await {
                return watchers;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads all definitions and APIServices anew; `None` if a watch ended before all were seen.
    async fn begin(&mut self) -> Option<Watchers> {
        let mut definitions = self.objects.watch(DEFINITIONS.names());
        let mut named = BTreeMap::new();
        if let Some(watcher) = &mut definitions {
            named = all_of(watcher, Definition::of).await?;
        }
        let mut services = self.objects.watch(API_SERVICES.names())?;
        let known = all_of(&mut services, ApiService::of).await?;
        let now = Instant::now();
        let names: BTreeSet<Text> = self.definitions.all.keys().chain(named.keys()).cloned().collect();
        for name in names {
            let changed = self.definitions.follow(&mut self.wanted, &name, named.remove(&name));
            self.due.extend(changed.into_iter().map(|name| (name, now)));
        }
        // Changes of the meantime are looked at once more.
        self.due.extend(self.known.keys().chain(known.keys()).map(|name| (name.clone(), now)));
        self.known = known;
        Some(Watchers { services, definitions })
    }

    async fn follow(&mut self, Watchers { services, definitions }: &mut Watchers) {
        loop {
            let next = self.due.values().min().copied();
            let wait = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let names: BTreeSet<Text> = tokio::select! {
                next = services.next() => match next {
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
                next = next_of(definitions) => match next {
                    Some(Ok(Batch::Events(events))) => events.iter().flat_map(|event| {
                        let now = Definition::of(&event.object).filter(|_| event.cause != Cause::Deleted);
                        self.definitions.follow(&mut self.wanted, &event.object.data.name, now)
                    }).collect(),
                    Some(Ok(_)) => BTreeSet::new(),
                    Some(Err(_)) | None => return,
                },
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

    /// Upstream's cases (`crdregistration_controller_test.go`), and changes.
    #[test]
    fn versions_of_definitions() {
        let (mut definitions, mut wanted) = (Definitions::default(), BTreeMap::new());
        let mut check = |name: &str, served: Option<&[&str]>, changed: &[&str], there: &[&str]| {
            let now = served.map(|served| Definition {
                group: "group.com".into(),
                served: served.iter().map(|v| Text::from(*v)).collect(),
            });
            let names = definitions.follow(&mut wanted, &name.into(), now);
            assert_eq!(names.into_iter().collect::<Vec<_>>(), changed, "{name}");
            assert_eq!(wanted.keys().collect::<Vec<_>>(), there, "{name}");
            assert_eq!(definitions.serving.keys().collect::<Vec<_>>(), there, "{name}");
            assert!(wanted.values().all(|w| w.keep == Keep::Always && w.spec.priority == of_definition()));
        };
        let (v1, v2) = ("v1.group.com", "v2.group.com");
        check("one", Some(&["v1"]), &[v1], &[v1]);
        check("two", Some(&["v1", "v2", "v2"]), &[v1, v2], &[v1, v2]);
        check("one", Some(&["v1"]), &[], &[v1, v2]);
        check("two", Some(&["v1"]), &[v2], &[v1]);
        check("one", None, &[v1], &[v1]);
        check("two", Some(&[]), &[v1], &[]);
        check("two", None, &[], &[]);
        check("gone", None, &[], &[]);
        let built_in = Definition { group: "apps".into(), served: vec!["v1".into()] };
        assert!(definitions.follow(&mut wanted, &"x".into(), Some(built_in)).is_empty());
    }

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
