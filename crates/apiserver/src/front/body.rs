//! Bodies: of answers, made while they are sent, and of requests, within their limit.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::Status;
use bytes::Bytes;
use futures::FutureExt;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::config::MAX_BODY;
use crate::flow::Room;
use crate::lanes::Lanes;

/// An error while a body streams.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer, and what ends with it.
pub(crate) struct Body {
    content: Content,
    /// Held only for its drop, which gives back what the request had.
    kept: Option<Box<dyn Send + Sync>>,
}

enum Content {
    /// Bytes that were not taken yet.
    Whole(Bytes),
    Stream(BoxBody<Bytes, BodyError>),
}

impl Body {
    /// A body that is made while it is sent.
    pub(crate) fn stream(
        body: impl http_body::Body<Data = Bytes, Error = BodyError> + Send + Sync + 'static,
    ) -> Self {
        Self { content: Content::Stream(body.boxed()), kept: None }
    }
    /// The same body, which also ends once `end` is there, between two of its pieces.
    pub(crate) fn until(self, end: Pin<Box<dyn Future<Output = ()> + Send + Sync>>) -> Self {
        Self::stream(Until { body: self, end })
    }
    /// The same body, which keeps something until it ends, such as the context of its request.
    pub(crate) fn keep(mut self, kept: Box<dyn Send + Sync>) -> Self {
        self.kept = Some(kept);
        self
    }
}

/// A body with an end from outside.
struct Until {
    body: Body,
    end: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

impl http_body::Body for Until {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }
    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Stream(body) => body.is_end_stream(),
        }
    }
    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream(body) => body.size_hint(),
        }
    }
}

/// A body of one piece.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Body { content: Content::Whole(bytes.into()), kept: None }
}

/// A body of pieces that are made while it is sent.
pub(crate) struct PieceBody(Box<dyn Iterator<Item = Bytes> + Send + Sync>);

impl PieceBody {
    pub(crate) fn new(pieces: Box<dyn Iterator<Item = Bytes> + Send + Sync>) -> Self {
        Self(pieces)
    }
}

impl http_body::Body for PieceBody {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.next().map(|b| Ok(Frame::data(b))))
    }
}

/// How much is compressed before it is looked whether that is enough for a frame.
const STEP: usize = 256 << 10;

/// Pieces, compressed.
struct Gzip {
    pieces: Box<dyn Iterator<Item = Bytes> + Send + Sync>,
    /// The rest of the last piece.
    rest: Bytes,
    encoder: Option<flate2::write::GzEncoder<Vec<u8>>>,
}

impl Gzip {
    fn new(pieces: Box<dyn Iterator<Item = Bytes> + Send + Sync>) -> Self {
        let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        Self { pieces, rest: Bytes::new(), encoder: Some(encoder) }
    }
}

impl Iterator for Gzip {
    type Item = io::Result<Bytes>;
    fn next(&mut self) -> Option<Self::Item> {
        use std::io::Write;
        loop {
            let encoder = self.encoder.as_mut()?;
            if self.rest.is_empty() {
                let Some(piece) = self.pieces.next() else {
                    return self.encoder.take().map(|e| e.finish().map(Bytes::from));
                };
                self.rest = piece;
            }
            let step = self.rest.split_to(self.rest.len().min(STEP));
            if let Err(e) = encoder.write_all(&step) {
                self.encoder = None;
                return Some(Err(e));
            }
            let out = encoder.get_mut();
            if !out.is_empty() {
                return Some(Ok(std::mem::take(out).into()));
            }
        }
    }
}

/// A body that is made elsewhere.
struct Elsewhere(mpsc::Receiver<io::Result<Bytes>>);

impl http_body::Body for Elsewhere {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = std::task::ready!(self.0.poll_recv(cx));
        Poll::Ready(piece.map(|piece| piece.map(Frame::data).map_err(Into::into)))
    }
}

/// A body of pieces that are made while it is sent; to be compressed, where long work is done.
pub(crate) fn pieces(
    lanes: &Lanes,
    pieces: impl Iterator<Item = Bytes> + Send + Sync + 'static,
    gzip: bool,
) -> Body {
    if !gzip {
        return Body::stream(PieceBody::new(Box::new(pieces)));
    }
    let (send, made) = mpsc::channel(1);
    lanes.spawn(async move {
        for piece in Gzip::new(Box::new(pieces)) {
            // The reader of the pieces may have gone.
            if send.send(piece).await.is_err() {
                return;
            }
        }
    });
    Body::stream(Elsewhere(made))
}

/// Why a body was not read.
pub(crate) enum Unread {
    /// It is not as it must be.
    Bad(Status),
    /// The caller has no more room for bodies.
    NoRoom,
}

/// The bytes that a body counts as, however short it is, while its client takes its time.
const SLOW: usize = 16 << 10;

/// Bodies up to this that are there at once don't count.
const SHORT: usize = 64 << 10;

/// Reads a body within the limit (a 413 above it) and the room that its caller has for all bodies.
pub(crate) async fn read_body(mut body: Incoming, room: &mut Room) -> Result<Bytes, Unread> {
    if http_body::Body::size_hint(&body).lower() > MAX_BODY as u64 {
        return Err(refuse(body).await);
    }
    let mut first = Bytes::new();
    let mut all: Vec<u8> = Vec::new();
    loop {
        let frame = match body.frame().now_or_never() {
            Some(frame) => frame,
            None if room.at_least(SLOW) => body.frame().await,
            None => return Err(no_room(body).await),
        };
        let Some(frame) = frame else { break };
        let bad = |e| Unread::Bad(Status::bad_request(format!("unexpected end of the body: {e}")));
        let Ok(data) = frame.map_err(bad)?.into_data() else { continue };
        let size = first.len() + all.len() + data.len();
        if size > MAX_BODY {
            return Err(refuse(body).await);
        }
        if size > SHORT && !room.at_least(size.next_multiple_of(SHORT)) {
            return Err(no_room(body).await);
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

/// The answer to a body for which there is no room.
async fn no_room(body: Incoming) -> Unread {
    throw_away(body, MAX_BODY).await;
    Unread::NoRoom
}

/// The answer to a body that is too large.
async fn refuse(body: Incoming) -> Unread {
    throw_away(body, 8 * MAX_BODY).await;
    let message = format!("Request entity too large: limit is {MAX_BODY}");
    Unread::Bad(Status::failure(413, "RequestEntityTooLarge", message))
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use super::*;
    use crate::request::Request;
    use access::{Query, RequestInfo, UserInfo};

    #[tokio::test]
    async fn what_is_compressed_is_whole() {
        let lanes = Lanes::default();
        let check = async |sizes: &[usize]| {
            let given: Vec<Bytes> =
                sizes.iter().map(|size| (0..*size).map(|i| (i % 251) as u8).collect()).collect();
            let body = pieces(&lanes, given.clone().into_iter(), true);
            let sent = body.collect().await.unwrap().to_bytes();
            let mut got = Vec::new();
            flate2::read::GzDecoder::new(&sent[..]).read_to_end(&mut got).unwrap();
            assert!(got == given.concat(), "{sizes:?}");
        };
        check(&[]).await;
        check(&[0, 1, 0]).await;
        check(&[STEP, STEP + 1, 3 * STEP - 1]).await;
    }

    #[tokio::test]
    async fn the_context_of_a_request_ends_with_the_body_of_its_answer() {
        let kept = Arc::new(UserInfo::default());
        let context = |user: &Arc<UserInfo>| {
            let catalog = crate::testing::Cluster::new().server.objects().catalog();
            let mut context = Request::new(catalog, RequestInfo::default(), Query::default(), None);
            context.user = Arc::clone(user);
            Box::new(context)
        };
        for body in [full("ab"), Body::stream(PieceBody::new(Box::new([Bytes::from("ab")].into_iter())))] {
            let mut body = body.keep(context(&kept));
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((&*frame, Arc::strong_count(&kept)), (&b"ab"[..], 2));
            assert!(body.frame().await.is_none());
            drop(body);
            assert_eq!(Arc::strong_count(&kept), 1);
        }
        let (whole, empty) = (full("ab"), full(""));
        let sizes = [&whole, &empty]
            .map(|b| (http_body::Body::size_hint(b).exact(), http_body::Body::is_end_stream(b)));
        assert_eq!(sizes, [(Some(2), false), (Some(0), true)]);
    }
}
