//! Programs that are run for their answer, of which no more is kept than is asked for.

use std::io;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncRead, AsyncReadExt, copy, sink};
use tokio::process::Command;

/// The most bytes that are kept of each output.
pub const MOST: usize = 1 << 20;

/// The end of a program.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// The beginning of its output.
    pub stdout: Vec<u8>,
    /// The beginning of its complaints.
    pub stderr: Vec<u8>,
}

/// Runs a program without an input to its end; it is killed if nobody waits any more. It may write more than is kept.
///
/// # Errors
/// It cannot be started, or its outputs cannot be read.
pub async fn run(command: &mut Command) -> io::Result<Ended> {
    ended(command.stdin(Stdio::null()).stderr(Stdio::piped())).await
}

/// Runs a program as [`run`] does, but it complains where this process does, and may ask who sits at the terminal.
///
/// # Errors
/// It cannot be started, or its output cannot be read.
pub async fn consult(command: &mut Command, interactive: bool) -> io::Result<Ended> {
    let input = if interactive { Stdio::inherit() } else { Stdio::null() };
    ended(command.stdin(input).stderr(Stdio::inherit())).await
}

async fn ended(command: &mut Command) -> io::Result<Ended> {
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr, status) = tokio::try_join!(beginning(stdout), beginning(stderr), child.wait())?;
    Ok(Ended { status, stdout, stderr })
}

/// The beginning of an output; the rest is read, so that its writer does not wait.
async fn beginning(from: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    if let Some(mut from) = from {
        (&mut from).take(MOST as u64).read_to_end(&mut kept).await?;
        copy(&mut from, &mut sink()).await?;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_is_kept_than_is_asked_for() {
        let check = async |script: &str, code: i32, out: usize, err: usize| {
            let ended = run(Command::new("sh").args(["-c", script])).await.unwrap();
            assert_eq!((ended.status.code(), ended.stdout.len(), ended.stderr.len()), (Some(code), out, err));
        };
        check("echo a; echo bc >&2; exit 3", 3, 2, 3).await;
        check("head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2", 0, MOST, MOST).await;
        check("cat", 0, 0, 0).await;
        assert!(run(&mut Command::new("/none")).await.is_err());
        let consulted = consult(Command::new("sh").args(["-c", "cat; echo a"]), false).await.unwrap();
        assert_eq!((&consulted.stdout[..], &consulted.stderr[..]), (&b"a\n"[..], &b""[..]));
    }
}
