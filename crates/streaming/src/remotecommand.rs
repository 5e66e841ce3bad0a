//! Remote command (exec and attach): a WebSocket client of version 5 served by a SPDY backend of version 4. The
//! protocols differ in how streams are told apart and ended, not in their content.

use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::channel::{self, Input, Protocol};
use crate::spdy::{Connection, ReadHalf, Stream, StreamError};
use crate::websocket::{Receiver, Sender, SocketError, is_websocket, requested_protocols};

/// The values of `X-Stream-Protocol-Version` from which a backend of [`translate`] may choose.
pub const BACKEND_PROTOCOLS: [&str; 2] = [channel::V5, channel::V4];

/// The longest result taken from a backend.
const MAX_RESULT: usize = 64 << 10;

/// The streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error; none with a terminal.
    pub stderr: bool,
    /// A terminal, whose size the client sends.
    pub tty: bool,
}

/// The end of a command other than exit code 0.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CommandError {
    /// The command ended with another exit code.
    #[error("command terminated with exit code {0}")]
    Exit(u8),
    /// The command could not run, or its result is not known.
    #[error("{0}")]
    Failed(String),
    /// The backend did not take the streams, and said why: a `metav1.Status` as JSON.
    #[error("the backend refused the command")]
    Refused(Vec<u8>),
    /// The client went away.
    #[error("the client closed the connection")]
    Gone,
}

impl CommandError {
    /// From the answer of a backend that did not take the streams; `body` is its beginning, or none if it could not be read.
    pub fn of_refusal(body: Option<&[u8]>) -> Self {
        let body = body.unwrap_or(b"unable to read error from server response");
        match serde_json::from_slice::<Status>(body) {
            Ok(status) if status.status == "Failure" => Self::Refused(body.to_vec()),
            _ => Self::Failed(format!(
                "unable to upgrade connection: {}",
                String::from_utf8_lossy(body).trim()
            )),
        }
    }
}

impl From<StreamError> for CommandError {
    fn from(e: StreamError) -> Self {
        Self::Failed(e.to_string())
    }
}

impl From<SocketError> for CommandError {
    fn from(_: SocketError) -> Self {
        Self::Gone
    }
}

/// Whether a request asks for a command by WebSocket with streams that close alone: version 5, which [`translate`] serves.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    is_websocket(headers) && requested_protocols(headers).contains(&channel::V5)
}

/// Tells the client that the connection stands: sends an empty message on the first stream that the client reads.
pub async fn greet<T: AsyncWrite>(client: &Sender<T>, options: Options) -> Result<(), SocketError> {
    let first = match options {
        Options { stdout: true, .. } => channel::STDOUT,
        Options { stderr: true, .. } => channel::STDERR,
        _ => channel::ERROR,
    };
    client.binary(&[&[first]]).await
}

/// Tells the client how its command ended, and closes the connection.
pub async fn finish<T: AsyncWrite>(client: &Sender<T>, result: &Result<(), CommandError>) {
    if let Some(result) = encode_result(result) {
        // A client that went away needs no result.
        let _ = client.binary(&[&[channel::ERROR], &result]).await;
    }
    client.close().await;
}

/// Carries a command's streams until the command has ended. Returns the command's result, which [`finish`] tells the client.
pub async fn translate<T: AsyncRead + AsyncWrite>(
    receiver: &mut Receiver<T>,
    sender: &Sender<T>,
    backend: &Connection,
    options: Options,
) -> Result<(), CommandError> {
    let (error, stdin, stdout, stderr, resize) = tokio::try_join!(
        open(backend, "error", true),
        open(backend, "stdin", options.stdin),
        open(backend, "stdout", options.stdout),
        open(backend, "stderr", options.stderr && !options.tty),
        open(backend, "resize", options.tty),
    )?;
    let Some(error) = error else { return Err(StreamError::Closed.into()) };
    // The writing halves stay until the end: dropping one would reset its stream.
    let (mut error, _error_write) = error.split();
    let (mut stdout, _stdout_write) = stdout.map(Stream::split).unzip();
    let (mut stderr, _stderr_write) = stderr.map(Stream::split).unzip();
    let results = async {
        let (out, err, result) = tokio::join!(
            output(stdout.as_mut(), sender, channel::STDOUT),
            output(stderr.as_mut(), sender, channel::STDERR),
            result(&mut error),
        );
        out?;
        err?;
        result
    };
    tokio::select! {
        result = results => result,
        gone = input(receiver, stdin, resize) => Err(gone),
    }
}

async fn open(backend: &Connection, kind: &str, wanted: bool) -> Result<Option<Stream>, StreamError> {
    if !wanted {
        return Ok(None);
    }
    backend.open(vec![("streamtype".into(), kind.into())]).await.map(Some)
}

async fn output<T: AsyncWrite>(
    stream: Option<&mut ReadHalf>,
    client: &Sender<T>,
    number: u8,
) -> Result<(), CommandError> {
    let Some(stream) = stream else { return Ok(()) };
    // Backends end their streams by resetting them; the result tells the real end.
    while let Ok(Some(data)) = stream.read().await {
        client.binary(&[&[number], &data]).await?;
    }
    Ok(())
}

async fn result(stream: &mut ReadHalf) -> Result<(), CommandError> {
    let mut status = Vec::new();
    loop {
        match stream.read().await {
            Ok(Some(data)) if status.len() + data.len() <= MAX_RESULT => status.extend_from_slice(&data),
            Ok(Some(_)) => return Err(CommandError::Failed("error stream is too long".into())),
            Err(StreamError::Closed) if status.is_empty() => return Err(StreamError::Closed.into()),
            Ok(None) | Err(_) => return decode_result(&status),
        }
    }
}

/// Feeds the command from the client; returns the reason for which the client's messages ended.
async fn input<T: AsyncRead + AsyncWrite>(
    receiver: &mut Receiver<T>,
    mut stdin: Option<Stream>,
    mut resize: Option<Stream>,
) -> CommandError {
    let protocol = Protocol { base64: false, close: true };
    loop {
        let message = match receiver.next().await {
            Ok(Some(message)) => message.into_bytes(),
            Ok(None) | Err(_) => return CommandError::Gone,
        };
        // A backend that no longer reads a stream is no error: the result will tell.
        match protocol.decode(message) {
            Ok(Input::Data(channel::STDIN, data)) => feed(stdin.as_mut(), data).await,
            Ok(Input::Data(channel::RESIZE, data)) => feed(resize.as_mut(), data).await,
            Ok(Input::Close(channel::STDIN)) => end(stdin.as_mut()).await,
            Ok(Input::Close(channel::RESIZE)) => end(resize.as_mut()).await,
            Ok(_) => {}
            Err(e) => return CommandError::Failed(e.to_string()),
        }
    }
}

async fn feed(stream: Option<&mut Stream>, data: Bytes) {
    if let Some(stream) = stream {
        let _ = stream.write(data).await;
    }
}

async fn end(stream: Option<&mut Stream>) {
    if let Some(stream) = stream {
        let _ = stream.close().await;
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    status: String,
    message: String,
    reason: String,
    details: Option<Details>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

/// A result as clients of version 4 and 5 read it, `metav1.Status`; none for a client that went away.
fn encode_result(result: &Result<(), CommandError>) -> Option<Vec<u8>> {
    let status = match result {
        Ok(()) => json!({"metadata": {}, "status": "Success"}),
        Err(CommandError::Gone) => return None,
        Err(CommandError::Failed(why)) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("Internal error occurred: {why}"),
            "reason": "InternalError",
            "details": {"causes": [{"message": why}]},
            "code": 500,
        }),
        Err(CommandError::Refused(status)) => return Some(status.clone()),
        Err(exit @ CommandError::Exit(code)) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: {exit}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
    };
    Some(status.to_string().into_bytes())
}

/// The result that a backend of version 4 or 5 wrote on its error stream; an empty one is a success.
pub fn decode_result(status: &[u8]) -> Result<(), CommandError> {
    let failed = |text: String| Err(CommandError::Failed(text));
    if status.is_empty() {
        return Ok(());
    }
    let decoded: Status = match serde_json::from_slice(status) {
        Ok(decoded) => decoded,
        Err(e) => {
            let text = String::from_utf8_lossy(status);
            return failed(format!("error stream protocol error: {e} in {text:?}"));
        }
    };
    match decoded.status.as_str() {
        "Success" => Ok(()),
        "Failure" if decoded.reason == "NonZeroExitCode" => {
            let Some(details) = decoded.details else {
                return failed("error stream protocol error: details must be set".into());
            };
            match details.causes.iter().find(|cause| cause.reason == "ExitCode") {
                None => failed("error stream protocol error: no ExitCode cause given".into()),
                Some(cause) => match cause.message.parse() {
                    Ok(code) => Err(CommandError::Exit(code)),
                    Err(_) => failed(format!(
                        "error stream protocol error: invalid exit code value {:?}",
                        cause.message
                    )),
                },
            }
        }
        "Failure" => failed(decoded.message),
        _ => failed("error stream protocol error: unknown error".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use crate::spdy::{Acceptor, Role, header};
    use crate::websocket::frame::{self, Opcode};
    use crate::websocket::server;

    #[test]
    fn results() {
        let check = |status: &str, expected: Result<(), CommandError>| {
            assert_eq!(decode_result(status.as_bytes()), expected, "{status}");
        };
        let failed = |text: &str| Err(CommandError::Failed(text.to_owned()));
        check("", Ok(()));
        check(r#"{"metadata":{},"status":"Success"}"#, Ok(()));
        check(r#"{"status":"Failure","message":"boom"}"#, failed("boom"));
        check(r#"{"status":"Odd"}"#, failed("error stream protocol error: unknown error"));
        check(
            r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
            failed("error stream protocol error: details must be set"),
        );
        check(
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"Foo"}]}}"#,
            failed("error stream protocol error: no ExitCode cause given"),
        );
        check(
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"42"}]}}"#,
            Err(CommandError::Exit(42)),
        );
        check(
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"bar"}]}}"#,
            failed("error stream protocol error: invalid exit code value \"bar\""),
        );
        assert!(matches!(decode_result(b"boom"), Err(CommandError::Failed(_))));
    }

    #[test]
    fn results_are_told() {
        let json = |result| -> Option<serde_json::Value> {
            encode_result(&result).map(|bytes| serde_json::from_slice(&bytes).unwrap())
        };
        let exit = json(Err(CommandError::Exit(3))).unwrap();
        assert_eq!(
            exit["message"],
            "command terminated with non-zero exit code: command terminated with exit code 3"
        );
        assert_eq!(exit["reason"], "NonZeroExitCode");
        assert_eq!(exit["details"]["causes"][0], serde_json::json!({"reason": "ExitCode", "message": "3"}));
        assert_eq!(json(Ok(())).unwrap(), serde_json::json!({"metadata": {}, "status": "Success"}));
        assert_eq!(json(Err(CommandError::Gone)), None);
        let refused = |body: Option<&[u8]>| json(Err(CommandError::of_refusal(body))).unwrap();
        assert_eq!(refused(Some(br#"{"status":"Failure","code":404}"#))["code"], 404);
        let text = refused(Some(b"pod does not exist\n"));
        assert_eq!(
            text["message"],
            "Internal error occurred: unable to upgrade connection: pod does not exist"
        );
        assert_eq!(
            refused(None)["details"]["causes"][0]["message"],
            "unable to upgrade connection: unable to read error from server response"
        );
    }

    async fn say(client: &mut DuplexStream, message: &[u8]) {
        let mut bytes = BytesMut::new();
        frame::encode(true, Opcode::Binary, &[message], Some([9; 4]), &mut bytes);
        client.write_all(&bytes).await.unwrap();
    }

    /// A runtime that runs `cat` and ends with the code 7.
    async fn cat(mut acceptor: Acceptor, streams: usize) {
        let mut by_type = std::collections::HashMap::new();
        for _ in 0..streams {
            let stream = acceptor.accept().await.unwrap();
            by_type.insert(header(&stream.headers, "streamtype").unwrap().to_owned(), stream);
        }
        let mut stdin = by_type.remove("stdin").unwrap();
        while let Some(data) = stdin.read().await.unwrap() {
            by_type.get_mut("stdout").unwrap().write(data).await.unwrap();
        }
        let status = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
        by_type.get_mut("error").unwrap().write(Bytes::from_static(status)).await.unwrap();
        for stream in by_type.values_mut() {
            stream.close().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_command_from_end_to_end() {
        let (near, far) = tokio::io::duplex(1 << 12);
        let (backend, _) = Connection::start(near, Role::Client, Bytes::new());
        let (_runtime, acceptor) = Connection::start(far, Role::Server, Bytes::new());
        let runtime = tokio::spawn(cat(acceptor, 4));
        let (mut client, io) = tokio::io::duplex(1 << 12);
        let options = Options { stdin: true, stdout: true, stderr: true, tty: false };
        let proxy = tokio::spawn(async move {
            let (mut receiver, sender) = server(io);
            greet(&sender, options).await.unwrap();
            let result = translate(&mut receiver, &sender, &backend, options).await;
            sender.close().await;
            result
        });
        say(&mut client, b"\0hello ").await;
        say(&mut client, b"\0world").await;
        say(&mut client, &[255, 0]).await;
        let mut answer = BytesMut::new();
        while client.read_buf(&mut answer).await.unwrap() > 0 {}
        let mut out = Vec::new();
        while let Some(frame) = frame::decode(&mut answer, false, 1 << 16).unwrap() {
            if frame.opcode == Opcode::Binary {
                assert_eq!(frame.payload[0], channel::STDOUT);
                out.extend_from_slice(&frame.payload[1..]);
            }
        }
        assert_eq!(out, b"hello world");
        assert_eq!(proxy.await.unwrap(), Err(CommandError::Exit(7)));
        runtime.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_the_command() {
        let (near, far) = tokio::io::duplex(1 << 12);
        let (backend, _) = Connection::start(near, Role::Client, Bytes::new());
        let (_runtime, mut acceptor) = Connection::start(far, Role::Server, Bytes::new());
        let (client, io) = tokio::io::duplex(1 << 12);
        let options = Options { stdin: true, stdout: true, ..Options::default() };
        let (mut receiver, sender) = server(io);
        drop(client);
        let accept = async {
            let mut streams = Vec::new();
            while let Some(stream) = acceptor.accept().await {
                streams.push(stream);
                if streams.len() == 3 {
                    break;
                }
            }
            streams
        };
        let (result, _streams) = tokio::join!(translate(&mut receiver, &sender, &backend, options), accept);
        assert_eq!(result, Err(CommandError::Gone));
    }
}
