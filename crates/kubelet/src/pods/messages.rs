//! The messages that containers leave when they end.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::observed::ContainerStatus;

/// The longest message.
const MAX_MESSAGE: u64 = 4096;
/// How much of a log's end can stand for a message, and in how many lines.
const MAX_LOG: u64 = 2048;
const MAX_LOG_LINES: usize = 80;

/// Adds a container's own message to what the runtime says of its end.
pub(crate) async fn complete(c: &mut ContainerStatus) {
    let fallback = c.fallback_to_logs && c.exit_code != 0;
    let mut own = String::new();
    if let Some(path) = &c.termination_message_host_path {
        own = match read_head(Path::new(path)).await {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => format!("Error on reading termination log {path}: {error}"),
        };
    }
    if own.is_empty() && fallback {
        own = match read_tail(Path::new(&c.log_path)).await {
            Ok(bytes) => log_tail(&bytes),
            Err(error) => format!("Error on reading termination message from logs: {error}"),
        };
    }
    if own.is_empty() {
        return;
    }
    if !c.message.is_empty() {
        c.message.push_str(": ");
    }
    c.message.push_str(&own);
}

async fn read_head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    tokio::fs::File::open(path).await?.take(MAX_MESSAGE).read_to_end(&mut out).await?;
    Ok(out)
}

/// The end of a file, more than a message's worth: log lines carry a time and a stream each.
async fn read_tail(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = tokio::fs::File::open(path).await?;
    let length = file.metadata().await?.len();
    file.seek(std::io::SeekFrom::Start(length.saturating_sub(16 * MAX_LOG))).await?;
    let mut out = Vec::new();
    file.take(16 * MAX_LOG).read_to_end(&mut out).await?;
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
        let (log, message) = (dir.path().join("log"), dir.path().join("message"));
        std::fs::write(
            &log,
            "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:00Z stderr F o\n",
        )
        .unwrap();
        std::fs::write(&message, "").unwrap();
        let check = async |written: &str, exit_code, fallback, want: &str| {
            std::fs::write(&message, written).unwrap();
            let mut c = ContainerStatus {
                exit_code,
                fallback_to_logs: fallback,
                termination_message_host_path: Some(message.to_string_lossy().into_owned()),
                log_path: log.to_string_lossy().into_owned(),
                ..ContainerStatus::default()
            };
            complete(&mut c).await;
            assert_eq!(c.message, want);
        };
        check("said", 1, true, "said").await;
        check("", 1, true, "one\ntwo\n").await;
        check("", 0, true, "").await;
        check("", 1, false, "").await;
        check(&"x".repeat(5000), 1, false, &"x".repeat(4096)).await;
    }
}
