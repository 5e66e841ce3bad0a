//! A connection over a byte stream: one task reads, one writes, and streams are handles.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Headers;
use super::frame::{Decoder, Encoder, Frame, MAX_DATA};

/// The number of data frames that wait to be written; with [`MAX_DATA`] this bounds a connection's memory.
const QUEUE: usize = 16;
/// The number of answers (PING, SYN_REPLY, RST_STREAM) that wait to be written.
const URGENT: usize = 256;
/// The number of pieces that wait for a stream's reader before the connection is held up.
const PIECES: usize = 16;
/// The number of streams that wait to be accepted.
const BACKLOG: usize = 64;
/// The number of open streams.
const MAX_STREAMS: usize = 4096;
/// The time that the other side may take to accept a stream; upstream's limit.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that the last frames may take once the connection is given up.
const LINGER: Duration = Duration::from_secs(5);

const REFUSED_STREAM: u32 = 3;
const CANCEL: u32 = 5;

/// The side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that opens odd streams.
    Client,
    /// The side that opens even streams.
    Server,
}

/// The reason for which a stream did not end normally.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum StreamError {
    /// The other side reset the stream with this status.
    #[error("stream reset with status {0}")]
    Reset(u32),
    /// The connection is gone.
    #[error("connection closed")]
    Closed,
    /// The other side did not accept the stream in time.
    #[error("timed out waiting for the stream to be accepted")]
    Timeout,
    /// This side has already ended the stream.
    #[error("stream is closed for writing")]
    Finished,
}

const OPEN: u8 = 0;
const ENDED: u8 = 1;
const RESET: u8 = 2;

/// The end of the other side's half, readable after its channel is closed.
#[derive(Default)]
struct Ending {
    how: AtomicU8,
    status: AtomicU8,
}

impl Ending {
    fn set(&self, how: u8, status: u32) {
        self.status.store(u8::try_from(status).unwrap_or(u8::MAX), Ordering::Relaxed);
        self.how.store(how, Ordering::Release);
    }
    fn reset(&self) -> Option<StreamError> {
        (self.how.load(Ordering::Acquire) == RESET)
            .then(|| StreamError::Reset(u32::from(self.status.load(Ordering::Relaxed))))
    }
}

struct Entry {
    incoming: Option<mpsc::Sender<Bytes>>,
    reply: Option<oneshot::Sender<()>>,
    ending: Arc<Ending>,
    writing: bool,
}

struct Shared {
    frames: mpsc::Sender<Frame>,
    urgent: mpsc::Sender<Frame>,
    streams: Mutex<HashMap<u32, Entry>>,
    closed: CancellationToken,
}

impl Shared {
    fn with_streams<R>(&self, f: impl FnOnce(&mut HashMap<u32, Entry>) -> R) -> R {
        f(&mut self.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// Queues an answer. A peer that causes more answers than it reads loses its connection.
    fn answer(&self, frame: Frame) {
        if self.urgent.try_send(frame).is_err() {
            self.closed.cancel();
        }
    }
    fn insert(self: &Arc<Self>, id: u32, reply: Option<oneshot::Sender<()>>) -> Option<Parts> {
        let (sender, receiver) = mpsc::channel(PIECES);
        let ending = Arc::new(Ending::default());
        let entry = Entry { incoming: Some(sender), reply, ending: ending.clone(), writing: true };
        self.with_streams(|streams| {
            if streams.len() >= MAX_STREAMS || streams.contains_key(&id) {
                return None;
            }
            streams.insert(id, entry);
            Some((receiver, ending))
        })
    }
    fn remote_ended(&self, id: u32) {
        self.with_streams(|streams| {
            if let Some(entry) = streams.get_mut(&id) {
                entry.ending.set(ENDED, 0);
                entry.incoming = None;
                if !entry.writing {
                    streams.remove(&id);
                }
            }
        });
    }
    fn remote_reset(&self, id: u32, status: u32) {
        if let Some(entry) = self.with_streams(|streams| streams.remove(&id)) {
            entry.ending.set(RESET, status);
        }
    }
    /// Ends this side's half; returns whether it was open.
    fn local_ended(&self, id: u32) -> bool {
        self.with_streams(|streams| match streams.get_mut(&id) {
            Some(entry) if entry.writing => {
                entry.writing = false;
                if entry.incoming.is_none() {
                    streams.remove(&id);
                }
                true
            }
            _ => false,
        })
    }
}

type Parts = (mpsc::Receiver<Bytes>, Arc<Ending>);

/// Held by every user of a connection; the connection ends when the last one is dropped.
struct Handle {
    shared: Arc<Shared>,
    next: tokio::sync::Mutex<u32>,
    _guard: DropGuard,
}

/// A connection. It ends when the last clone and the last stream are dropped, or the byte stream ends.
#[derive(Clone)]
pub struct Connection {
    handle: Arc<Handle>,
}

/// The streams that the other side opens.
pub struct Acceptor {
    incoming: mpsc::Receiver<Stream>,
}

impl Acceptor {
    /// The next stream, already answered; `None` once the connection is gone.
    pub async fn accept(&mut self) -> Option<Stream> {
        self.incoming.recv().await
    }
}

impl Connection {
    /// Runs the protocol over a byte stream. `read` holds bytes that were read past the upgrade.
    pub fn start<T>(io: T, role: Role, read: Bytes) -> (Self, Acceptor)
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (frames, frame_queue) = mpsc::channel(QUEUE);
        let (urgent, urgent_queue) = mpsc::channel(URGENT);
        let closed = CancellationToken::new();
        let shared = Arc::new(Shared { frames, urgent, streams: Mutex::default(), closed: closed.clone() });
        let (first, backlog) = match role {
            Role::Client => (1, None),
            Role::Server => (2, Some(())),
        };
        let handle = Arc::new(Handle {
            shared: shared.clone(),
            next: tokio::sync::Mutex::new(first),
            _guard: closed.drop_guard(),
        });
        let (accepted, incoming) = mpsc::channel(BACKLOG);
        let (reader, writer) = tokio::io::split(io);
        let offer = backlog.map(|()| Offer { accepted, handle: Arc::downgrade(&handle), last: 0 });
        tokio::spawn(read_frames(reader, shared.clone(), offer, BytesMut::from(&read[..])));
        tokio::spawn(write_frames(writer, shared, frame_queue, urgent_queue));
        (Self { handle }, Acceptor { incoming })
    }

    /// Opens a stream and waits until the other side accepts it.
    pub async fn open(&self, headers: Headers) -> Result<Stream, StreamError> {
        let shared = &self.handle.shared;
        let (reply, replied) = oneshot::channel();
        let (id, parts) = {
            let mut next = self.handle.next.lock().await;
            let id = *next;
            if id > 0x7fff_ffff {
                return Err(StreamError::Closed);
            }
            let parts = shared.insert(id, Some(reply)).ok_or(StreamError::Closed)?;
            *next += 2;
            let frame = Frame::SynStream {
                stream: id,
                associated: 0,
                priority: 0,
                fin: false,
                unidirectional: false,
                headers: headers.clone(),
            };
            send(shared, frame).await?;
            (id, parts)
        };
        let stream = Stream::new(self.handle.clone(), id, headers, parts);
        tokio::select! {
            // A command may be over, and its connection closed, before anybody looks at the reply.
            biased;
            answer = tokio::time::timeout(REPLY_TIMEOUT, replied) => match answer {
                Ok(Ok(())) => Ok(stream),
                Ok(Err(_)) => Err(stream.read.ending.reset().unwrap_or(StreamError::Closed)),
                Err(_) => Err(StreamError::Timeout),
            },
            () = shared.closed.cancelled() => Err(StreamError::Closed),
        }
    }

    /// Resolves when the connection is gone.
    pub async fn closed(&self) {
        self.handle.shared.closed.cancelled().await;
    }

    /// Ends the connection after the frames that are already queued.
    pub fn close(&self) {
        self.handle.shared.closed.cancel();
    }
}

async fn send(shared: &Shared, frame: Frame) -> Result<(), StreamError> {
    tokio::select! {
        biased;
        () = shared.closed.cancelled() => Err(StreamError::Closed),
        sent = shared.frames.send(frame) => sent.map_err(|_| StreamError::Closed),
    }
}

/// A stream. Dropping it before both sides ended it resets it.
pub struct Stream {
    /// The headers with which the opening side described the stream.
    pub headers: Headers,
    read: ReadHalf,
    write: WriteHalf,
}

/// The receiving half of a stream.
pub struct ReadHalf {
    incoming: mpsc::Receiver<Bytes>,
    ending: Arc<Ending>,
    _handle: Arc<Handle>,
}

/// The sending half of a stream. Dropping it before [`WriteHalf::close`] resets the stream.
pub struct WriteHalf {
    id: u32,
    handle: Arc<Handle>,
}

impl Stream {
    fn new(handle: Arc<Handle>, id: u32, headers: Headers, (incoming, ending): Parts) -> Self {
        let read = ReadHalf { incoming, ending, _handle: handle.clone() };
        Self { headers, read, write: WriteHalf { id, handle } }
    }
    /// Splits the stream into both directions, to be used by different tasks.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }
    /// Reads as [`ReadHalf::read`] does.
    pub async fn read(&mut self) -> Result<Option<Bytes>, StreamError> {
        self.read.read().await
    }
    /// Writes as [`WriteHalf::write`] does.
    pub async fn write(&mut self, data: Bytes) -> Result<(), StreamError> {
        self.write.write(data).await
    }
    /// Ends this side's half as [`WriteHalf::close`] does.
    pub async fn close(&mut self) -> Result<(), StreamError> {
        self.write.close().await
    }
}

impl ReadHalf {
    /// The next piece; `None` at the end. Pieces that arrived before a reset or the loss of the connection are still
    /// delivered.
    pub async fn read(&mut self) -> Result<Option<Bytes>, StreamError> {
        if let Some(data) = self.incoming.recv().await {
            return Ok(Some(data));
        }
        match self.ending.how.load(Ordering::Acquire) {
            ENDED => Ok(None),
            OPEN => Err(StreamError::Closed),
            _ => Err(self.ending.reset().unwrap_or(StreamError::Closed)),
        }
    }
}

impl WriteHalf {
    /// Queues data; waits while the connection's queue is full.
    pub async fn write(&mut self, mut data: Bytes) -> Result<(), StreamError> {
        let shared = &self.handle.shared;
        let writing = shared.with_streams(|streams| streams.get(&self.id).is_some_and(|entry| entry.writing));
        if !writing {
            return Err(if shared.closed.is_cancelled() {
                StreamError::Closed
            } else {
                StreamError::Finished
            });
        }
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(MAX_DATA));
            send(shared, Frame::Data { stream: self.id, fin: false, data: piece }).await?;
        }
        Ok(())
    }
    /// Ends this side's half: nothing more is sent. A second call is no error.
    pub async fn close(&mut self) -> Result<(), StreamError> {
        if self.handle.shared.local_ended(self.id) {
            let fin = Frame::Data { stream: self.id, fin: true, data: Bytes::new() };
            send(&self.handle.shared, fin).await?;
        }
        Ok(())
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        let shared = &self.handle.shared;
        if shared.local_ended(self.id) && !shared.closed.is_cancelled() {
            shared.with_streams(|streams| streams.remove(&self.id));
            shared.answer(Frame::RstStream { stream: self.id, status: CANCEL });
        }
    }
}

/// The means by which the reader hands streams to the acceptor.
struct Offer {
    accepted: mpsc::Sender<Stream>,
    handle: std::sync::Weak<Handle>,
    last: u32,
}

async fn read_frames<R: AsyncRead>(
    reader: R,
    shared: Arc<Shared>,
    mut offer: Option<Offer>,
    mut buffer: BytesMut,
) {
    let mut reader = std::pin::pin!(reader);
    let mut decoder = Decoder::new();
    let closed = shared.closed.clone();
    let run = async {
        loop {
            loop {
                match decoder.decode(&mut buffer) {
                    Ok(Some(frame)) => take(&shared, &mut offer, frame).await,
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            buffer.reserve(MAX_DATA);
            if !matches!(reader.read_buf(&mut buffer).await, Ok(n) if n > 0) {
                return;
            }
        }
    };
    closed.run_until_cancelled(run).await;
    closed.cancel();
    // Readers see the end of their channel, openers see that of their reply.
    shared.with_streams(HashMap::clear);
}

async fn take(shared: &Arc<Shared>, offer: &mut Option<Offer>, frame: Frame) {
    match frame {
        Frame::Data { stream, fin, data } => {
            let incoming =
                shared.with_streams(|streams| streams.get(&stream).and_then(|entry| entry.incoming.clone()));
            if let Some(incoming) = incoming
                && !data.is_empty()
            {
                // A reader that was dropped does not want the data.
                let _ = incoming.send(data).await;
            }
            if fin {
                shared.remote_ended(stream);
            }
        }
        Frame::SynStream { stream, fin, headers, .. } => {
            let accepted = offer.as_mut().is_some_and(|offer| offer.take(shared, stream, headers));
            if !accepted {
                shared.answer(Frame::RstStream { stream, status: REFUSED_STREAM });
            } else if fin {
                shared.remote_ended(stream);
            }
        }
        Frame::SynReply { stream, fin, .. } => {
            let reply =
                shared.with_streams(|streams| streams.get_mut(&stream).and_then(|entry| entry.reply.take()));
            if let Some(reply) = reply {
                // An opener that gave up has dropped its stream.
                let _ = reply.send(());
            }
            if fin {
                shared.remote_ended(stream);
            }
        }
        Frame::Headers { stream, fin: true, .. } => shared.remote_ended(stream),
        Frame::RstStream { stream, status } => shared.remote_reset(stream, status),
        Frame::Ping(id) => {
            // This side never sends pings, so every ping is a question.
            shared.answer(Frame::Ping(id));
        }
        Frame::GoAway { .. } | Frame::Headers { .. } | Frame::Settings(_) | Frame::WindowUpdate { .. } => {}
    }
}

impl Offer {
    fn take(&mut self, shared: &Arc<Shared>, id: u32, headers: Headers) -> bool {
        if id.is_multiple_of(2) || id <= self.last {
            return false;
        }
        self.last = id;
        let (Ok(permit), Some(handle)) = (self.accepted.try_reserve(), self.handle.upgrade()) else {
            return false;
        };
        let Some(parts) = shared.insert(id, None) else {
            return false;
        };
        shared.answer(Frame::SynReply { stream: id, fin: false, headers: Headers::new() });
        permit.send(Stream::new(handle, id, headers, parts));
        true
    }
}

async fn write_frames<W: AsyncWrite>(
    writer: W,
    shared: Arc<Shared>,
    mut frames: mpsc::Receiver<Frame>,
    mut urgent: mpsc::Receiver<Frame>,
) {
    let mut writer = std::pin::pin!(writer);
    let mut encoder = Encoder::new();
    let mut out = BytesMut::with_capacity(2 * MAX_DATA);
    let run = async {
        loop {
            let frame = tokio::select! {
                biased;
                Some(frame) = urgent.recv() => frame,
                Some(frame) = frames.recv() => frame,
                // All frames that were queued before the end have been taken.
                () = shared.closed.cancelled() => break,
            };
            let mut next = Some(frame);
            while let Some(frame) = next {
                if encoder.encode(&frame, &mut out).is_err() {
                    return;
                }
                next = if out.len() < MAX_DATA {
                    urgent.try_recv().or_else(|_| frames.try_recv()).ok()
                } else {
                    None
                };
            }
            if writer.write_all_buf(&mut out).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
        let _ = encoder.encode(&Frame::GoAway { last: 0, status: 0 }, &mut out);
        // The other side may be gone already.
        let _ = writer.write_all_buf(&mut out).await;
        let _ = writer.shutdown().await;
    };
    let expired = async {
        shared.closed.cancelled().await;
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        () = run => {}
        () = expired => {}
    }
    shared.closed.cancel();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spdy::header;

    fn pair() -> (Connection, Connection, Acceptor) {
        let (a, b) = tokio::io::duplex(1 << 12);
        let (client, _) = Connection::start(a, Role::Client, Bytes::new());
        let (server, acceptor) = Connection::start(b, Role::Server, Bytes::new());
        (client, server, acceptor)
    }

    async fn all(read: &mut ReadHalf) -> Result<Vec<u8>, StreamError> {
        let mut data = Vec::new();
        while let Some(piece) = read.read().await? {
            data.extend_from_slice(&piece);
        }
        Ok(data)
    }

    #[tokio::test]
    async fn echo_with_half_close() {
        let (client, _server, mut acceptor) = pair();
        let echo = tokio::spawn(async move {
            let stream = acceptor.accept().await.unwrap();
            assert_eq!(header(&stream.headers, "streamType"), Some("stdin"));
            let (mut read, mut write) = stream.split();
            let data = all(&mut read).await.unwrap();
            write.write(data.into()).await.unwrap();
            write.close().await.unwrap();
            acceptor
        });
        let stream = client.open(vec![("streamtype".into(), "stdin".into())]).await.unwrap();
        let (mut read, mut write) = stream.split();
        let data = vec![42u8; 300_000];
        write.write(data.clone().into()).await.unwrap();
        write.close().await.unwrap();
        assert_eq!(write.write(Bytes::from_static(b"x")).await, Err(StreamError::Finished));
        assert_eq!(all(&mut read).await.unwrap(), data);
        assert!(client.handle.shared.with_streams(|streams| streams.is_empty()));
        drop(echo.await.unwrap());
    }

    #[tokio::test]
    async fn drop_resets() {
        let (client, _server, mut acceptor) = pair();
        let (stream, accepted) = tokio::join!(client.open(Vec::new()), acceptor.accept());
        drop(stream.unwrap());
        let mut accepted = accepted.unwrap();
        assert_eq!(accepted.read().await, Err(StreamError::Reset(CANCEL)));
        assert_eq!(accepted.write(Bytes::from_static(b"x")).await, Err(StreamError::Finished));
    }

    #[tokio::test]
    async fn loss_of_the_connection_ends_streams() {
        let (client, server, mut acceptor) = pair();
        let (stream, accepted) = tokio::join!(client.open(Vec::new()), acceptor.accept());
        let mut stream = stream.unwrap();
        let mut accepted = accepted.unwrap();
        accepted.write(Bytes::from_static(b"last words")).await.unwrap();
        server.close();
        let mut read = Vec::new();
        let end = loop {
            match stream.read().await {
                Ok(Some(piece)) => read.extend_from_slice(&piece),
                end => break end,
            }
        };
        assert_eq!(read, b"last words");
        assert!(end.is_err(), "{end:?}");
        assert!(client.open(Vec::new()).await.is_err());
    }

    #[tokio::test]
    async fn a_stream_that_was_accepted_is_there_although_the_connection_is_closed() {
        // Each time is a chance to choose wrongly between the reply and the end.
        for _ in 0..32 {
            let (client, server, mut acceptor) = pair();
            let mut open = std::pin::pin!(client.open(Vec::new()));
            std::future::poll_fn(|cx| {
                assert!(open.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            let mut accepted = acceptor.accept().await.unwrap();
            accepted.write(Bytes::from_static(b"done")).await.unwrap();
            server.close();
            client.closed().await;
            let mut stream = open.await.unwrap();
            assert_eq!(stream.read().await.unwrap().unwrap(), "done");
        }
    }

    #[tokio::test]
    async fn a_client_takes_no_streams() {
        let (client, server, _acceptor) = pair();
        assert_eq!(server.open(Vec::new()).await.err(), Some(StreamError::Reset(REFUSED_STREAM)));
        drop(client);
    }

    #[tokio::test]
    async fn garbage_ends_the_connection() {
        let (mut a, b) = tokio::io::duplex(64);
        let (server, mut acceptor) = Connection::start(b, Role::Server, Bytes::new());
        a.write_all(&[0x80, 9, 0, 1, 0, 0, 0, 0]).await.unwrap();
        server.closed().await;
        assert!(acceptor.accept().await.is_none());
    }

    #[tokio::test]
    async fn a_slow_reader_holds_up_the_writer() {
        let (client, _server, mut acceptor) = pair();
        let (stream, accepted) = tokio::join!(client.open(Vec::new()), acceptor.accept());
        let (_read, mut write) = stream.unwrap().split();
        let flood = async {
            loop {
                write.write(Bytes::from(vec![0; MAX_DATA])).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let held = tokio::time::timeout(Duration::from_millis(200), flood).await;
        assert!(held.is_err());
        let queued = client.handle.shared.frames.max_capacity() - client.handle.shared.frames.capacity();
        assert_eq!(queued, QUEUE, "the queue is full, not longer");
        drop(accepted);
    }
}
