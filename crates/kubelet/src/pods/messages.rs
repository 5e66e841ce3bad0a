//! The messages that containers leave when they end.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::observed::ContainerStatus;
use crate::files::{self, Links};
use crate::logs;
use crate::work::blocking;

/// The longest message.
const MAX_MESSAGE: u64 = 4096;
/// How much of a log's end can stand for a message, and in how many lines.
const MAX_LOG: u64 = 2048;
const MAX_LOG_LINES: usize = 80;

/// Adds a container's own message to what the runtime says of its end. `dir` is where this kubelet
/// makes the files for such messages; no other file is read, whatever else is mounted at their path.
pub(crate) async fn complete(c: &mut ContainerStatus, dir: PathBuf) {
    let fallback = c.fallback_to_logs && c.exit_code != 0;
    let (file, log) = (c.termination_message_host_path.clone(), PathBuf::from(&c.log_path));
    let own = blocking(move || message(&dir, file.as_deref(), fallback.then_some(&log))).await;
    let own = own.unwrap_or_default();
    if own.is_empty() {
        return;
    }
    if !c.message.is_empty() {
        c.message.push_str(": ");
    }
    c.message.push_str(&own);
}

fn message(dir: &Path, file: Option<&str>, log: Option<&PathBuf>) -> String {
    let mut own = String::new();
    // Some runtimes tell the path without the links in it.
    let real = std::fs::canonicalize(dir).ok();
    let below = |f| {
        let mut dirs = [Some(dir), real.as_deref()].into_iter().flatten();
        dirs.find_map(|dir| Path::new(f).strip_prefix(dir).ok())
    };
    if let Some(path) = file
        && let Some(name) = below(path)
    {
        own = match read_head(dir, name) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => format!("Error on reading termination log {path}: {error}"),
        };
    }
    if own.is_empty()
        && let Some(log) = log
    {
        own = match read_tail(log) {
            Ok(bytes) => log_tail(&bytes),
            Err(error) => format!("Error on reading termination message from logs: {error}"),
        };
    }
    own
}

fn read_head(dir: &Path, name: &Path) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    files::regular(files::root(dir)?, name, Links::None)?.take(MAX_MESSAGE).read_to_end(&mut out)?;
    Ok(out)
}

/// The end of a file, more than a message's worth: log lines carry a time and a stream each.
fn read_tail(log: &Path) -> io::Result<Vec<u8>> {
    let mut file = logs::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(16 * MAX_LOG)))?;
    let mut out = Vec::new();
    file.take(16 * MAX_LOG).read_to_end(&mut out)?;
    Ok(out)
}

/// The text of the last lines of a CRI log.
fn log_tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let mut parts = line.splitn(4, ' ');
        let (Some(_), Some("stdout" | "stderr"), Some(tag)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let content = parts.next().unwrap_or_default();
        match lines.last_mut().filter(|_| open) {
            Some(last) => last.push_str(content),
            None => lines.push(content.to_owned()),
        }
        open = tag == "P";
        if !open && let Some(last) = lines.last_mut() {
            last.push('\n');
        }
    }
    let from = lines.len().saturating_sub(MAX_LOG_LINES);
    let all = lines[from..].concat();
    let mut start = all.len().saturating_sub(MAX_LOG as usize);
    while !all.is_char_boundary(start) {
        start += 1;
    }
    all[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_log_stands_in_for_a_message() {
        let dir = tempfile::tempdir().unwrap();
        let (own, logs) = (dir.path().join("own"), dir.path().join("logs/p/c"));
        std::fs::create_dir_all(&own).unwrap();
        std::fs::create_dir_all(&logs).unwrap();
        let (log, message) = (logs.join("0.log"), own.join("message"));
        std::fs::write(
            &log,
            "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:00Z stderr F o\n",
        )
        .unwrap();
        let ended = async |path: &Path, exit_code, fallback| {
            let mut c = ContainerStatus {
                exit_code,
                fallback_to_logs: fallback,
                termination_message_host_path: Some(path.to_string_lossy().into_owned()),
                log_path: log.to_string_lossy().into_owned(),
                ..ContainerStatus::default()
            };
            complete(&mut c, own.clone()).await;
            c.message
        };
        let check = async |written: &str, exit_code, fallback, want: &str| {
            std::fs::write(&message, written).unwrap();
            assert_eq!(ended(&message, exit_code, fallback).await, want);
        };
        check("said", 1, true, "said").await;
        check("", 1, true, "one\ntwo\n").await;
        check("", 0, true, "").await;
        check("", 1, false, "").await;
        check(&"x".repeat(5000), 1, false, &"x".repeat(4096)).await;

        // Another file that is mounted at the path of messages is no message.
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "secret").unwrap();
        assert_eq!(ended(&secret, 1, false).await, "");
        let climbing = ended(&own.join("../secret"), 1, false).await;
        assert!(climbing.starts_with("Error on reading termination log "), "{climbing}");
        std::os::unix::fs::symlink(&secret, own.join("link")).unwrap();
        assert!(ended(&own.join("link"), 1, false).await.starts_with("Error on reading"));
        let pipe = own.join("pipe");
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, mode, 0).unwrap();
        assert!(ended(&pipe, 1, false).await.ends_with("not a regular file"));
        std::fs::File::create(own.join("huge")).unwrap().set_len(10 << 30).unwrap();
        assert_eq!(ended(&own.join("huge"), 1, false).await.len(), 4096);
    }
}
