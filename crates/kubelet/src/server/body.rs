//! Bodies that are streamed.

use bytes::Bytes;
use futures::StreamExt;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serving::{Body, BoxError};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Pieces of a streamed body that wait for its reader.
const BODY_PIECES: usize = 8;

/// A body whose pieces come from elsewhere, as fast as its reader takes them.
pub(super) fn channel_body() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, receiver) = mpsc::channel(BODY_PIECES);
    let frames = ReceiverStream::new(receiver).map(|piece| Ok::<_, BoxError>(Frame::data(piece)));
    (sender, BodyExt::boxed(StreamBody::new(frames)))
}
