//! Programs of the host that a caller named: OCI runtimes and hooks. Their time and their output are bounded.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

/// The longest output that is kept, in bytes.
const LONGEST: u64 = 1 << 20;
/// How long the outputs of a program may stay open after its end: its own children may have them.
const DRAIN: Duration = Duration::from_secs(1);
/// The variables that a program has unless its caller says others.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

/// Runs a program to its end, with this text as its input. One that takes longer is killed.
pub(crate) async fn run(mut command: Command, input: &[u8], limit: Duration) -> io::Result<Ended> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let work = async {
        let write = async {
            if let Some(mut stdin) = stdin {
                // A program need not read it.
                let _ = stdin.write_all(input).await;
            }
        };
        let streams = async { tokio::join!(write, read(stdout, &mut output), read(stderr, &mut errors)) };
        tokio::pin!(streams);
        let mut open = true;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                _ = &mut streams, if open => open = false,
            }
        };
        if open {
            let _ = timeout(DRAIN, &mut streams).await;
        }
        io::Result::Ok(status)
    };
    let Ok(status) = timeout(limit, work).await else {
        let text = format!("it did not end in {} s", limit.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
    };
    Ok(Ended { status: status?, output, errors })
}

/// Reads an output to its end, and keeps the beginning.
async fn read(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(from) = from else { return };
    let mut from = from.take(LONGEST);
    let _ = from.read_to_end(into).await;
    let _ = tokio::io::copy(&mut from.into_inner(), &mut tokio::io::sink()).await;
}
