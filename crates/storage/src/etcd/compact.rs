//! Compaction as upstream's API servers do it together: the server that changes `compact_rev_key` compacts, the others
//! take the revision from it. The key's version is their common clock.

use std::time::Duration;

use bytes::Bytes;
use component::Shutdown;
use etcd::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use etcd::rpc::request_op::Request;
use etcd::rpc::response_op::Response;
use etcd::rpc::{self, RequestOp};
use etcd::{Client, Error};

use super::Engine;

/// The common key of all servers, outside of the prefix, since etcd is compacted as a whole.
pub(crate) const KEY: &[u8] = b"compact_rev_key";

/// The knowledge that one round of compaction passes to the next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Round {
    /// The version of the key.
    time: i64,
    /// The revision at that time; the next round drops the history before it.
    revision: u64,
}

/// Compacts, at every interval, the history before the last one.
pub(crate) async fn run(engine: &Engine, interval: Duration, stop: &Shutdown) {
    let mut round = Round::default();
    while stop.run(tokio::time::sleep(interval)).await.is_some() {
        match step(&engine.client, round).await {
            Ok((next, compacted)) => {
                round = next;
                if compacted > 0 {
                    engine.index.compact(compacted);
                }
            }
            Err(error) => tracing::error!(%error, "etcd was not compacted"),
        }
    }
}

/// Runs one round; returns the revision that was compacted, by this server or by another, 0 if none was.
async fn step(client: &Client, round: Round) -> Result<(Round, u64), Error> {
    let key = Bytes::from_static(KEY);
    let unchanged = rpc::Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Version as i32,
        key: key.clone(),
        target_union: Some(TargetUnion::Version(round.time)),
    };
    let put = rpc::PutRequest { key: key.clone(), value: round.revision.to_string().into(), lease: 0 };
    let get = rpc::RangeRequest { key, ..Default::default() };
    let answer = client
        .txn(rpc::TxnRequest {
            compare: vec![unchanged],
            success: vec![RequestOp { request: Some(Request::RequestPut(put)) }],
            failure: vec![RequestOp { request: Some(Request::RequestRange(get)) }],
        })
        .await?;
    let revision = answer.header.map_or(0, |h| h.revision as u64);
    if !answer.succeeded {
        let kv = answer.responses.into_iter().find_map(|r| match r.response {
            Some(Response::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        let (time, compacted) = kv.map_or((0, 0), |kv| (kv.version, parse(&kv.value)));
        return Ok((Round { time, revision }, compacted));
    }
    if round.revision > 0 {
        match client.compact(round.revision).await {
            // Somebody else compacted, by hand or by etcd's own compaction.
            Ok(()) | Err(Error::Compacted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok((Round { time: round.time + 1, revision }, round.revision))
}

/// The revision that was compacted last; 0 if none is known.
pub(crate) async fn last(client: &Client) -> Result<u64, Error> {
    let get = rpc::RangeRequest { key: Bytes::from_static(KEY), ..Default::default() };
    Ok(client.range(get).await?.kvs.first().map_or(0, |kv| parse(&kv.value)))
}

fn parse(value: &[u8]) -> u64 {
    std::str::from_utf8(value).ok().and_then(|v| v.parse().ok()).unwrap_or(0)
}
