//! The errors of calls to etcd.

use std::sync::Arc;

use tonic::{Code, Status};

use crate::connect::ConnectFailure;

/// The reason for which a call failed. Every sentence tells the remedy, where there is one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No member took the request: nothing was done.
    #[error("cannot reach etcd at {members}")]
    Unreachable {
        /// Each member that was tried, with the reason.
        members: Arc<str>,
    },
    /// A member's TLS or address is not as the configuration says; another attempt does not help.
    #[error("{0}")]
    Misconfigured(Arc<str>),
    /// etcd has no leader, a request timed out or the connection broke: a write may have been done or not.
    #[error("{0}")]
    Unavailable(Arc<str>),
    /// etcd took no request because it has too much to do.
    #[error("{0}")]
    Busy(Arc<str>),
    /// The NOSPACE alarm is on.
    #[error(
        "etcd takes no writes, its alarm NOSPACE is on: free space with `etcdctl compact` and `etcdctl defrag` \
         or raise its --quota-backend-bytes, then run `etcdctl alarm disarm` (etcdserver: mvcc: database space exceeded)"
    )]
    NoSpace,
    /// etcd's users are on, and this client's may not do this.
    #[error(
        "etcd refused access ({0}): give the user that the certificate of --etcd-certfile names (its common name) \
         a role with readwrite permission on all keys below --etcd-prefix and on compact_rev_key"
    )]
    Denied(Arc<str>),
    /// The revision was compacted away.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    /// The revision is yet to come: etcd was set back to an older state.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    Future,
    /// The value is larger than etcd takes.
    #[error("etcdserver: request is too large")]
    TooLarge,
    /// The lease does not exist (any more).
    #[error("etcdserver: requested lease not found")]
    NoLease,
    /// Anything else that etcd answered.
    #[error("etcd: {0}")]
    Other(Arc<str>),
}

impl Error {
    /// Whether the same request may succeed if it is sent again.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unavailable(_) | Self::Busy(_))
    }
    /// Whether a write may or may not have been done.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// The error for a status from etcd.
pub(crate) fn from_etcd(status: &Status) -> Error {
    let text: Arc<str> = status.message().into();
    let says = |part: &str| text.contains(part);
    match status.code() {
        _ if says("database space exceeded") => Error::NoSpace,
        _ if says("required revision has been compacted") => Error::Compacted,
        _ if says("required revision is a future revision") => Error::Future,
        _ if says("request is too large") => Error::TooLarge,
        _ if says("requested lease not found") => Error::NoLease,
        // If users are on, a caller without rights gets these.
        Code::PermissionDenied | Code::Unauthenticated => Error::Denied(text),
        Code::InvalidArgument if says("user name is empty") || says("authentication failed") => {
            Error::Denied(text)
        }
        _ if says("too many requests") => Error::Busy(text),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Aborted => {
            Error::Unavailable(text)
        }
        _ if says("not leader") || says("leader changed") || says("server stopped") => {
            Error::Unavailable(text)
        }
        _ => Error::Other(text),
    }
}

/// The failure to connect that caused a status; `None` if the request was sent.
pub(crate) fn connect_failure(status: &Status) -> Option<&ConnectFailure> {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if let Some(failure) = error.downcast_ref::<ConnectFailure>() {
            return Some(failure);
        }
        source = error.source();
    }
    None
}

/// The innermost cause of a broken connection, in its own words.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_says() {
        let check = |code, text: &str, expected: fn(&Error) -> bool| {
            let error = from_etcd(&Status::new(code, text));
            assert!(expected(&error), "{text}: {error:?}");
        };
        check(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", |e| {
            matches!(e, Error::NoSpace)
        });
        check(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", |e| {
            matches!(e, Error::Compacted)
        });
        check(Code::InvalidArgument, "etcdserver: user name is empty", |e| matches!(e, Error::Denied(_)));
        check(Code::PermissionDenied, "etcdserver: permission denied", |e| matches!(e, Error::Denied(_)));
        check(Code::Unavailable, "etcdserver: leader changed", Error::is_ambiguous);
        check(Code::FailedPrecondition, "etcdserver: not leader", Error::is_ambiguous);
        check(Code::ResourceExhausted, "etcdserver: too many requests", |e| {
            e.is_transient() && !e.is_ambiguous()
        });
        check(Code::InvalidArgument, "etcdserver: duplicate key given in txn request", |e| !e.is_transient());
    }
}
