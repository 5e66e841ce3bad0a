//! Questions in streams (RFC 7766): many on a connection, answered in any order.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use component::Shutdown;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::packet::Transport;
use crate::resolver::{Origin, Resolver, Step};

/// How long a connection may be idle, or take for a question; CoreDNS'.
pub(super) const IDLE: Duration = Duration::from_secs(10);
/// How long a client may take to read its answers.
const WRITE: Duration = Duration::from_secs(10);
/// The longest question that is read.
const LONGEST: usize = 4096;
/// The number of connections, and of those of one address.
const MAX_CONNECTIONS: usize = 1024;
pub(super) const MAX_EACH: usize = 128;
/// The number of questions of a connection that other servers are asked for.
const MAX_LATER: usize = 32;
/// How long after an error of `accept` the next try comes.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The present connections.
#[derive(Default)]
struct Gate(Mutex<(usize, HashMap<IpAddr, usize>)>);

/// One of them.
struct Entered {
    gate: Arc<Gate>,
    source: IpAddr,
}

impl Gate {
    fn enter(self: &Arc<Self>, source: IpAddr) -> Option<Entered> {
        let mut counts = self.0.lock();
        if counts.0 >= MAX_CONNECTIONS || counts.1.get(&source).is_some_and(|n| *n >= MAX_EACH) {
            return None;
        }
        counts.0 += 1;
        *counts.1.entry(source).or_default() += 1;
        Some(Entered { gate: self.clone(), source })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.gate.0.lock();
        counts.0 -= 1;
        if let Some(count) = counts.1.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.1.remove(&self.source);
            }
        }
    }
}

/// Accepts connections until `shutdown`.
pub(super) async fn serve(listener: TcpListener, resolver: Arc<Resolver>, shutdown: Shutdown) {
    let gate = Arc::new(Gate::default());
    while let Some(accepted) = shutdown.run(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                // A connection too many is closed at once.
                let Some(entered) = gate.enter(peer.ip()) else { continue };
                let (resolver, stop) = (resolver.clone(), shutdown.clone());
                shutdown.spawn_one(async move {
                    // A connection that breaks is its client's matter.
                    let _ = stop.run(converse(stream, entered.source, &resolver)).await;
                    drop(entered);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                shutdown.run(sleep(ACCEPT_AGAIN)).await;
            }
        }
    }
}

/// A message with its length before it, if it is there; an error if it is longer than any question.
fn next(buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let Some(length) = buffer.first_chunk() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*length));
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((buffer.len() >= length + 2).then(|| {
        buffer.advance(2);
        buffer.split_to(length).freeze()
    }))
}

async fn write(stream: &mut (impl AsyncWriteExt + Unpin), message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let framed = [&length.to_be_bytes()[..], message].concat();
    timeout(WRITE, stream.write_all(&framed)).await.map_err(io::Error::from)?
}

/// Answers the questions of a connection.
async fn converse(mut stream: TcpStream, source: IpAddr, resolver: &Resolver) -> io::Result<()> {
    let (mut reader, mut writer) = stream.split();
    let origin = Origin { transport: Transport::Tcp, source };
    let (mut buffer, mut out) = (BytesMut::with_capacity(512), Vec::new());
    let mut later = FuturesUnordered::new();
    let (mut ended, mut until) = (false, Instant::now() + IDLE);
    loop {
        while later.len() < MAX_LATER
            && let Some(message) = next(&mut buffer)?
        {
            match resolver.step(&message, origin, &mut out) {
                Step::Reply => write(&mut writer, &out).await?,
                Step::Drop => return Ok(()),
                Step::Later(pending) => later.push(async move {
                    let mut out = Vec::new();
                    resolver.finish(*pending, &mut out).await;
                    out
                }),
            }
            until = Instant::now() + IDLE;
        }
        if ended && later.is_empty() {
            return Ok(());
        }
        tokio::select! {
            Some(answer) = later.next(), if !later.is_empty() => {
                write(&mut writer, &answer).await?;
                until = Instant::now() + IDLE;
            }
            read = timeout_at(until, reader.read_buf(&mut buffer)), if !ended && later.len() < MAX_LATER => {
                match read {
                    Ok(length) => ended = length? == 0,
                    Err(_) if later.is_empty() => return Ok(()),
                    Err(_) => until = Instant::now() + IDLE,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_pieces() {
        let mut buffer = BytesMut::new();
        let mut got = Vec::new();
        for byte in b"\0\x02ab\0\0\0\x01c" {
            buffer.extend_from_slice(&[*byte]);
            got.extend(next(&mut buffer).unwrap());
        }
        assert_eq!(got, [&b"ab"[..], b"", b"c"]);
        assert!(next(&mut BytesMut::from(&b"\x20\0"[..])).is_err());
    }

    #[test]
    fn connections_are_counted() {
        let gate = Arc::new(Gate::default());
        let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mine: Vec<_> = (0..500).filter_map(|_| gate.enter(ip(1))).collect();
        assert_eq!(mine.len(), MAX_EACH);
        let all: Vec<_> =
            (2..200).flat_map(|n| std::iter::repeat_n(n, 100)).filter_map(|n| gate.enter(ip(n))).collect();
        assert_eq!(mine.len() + all.len(), MAX_CONNECTIONS);
        drop((mine, all));
        assert!(gate.0.lock().0 == 0 && gate.0.lock().1.is_empty());
    }
}
