//! Writes: transactions that compare the revision that the caller read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::{NewObject, Object};
use bytes::Bytes;
use etcd::Error;
use etcd::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use etcd::rpc::request_op::Request;
use etcd::rpc::response_op::Response;
use etcd::rpc::{
    self, Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use tokio::time::Instant;

use super::unreadable::Entry;
use super::{CodecError, Engine};
use crate::store::{ResourceId, Write, WriteError};

/// The time for which a write is tried while etcd has no leader.
const BUDGET: Duration = Duration::from_secs(20);
/// The time for which an answer waits for the index to show the write.
const SHOWN: Duration = Duration::from_secs(10);

/// The objects that are being written: the values of each key, with their objects.
#[derive(Debug, Default)]
pub(crate) struct Writing(HashMap<Bytes, Vec<(Bytes, NewObject)>>);

impl Writing {
    fn add(&mut self, key: Bytes, value: Bytes, object: NewObject) {
        self.0.entry(key).or_default().push((value, object));
    }

    fn remove(&mut self, key: &Bytes, value: &Bytes) {
        let Some(values) = self.0.get_mut(key) else { return };
        if let Some(at) = values.iter().position(|(v, _)| v == value) {
            values.swap_remove(at);
        }
        if values.is_empty() {
            self.0.remove(key);
        }
    }

    /// The object of a value that is being written to a key.
    pub(crate) fn find(&self, key: &[u8], value: &[u8]) -> Option<NewObject> {
        self.0.get(key)?.iter().find(|(v, _)| v == value).map(|(_, object)| object.clone())
    }
}

/// An object that is being written, until this is dropped.
struct Announced<'e> {
    engine: &'e Engine,
    key: Bytes,
    value: Bytes,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.engine.writing.lock().remove(&self.key, &self.value);
    }
}

/// The effect of a transaction if the key is at the expected revision.
#[derive(Debug, Clone)]
enum Action {
    Put {
        value: Bytes,
        ttl: Option<Duration>,
    },
    Delete,
    /// Only tells whether the key is at that revision.
    Check,
}

/// The outcome of a transaction.
enum Outcome {
    /// The transaction was made, at this revision.
    Done(u64),
    /// An attempt without an answer may have deleted the key, which is gone; etcd's revision.
    Gone(u64),
    /// The key is at another revision; its value, and etcd's revision.
    Refused(Option<KeyValue>, u64),
}

impl Engine {
    pub(super) async fn write(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        // A resource that was made known just now is loaded first.
        self.shows(write.resource(), 1, true).await;
        match write {
            Write::Create { resource, mut object, ttl } => {
                settle(&mut object);
                self.put(resource, object, 0, ttl).await
            }
            Write::Update { resource, mut object, expect, ttl } => {
                settle(&mut object);
                let current = self.at_revision(resource, &object.namespace, &object.name, expect)?;
                let same = current.data.body == object.body && current.data.stamp == object.stamp;
                if same && ttl.is_none() {
                    return self.unchanged(resource, current).await;
                }
                self.put(resource, object, expect, ttl).await
            }
            Write::Delete { resource, namespace, name, expect } => {
                let previous = self.at_revision(resource, &namespace, &name, expect)?;
                self.delete(resource, previous).await
            }
        }
    }

    /// Waits until a resource is shown as of a revision, of an own write or not; not for ever, since an answer that
    /// etcd has given counts anyway.
    async fn shows(&self, resource: ResourceId, revision: u64, own: bool) {
        if let Some(follower) = self.follower(resource) {
            self.catch_up(&follower, revision, own, SHOWN).await;
        }
    }

    /// The object at the revision that the caller read from the index. The index is never ahead of etcd, so that etcd
    /// would refuse all that the index refuses.
    fn at_revision(
        &self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        expect: u64,
    ) -> Result<Arc<Object>, WriteError> {
        match self.index.get(resource, namespace, name) {
            None => Err(WriteError::NotFound),
            Some(o) if o.revision != expect => Err(WriteError::Changed(o)),
            Some(o) => Ok(o),
        }
    }

    async fn put(
        &self,
        resource: ResourceId,
        object: NewObject,
        expect: u64,
        ttl: Option<Duration>,
    ) -> Result<Arc<Object>, WriteError> {
        let (group, plural, key) =
            self.key_of(resource, &object.namespace, &object.name).ok_or(WriteError::NotFound)?;
        let failed = |e: CodecError| WriteError::Engine(e.to_string().into());
        if let Some(prepared) = self.codec.prepare_write(&group, &plural) {
            prepared.await.map_err(failed)?;
        }
        let value = self.codec.encode(&group, &plural, &key, &object).map_err(failed)?;
        self.writing.lock().add(key.clone(), value.clone(), object.clone());
        let announced = Announced { engine: self, key: key.clone(), value: value.clone() };
        let outcome = self.transact(&key, expect, Action::Put { value, ttl }).await?;
        match outcome {
            Outcome::Done(revision) => {
                self.shows(resource, revision, true).await;
                drop(announced);
                let shown = self.index.get(resource, &object.namespace, &object.name);
                Ok(shown
                    .filter(|o| o.revision == revision)
                    .unwrap_or_else(|| Arc::new(Object { data: object, revision })))
            }
            Outcome::Refused(None, at) | Outcome::Gone(at) => {
                self.shows(resource, at, false).await;
                Err(WriteError::NotFound)
            }
            Outcome::Refused(Some(kv), _) => {
                let current = self.current(resource, &object.namespace, &object.name, &kv).await?;
                Err(if expect == 0 { WriteError::Exists(current) } else { WriteError::Changed(current) })
            }
        }
    }

    async fn delete(&self, resource: ResourceId, previous: Arc<Object>) -> Result<Arc<Object>, WriteError> {
        let data = &previous.data;
        let (_, _, key) = self.key_of(resource, &data.namespace, &data.name).ok_or(WriteError::NotFound)?;
        match self.transact(&key, previous.revision, Action::Delete).await? {
            Outcome::Done(revision) => {
                self.shows(resource, revision, true).await;
                Ok(Arc::new(Object { data: data.clone(), revision }))
            }
            Outcome::Gone(at) => {
                self.shows(resource, at, true).await;
                // Another state may have been deleted, and etcd's revision be that of another object's write.
                let of = (&*data.namespace, &*data.name);
                let revision = self.index.deleted_at(resource, of, previous.revision).ok_or_else(in_doubt)?;
                Ok(Arc::new(Object { data: data.clone(), revision }))
            }
            Outcome::Refused(None, at) => {
                self.shows(resource, at, false).await;
                Err(WriteError::NotFound)
            }
            Outcome::Refused(Some(kv), _) => {
                Err(WriteError::Changed(self.current(resource, &data.namespace, &data.name, &kv).await?))
            }
        }
    }

    /// Deletes the value of a key at this revision, whatever it is.
    pub(super) async fn delete_value(
        &self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        expect: u64,
    ) -> Result<(), WriteError> {
        let (_, _, key) = self.key_of(resource, namespace, name).ok_or(WriteError::NotFound)?;
        let (at, outcome) = match self.transact(&key, expect, Action::Delete).await? {
            Outcome::Done(at) | Outcome::Gone(at) => (at, Ok(())),
            Outcome::Refused(None, at) => (at, Err(WriteError::NotFound)),
            Outcome::Refused(Some(kv), at) => {
                let current = self.current(resource, namespace, name, &kv).await?;
                (at, Err(WriteError::Changed(current)))
            }
        };
        self.shows(resource, at, outcome.is_ok()).await;
        outcome
    }

    /// Answers an update that changes nothing: it is not written, but the object that it is compared with must be
    /// current.
    async fn unchanged(&self, resource: ResourceId, current: Arc<Object>) -> Result<Arc<Object>, WriteError> {
        let data = &current.data;
        let (_, _, key) = self.key_of(resource, &data.namespace, &data.name).ok_or(WriteError::NotFound)?;
        match self.transact(&key, current.revision, Action::Check).await? {
            Outcome::Done(_) => Ok(current),
            Outcome::Refused(None, at) | Outcome::Gone(at) => {
                self.shows(resource, at, false).await;
                Err(WriteError::NotFound)
            }
            Outcome::Refused(Some(kv), _) => {
                Err(WriteError::Changed(self.current(resource, &data.namespace, &data.name, &kv).await?))
            }
        }
    }

    /// The object because of which a write is refused: as the index shows it, once it does.
    async fn current(
        &self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        kv: &KeyValue,
    ) -> Result<Arc<Object>, WriteError> {
        let revision = kv.mod_revision as u64;
        self.shows(resource, revision, true).await;
        match self.index.get(resource, namespace, name) {
            Some(object) if object.revision >= revision => Ok(object),
            _ => {
                let away = |e: CodecError| WriteError::Engine(e.to_string().into());
                self.prepare(kv).await.map_err(away)?;
                let bad = |e: CodecError| WriteError::Unreadable(Entry::new(kv, &e).what);
                self.read(&kv.key, &kv.value, revision).map_err(bad)?.ok_or(WriteError::NotFound)
            }
        }
    }

    /// Makes a transaction. If it is not known whether it was made, it is made again: the comparison lets only one of
    /// the attempts through.
    async fn transact(&self, key: &Bytes, expect: u64, action: Action) -> Result<Outcome, WriteError> {
        let deadline = Instant::now() + BUDGET;
        let mut perhaps_done = false;
        let mut pause = Duration::from_millis(20);
        loop {
            let (operation, lease) = match &action {
                Action::Put { value, ttl } => {
                    let lease = match ttl {
                        Some(ttl) => self.leases.get(&self.client, *ttl).await.map_err(refusal)?,
                        None => 0,
                    };
                    let put = PutRequest { key: key.clone(), value: value.clone(), lease };
                    (Some(Request::RequestPut(put)), lease)
                }
                Action::Delete => {
                    let delete = DeleteRangeRequest { key: key.clone(), range_end: Bytes::new() };
                    (Some(Request::RequestDeleteRange(delete)), 0)
                }
                Action::Check => (None, 0),
            };
            let get = Request::RequestRange(RangeRequest { key: key.clone(), ..Default::default() });
            let request = TxnRequest {
                compare: vec![Compare {
                    result: CompareResult::Equal as i32,
                    target: CompareTarget::Mod as i32,
                    key: key.clone(),
                    target_union: Some(TargetUnion::ModRevision(expect as i64)),
                }],
                success: operation.map(|o| RequestOp { request: Some(o) }).into_iter().collect(),
                failure: vec![RequestOp { request: Some(get) }],
            };
            match self.client.txn(request).await {
                Ok(answer) if answer.succeeded => return Ok(Outcome::Done(revision(&answer))),
                Ok(answer) => {
                    let at = revision(&answer);
                    let kv = found(answer);
                    if !perhaps_done {
                        return Ok(Outcome::Refused(kv, at));
                    }
                    return after_doubt(&action, expect, kv, at);
                }
                Err(Error::NoLease) if lease != 0 => self.leases.forget(lease).await,
                Err(e) if e.is_transient() && Instant::now() < deadline => {
                    perhaps_done |= e.is_ambiguous();
                    tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                Err(e) => return Err(refusal(e)),
            }
        }
    }
}

/// The outcome of a refused transaction that may have been made by an earlier attempt.
fn after_doubt(action: &Action, expect: u64, kv: Option<KeyValue>, at: u64) -> Result<Outcome, WriteError> {
    match (action, kv) {
        // The value holds the object's uid or the new content: it is there because of this write.
        (Action::Put { value, .. }, Some(kv)) if kv.value == *value && kv.mod_revision as u64 > expect => {
            Ok(Outcome::Done(kv.mod_revision as u64))
        }
        // The object is gone, as it should be; the history tells whether it was this state of it.
        (Action::Delete, None) => Ok(Outcome::Gone(at)),
        (Action::Check, kv) => Ok(Outcome::Refused(kv, at)),
        _ => Err(in_doubt()),
    }
}

/// Nobody can tell whether an attempt without an answer was made.
fn in_doubt() -> WriteError {
    WriteError::Engine(
        "etcdserver: request timed out: the object was changed meanwhile, and it is not known whether this \
         request was done before"
            .into(),
    )
}

/// Makes the body a buffer of its own: the store keeps it for long, so it must not keep a larger one alive.
fn settle(object: &mut NewObject) {
    object.body = Bytes::from(Box::<[u8]>::from(object.body.as_ref()));
}

fn refusal(error: Error) -> WriteError {
    WriteError::Engine(error.to_string().into())
}

fn revision(answer: &rpc::TxnResponse) -> u64 {
    answer.header.as_ref().map_or(0, |h| h.revision as u64)
}

fn found(answer: rpc::TxnResponse) -> Option<KeyValue> {
    answer.responses.into_iter().find_map(|r| match r.response {
        Some(Response::ResponseRange(range)) => range.kvs.into_iter().next(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Text;

    #[test]
    fn what_a_doubt_becomes() {
        let kv = |value: &'static str, revision: i64| {
            Some(KeyValue { value: value.into(), mod_revision: revision, ..KeyValue::default() })
        };
        let put = Action::Put { value: "ours".into(), ttl: None };
        let done = |outcome: Result<Outcome, WriteError>| match outcome {
            Ok(Outcome::Done(at)) => Some(at),
            _ => None,
        };
        assert_eq!(done(after_doubt(&put, 5, kv("ours", 7), 9)), Some(7));
        assert!(after_doubt(&put, 5, kv("theirs", 7), 9).is_err());
        assert!(after_doubt(&put, 5, None, 9).is_err());
        assert!(matches!(after_doubt(&Action::Delete, 5, None, 9), Ok(Outcome::Gone(9))));
        assert!(after_doubt(&Action::Delete, 5, kv("theirs", 7), 9).is_err());
        let check = after_doubt(&Action::Check, 5, kv("theirs", 7), 9);
        assert!(matches!(check, Ok(Outcome::Refused(Some(_), 9))));
    }

    #[test]
    fn own_values_are_known_again() {
        let text = Text::from("n");
        let object = NewObject {
            name: text.clone(),
            namespace: "".into(),
            uid: "".into(),
            labels: Box::default(),
            owners: Box::default(),
            fields: Box::default(),
            deleting: false,
            finalizers: false,
            stamp: 0,
            body: Bytes::from_static(b"{}"),
            rv_at: 0,
        };
        let mut writing = Writing::default();
        for value in ["v", "w"] {
            writing.add("k".into(), value.into(), object.clone());
        }
        assert!(writing.find(b"k", b"v").is_some_and(|o| o.name == text));
        assert!(writing.find(b"k", b"other").is_none());
        writing.remove(&"k".into(), &"v".into());
        assert!(writing.find(b"k", b"v").is_none() && writing.find(b"k", b"w").is_some());
        writing.remove(&"k".into(), &"w".into());
        assert!(writing.0.is_empty());
        assert!(writing.find(b"l", b"v").is_none());
    }
}
