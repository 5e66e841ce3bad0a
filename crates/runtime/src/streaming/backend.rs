//! The streams of a command as the streaming server hands them on, and those who run it.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// A future of a backend.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Size {
    /// Columns.
    pub(crate) width: u16,
    /// Lines.
    pub(crate) height: u16,
}

/// The streams of a command. Each end is told by dropping.
#[derive(Default)]
pub(crate) struct Streams {
    /// The client's input; ends with the client's input.
    pub(crate) stdin: Option<mpsc::Receiver<Bytes>>,
    /// The first output.
    pub(crate) stdout: Option<mpsc::Sender<Bytes>>,
    /// The second output.
    pub(crate) stderr: Option<mpsc::Sender<Bytes>>,
    /// The sizes of the client's terminal.
    pub(crate) resize: Option<mpsc::Receiver<Size>>,
}

/// The streams that a client may open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

/// The thing that a client may do, once, at the URL that it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    /// Run a command in a container.
    Exec { container: String, command: Vec<String>, wanted: Wanted },
    /// Take part in a container's own streams.
    Attach { container: String, wanted: Wanted },
    /// Reach ports in a Pod's network.
    PortForward { sandbox: String, ports: Vec<u16> },
}

/// Those who do it.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Runs a command to its end; its exit code. The future is dropped when the client goes away.
    fn exec(
        self: Arc<Self>,
        container: String,
        command: Vec<String>,
        tty: bool,
        streams: Streams,
    ) -> Work<Result<i32, String>>;
    /// Carries a container's streams until the container ends or the client goes away.
    fn attach(self: Arc<Self>, container: String, streams: Streams) -> Work<Result<(), String>>;
    /// Connects to a port of a Pod's loopback.
    fn connect(self: Arc<Self>, sandbox: String, port: u16) -> Work<Result<TcpStream, String>>;
}

/// The number of pieces that wait for a reader.
pub(crate) const PIECES: usize = 8;
