//! Why a container waits for its image.

use std::io;

use jiff::Timestamp;

use super::names::NameError;
use crate::pods::runtime_classes::RuntimeClassError;
use crate::runtime::CallError;

/// Why a container waits for its image; upstream's reasons and texts.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("Failed to apply default image tag {image:?}: {error}")]
    InvalidName { image: String, error: NameError },
    #[error(transparent)]
    RuntimeClass(#[from] RuntimeClassError),
    #[error("Failed to inspect image {image:?}: {error}")]
    Inspect { image: String, error: CallError },
    #[error("Container image {0:?} is not present with pull policy of Never")]
    NeverPull(String),
    #[error("Back-off pulling image {image:?}{}", after(.last.as_ref()))]
    BackOff {
        image: String,
        /// When the image is pulled again.
        until: Timestamp,
        /// The last failure: its reason and text.
        last: Option<String>,
    },
    #[error("image pull failed for {image} because the registry is unavailable{rest}")]
    RegistryUnavailable { image: String, rest: String },
    #[error("image pull failed for {image} because the signature validation failed{rest}")]
    SignatureValidationFailed { image: String, rest: String },
    #[error("{0}")]
    Pull(String),
}

fn after(last: Option<&String>) -> String {
    last.map(|last| format!(": {last}")).unwrap_or_default()
}

impl ImageError {
    /// The reason in the container's status.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::InvalidName { .. } => "InvalidImageName",
            // DIFFERENCE: upstream has the error's text for a reason.
            Self::RuntimeClass(_) => "CreateContainerConfigError",
            Self::Inspect { .. } => "ImageInspectError",
            Self::NeverPull(_) => "ErrImageNeverPull",
            Self::BackOff { .. } => "ImagePullBackOff",
            Self::RegistryUnavailable { .. } => "RegistryUnavailable",
            Self::SignatureValidationFailed { .. } => "SignatureValidationFailed",
            Self::Pull(_) => "ErrImagePull",
        }
    }

    /// When to try again, if that is known.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        match self {
            Self::BackOff { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// The error of a pull. Runtimes mark some errors by their first word, as CRI asks them to.
    pub(super) fn of_pull(image: &str, error: &PullError) -> Self {
        let (text, image) = (error.to_string(), image.to_owned());
        if let Some(rest) = text.strip_prefix("RegistryUnavailable") {
            Self::RegistryUnavailable { image, rest: rest.to_owned() }
        } else if let Some(rest) = text.strip_prefix("SignatureValidationFailed") {
            Self::SignatureValidationFailed { image, rest: rest.to_owned() }
        } else {
            Self::Pull(text)
        }
    }
}

/// Why a pull failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PullError {
    #[error("Failed to record image pull intent for container image {image:?}: {error}")]
    Intent { image: String, error: io::Error },
    #[error("pull QPS exceeded")]
    TooMany,
    #[error(transparent)]
    Closed(#[from] tokio::sync::AcquireError),
    /// The runtime's errors, one for each credential.
    #[error("{}", joined(.0))]
    Runtime(Vec<CallError>),
}

impl PullError {
    /// The runtime's answers.
    pub(super) fn of_runtime(mut errors: Vec<CallError>) -> Self {
        errors.dedup_by_key(|e| e.to_string());
        Self::Runtime(errors)
    }
}

/// An error of a pull as upstream's CRI client passes it on: without its code where that says nothing.
fn pull_text(error: &CallError) -> String {
    if error.code() == tonic::Code::Unknown { error.message().to_owned() } else { error.to_string() }
}

fn joined(errors: &[CallError]) -> String {
    match errors {
        [one] => pull_text(one),
        many => format!("[{}]", many.iter().map(pull_text).collect::<Vec<_>>().join(", ")),
    }
}

/// Why the user of an image is not known; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageUserError {
    #[error(transparent)]
    Inspect(#[from] CallError),
    #[error("failed to get image status for {0:?}")]
    Missing(String),
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    #[test]
    fn runtimes_mark_errors_by_their_first_word() {
        let check = |answers: &[(Code, &str)], expected: (&str, &str)| {
            let errors = answers.iter().map(|(code, text)| Status::new(*code, *text).into()).collect();
            let error = ImageError::of_pull("i:1", &PullError::of_runtime(errors));
            assert_eq!((error.reason(), error.to_string().as_str()), expected);
        };
        check(
            &[(Code::NotFound, "no such image")],
            ("ErrImagePull", "rpc error: code = NotFound desc = no such image"),
        );
        check(&[(Code::Unknown, "no such image")], ("ErrImagePull", "no such image"));
        check(
            &[(Code::Unknown, "RegistryUnavailable: it is down")],
            (
                "RegistryUnavailable",
                "image pull failed for i:1 because the registry is unavailable: it is down",
            ),
        );
        check(
            &[(Code::Unknown, "SignatureValidationFailed: by whom?")],
            (
                "SignatureValidationFailed",
                "image pull failed for i:1 because the signature validation failed: by whom?",
            ),
        );
        check(
            &[(Code::Unknown, "a"), (Code::Unknown, "a"), (Code::Unknown, "b")],
            ("ErrImagePull", "[a, b]"),
        );
    }

    /// Upstream's 5 cases of `TestEvalCRIPullErr`.
    #[test]
    fn errors_of_pulls() {
        let check = |text: &str, reason: &str, expected: &str| {
            let errors = vec![Status::new(Code::Unknown, text).into()];
            let error = ImageError::of_pull("test", &PullError::of_runtime(errors));
            assert_eq!((error.reason(), error.to_string().as_str()), (reason, expected));
        };
        check("test", "ErrImagePull", "test");
        let unavailable = "image pull failed for test because the registry is unavailable";
        check("RegistryUnavailable", "RegistryUnavailable", unavailable);
        check("RegistryUnavailable: foo", "RegistryUnavailable", &format!("{unavailable}: foo"));
        let unsigned = "image pull failed for test because the signature validation failed";
        check("SignatureValidationFailed", "SignatureValidationFailed", unsigned);
        check("SignatureValidationFailed: bar", "SignatureValidationFailed", &format!("{unsigned}: bar"));
    }
}
