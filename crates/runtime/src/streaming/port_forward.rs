//! Port-forward: each connection of the client is a pair of streams, one for data and one for an error.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use streaming::spdy::{self, Acceptor, Connection, ReadHalf, Stream, WriteHalf};
use streaming::websocket::{Receiver, Sender};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::backend::{Backend, PIECES};

/// The subprotocol of SPDY.
pub(super) const PROTOCOL: &str = "portforward.k8s.io";
/// The number of connections of one client at a time.
const MOST: usize = 512;
/// The time in which a pair of streams is whole; upstream's.
const PAIR: Duration = Duration::from_secs(30);
/// The size of a piece.
const PIECE: usize = 32 << 10;

/// Serves a client over SPDY until it is gone.
pub(super) async fn over_spdy(
    backend: Arc<dyn Backend>,
    sandbox: String,
    (connection, mut acceptor): (Connection, Acceptor),
) {
    let mut waiting: HashMap<String, Half> = HashMap::new();
    let mut pairs = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = acceptor.accept() => stream,
            Some(_) = pairs.join_next(), if !pairs.is_empty() => continue,
        };
        let Some(stream) = stream else { break };
        waiting.retain(|_, half| half.since.elapsed() < PAIR);
        if let Some(pair) = paired(&mut waiting, stream)
            && pairs.len() < MOST
        {
            pairs.spawn(pair.serve(backend.clone(), sandbox.clone()));
        }
    }
    drop(pairs);
    connection.close();
}

/// A stream whose other one has not come.
struct Half {
    stream: Stream,
    is_data: bool,
    since: tokio::time::Instant,
}

/// The streams of a connection.
struct Pair {
    data: Stream,
    error: Stream,
    port: u16,
}

/// Puts a stream beside its other one. A stream that says neither port nor kind is reset by dropping it.
fn paired(waiting: &mut HashMap<String, Half>, stream: Stream) -> Option<Pair> {
    let of = |name: &str| spdy::header(&stream.headers, name).unwrap_or_default().to_owned();
    let (kind, port, request) = (of("streamtype"), of("port"), of("requestid"));
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    let is_data = match kind.as_str() {
        "data" => true,
        "error" => false,
        _ => return None,
    };
    match waiting.remove(&request) {
        Some(other) if other.is_data != is_data => {
            let (data, error) = if is_data { (stream, other.stream) } else { (other.stream, stream) };
            Some(Pair { data, error, port })
        }
        _ if waiting.len() < MOST => {
            waiting.insert(request, Half { stream, is_data, since: tokio::time::Instant::now() });
            None
        }
        _ => None,
    }
}

impl Pair {
    async fn serve(self, backend: Arc<dyn Backend>, sandbox: String) {
        let Self { data, error, port } = self;
        let (_error_read, mut error) = error.split();
        match backend.connect(sandbox.clone(), port).await {
            Ok(tcp) => {
                let (read, write) = data.split();
                carry(read, write, tcp).await;
            }
            Err(why) => {
                let text = failure(port, &sandbox, &why);
                let _ = error.write(text.into()).await;
                drop(data);
            }
        }
        let _ = error.close().await;
    }
}

fn failure(port: u16, sandbox: &str, why: &str) -> String {
    format!("error forwarding port {port} to pod {sandbox}, uid : {why}")
}

/// Carries bytes both ways; one side's end is passed on, and the other side may go on.
async fn carry(mut read: ReadHalf, mut write: WriteHalf, tcp: TcpStream) {
    let (mut from, mut to) = tcp.into_split();
    let inward = async {
        while let Ok(Some(piece)) = read.read().await {
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    let outward = async {
        let mut buffer = bytes::BytesMut::with_capacity(PIECE);
        while matches!(from.read_buf(&mut buffer).await, Ok(n) if n > 0) {
            if write.write(buffer.split().freeze()).await.is_err() {
                return;
            }
            buffer.reserve(PIECE);
        }
        let _ = write.close().await;
    };
    until_the_pods_end(inward, outward).await;
}

/// Carries both ways until the Pod's side has ended. Upstream's clients do not end their own before, and a client of a
/// WebSocket cannot: the connection's end tells it.
async fn until_the_pods_end(inward: impl Future<Output = ()>, outward: impl Future<Output = ()>) {
    tokio::pin!(inward);
    tokio::pin!(outward);
    tokio::select! {
        () = &mut outward => {}
        () = &mut inward => outward.await,
    }
}

/// The beginning of a port's numbers in WebSocket's channels: its data, then its error.
fn channels(index: usize) -> Option<(u8, u8)> {
    let data = u8::try_from(index * 2).ok()?;
    Some((data, data.checked_add(1)?))
}

/// Serves a client over WebSocket, whose request named all ports, until it is gone.
pub(super) async fn over_websocket<T: AsyncRead + AsyncWrite>(
    backend: Arc<dyn Backend>,
    sandbox: String,
    ports: Vec<u16>,
    protocol: streaming::channel::Protocol,
    (mut receiver, sender): (Receiver<T>, Sender<T>),
) {
    let mut inputs: Vec<Option<mpsc::Sender<Bytes>>> = Vec::new();
    let mut work = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let Some(numbers) = channels(index) else { break };
        let (input, output) = mpsc::channel(PIECES);
        inputs.push(Some(input));
        let out = Out { sender: &sender, base64: protocol.base64 };
        work.push(out.serve(backend.clone(), sandbox.clone(), port, numbers, output));
    }
    let reading = async {
        while let Ok(Some(message)) = receiver.next().await {
            let (number, piece) = match protocol.decode(message.into_bytes()) {
                Ok(streaming::channel::Input::Data(number, piece)) => (number, piece),
                Ok(streaming::channel::Input::Close(number)) => (number, Bytes::new()),
                Ok(streaming::channel::Input::Nothing) => continue,
                Err(_) => return,
            };
            // The error channels are the server's.
            if number % 2 == 0
                && let Some(Some(to)) = inputs.get(usize::from(number / 2))
            {
                let _ = to.send(piece).await;
            }
        }
    };
    tokio::select! {
        _ = futures::future::join_all(work) => {}
        () = reading => {}
    }
    sender.close().await;
}

struct Out<'a, T> {
    sender: &'a Sender<T>,
    base64: bool,
}

impl<T: AsyncRead + AsyncWrite> Out<'_, T> {
    async fn send(&self, number: u8, piece: &[u8]) -> bool {
        use base64::Engine;
        let sent = if self.base64 {
            let text = base64::engine::general_purpose::STANDARD.encode(piece);
            self.sender.text(&[&char::from(b'0' + number % 10).to_string(), &text]).await
        } else {
            self.sender.binary(&[&[number], piece]).await
        };
        sent.is_ok()
    }

    async fn serve(
        self,
        backend: Arc<dyn Backend>,
        sandbox: String,
        port: u16,
        (data, error): (u8, u8),
        mut input: mpsc::Receiver<Bytes>,
    ) {
        // Each channel begins with its port's number.
        if !self.send(data, &port.to_le_bytes()).await || !self.send(error, &port.to_le_bytes()).await {
            return;
        }
        let tcp = match backend.connect(sandbox.clone(), port).await {
            Ok(tcp) => tcp,
            Err(why) => {
                self.send(error, failure(port, &sandbox, &why).as_bytes()).await;
                return;
            }
        };
        let (mut from, mut to) = tcp.into_split();
        let inward = async {
            while let Some(piece) = input.recv().await {
                if piece.is_empty() || to.write_all(&piece).await.is_err() {
                    break;
                }
            }
            let _ = to.shutdown().await;
        };
        let outward = async {
            let mut buffer = bytes::BytesMut::with_capacity(PIECE);
            while matches!(from.read_buf(&mut buffer).await, Ok(n) if n > 0) {
                if !self.send(data, &buffer.split()).await {
                    return;
                }
                buffer.reserve(PIECE);
            }
        };
        until_the_pods_end(inward, outward).await;
    }
}
