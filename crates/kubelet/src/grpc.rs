//! Calls to plugins over gRPC: their errors in the words of Go's gRPC, and the time that they may take.

use std::time::Duration;

use tokio::time::timeout;
use tonic::{Code, Response, Status};

/// An answer that is an error, in the words of Go's gRPC.
#[derive(Debug, Clone, thiserror::Error)]
#[error("rpc error: code = {} desc = {}", code_name(.0.code()), .0.message())]
pub(crate) struct CallError(Box<Status>);

impl CallError {
    /// The code of the answer.
    pub(crate) fn code(&self) -> Code {
        self.0.code()
    }

    /// Whether a CSI driver has ended the call, and nothing of it goes on; upstream's `isFinalError`.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(
            self.code(),
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Unavailable
                | Code::ResourceExhausted
                | Code::Aborted
        )
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self(Box::new(status))
    }
}

/// The name of a code, as Go's gRPC writes it.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Waits for an answer, so long at most.
///
/// # Errors
/// The answer's, or that there was none in time.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    let late = || Err(Status::deadline_exceeded("context deadline exceeded"));
    let answer = timeout(limit, call).await.unwrap_or_else(|_| late())?;
    Ok(answer.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_like_upstreams() {
        let check = |status: Status, expected: &str, is_final: bool| {
            let error = CallError::from(status);
            assert_eq!((error.to_string().as_str(), error.is_final()), (expected, is_final));
        };
        check(Status::internal("boom"), "rpc error: code = Internal desc = boom", true);
        check(Status::cancelled(""), "rpc error: code = Canceled desc = ", false);
        check(Status::deadline_exceeded("x"), "rpc error: code = DeadlineExceeded desc = x", false);
        check(Status::unavailable("x"), "rpc error: code = Unavailable desc = x", false);
        check(Status::aborted("x"), "rpc error: code = Aborted desc = x", false);
        check(Status::resource_exhausted("x"), "rpc error: code = ResourceExhausted desc = x", false);
        check(Status::not_found("x"), "rpc error: code = NotFound desc = x", true);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_ends_in_time() {
        let call = std::future::pending::<Result<Response<()>, Status>>();
        let error = within(Duration::from_secs(45), call).await.unwrap_err();
        assert_eq!(error.to_string(), "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
    }
}
