//! Exec and attach over SPDY and over WebSocket: both become the same streams.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use streaming::channel::{self, Input, Protocol};
use streaming::spdy::{self, Acceptor, Connection, ReadHalf, Stream, WriteHalf};
use streaming::websocket::{Receiver, Sender};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::backend::{Backend, PIECES, Size, Streams, Task, Wanted};
use super::result::{Version, encode};

/// The time in which a client opens all its streams; upstream's.
const OPEN: Duration = Duration::from_secs(30);

/// Does a task with these streams. Whatever becomes of it, its result is for the client, in upstream's words.
async fn work(backend: Arc<dyn Backend>, task: Task, streams: Streams) -> Result<i32, String> {
    match task {
        Task::Exec { container, command, wanted } => {
            let ended = backend.exec(container, command, wanted.tty, streams).await;
            ended.map_err(|why| format!("error executing command in container: {why}"))
        }
        Task::Attach { container, .. } => {
            let ended = backend.attach(container, streams).await;
            ended.map(|()| 0).map_err(|why| format!("error attaching to container: {why}"))
        }
        Task::PortForward { .. } => Err("the URL is one of port-forward".to_owned()),
    }
}

/// Serves a client over SPDY until the command has ended or the client is gone.
pub(super) async fn over_spdy(
    backend: Arc<dyn Backend>,
    task: Task,
    wanted: Wanted,
    version: Version,
    (connection, acceptor): (Connection, Acceptor),
) {
    let Ok(Some(mut all)) = timeout(OPEN, opened(acceptor, wanted, version)).await else { return };
    let Some(error) = all.remove("error") else { return };
    let (_error_read, mut error) = error.split();
    let mut parts = Parts::default();
    let mut tasks = Vec::new();
    if let Some(stdin) = all.remove("stdin") {
        let (read, write) = stdin.split();
        parts.kept.push(write);
        let (sender, receiver) = mpsc::channel(PIECES);
        parts.streams.stdin = Some(receiver);
        tasks.push(tokio::spawn(feed(read, sender)));
    }
    if let Some(resize) = all.remove("resize") {
        let (read, write) = resize.split();
        parts.kept.push(write);
        let (sender, receiver) = mpsc::channel(PIECES);
        parts.streams.resize = Some(receiver);
        tasks.push(tokio::spawn(sizes(read, sender)));
    }
    let mut outputs = Vec::new();
    for (name, place) in [("stdout", &mut parts.streams.stdout), ("stderr", &mut parts.streams.stderr)] {
        if let Some(stream) = all.remove(name) {
            let (read, write) = stream.split();
            parts.unread.push(read);
            let (sender, receiver) = mpsc::channel(PIECES);
            *place = Some(sender);
            outputs.push(drain(receiver, write));
        }
    }
    let streams = std::mem::take(&mut parts.streams);
    let ended = async {
        // The streams of a command end with it; what it wrote goes out before its result.
        let (result, _) = tokio::join!(work(backend, task, streams), futures::future::join_all(outputs));
        if let Some(status) = encode(version, &result) {
            let _ = error.write(status.into()).await;
        }
        let _ = error.close().await;
    };
    tokio::select! {
        () = ended => {}
        () = connection.closed() => {}
    }
    for task in tasks {
        task.abort();
    }
    connection.close();
}

/// The parts of a client's streams that nobody uses, but that must live as long as the command.
#[derive(Default)]
struct Parts {
    streams: Streams,
    kept: Vec<WriteHalf>,
    unread: Vec<ReadHalf>,
}

/// Takes the streams that the client opens, by their types; none if the client is gone.
async fn opened(
    mut acceptor: Acceptor,
    wanted: Wanted,
    version: Version,
) -> Option<HashMap<&'static str, Stream>> {
    let mut missing: Vec<&'static str> = vec!["error"];
    for (name, is_wanted) in [
        ("stdin", wanted.stdin),
        ("stdout", wanted.stdout),
        ("stderr", wanted.stderr && !wanted.tty),
        ("resize", wanted.tty && version >= Version::V3),
    ] {
        if is_wanted {
            missing.push(name);
        }
    }
    let mut all = HashMap::new();
    while !missing.is_empty() {
        let stream = acceptor.accept().await?;
        let kind = spdy::header(&stream.headers, "streamtype").unwrap_or_default();
        // A client that is attached to a container's terminal, but has none itself, opens the stream of errors and
        // never one of sizes.
        if kind == "stderr" && wanted.tty {
            missing.retain(|name| *name != "resize");
            all.insert("stderr", stream);
            continue;
        }
        // A stream that nobody expects is reset by dropping it.
        if let Some(at) = missing.iter().position(|name| *name == kind) {
            all.insert(missing.remove(at), stream);
        }
    }
    // Later streams are refused.
    drop(acceptor);
    Some(all)
}

async fn feed(mut from: ReadHalf, to: mpsc::Sender<Bytes>) {
    while let Ok(Some(piece)) = from.read().await {
        if to.send(piece).await.is_err() {
            // Nobody reads any more; the client's input is read to its end all the same, since it would hold up others.
            while let Ok(Some(_)) = from.read().await {}
            return;
        }
    }
}

async fn sizes(mut from: ReadHalf, to: mpsc::Sender<Size>) {
    let mut text = Vec::new();
    while let Ok(Some(piece)) = from.read().await {
        text.extend_from_slice(&piece);
        for size in whole_sizes(&mut text) {
            let _ = to.send(size).await;
        }
    }
}

/// Takes the sizes that have arrived whole.
fn whole_sizes(text: &mut Vec<u8>) -> Vec<Size> {
    /// A size is some forty characters long.
    const LONGEST: usize = 4096;
    let mut all = Vec::new();
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Size>();
    while let Some(Ok(size)) = values.next() {
        all.push(size);
    }
    let used = values.byte_offset();
    text.drain(..used);
    if text.len() > LONGEST {
        text.clear();
    }
    all
}

async fn drain(mut from: mpsc::Receiver<Bytes>, mut to: WriteHalf) {
    while let Some(piece) = from.recv().await {
        if to.write(piece).await.is_err() {
            return;
        }
    }
    let _ = to.close().await;
}

/// Serves a client over WebSocket until the command has ended or the client is gone.
pub(super) async fn over_websocket<T: AsyncRead + AsyncWrite>(
    backend: Arc<dyn Backend>,
    task: Task,
    wanted: Wanted,
    (protocol, version): (Protocol, Version),
    (mut receiver, sender): (Receiver<T>, Sender<T>),
) {
    let (stdin, stdin_receiver) = channel_if(wanted.stdin);
    let (resize, resize_receiver) = channel_if(wanted.tty);
    let (stdout_sender, stdout) = channel_if::<Bytes>(wanted.stdout);
    let (stderr_sender, stderr) = channel_if::<Bytes>(wanted.stderr && !wanted.tty);
    let out = Out { sender: &sender, protocol };
    let first = match wanted {
        Wanted { stdout: true, .. } => channel::STDOUT,
        Wanted { stderr: true, .. } => channel::STDERR,
        _ => channel::ERROR,
    };
    // It tells the client that the connection stands.
    if !out.send(first, &[]).await {
        return;
    }
    let streams = Streams {
        stdin: stdin_receiver,
        stdout: stdout_sender,
        stderr: stderr_sender,
        resize: resize_receiver,
    };
    let ended = async {
        let (result, (), ()) = tokio::join!(
            work(backend, task, streams),
            out.carry(stdout, channel::STDOUT),
            out.carry(stderr, channel::STDERR)
        );
        if let Some(status) = encode(version, &result) {
            out.send(channel::ERROR, &status).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = input(&mut receiver, protocol, stdin, resize) => {}
    }
    sender.close().await;
}

fn channel_if<T>(wanted: bool) -> (Option<mpsc::Sender<T>>, Option<mpsc::Receiver<T>>) {
    wanted.then(|| mpsc::channel(PIECES)).unzip()
}

/// The client's side of the outputs.
struct Out<'a, T> {
    sender: &'a Sender<T>,
    protocol: Protocol,
}

impl<T: AsyncRead + AsyncWrite> Out<'_, T> {
    /// Sends a piece; whether the client took it.
    async fn send(&self, number: u8, piece: &[u8]) -> bool {
        let sent = if self.protocol.base64 {
            let number = char::from(b'0' + number).to_string();
            self.sender.text(&[&number, &STANDARD.encode(piece)]).await
        } else {
            self.sender.binary(&[&[number], piece]).await
        };
        sent.is_ok()
    }

    async fn carry(&self, from: Option<mpsc::Receiver<Bytes>>, number: u8) {
        let Some(mut from) = from else { return };
        while let Some(piece) = from.recv().await {
            if !self.send(number, &piece).await {
                return;
            }
        }
    }
}

/// Reads the client's messages until the client goes away.
async fn input<T: AsyncRead + AsyncWrite>(
    receiver: &mut Receiver<T>,
    protocol: Protocol,
    mut stdin: Option<mpsc::Sender<Bytes>>,
    resize: Option<mpsc::Sender<Size>>,
) {
    let mut text = Vec::new();
    while let Ok(Some(message)) = receiver.next().await {
        match protocol.decode(message.into_bytes()) {
            Ok(Input::Data(channel::STDIN, piece)) => {
                if let Some(to) = &stdin {
                    // A command that reads no more is no error.
                    let _ = to.send(piece).await;
                }
            }
            Ok(Input::Data(channel::RESIZE, piece)) => {
                text.extend_from_slice(&piece);
                for size in whole_sizes(&mut text) {
                    if let Some(to) = &resize {
                        let _ = to.send(size).await;
                    }
                }
            }
            Ok(Input::Close(channel::STDIN)) => stdin = None,
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_with_and_without_a_terminal_is_attached_to_one() {
        let wanted = Wanted { stdin: true, stdout: true, stderr: false, tty: true };
        for last in ["resize", "stderr"] {
            let (a, b) = tokio::io::duplex(1 << 12);
            let (client, _) = Connection::start(a, spdy::Role::Client, Bytes::new());
            let (_server, acceptor) = Connection::start(b, spdy::Role::Server, Bytes::new());
            let open = async {
                let mut all = Vec::new();
                for kind in ["error", "stdin", "stdout", last] {
                    all.push(client.open(vec![("streamtype".into(), kind.into())]).await);
                }
                all
            };
            let opened = timeout(OPEN, opened(acceptor, wanted, Version::V4));
            let (streams, opened) = tokio::join!(open, opened);
            assert!(streams.iter().all(Result::is_ok), "{last}");
            let mut kinds: Vec<&str> = opened.unwrap().unwrap().into_keys().collect();
            kinds.sort_unstable();
            let mut expected = ["error", last, "stdin", "stdout"];
            expected.sort_unstable();
            assert_eq!(kinds, expected);
        }
    }

    #[test]
    fn sizes_in_pieces() {
        let mut text = b"{\"Width\":80,\"Height\":24}\n{\"Width\":10".to_vec();
        assert_eq!(whole_sizes(&mut text), [Size { width: 80, height: 24 }]);
        text.extend_from_slice(b"0,\"Height\":5}");
        assert_eq!(whole_sizes(&mut text), [Size { width: 100, height: 5 }]);
        assert!(whole_sizes(&mut text).is_empty());
        let mut nonsense = vec![b'x'; 5000];
        assert!(whole_sizes(&mut nonsense).is_empty() && nonsense.is_empty());
    }
}
