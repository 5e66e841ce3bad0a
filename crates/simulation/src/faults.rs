//! Faults of the way between the components and the API server.
//!
//! Every client of a cluster but the administrator's sends its requests through here. A [`Rule`] picks requests and
//! says what becomes of them; without rules nothing changes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use client::{Call, ListAnswer, Transport, Verb, WatchEvent};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

/// The fate of a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is refused, and nothing is done.
    Refuse(Status),
    /// It is carried out, and this comes in the place of its answer.
    Lose(Status),
    /// It is neither carried out nor answered.
    Hang,
    /// It is carried out after this time.
    Delay(Duration),
    /// It is answered with this (a list with metadata and items), and the server is not asked.
    Answer(Value),
    /// It is carried out, or refused, when a [`Gate`] says so.
    Wait(Waits),
}

/// The verdict that a held request waits for.
pub type Waits = Arc<Mutex<Option<oneshot::Receiver<Result<(), Status>>>>>;

/// A held request.
#[derive(Debug)]
pub struct Gate(oneshot::Sender<Result<(), Status>>);

impl Gate {
    /// Lets the request through, or refuses it.
    pub fn open(self, verdict: Result<(), Status>) {
        // Nobody waits if the request was given up.
        let _ = self.0.send(verdict);
    }
}

/// Requests, and what becomes of them. All requests, unless its methods narrow it.
#[derive(Debug, Clone)]
pub struct Rule {
    verb: Option<Verb>,
    resource: Option<String>,
    subresource: Option<String>,
    name: Option<String>,
    path: Option<String>,
    writes: bool,
    updates: bool,
    by: Whose,
    skip: usize,
    times: usize,
    /// The names that it met, where it meets each name once.
    met: Option<HashSet<String>>,
    fault: Fault,
}

impl Rule {
    /// A rule for all requests.
    pub fn new(fault: Fault) -> Self {
        Self {
            verb: None,
            resource: None,
            subresource: None,
            name: None,
            path: None,
            writes: false,
            updates: false,
            by: Whose::All,
            skip: 0,
            times: usize::MAX,
            met: None,
            fault,
        }
    }
    /// For one verb alone.
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }
    /// For the resource of this plural name alone.
    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }
    /// For this subresource alone, "" for the object itself.
    pub fn subresource(mut self, name: &str) -> Self {
        self.subresource = Some(name.to_owned());
        self
    }
    /// For the object of this name alone.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }
    /// For a path that is no resource.
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }
    /// For requests that change something alone, Events and Leases aside.
    pub fn writes(mut self) -> Self {
        self.writes = true;
        self
    }
    /// For requests alone that change an object that is there.
    pub fn updates(mut self) -> Self {
        self.updates = true;
        self
    }
    /// For requests of controllers alone.
    pub fn controllers(mut self) -> Self {
        self.by = Whose::Controllers;
        self
    }
    /// For requests of controllers and of the scheduler alone.
    pub fn plane(mut self) -> Self {
        self.by = Whose::Plane;
        self
    }
    /// Not for the first so many of these requests.
    pub fn skip(mut self, count: usize) -> Self {
        self.skip = count;
        self
    }
    /// For so many of these requests.
    pub fn times(mut self, count: usize) -> Self {
        self.times = count;
        self
    }
    /// For the first request about each name.
    pub fn first_of_each(mut self) -> Self {
        self.met = Some(HashSet::new());
        self
    }

    fn picks(&self, call: &Call, by: By) -> bool {
        let is = |wanted: &Option<String>, has: &str| wanted.as_deref().is_none_or(|w| w == has);
        self.path.is_none()
            && (!self.writes || is_write(call))
            && !(self.updates && matches!(call.verb, Verb::Create | Verb::Delete | Verb::DeleteCollection))
            && match self.by {
                Whose::All => true,
                Whose::Plane => by != By::Others,
                Whose::Controllers => by == By::Controller,
            }
            && self.verb.is_none_or(|v| v == call.verb)
            && is(&self.resource, &call.resource.plural)
            && is(&self.subresource, &call.subresource)
            && is(&self.name, &call.name)
            && self.met.as_ref().is_none_or(|met| !met.contains(call.name.as_str()))
    }

    /// Counts a request that it picks; its fate, if that is not left to others.
    fn take(&mut self, name: &str) -> Option<Fault> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times = self.times.checked_sub(1)?;
        if let Some(met) = &mut self.met {
            met.insert(name.to_owned());
        }
        Some(self.fault.clone())
    }
}

/// Whether a request changes something that matters: Events tell of what happened, Leases that somebody is there.
fn is_write(call: &Call) -> bool {
    let reads = matches!(call.verb, Verb::Get | Verb::List | Verb::Watch);
    !reads && !matches!(call.resource.plural.as_str(), "events" | "leases")
}

/// Those whose requests a rule picks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    All,
    Plane,
    Controllers,
}

/// The sort of those who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Controller,
    Scheduler,
    Others,
}

impl By {
    fn of(user: &str) -> Self {
        let account = user.starts_with("system:serviceaccount:kube-system:");
        match user {
            "system:kube-scheduler" => Self::Scheduler,
            _ if account || user == controllers::SHARED_USER => Self::Controller,
            _ => Self::Others,
        }
    }
}

/// The fate of open watches, by the plural names of resources.
#[derive(Debug, Default)]
struct Watches {
    /// The resources whose events are held back.
    held: BTreeSet<String>,
    /// The number of times that all watches of a resource were ended.
    ended: BTreeMap<String, usize>,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    /// The requests so far, if anybody wants to know.
    seen: Option<Vec<Call>>,
    /// The number of writes of controllers.
    writes: usize,
    /// The number of requests that a rule met.
    met: usize,
}

/// The faults of a cluster. Clones are the same.
#[derive(Clone, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    watches: Arc<watch::Sender<Watches>>,
}

impl Faults {
    /// Adds a rule. The first rule that fits a request counts.
    pub fn add(&self, rule: Rule) {
        self.state.lock().rules.push(rule);
    }
    /// Adds a rule that holds the next request that it picks.
    pub fn hold(&self, rule: impl FnOnce(Fault) -> Rule) -> Gate {
        let (open, waits) = oneshot::channel();
        self.add(rule(Fault::Wait(Arc::new(Mutex::new(Some(waits))))).times(1));
        Gate(open)
    }
    /// Removes all rules.
    pub fn clear(&self) {
        self.state.lock().rules.clear();
    }
    /// Holds back the events of all watches of a resource.
    pub fn hold_events(&self, plural: &str) {
        self.watches.send_modify(|w| {
            w.held.insert(plural.to_owned());
        });
    }
    /// Lets the events of all watches of a resource come again, those first that were held back.
    pub fn let_events_come(&self, plural: &str) {
        self.watches.send_modify(|w| {
            w.held.remove(plural);
        });
    }
    /// Ends all open watches of a resource.
    pub fn end_watches(&self, plural: &str) {
        self.watches.send_modify(|w| *w.ended.entry(plural.to_owned()).or_default() += 1);
    }
    /// Remembers all requests from now on.
    pub fn record(&self) {
        self.state.lock().seen = Some(Vec::new());
    }
    /// Returns the requests that were recorded.
    pub fn seen(&self) -> Vec<Call> {
        self.state.lock().seen.clone().unwrap_or_default()
    }

    /// The number of writes of controllers so far, Events and Leases aside.
    pub fn controller_writes(&self) -> usize {
        self.state.lock().writes
    }
    /// The number of requests so far that a rule met.
    pub fn met(&self) -> usize {
        self.state.lock().met
    }

    /// The way of a user's client.
    pub(crate) fn on(&self, inner: Arc<dyn Transport>, user: &str) -> Arc<dyn Transport> {
        Arc::new(Faulty { inner, faults: self.clone(), by: By::of(user) })
    }

    fn fate(&self, call: &Call, by: By) -> Option<Fault> {
        let mut state = self.state.lock();
        state.writes += usize::from(by == By::Controller && is_write(call));
        if let Some(seen) = &mut state.seen {
            seen.push(call.clone());
        }
        let fate = state.rules.iter_mut().filter(|r| r.picks(call, by)).find_map(|r| r.take(&call.name));
        state.met += usize::from(fate.is_some());
        fate
    }

    fn fate_of_path(&self, path: &str) -> Option<Fault> {
        let mut state = self.state.lock();
        let mut rules = state.rules.iter_mut().filter(|r| r.path.as_deref() == Some(path));
        rules.find_map(|r| r.take(path))
    }

    /// The events of a watch, as far as they get through.
    fn events(
        &self,
        plural: &str,
        inner: BoxStream<'static, Result<WatchEvent, Status>>,
    ) -> BoxStream<'static, Result<WatchEvent, Status>> {
        let ends = |w: &Watches, plural: &str| w.ended.get(plural).copied().unwrap_or(0);
        let seen = self.watches.subscribe();
        let before = ends(&seen.borrow(), plural);
        let start = (inner, seen, plural.to_owned());
        stream::unfold(start, move |(mut inner, mut seen, plural)| async move {
            let mut ended = seen.clone();
            let end = ended.wait_for(|w| ends(w, &plural) != before);
            let event = async {
                let event = inner.next().await?;
                // The sender lives as long as the cluster.
                let _ = seen.wait_for(|w| !w.held.contains(&plural)).await;
                Some(event)
            };
            let event = tokio::select! {
                biased;
                _ = end => None,
                event = event => event,
            };
            event.map(|event| (event, (inner, seen, plural)))
        })
        .boxed()
    }
}

/// The way of one client.
struct Faulty {
    inner: Arc<dyn Transport>,
    faults: Faults,
    by: By,
}

/// Carries out a request as its fate has it. `answer` turns JSON into an answer.
async fn meet<T>(
    fate: Option<Fault>,
    request: impl Future<Output = Result<T, Status>>,
    answer: impl FnOnce(&Value) -> Result<T, Status>,
) -> Result<T, Status> {
    match fate {
        None => request.await,
        Some(Fault::Refuse(status)) => Err(status),
        Some(Fault::Lose(status)) => request.await.and(Err(status)),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Delay(time)) => {
            tokio::time::sleep(time).await; // the slowness itself, in simulated time
            request.await
        }
        Some(Fault::Answer(value)) => answer(&value),
        Some(Fault::Wait(gate)) => {
            let waits = gate.lock().take();
            if let Some(waits) = waits {
                // A gate that was dropped lets the request through.
                waits.await.unwrap_or(Ok(()))?;
            }
            request.await
        }
    }
}

fn bytes(value: &Value) -> Result<Bytes, Status> {
    Ok(Bytes::from(value.to_string()))
}

impl Transport for Faulty {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        meet(self.faults.fate(&call, self.by), self.inner.call(call), bytes).boxed()
    }
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        let items = |value: &Value| {
            let items = value["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            Ok(ListAnswer {
                resource_version: value["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned(),
                continue_token: String::new(),
                items: items.iter().map(|i| Bytes::from(i.to_string())).collect(),
            })
        };
        meet(self.faults.fate(&call, self.by), self.inner.list(call), items).boxed()
    }
    fn raw(&self, path: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        let (fate, path) = (self.faults.fate_of_path(path), path.to_owned());
        async move { meet(fate, self.inner.raw(&path), bytes).await }.boxed()
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        let plural = call.resource.plural.clone();
        let no_events = |_: &Value| Err(Status::bad_request("a watch has no single answer"));
        let opened = meet(self.faults.fate(&call, self.by), self.inner.watch(call), no_events);
        async move { Ok(self.faults.events(&plural, opened.await?)) }.boxed()
    }
}
