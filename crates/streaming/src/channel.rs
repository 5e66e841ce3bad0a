//! The `channel.k8s.io` subprotocols: messages of a WebSocket carry the number of their stream.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use thiserror::Error;

/// Standard input.
pub const STDIN: u8 = 0;
/// Standard output.
pub const STDOUT: u8 = 1;
/// Standard error.
pub const STDERR: u8 = 2;
/// The result, as `metav1.Status` from version 4 on.
pub const ERROR: u8 = 3;
/// Terminal sizes, as JSON.
pub const RESIZE: u8 = 4;

/// Stands in place of a stream's number: the stream named by the next byte ends. Version 5 only.
const CLOSE: u8 = 255;

/// The subprotocol of version 5 of remote command.
pub const V5: &str = "v5.channel.k8s.io";
/// The subprotocol of version 4.
pub const V4: &str = "v4.channel.k8s.io";
/// The start of the names of subprotocols that carry SPDY in a WebSocket.
pub const TUNNEL_PREFIX: &str = "SPDY/3.1+";

/// The streaming subprotocols of a single stream (logs, watches).
pub const SINGLE: [&str; 3] = ["", "binary.k8s.io", "base64.binary.k8s.io"];

/// The form of a subprotocol's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol {
    /// Whether payloads are base64 and stream numbers are digits.
    pub base64: bool,
    /// Whether a stream can be ended alone.
    pub close: bool,
}

/// The content of a client's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Bytes of a stream.
    Data(u8, Bytes),
    /// The end of a stream.
    Close(u8),
    /// Nothing (keep-alive).
    Nothing,
}

/// A message that does not follow the subprotocol.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ChannelError {
    /// The end of a stream must name one stream.
    #[error("single channel byte should follow stream close signal")]
    Close,
    /// The payload is not base64.
    #[error("channel data is not base64")]
    Base64,
}

impl Protocol {
    /// The form of a subprotocol by its name; `None` for one that has no channels.
    pub fn of(name: &str) -> Option<Self> {
        let base64 = name.starts_with("base64.") || name.contains(".base64.");
        (name.is_empty() || name.ends_with("channel.k8s.io")).then_some(Self { base64, close: name == V5 })
    }

    /// Reads a message of a client.
    pub fn decode(self, mut message: Bytes) -> Result<Input, ChannelError> {
        if message.is_empty() {
            return Ok(Input::Nothing);
        }
        if self.close && message[0] == CLOSE {
            return match message[..] {
                [_, stream] => Ok(Input::Close(stream)),
                _ => Err(ChannelError::Close),
            };
        }
        let number = message.get_u8();
        if self.base64 {
            let data = STANDARD.decode(&message).map_err(|_| ChannelError::Base64)?;
            return Ok(Input::Data(number.wrapping_sub(b'0'), data.into()));
        }
        Ok(Input::Data(number, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes() {
        let check = |protocol: &str, message: &[u8], expected: Result<Input, ChannelError>| {
            let got = Protocol::of(protocol).unwrap().decode(Bytes::copy_from_slice(message));
            assert_eq!(got, expected, "{protocol} {message:?}");
        };
        check(V5, b"", Ok(Input::Nothing));
        check(V5, b"\0foo", Ok(Input::Data(0, Bytes::from_static(b"foo"))));
        check(V5, &[255, 0], Ok(Input::Close(0)));
        check(V5, &[255], Err(ChannelError::Close));
        check(V4, &[255, 0], Ok(Input::Data(255, Bytes::from_static(&[0]))));
        check("base64.channel.k8s.io", b"0Zm9vCg==", Ok(Input::Data(0, Bytes::from_static(b"foo\n"))));
        check("v4.base64.channel.k8s.io", b"0!", Err(ChannelError::Base64));
        assert_eq!(Protocol::of("binary.k8s.io"), None);
    }
}
