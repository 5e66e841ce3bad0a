//! The reasons for which a webhook gave no answer.

use std::io;

use api::Status;

use super::defect::Failure;

/// The reason for which a webhook gave no answer that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// It answered with an error.
    Status(Box<Status>),
    /// It did not answer, or what it answered cannot be read.
    Failed(Failure),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => f.write_str(&status.message),
            Self::Failed(why) => why.fmt(f),
        }
    }
}

/// An error of the system, as Go prints it.
pub(super) fn io_text(call: &str, error: &io::Error) -> String {
    let text = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "connection reset by peer",
        io::ErrorKind::HostUnreachable => "no route to host",
        io::ErrorKind::NetworkUnreachable => "network is unreachable",
        io::ErrorKind::BrokenPipe => "broken pipe",
        io::ErrorKind::TimedOut => "connection timed out",
        io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
        _ => return error.to_string(),
    };
    format!("{call}: {text}")
}
