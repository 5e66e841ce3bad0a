//! Bodies: of answers, made while they are sent, and of requests, within their limit.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::Status;
use bytes::{Bytes, BytesMut};
use futures::Stream;
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use crate::config::MAX_BODY;
use crate::handlers::watch::{Framer, Tie, WatchSource};
use crate::metrics::Watching;

/// An error while a body streams.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer.
pub(crate) type Body = http_body_util::combinators::BoxBody<Bytes, BodyError>;

/// A body of one piece.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// A body of pieces that are made while it is sent.
pub(crate) struct PieceBody {
    pieces: Box<dyn Iterator<Item = Bytes> + Send + Sync>,
    gzip: Option<flate2::write::GzEncoder<Vec<u8>>>,
}

impl PieceBody {
    pub(crate) fn new(pieces: Box<dyn Iterator<Item = Bytes> + Send + Sync>, gzip: bool) -> Self {
        let level = flate2::Compression::fast();
        Self { pieces, gzip: gzip.then(|| flate2::write::GzEncoder::new(Vec::new(), level)) }
    }
    fn compressed(&mut self) -> Option<io::Result<Bytes>> {
        use std::io::Write;
        loop {
            let encoder = self.gzip.as_mut()?;
            let Some(piece) = self.pieces.next() else {
                return self.gzip.take().map(|e| e.finish().map(Bytes::from));
            };
            if let Err(e) = encoder.write_all(&piece) {
                self.gzip = None;
                return Some(Err(e));
            }
            let out = encoder.get_mut();
            if !out.is_empty() {
                return Some(Ok(std::mem::take(out).into()));
            }
        }
    }
}

impl http_body::Body for PieceBody {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.gzip.is_some() {
            return Poll::Ready(self.compressed().map(|r| r.map(Frame::data).map_err(Into::into)));
        }
        Poll::Ready(self.pieces.next().map(|b| Ok(Frame::data(b))))
    }
}

/// How long a frame of several small events grows: a TLS record, with the frame's head.
const FRAME: usize = (16 << 10) - 64;

/// The frames of a watch.
pub(super) struct WatchBody {
    pub(super) source: Box<WatchSource>,
    pub(super) framer: Framer,
    pub(super) watching: Watching,
    /// Ends with the body.
    pub(super) _tie: Tie,
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let Some(item) = std::task::ready!(Pin::new(&mut *this.source).poll_next(cx)) else {
            return Poll::Ready(None);
        };
        let first = this.framer.frame(item);
        // Events that wait already go along: a frame of its own costs more than a small event.
        if !this.source.is_ready() || first.len() >= FRAME {
            this.watching.sent(1);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let mut frame = BytesMut::with_capacity(FRAME);
        frame.extend_from_slice(&first);
        let mut events = 1;
        while frame.len() < FRAME
            && let Some(item) = this.source.next_ready()
        {
            frame.extend_from_slice(&this.framer.frame(item));
            events += 1;
        }
        this.watching.sent(events);
        Poll::Ready(Some(Ok(Frame::data(frame.freeze()))))
    }
}

/// Reads a body within the limit; a 413 above it.
pub(crate) async fn read_body(mut body: Incoming) -> Result<Bytes, Status> {
    if http_body::Body::size_hint(&body).lower() > MAX_BODY as u64 {
        return Err(refuse(body).await);
    }
    let mut first = Bytes::new();
    let mut all: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Status::bad_request(format!("unexpected end of the body: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + all.len() + data.len() > MAX_BODY {
            return Err(refuse(body).await);
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
                first = Bytes::new();
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

/// The answer to a body that is too large.
async fn refuse(body: Incoming) -> Status {
    throw_away(body, 8 * MAX_BODY).await;
    Status::failure(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {MAX_BODY}"))
}

/// Takes what still comes of a body that nobody wants, if that is not too much: a client that is cut off while it
/// sends does not read its answer.
pub(crate) async fn throw_away(mut body: Incoming, limit: usize) {
    if http_body::Body::is_end_stream(&body) {
        return;
    }
    let mut patience = limit;
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, Bytes::len);
            let Some(left) = patience.checked_sub(size) else { break };
            patience = left;
        }
    };
    // However slow the client is, it gets its answer.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(2), rest).await;
}
