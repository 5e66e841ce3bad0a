//! Errors of calls, and the codes of gRPC by which clients tell them apart.

use std::io;

use tonic::{Code, Status};

use crate::network::NetworkError;
use crate::shell::volumes::VolumeError;
use crate::store::{FindError, Reserved};
use crate::translate::TranslateError;

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The thing is not there.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Another one has its name.
    #[error(transparent)]
    Reserved(#[from] Reserved),
    /// The request lacks something.
    #[error("{0}")]
    Invalid(String),
    /// The thing is in another state than the call wants.
    #[error("{0}")]
    State(String),
    /// The image is not there.
    #[error("failed to resolve image {0:?}: not found")]
    NoImage(String),
    /// The handler is not there.
    #[error("unable to get OCI runtime for sandbox: no runtime for {0:?} is configured")]
    NoHandler(String),
    /// This runtime does not do that.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The time is up.
    #[error("{0}")]
    Late(String),
    /// Too much at once.
    #[error("{0}")]
    Many(String),
    /// The configuration makes no container.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// A volume cannot be used.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The Pod cannot join its network.
    #[error("failed to setup network for sandbox {sandbox:?}: {source}")]
    Attach {
        /// The sandbox.
        sandbox: String,
        /// The fault.
        source: NetworkError,
    },
    /// The Pod cannot leave its network.
    #[error("failed to destroy network for sandbox {sandbox:?}: {source}")]
    Detach {
        /// The sandbox.
        sandbox: String,
        /// The fault.
        source: NetworkError,
    },
    /// Containers fail.
    #[error("{what}: {source}")]
    Containers {
        /// The step.
        what: &'static str,
        /// The fault.
        source: containers::Error,
    },
    /// A container cannot be started; in the words that people know of OCI runtimes.
    #[error("failed to start container: OCI runtime create failed: unable to start container process: {0}")]
    Start(String),
    /// A command cannot be run in a container; in the same words.
    #[error(
        "failed to exec in container: OCI runtime exec failed: exec failed: unable to start container process: {0}"
    )]
    Exec(String),
    /// The images fail.
    #[error(transparent)]
    Images(#[from] images::StoreError),
    /// A root cannot be mounted.
    #[error(transparent)]
    Mount(#[from] images::MountError),
    /// Files fail.
    #[error("{what}: {source}")]
    Io {
        /// The step.
        what: &'static str,
        /// The fault.
        source: io::Error,
    },
    /// A task of this process ended in a panic.
    #[error("the work on the call broke off: {0}")]
    Lost(#[from] tokio::task::JoinError),
}

/// The step at which files failed.
pub(crate) fn io_at(what: &'static str) -> impl FnOnce(io::Error) -> CallError {
    move |source| CallError::Io { what, source }
}

/// The step at which containers failed.
pub(crate) fn at(what: &'static str) -> impl FnOnce(containers::Error) -> CallError {
    move |source| CallError::Containers { what, source }
}

/// An error with its reasons, as one sentence. A reason that only repeats the error before it is left out, also where it
/// differs as an error of the system does: by a capital and a number.
pub(crate) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(reason) = next {
        let more = reason.to_string();
        let bare = more.split(" (os error ").next().unwrap_or(&more).to_lowercase();
        if !text.to_lowercase().contains(&bare) {
            text = format!("{text}: {more}");
        }
        next = reason.source();
    }
    text
}

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        let code = match &error {
            CallError::Find(FindError::None(..)) | CallError::NoImage(_) => Code::NotFound,
            CallError::Find(FindError::Several(..)) | CallError::Invalid(_) => Code::InvalidArgument,
            CallError::Reserved(_) => Code::AlreadyExists,
            CallError::State(_) => Code::FailedPrecondition,
            CallError::Unsupported(_) => Code::Unimplemented,
            CallError::Late(_) => Code::DeadlineExceeded,
            CallError::Many(_) => Code::ResourceExhausted,
            // As runtimes in Go have it for errors without a code.
            _ => Code::Unknown,
        };
        Status::new(code, whole(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_and_codes() {
        let error = CallError::Io { what: "a step", source: io::Error::other("boom") };
        let status = Status::from(error);
        assert_eq!((status.code(), status.message()), (Code::Unknown, "a step: boom"));
        let status = Status::from(CallError::from(FindError::None("sandbox", "x".into())));
        assert_eq!((status.code(), status.message()), (Code::NotFound, "sandbox \"x\" not found"));
        let source = rustix::io::Errno::RANGE.into();
        let error = at("a step")(containers::Error::Io { what: "write a file".into(), source });
        assert_eq!(
            Status::from(error).message(),
            "a step: cannot write a file: numerical result out of range"
        );
        let seccomp = TranslateError::Seccomp { path: "/p".into(), source: io::Error::other("no JSON") };
        assert_eq!(
            Status::from(CallError::from(seccomp)).message(),
            "seccomp profile \"/p\" cannot be used: no JSON"
        );
    }
}
