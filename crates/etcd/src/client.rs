//! The client: its calls go to any member that answers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::connect::{Config, ConfigError, Connections, channels};
use crate::error::{Error, connect_failure, from_etcd, innermost};
use crate::rpc;
use crate::rpc::kv_client::KvClient;
use crate::rpc::lease_client::LeaseClient;
use crate::rpc::maintenance_client::MaintenanceClient;
use crate::rpc::watch_client::WatchClient;
use crate::rpc::watch_request::RequestUnion;

/// The time that one member may take for one call: longer than etcd's own limit for a write, after which etcd answers
/// that it timed out.
const ATTEMPT: Duration = Duration::from_secs(10);
/// The time for which a call is tried in all.
const BUDGET: Duration = Duration::from_secs(15);
/// The time for which a member is left alone after its first failure, doubled with each, and its limit.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// The largest message that is taken: a page of a list, or the backlog of a watch.
const MAX_MESSAGE: usize = 1 << 30;

/// The number of calls that a connection takes before the next one is used: each connection costs etcd and this process
/// something.
const SHARED: usize = 32;

/// Whether a call may be sent again when its outcome is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    /// The call changes nothing, or the same when it is made twice.
    Yes,
    /// The call may be sent again only if it was never sent.
    Unsent,
}

/// A client. Clones share its connections: to each member one for watches, and as many for calls as are needed, up to a
/// few.
/// a few.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    members: Vec<Member>,
    next: AtomicUsize,
}

struct Member {
    url: Arc<str>,
    calls: Vec<Connection>,
    watches: Channel,
    health: Mutex<Health>,
}

struct Connection {
    channel: Channel,
    /// The number of calls under way on the connection.
    calls: AtomicUsize,
}

/// A call that is under way, until this is dropped.
struct Underway<'m>(&'m AtomicUsize);

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The known health of a member.
#[derive(Default)]
struct Health {
    failures: u32,
    /// The time until which other members are asked.
    resting: Option<Instant>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.members.iter().map(|m| &m.url)).finish()
    }
}

/// The end of the range of all keys that begin with a prefix.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    // This is the range of all keys.
    Bytes::from_static(&[0])
}

impl Member {
    fn works(&self) {
        let mut health = self.health.lock();
        if health.failures > 0 {
            *health = Health::default();
        }
    }
    fn fails(&self) {
        let mut health = self.health.lock();
        let (first, most) = BACKOFF;
        let pause = (first * 2u32.saturating_pow(health.failures.min(16))).min(most);
        health.failures += 1;
        health.resting = Some(Instant::now() + pause.mul_f64(0.5 + fastrand::f64()));
    }
    /// The connection for a call: the first one with few calls, or else the one with the fewest.
    fn connection(&self) -> Option<(&Channel, Underway<'_>)> {
        let calls = |c: &Connection| c.calls.load(Ordering::Relaxed);
        let free = self.calls.iter().find(|c| calls(c) < SHARED);
        let connection = free.or_else(|| self.calls.iter().min_by_key(|c| calls(c)))?;
        connection.calls.fetch_add(1, Ordering::Relaxed);
        Some((&connection.channel, Underway(&connection.calls)))
    }
}

fn keys(channel: &Channel) -> KvClient<Channel> {
    KvClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE)
}

fn leases(channel: &Channel) -> LeaseClient<Channel> {
    LeaseClient::new(channel.clone())
}

impl Inner {
    /// The next member in turn that does not rest; if all do, the one that wakes first, with the time.
    fn pick(&self) -> Option<(&Member, Option<Instant>)> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut first: Option<(&Member, Instant)> = None;
        for at in 0..self.members.len() {
            let member = self.members.get((start + at) % self.members.len())?;
            match member.health.lock().resting {
                Some(until) if until > now => {
                    if first.is_none_or(|(_, f)| until < f) {
                        first = Some((member, until));
                    }
                }
                _ => return Some((member, None)),
            }
        }
        first.map(|(member, until)| (member, Some(until)))
    }
}

/// The error of a failed call, and whether the member is to blame.
fn judge(member: &Member, status: &Status) -> (Error, bool) {
    if let Some(failure) = connect_failure(status) {
        let error = if failure.lasts() {
            Error::Misconfigured(failure.to_string().into())
        } else {
            Error::Unreachable { members: format!("{}: {failure}", member.url).into() }
        };
        return (error, true);
    }
    if std::error::Error::source(status).is_some() {
        let why = innermost(status);
        // A server that refuses the client's certificate, or that expects TLS, just hangs up.
        let hint = if member.url.starts_with("https") {
            "it may not accept the certificate of --etcd-certfile, or want one"
        } else {
            "it may want TLS, https:// in --etcd-servers"
        };
        let text = format!("the connection to etcd at {} broke: {why}; if it goes on, {hint}", member.url);
        return (Error::Unavailable(text.into()), true);
    }
    let error = from_etcd(status);
    let to_blame = error.is_transient();
    (error, to_blame)
}

impl Client {
    /// Makes a client of the members of a configuration; it connects with the first call.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let members = channels(config)?
            .into_iter()
            .map(|Connections { url, calls, watches }| {
                let connection = |channel| Connection { channel, calls: AtomicUsize::default() };
                let calls = calls.into_iter().map(connection).collect();
                Member { url, calls, watches, health: Mutex::default() }
            })
            .collect::<Vec<_>>();
        // Several servers with the same flags do not all begin with the same member.
        let next = AtomicUsize::new(fastrand::usize(..members.len().max(1)));
        Ok(Self(Arc::new(Inner { members, next })))
    }

    /// Calls members in turn until one answers, within the budget.
    async fn call<T, F>(&self, again: Again, call: impl Fn(&Channel) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + BUDGET;
        let mut last = None;
        loop {
            let Some((member, rests)) = self.0.pick() else {
                return Err(Error::Unreachable { members: "no address".into() });
            };
            if let Some(until) = rests {
                match last.take() {
                    Some(error) if until >= deadline => return Err(error),
                    _ => tokio::time::sleep_until(until).await,
                }
            }
            let Some((channel, underway)) = member.connection() else {
                return Err(Error::Unreachable { members: "no connection".into() });
            };
            let attempt =
                tokio::time::timeout_at(deadline.min(Instant::now() + ATTEMPT), call(channel)).await;
            drop(underway);
            let (error, to_blame) = match attempt {
                Ok(Ok(response)) => {
                    member.works();
                    return Ok(response.into_inner());
                }
                Ok(Err(status)) => judge(member, &status),
                Err(_) => {
                    let text = format!("etcd at {} did not answer in time", member.url);
                    (Error::Unavailable(text.into()), true)
                }
            };
            let now = Instant::now();
            if to_blame {
                member.fails();
            }
            let may = error.is_transient() && (again == Again::Yes || !error.is_ambiguous());
            if !may || now >= deadline {
                return Err(error);
            }
            tracing::debug!(member = &*member.url, %error, "etcd: trying again");
            last = Some(error);
        }
    }

    /// Reads keys.
    pub async fn range(&self, request: rpc::RangeRequest) -> Result<rpc::RangeResponse, Error> {
        self.call(Again::Yes, |channel| {
            let (mut kv, request) = (keys(channel), request.clone());
            async move { kv.range(request).await }
        })
        .await
    }

    /// The current revision of etcd: no write that was acknowledged anywhere before this call is above it. `key` may be
    /// any that the client may read.
    pub async fn revision(&self, key: impl Into<Bytes>) -> Result<u64, Error> {
        let request = rpc::RangeRequest { key: key.into(), count_only: true, ..Default::default() };
        Ok(revision(self.range(request).await?.header.as_ref()))
    }

    /// Makes a conditional change. If the error [is ambiguous](Error::is_ambiguous), the change may have been made.
    pub async fn txn(&self, request: rpc::TxnRequest) -> Result<rpc::TxnResponse, Error> {
        self.call(Again::Unsent, |channel| {
            let (mut kv, request) = (keys(channel), request.clone());
            async move { kv.txn(request).await }
        })
        .await
    }

    /// Writes a key, whatever its value was; returns the revision.
    pub async fn put(&self, request: rpc::PutRequest) -> Result<u64, Error> {
        let response = self
            .call(Again::Unsent, |channel| {
                let (mut kv, request) = (keys(channel), request.clone());
                async move { kv.put(request).await }
            })
            .await?;
        Ok(revision(response.header.as_ref()))
    }

    /// Deletes keys; returns the revision.
    pub async fn delete(&self, request: rpc::DeleteRangeRequest) -> Result<u64, Error> {
        let response = self
            .call(Again::Yes, |channel| {
                let (mut kv, request) = (keys(channel), request.clone());
                async move { kv.delete_range(request).await }
            })
            .await?;
        Ok(revision(response.header.as_ref()))
    }

    /// Drops the history before a revision.
    pub async fn compact(&self, revision: u64) -> Result<(), Error> {
        let request = rpc::CompactionRequest { revision: revision as i64, physical: false };
        self.call(Again::Yes, |channel| {
            let mut kv = keys(channel);
            async move { kv.compact(request).await }
        })
        .await
        .map(drop)
    }

    /// Makes a lease; returns its number.
    pub async fn grant(&self, ttl: Duration) -> Result<i64, Error> {
        let request = rpc::LeaseGrantRequest { ttl: ttl.as_secs().max(1) as i64, id: 0 };
        let response = self
            .call(Again::Yes, |channel| {
                let mut lease = leases(channel);
                async move { lease.lease_grant(request).await }
            })
            .await?;
        if response.error.is_empty() { Ok(response.id) } else { Err(Error::Other(response.error.into())) }
    }

    /// Ends a lease and deletes its keys.
    pub async fn revoke(&self, lease: i64) -> Result<(), Error> {
        self.call(Again::Yes, |channel| {
            let mut client = leases(channel);
            async move { client.lease_revoke(rpc::LeaseRevokeRequest { id: lease }).await }
        })
        .await
        .map(drop)
    }

    /// Lets a lease live for its whole time again; [`Error::NoLease`] if it ended.
    pub async fn keep_alive(&self, lease: i64) -> Result<(), Error> {
        let response = self
            .call(Again::Yes, |channel| {
                let mut client = leases(channel);
                async move {
                    let once = tokio_stream::once(rpc::LeaseKeepAliveRequest { id: lease });
                    let mut answers = client.lease_keep_alive(once).await?.into_inner();
                    let answer = answers.message().await?;
                    answer.map(Response::new).ok_or_else(|| Status::unavailable("no answer to a keep-alive"))
                }
            })
            .await?;
        if response.ttl > 0 { Ok(()) } else { Err(Error::NoLease) }
    }

    /// The time that a lease has left; zero if it ended.
    pub async fn time_to_live(&self, lease: i64) -> Result<Duration, Error> {
        let response = self
            .call(Again::Yes, |channel| {
                let mut client = leases(channel);
                async move { client.lease_time_to_live(rpc::LeaseTimeToLiveRequest { id: lease }).await }
            })
            .await?;
        Ok(Duration::from_secs(u64::try_from(response.ttl).unwrap_or(0)))
    }

    /// The versions of the members that answer, as etcd writes them (`3.5.30`). If none does, the error of the last
    /// one.
    pub async fn versions(&self) -> Result<Vec<String>, Error> {
        let mut versions = Vec::new();
        let mut last = None;
        for member in &self.0.members {
            let Some((channel, _underway)) = member.connection() else { continue };
            let mut client = MaintenanceClient::new(channel.clone());
            match tokio::time::timeout(ATTEMPT, client.status(rpc::StatusRequest {})).await {
                Ok(Ok(answer)) => versions.push(answer.into_inner().version),
                Ok(Err(status)) => last = Some(judge(member, &status).0),
                Err(_) => {
                    last = Some(Error::Unreachable { members: format!("{}: no answer", member.url).into() });
                }
            }
        }
        match last {
            Some(error) if versions.is_empty() => Err(error),
            _ => Ok(versions),
        }
    }

    /// Opens a watch at one member. It ends with an error when the member has no leader any more.
    pub async fn watch(&self, create: rpc::WatchCreateRequest) -> Result<Watch, Error> {
        let (requests, queue) = mpsc::channel(4);
        let first = rpc::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        // The queue is new, so it has room.
        let _ = requests.try_send(first);
        let Some((member, rests)) = self.0.pick() else {
            return Err(Error::Unreachable { members: "no address".into() });
        };
        if let Some(until) = rests {
            tokio::time::sleep_until(until).await;
        }
        let mut request = Request::new(ReceiverStream::new(queue));
        request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
        let mut client = WatchClient::new(member.watches.clone()).max_decoding_message_size(MAX_MESSAGE);
        let failed = |status: &Status| {
            let (error, to_blame) = judge(member, status);
            if to_blame {
                member.fails();
            }
            error
        };
        match tokio::time::timeout(ATTEMPT, client.watch(request)).await {
            Ok(Ok(response)) => {
                member.works();
                let at = self.0.members.iter().position(|m| Arc::ptr_eq(&m.url, &member.url)).unwrap_or(0);
                Ok(Watch { client: self.clone(), at, requests, responses: response.into_inner() })
            }
            Ok(Err(status)) => Err(failed(&status)),
            Err(_) => Err(failed(&Status::unavailable("etcd did not open the watch in time"))),
        }
    }
}

/// The revision in a response's header.
fn revision(header: Option<&rpc::ResponseHeader>) -> u64 {
    header.map_or(0, |h| u64::try_from(h.revision).unwrap_or(0))
}

/// A stream of one watch.
pub struct Watch {
    client: Client,
    at: usize,
    requests: mpsc::Sender<rpc::WatchRequest>,
    responses: Streaming<rpc::WatchResponse>,
}

impl Watch {
    /// The next response; an error ends the stream.
    pub async fn next(&mut self) -> Result<rpc::WatchResponse, Error> {
        match self.responses.message().await {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err(Error::Unavailable("etcd ended the watch".into())),
            Err(status) => {
                let Some(member) = self.client.0.members.get(self.at) else {
                    return Err(from_etcd(&status));
                };
                let (error, to_blame) = judge(member, &status);
                if to_blame {
                    member.fails();
                }
                Err(error)
            }
        }
    }

    /// Asks for the watch's progress; the answer is a response without events, if etcd gives one.
    pub fn ask_progress(&self) {
        let progress = RequestUnion::ProgressRequest(rpc::WatchProgressRequest {});
        // A full queue has such a request in it.
        let _ = self.requests.try_send(rpc::WatchRequest { request_union: Some(progress) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_prefixes() {
        let check = |prefix: &[u8], end: &[u8]| assert_eq!(prefix_end(prefix), end);
        check(b"/registry/", b"/registry0");
        check(b"a\xff", b"b");
        check(b"\xff\xff", b"\0");
        check(b"", b"\0");
    }
}
