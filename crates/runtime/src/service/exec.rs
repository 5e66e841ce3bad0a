//! Commands in containers, and the streams of containers.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use containers::{ExecControl, ExecSpec};
use cri::runtime as pb;
use oci_spec::runtime::Process;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::containers::running;
use super::core::Core;
use super::error::{CallError, at, whole};
use crate::streaming::{Backend, Streams, Task, Wanted, Work};
use crate::translate::set_variable;

const KILL: i32 = 9;
/// The longest output of a command that is answered, in bytes; containerd's.
const LONGEST: usize = 16 << 20;
/// How long the outputs of a command may stay open after its end: its own children may have them.
const DRAIN: Duration = Duration::from_secs(5);

/// The time in which a client whose input has ended still gets the answers to it. DIFFERENCE: containerd gives none.
const LEAVE: Duration = Duration::from_secs(1);
/// The size of a piece.
const PIECE: usize = 32 << 10;
/// The time in which a port of a Pod answers.
const CONNECT: Duration = Duration::from_secs(30);

/// The process of a command: that of its container with other arguments.
fn process(of: &containers::Container, command: &[String], terminal: bool) -> Process {
    let mut made = of.spec().process().clone().unwrap_or_default();
    if terminal {
        let mut env = made.env().clone().unwrap_or_default();
        set_variable(&mut env, "TERM=xterm".to_owned());
        made.set_env(Some(env));
    }
    made.set_args(Some(command.to_vec())).set_terminal(Some(terminal));
    made
}

/// Ends a command that is given up.
struct Ended(Option<ExecControl>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(exec) = self.0.take() {
            // One that has ended takes no signal.
            let _ = exec.kill(KILL);
        }
    }
}

/// Runs a command to its end and keeps its output. Without a limit it goes on until the caller goes away.
pub(crate) async fn exec_sync(
    core: &Core,
    request: pb::ExecSyncRequest,
) -> Result<pb::ExecSyncResponse, CallError> {
    let (_, live) = running(core, &request.container_id)?;
    if request.cmd.is_empty() {
        return Err(CallError::Invalid("no command specified".to_owned()));
    }
    let spec = ExecSpec {
        process: process(&live, &request.cmd, false),
        terminal: false,
        stdin: false,
        stdout: true,
        stderr: true,
    };
    let limit = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let until = limit.map(|limit| Instant::now() + limit);
    let mut exec = live.exec(spec).await.map_err(not_run)?;
    let (stdout, stderr) = (exec.stdout.take(), exec.stderr.take());
    let exec = exec.control();
    let mut ended = Ended(Some(exec.clone()));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = {
        let outputs = async { tokio::join!(keep(stdout, &mut out), keep(stderr, &mut err)) };
        tokio::pin!(outputs);
        let work = async {
            let mut open = true;
            let exit = loop {
                tokio::select! {
                    exit = exec.wait() => break exit,
                    _ = &mut outputs, if open => open = false,
                }
            };
            if open {
                let _ = timeout(DRAIN, &mut outputs).await;
            }
            exit
        };
        match until {
            None => Ok(work.await),
            Some(until) => timeout_at(until, work).await,
        }
    };
    let Ok(exit) = exit else {
        // Dropping it ends the command.
        drop(ended);
        let seconds = request.timeout;
        return Err(CallError::Late(format!(
            "failed to exec in container: timeout {seconds}s exceeded: context deadline exceeded"
        )));
    };
    ended.0 = None;
    Ok(pb::ExecSyncResponse { stdout: out, stderr: err, exit_code: exit.code })
}

/// A command that could not be run.
fn not_run(error: containers::Error) -> CallError {
    match error {
        containers::Error::Step { .. } | containers::Error::Invalid(_) => CallError::Exec(whole(&error)),
        other => at("failed to exec in container")(other),
    }
}

/// Reads an output to its end, and keeps as much as is answered.
async fn keep(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut buffer = BytesMut::with_capacity(PIECE);
    while matches!(from.read_buf(&mut buffer).await, Ok(n) if n > 0) {
        let room = LONGEST.saturating_sub(into.len()).min(buffer.len());
        into.extend_from_slice(&buffer[..room]);
        buffer.clear();
    }
}

async fn carry_out(from: Option<impl AsyncRead + Unpin>, to: Option<mpsc::Sender<Bytes>>) {
    let (Some(mut from), Some(to)) = (from, to) else { return };
    let mut buffer = BytesMut::with_capacity(PIECE);
    while matches!(from.read_buf(&mut buffer).await, Ok(n) if n > 0) {
        if to.send(buffer.split().freeze()).await.is_err() {
            return;
        }
        buffer.reserve(PIECE);
    }
}

async fn carry_in(from: Option<mpsc::Receiver<Bytes>>, to: Option<impl AsyncWrite + Unpin>) {
    let (Some(mut from), Some(mut to)) = (from, to) else { return };
    while let Some(piece) = from.recv().await {
        if to.write_all(&piece).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn exec(
    core: Arc<Core>,
    container: String,
    command: Vec<String>,
    tty: bool,
    streams: Streams,
) -> Result<i32, CallError> {
    let (_, live) = running(&core, &container)?;
    let spec = ExecSpec {
        process: process(&live, &command, tty),
        terminal: tty,
        stdin: streams.stdin.is_some(),
        stdout: streams.stdout.is_some(),
        stderr: streams.stderr.is_some() && !tty,
    };
    let mut exec = live.exec(spec).await.map_err(not_run)?;
    let (stdin, stdout, stderr) = (exec.stdin.take(), exec.stdout.take(), exec.stderr.take());
    let exec = exec.control();
    let mut ended = Ended(Some(exec.clone()));
    let Streams { stdin: input, stdout: out, stderr: err, resize } = streams;
    let resizing = async {
        let Some(mut sizes) = resize else { return };
        while let Some(size) = sizes.recv().await {
            if let Err(error) = exec.resize(size.width, size.height) {
                tracing::debug!(error = whole(&error), "a terminal's size cannot be set");
            }
        }
    };
    let aside = async { tokio::join!(carry_in(input, stdin), resizing) };
    let outputs = async { tokio::join!(carry_out(stdout, out), carry_out(stderr, err)) };
    tokio::pin!(aside, outputs);
    let (mut feeding, mut open) = (true, true);
    let exit = loop {
        tokio::select! {
            exit = exec.wait() => break exit,
            _ = &mut aside, if feeding => feeding = false,
            _ = &mut outputs, if open => open = false,
        }
    };
    if open {
        let _ = timeout(DRAIN, &mut outputs).await;
    }
    ended.0 = None;
    Ok(exit.code)
}

async fn attach(core: Arc<Core>, container: String, streams: Streams) -> Result<(), CallError> {
    let (container, live) = running(&core, &container)?;
    // The end of the client's input is that of such a container's; any other container keeps its input, and the client
    // is let go, as containerd does: `kubectl run --stdin --leave-stdin-open` waits for that.
    let closing = {
        let record = container.record.lock();
        record.config.as_ref().is_some_and(|config| config.stdin_once && !config.tty)
    };
    let Streams { stdin: input, stdout: out, stderr: err, resize } = streams;
    let feeds = input.is_some();
    let attached = live.attach(input.is_some()).await.map_err(at("failed to attach to container"))?;
    let resizing = async {
        let Some(mut sizes) = resize else { return };
        while let Some(size) = sizes.recv().await {
            if let Err(error) = live.resize(size.width, size.height).await {
                tracing::debug!(error = whole(&error), "a terminal's size cannot be set");
            }
        }
    };
    let outputs = async {
        tokio::join!(carry_out(attached.stdout, out), carry_out(attached.stderr, err));
    };
    // The outputs end with the container, or when the client is gone, which drops all of this.
    let feeding_in = async {
        carry_in(input, attached.stdin).await;
        if closing && let Err(error) = live.close_stdin().await {
            tracing::debug!(error = whole(&error), "a container's input cannot be closed");
        }
    };
    tokio::pin!(outputs, feeding_in, resizing);
    let (mut feeding, mut sized) = (feeds, true);
    let rest = loop {
        tokio::select! {
            () = &mut outputs => return Ok(()),
            _ = live.wait() => break DRAIN,
            () = &mut feeding_in, if feeding => {
                feeding = false;
                if !closing {
                    break LEAVE;
                }
            }
            () = &mut resizing, if sized => sized = false,
        }
    };
    let _ = timeout(rest, &mut outputs).await;
    Ok(())
}

/// Connects to a port of a Pod's loopback, as containerd does: IPv4 first.
async fn connect(core: Arc<Core>, sandbox: String, port: u16) -> Result<TcpStream, CallError> {
    let sandbox = core.sandboxes.find(&sandbox)?;
    let shim = sandbox.shim().filter(|_| sandbox.is_ready());
    let shim =
        shim.ok_or_else(|| CallError::State(format!("sandbox container {:?} is not running", sandbox.id)))?;
    let namespace = shim.open_netns().map_err(at("the network of the sandbox cannot be entered"))?;
    let connected = tokio::task::spawn_blocking(move || {
        // The thread ends with its namespace: one that works for others must not be in it.
        let thread = std::thread::Builder::new().name("port-forward".into());
        let work = move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?;
            let at = |address| std::net::TcpStream::connect_timeout(&address, CONNECT);
            at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
                .or_else(|first| at(SocketAddr::from((Ipv6Addr::LOCALHOST, port))).map_err(|_| first))
        };
        thread.spawn(work)?.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    });
    let failed = |source| CallError::Io { what: "failed to connect to localhost in the sandbox", source };
    let stream = connected.await?.map_err(failed)?;
    stream.set_nonblocking(true).map_err(failed)?;
    let _ = stream.set_nodelay(true);
    TcpStream::from_std(stream).map_err(failed)
}

/// The streaming server's backend.
pub(crate) struct Commands(pub(crate) Arc<Core>);

impl Backend for Commands {
    fn exec(
        self: Arc<Self>,
        container: String,
        command: Vec<String>,
        tty: bool,
        streams: Streams,
    ) -> Work<Result<i32, String>> {
        let core = self.0.clone();
        Box::pin(async move { exec(core, container, command, tty, streams).await.map_err(|e| whole(&e)) })
    }
    fn attach(self: Arc<Self>, container: String, streams: Streams) -> Work<Result<(), String>> {
        let core = self.0.clone();
        Box::pin(async move { attach(core, container, streams).await.map_err(|e| whole(&e)) })
    }
    fn connect(self: Arc<Self>, sandbox: String, port: u16) -> Work<Result<TcpStream, String>> {
        let core = self.0.clone();
        Box::pin(async move { connect(core, sandbox, port).await.map_err(|e| whole(&e)) })
    }
}

/// Checks that a client asks for some stream, and that a terminal has one output.
fn checked(wanted: Wanted) -> Result<Wanted, CallError> {
    let Wanted { stdin, stdout, stderr, tty } = wanted;
    if tty && stderr {
        return Err(CallError::Invalid("tty and stderr cannot both be true".to_owned()));
    }
    if !stdin && !stdout && !stderr {
        return Err(CallError::Invalid("one of stdin, stdout, or stderr must be set".to_owned()));
    }
    Ok(wanted)
}

/// The task of an exec's URL.
pub(crate) fn exec_task(core: &Core, request: pb::ExecRequest) -> Result<Task, CallError> {
    let pb::ExecRequest { stdin, stdout, stderr, tty, .. } = request;
    let wanted = checked(Wanted { stdin, stdout, stderr, tty })?;
    let (container, _) = running(core, &request.container_id)?;
    if request.cmd.is_empty() {
        return Err(CallError::Invalid("no command specified".to_owned()));
    }
    Ok(Task::Exec { container: container.id.clone(), command: request.cmd, wanted })
}

/// The task of an attach's URL.
pub(crate) fn attach_task(core: &Core, request: &pb::AttachRequest) -> Result<Task, CallError> {
    let pb::AttachRequest { stdin, stdout, stderr, tty, .. } = *request;
    let wanted = checked(Wanted { stdin, stdout, stderr, tty })?;
    let (container, _) = running(core, &request.container_id)?;
    Ok(Task::Attach { container: container.id.clone(), wanted })
}

/// The task of a port-forward's URL.
pub(crate) fn port_forward_task(core: &Core, request: &pb::PortForwardRequest) -> Result<Task, CallError> {
    let sandbox = core.sandboxes.find(&request.pod_sandbox_id)?;
    if !sandbox.is_ready() {
        return Err(CallError::State(format!("sandbox container {:?} is not running", sandbox.id)));
    }
    let ports = request.port.iter().map(|port| u16::try_from(*port)).collect::<Result<_, _>>();
    let ports = ports.map_err(|_| CallError::Invalid("a port is not within 1 and 65535".to_owned()))?;
    Ok(Task::PortForward { sandbox: sandbox.id.clone(), ports })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_output_that_is_kept_is_bounded() {
        for (written, expected) in [(0, 0), (LONGEST - 1, LONGEST - 1), (LONGEST + 1, LONGEST)] {
            let mut kept = Vec::new();
            keep(Some(tokio::io::repeat(7).take(written as u64)), &mut kept).await;
            assert_eq!(kept.len(), expected);
        }
    }
}
