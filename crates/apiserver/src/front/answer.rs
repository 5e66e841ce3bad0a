//! The answer of a handler, as HTTP.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use access::RequestInfo;
use bytes::{Bytes, BytesMut};
use futures::Stream;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;

use super::body::{Body, BodyError, full, pieces};
use super::lifetime::Lifetime;
use super::response::status_response;
use crate::encoder::{Encoded, Encoder, Framer, encode};
use crate::lanes::Lanes;
use crate::metrics::{Metrics, Watching};
use crate::negotiate::Form;
use crate::outcome::Outcome;
use crate::watch::{WatchDeadlines, WatchSource};

/// Turns what a handler answered into an HTTP answer.
pub(crate) fn outcome_response(
    (encoder, lanes, metrics): (Encoder, &Lanes, &Metrics),
    outcome: Outcome,
    form: Form,
    gzip: bool,
    info: &RequestInfo,
    lifetime: &Arc<Lifetime>,
) -> Response<Body> {
    match outcome {
        Outcome::Watch(source) => watch_response((encoder, metrics), source, form, info, lifetime),
        other => match encode(&encoder, other, form) {
            Ok((status, encoded)) => encoded_response(lanes, status, encoded, form, gzip),
            Err(status) => status_response(&status, form),
        },
    }
}

/// Bodies above this are compressed for those who take it; upstream's threshold.
const GZIP_FROM: usize = 128 << 10;

fn encoded_response(lanes: &Lanes, status: u16, encoded: Encoded, form: Form, gzip: bool) -> Response<Body> {
    let mut compressed = false;
    let body = match encoded {
        Encoded::Whole(bytes) if gzip && bytes.len() > GZIP_FROM => {
            compressed = true;
            pieces(lanes, std::iter::once(bytes), true)
        }
        Encoded::Whole(bytes) => full(bytes),
        Encoded::Items(mut writer) => match (writer.next_chunk(), writer.next_chunk()) {
            (Some(first), None) if !gzip || first.len() <= GZIP_FROM => full(first),
            (first, second) => {
                compressed = gzip;
                let rest = std::iter::from_fn(move || writer.next_chunk());
                let all = first.into_iter().chain(second).chain(rest);
                pieces(lanes, all, gzip)
            }
        },
        Encoded::Pieces(all) => {
            compressed = gzip && all.as_slice().iter().map(Bytes::len).sum::<usize>() > GZIP_FROM;
            pieces(lanes, all, compressed)
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.format.media_type()));
    if compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

fn watch_response(
    (encoder, metrics): (Encoder, &Metrics),
    source: Box<WatchSource>,
    form: Form,
    info: &RequestInfo,
    lifetime: &Arc<Lifetime>,
) -> Response<Body> {
    let framer = Framer::new(encoder, &source.resource, form);
    let deadlines = source.deadlines(lifetime);
    let body = WatchBody { source, framer, watching: metrics.watch(info), _deadlines: deadlines };
    let mut response = Response::new(Body::stream(body));
    let media = form.format.watch_type().unwrap_or("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// How long a frame of several small events grows: a TLS record, with the frame's head.
const FRAME: usize = (16 << 10) - 64;

/// The frames of a watch.
struct WatchBody {
    source: Box<WatchSource>,
    framer: Framer,
    watching: Watching,
    /// Ends with the body.
    _deadlines: WatchDeadlines,
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
