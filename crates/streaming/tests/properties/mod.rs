//! Properties that hold for any bytes from a peer. The fuzz targets in `fuzz/` run these, too.

use bytes::{Bytes, BytesMut};
use ferrokube_streaming::channel::{Input, Protocol};
use ferrokube_streaming::remotecommand;
use ferrokube_streaming::spdy::{Decoder, Encoder, Frame};
use ferrokube_streaming::websocket::frame;

/// A property, and the name of its seeds and of its fuzz target.
pub type Property = (&'static str, fn(&[u8]));

/// All properties.
pub const ALL: [Property; 3] =
    [("spdy", spdy_frames), ("websocket", websocket_frames), ("channel", channel_messages)];

/// The longest payload of a WebSocket frame here.
const LIMIT: usize = 1 << 16;

/// The frames of a connection whose bytes come `step` at a time, their data joined; and whether the connection broke.
fn spdy(data: &[u8], step: usize) -> (Vec<Frame>, bool) {
    let (mut decoder, mut buffer, mut frames) = (Decoder::new(), BytesMut::new(), Vec::new());
    for part in data.chunks(step) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(frame)) => join(&mut frames, frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

/// Adds a frame; data goes to the data of the same stream before it.
fn join(frames: &mut Vec<Frame>, frame: Frame) {
    if let (
        Some(Frame::Data { stream: last, fin: last_fin @ false, data: before }),
        Frame::Data { stream, fin, data },
    ) = (frames.last_mut(), &frame)
        && last == stream
    {
        *before = [before.as_ref(), data].concat().into();
        *last_fin = *fin;
        return;
    }
    frames.push(frame);
}

/// Frames are the same for any pieces in which their bytes come, and frames that were read are written such that they
/// read the same.
pub fn spdy_frames(data: &[u8]) {
    let (frames, broken) = spdy(data, data.len().max(1));
    let (pieces, piecewise_broken) = spdy(data, 1);
    assert_eq!((&pieces, piecewise_broken), (&frames, broken), "byte by byte");
    let (mut encoder, mut out) = (Encoder::new(), BytesMut::new());
    let mut written = Vec::new();
    for frame in frames {
        if encoder.encode(&frame, &mut out).is_ok() {
            join(&mut written, frame);
        }
    }
    assert_eq!(spdy(&out, out.len().max(1)), (written, false), "written");
}

/// Frames that were read are written such that they read the same.
pub fn websocket_frames(data: &[u8]) {
    for masked in [true, false] {
        let mut buffer = BytesMut::from(data);
        while let Ok(Some(read)) = frame::decode(&mut buffer, masked, LIMIT) {
            let mut out = BytesMut::new();
            let parts: [&[u8]; 2] =
                [&read.payload[..read.payload.len() / 2], &read.payload[read.payload.len() / 2..]];
            frame::encode(read.fin, read.opcode, &parts, masked.then_some([7, 0, 255, 9]), &mut out);
            assert_eq!(frame::decode(&mut out, masked, LIMIT), Ok(Some(read)));
            assert!(out.is_empty());
        }
    }
}

/// A message carries data of a stream, ends a stream, or breaks the protocol.
pub fn channel_messages(data: &[u8]) {
    for name in
        ["", "v4.channel.k8s.io", "v5.channel.k8s.io", "base64.channel.k8s.io", "v4.base64.channel.k8s.io"]
    {
        let Some(protocol) = Protocol::of(name) else { panic!("{name} is not known") };
        if let Ok(Input::Data(_, bytes)) = protocol.decode(Bytes::copy_from_slice(data)) {
            assert!(bytes.len() < data.len());
        }
    }
    let _ = remotecommand::decode_result(data);
}
