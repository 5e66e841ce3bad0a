//! Reflectors: they read the objects of informers, whatever those decode them into.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use component::Shutdown;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::client::{Client, ListParams, WatchParams, bookmark};
use crate::skim::Skim;
use crate::transport::{Call, EventKind, Resource, Verb};

/// The part of a resource that an informer shows. The default is everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Namespace, "" for all.
    pub namespace: String,
    /// Label selector, "" for all.
    pub label_selector: String,
    /// Field selector, "" for all.
    pub field_selector: String,
}

impl fmt::Display for Selection {
    /// The selectors, "" for everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.namespace, &self.label_selector, &self.field_selector];
        f.write_str(&parts.into_iter().filter(|p| !p.is_empty()).cloned().collect::<Vec<_>>().join(";"))
    }
}

/// Takes the objects that a reflector reads. A reflector is compiled once, a sink for each type.
pub(crate) trait Sink: Send + Sync {
    /// Takes an object of the state that is being read, or with [`EventKind::Deleted`] takes it out again.
    fn stage(&self, kind: EventKind, object: &Skim<'_>) -> Result<(), Status>;
    /// Forgets the staged objects: the state did not become whole.
    fn discard(&self);
    /// Puts the staged objects, a whole state now, in the place of those that were known.
    fn commit(&self);
    /// Takes a change; the revision of the object.
    fn apply(&self, kind: EventKind, object: &Skim<'_>) -> Result<String, Status>;
}

type Sinks = Vec<Arc<dyn Sink>>;

/// Follows one selection of a resource by list and watch.
pub(crate) struct Reflector {
    client: Client,
    resource: Resource,
    selection: Selection,
    state: Mutex<State>,
    /// Somebody is to be fed who has not seen the state.
    newcomer: Notify,
}

#[derive(Default)]
struct State {
    sinks: Sinks,
    runs: bool,
}

impl Reflector {
    /// A reflector that feeds nobody yet.
    pub(crate) fn new(client: &Client, resource: Resource, selection: Selection) -> Self {
        Self { client: client.clone(), resource, selection, state: Mutex::default(), newcomer: Notify::new() }
    }

    /// The resource.
    pub(crate) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The part of it that is read.
    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Feeds one more sink. If the reflector runs already it reads the state anew, which is no change to the others.
    pub(crate) fn feed(&self, sink: Arc<dyn Sink>) {
        let mut state = self.state.lock();
        state.sinks.push(sink);
        if state.runs {
            self.newcomer.notify_one();
        }
    }

    /// Follows the server until `shutdown`. Started while it runs, it does nothing.
    pub(crate) fn start(self: &Arc<Self>, shutdown: &Shutdown) {
        if std::mem::replace(&mut self.state.lock().runs, true) {
            return;
        }
        let (this, stop) = (self.clone(), shutdown.clone());
        shutdown.spawn(async move {
            let _ = stop.run(this.follow()).await;
            this.state.lock().runs = false;
        });
    }

    async fn follow(&self) {
        // client-go's numbers: 800 ms to 30 s, forgotten after two quiet minutes.
        let mut backoff = Backoff::new(Duration::from_millis(800), Duration::from_secs(30));
        let mut reading =
            Reading { reflector: self, sinks: Sinks::new(), revision: None, stream_initial: true };
        loop {
            reading.sinks.clone_from(&self.state.lock().sinks);
            let began = Instant::now();
            let step = tokio::select! {
                biased;
                () = self.newcomer.notified() => {
                    reading.begin_anew();
                    continue;
                }
                step = reading.step() => step,
            };
            if began.elapsed() > Duration::from_mins(2) {
                backoff.reset();
            }
            let Err(error) = step else { continue };
            let delay = backoff.delay();
            tracing::debug!(
                resource = %self.resource.plural, %error, delay_ms = delay.as_millis() as u64,
                "list and watch failed, will retry"
            );
            tokio::time::sleep(delay).await;
        }
    }
}

/// How far a reflector has got.
struct Reading<'a> {
    reflector: &'a Reflector,
    sinks: Sinks,
    /// The newest revision seen; none before the first state, or after the server forgot it.
    revision: Option<String>,
    /// Whether the first state is asked for as a watch; the server may not know how.
    stream_initial: bool,
}

impl Reading<'_> {
    /// One list, or one watch until it ends.
    async fn step(&mut self) -> Result<(), Status> {
        let result = match self.revision.clone() {
            Some(revision) => self.watch(revision).await,
            None => self.first_state().await.inspect_err(|_| self.discard()),
        };
        match result {
            Err(e) if e.code == 410 => {
                self.revision = None;
                // A revision that was compacted away is no failure: list again at once.
                Ok(())
            }
            other => other,
        }
    }

    async fn first_state(&mut self) -> Result<(), Status> {
        if self.stream_initial {
            match self.watch_list().await {
                Err(e) if matches!(e.code, 400 | 405 | 415 | 422) => {
                    self.stream_initial = false;
                    self.discard();
                }
                other => return other,
            }
        }
        self.list().await
    }

    fn begin_anew(&mut self) {
        self.revision = None;
        self.discard();
    }

    fn discard(&self) {
        self.sinks.iter().for_each(|sink| sink.discard());
    }

    fn commit(&mut self, revision: String) {
        self.sinks.iter().for_each(|sink| sink.commit());
        self.revision = Some(revision);
    }

    fn stage(&self, kind: EventKind, json: &[u8]) -> Result<(), Status> {
        let object = Skim::new(json);
        self.sinks.iter().try_for_each(|sink| sink.stage(kind, &object))
    }

    fn call(&self, verb: Verb, query: Vec<(compact_str::CompactString, String)>) -> Call {
        Call {
            verb,
            resource: self.reflector.resource.clone(),
            namespace: self.reflector.selection.namespace.as_str().into(),
            name: "".into(),
            subresource: "".into(),
            query,
            body: Bytes::new(),
        }
    }

    fn watch_params(&self) -> WatchParams {
        let selection = &self.reflector.selection;
        WatchParams {
            label_selector: selection.label_selector.clone(),
            field_selector: selection.field_selector.clone(),
            bookmarks: true,
            // Random, so that the watches of a cluster do not all start anew together.
            timeout_seconds: fastrand::u32(300..600),
            ..WatchParams::default()
        }
    }

    /// The state as pages of a list.
    async fn list(&mut self) -> Result<(), Status> {
        let reflector = self.reflector;
        let mut params = ListParams {
            label_selector: reflector.selection.label_selector.clone(),
            field_selector: reflector.selection.field_selector.clone(),
            resource_version: "0".into(),
            ..ListParams::default()
        };
        loop {
            let call = self.call(Verb::List, params.query());
            let page = match reflector.client.transport().list(call).await {
                // The server is behind what was asked for, or the token is too old: ask for the newest.
                Err(e) if e.code == 410 && !params.resource_version.is_empty() => {
                    params.resource_version.clear();
                    params.continue_token.clear();
                    self.discard();
                    continue;
                }
                page => page?,
            };
            for item in &page.items {
                self.stage(EventKind::Added, item)?;
            }
            if page.continue_token.is_empty() {
                self.commit(page.resource_version);
                return Ok(());
            }
            params.continue_token = page.continue_token;
            params.resource_version.clear();
        }
    }

    /// The state as the beginning of a watch, which goes on with the changes.
    async fn watch_list(&mut self) -> Result<(), Status> {
        let params = WatchParams {
            initial_events: true,
            resource_version_match: "NotOlderThan".into(),
            ..self.watch_params()
        };
        let call = self.call(Verb::Watch, params.query());
        let mut stream = self.reflector.client.transport().watch(call).await?;
        let mut whole = false;
        while let Some(event) = stream.next().await {
            let event = event?;
            if whole {
                self.apply(event.kind, &event.object)?;
            } else if event.kind == EventKind::Bookmark {
                let (revision, end) = bookmark(&event.object)?;
                if end {
                    self.commit(revision);
                    whole = true;
                }
            } else {
                self.stage(event.kind, &event.object)?;
            }
        }
        if whole {
            return Ok(());
        }
        Err(Status::failure(504, "Timeout", "the watch ended before the initial events were complete"))
    }

    async fn watch(&mut self, revision: String) -> Result<(), Status> {
        let began = Instant::now();
        let params = WatchParams { resource_version: revision, ..self.watch_params() };
        let call = self.call(Verb::Watch, params.query());
        let mut stream = self.reflector.client.transport().watch(call).await?;
        let mut events = 0usize;
        while let Some(event) = stream.next().await {
            let event = event.inspect_err(|e| {
                // The watch would come to the same object again, of which no event could be made.
                if e.code == 500 {
                    self.revision = None;
                }
            })?;
            self.apply(event.kind, &event.object)?;
            events += 1;
        }
        if events == 0 && began.elapsed() < Duration::from_secs(1) {
            return Err(Status::failure(500, "InternalError", "very short watch: it ended without an event"));
        }
        Ok(())
    }

    /// Takes a change. A change that cannot be read at all is passed over by reading the state anew: the watch would
    /// begin with it again, for ever.
    fn apply(&mut self, kind: EventKind, json: &[u8]) -> Result<(), Status> {
        let done = self.try_apply(kind, json);
        if done.is_err() {
            self.revision = None;
        }
        done
    }

    fn try_apply(&mut self, kind: EventKind, json: &[u8]) -> Result<(), Status> {
        if kind == EventKind::Bookmark {
            self.revision = Some(bookmark(json)?.0);
            return Ok(());
        }
        let object = Skim::new(json);
        for sink in &self.sinks {
            self.revision = Some(sink.apply(kind, &object)?);
        }
        Ok(())
    }
}
