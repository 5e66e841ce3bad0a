//! The authorities of the control plane's signers.

use jiff::SignedDuration;

use super::authority::Authority;
use super::{API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN};

/// The shortest life of a certificate, twice the backdating.
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);

/// The authorities of the control plane's signers, and the life of their certificates.
#[derive(Debug, Clone)]
pub struct Signers {
    /// The authority of `kubernetes.io/kube-apiserver-client-kubelet`.
    pub kubelet_client: Option<Authority>,
    /// The authority of `kubernetes.io/kubelet-serving`.
    pub kubelet_serving: Option<Authority>,
    /// The authority of `kubernetes.io/kube-apiserver-client`.
    pub api_client: Option<Authority>,
    /// The authority of `kubernetes.io/legacy-unknown`.
    pub legacy_unknown: Option<Authority>,
    /// The longest life of a certificate (`--cluster-signing-duration`).
    pub duration: SignedDuration,
}

impl Default for Signers {
    /// No signers, and upstream's duration.
    fn default() -> Self {
        Self {
            kubelet_client: None,
            kubelet_serving: None,
            api_client: None,
            legacy_unknown: None,
            duration: SignedDuration::from_hours(365 * 24),
        }
    }
}

impl Signers {
    /// One authority for all signers.
    pub fn all(authority: &Authority) -> Self {
        let one = || Some(authority.clone());
        Self {
            kubelet_client: one(),
            kubelet_serving: one(),
            api_client: one(),
            legacy_unknown: one(),
            ..Self::default()
        }
    }

    pub(super) fn of(&self, signer: &str) -> Option<&Authority> {
        match signer {
            KUBELET_CLIENT => self.kubelet_client.as_ref(),
            KUBELET_SERVING => self.kubelet_serving.as_ref(),
            API_CLIENT => self.api_client.as_ref(),
            LEGACY_UNKNOWN => self.legacy_unknown.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn any(&self) -> bool {
        [KUBELET_CLIENT, KUBELET_SERVING, API_CLIENT, LEGACY_UNKNOWN].iter().any(|s| self.of(s).is_some())
    }

    /// The life of a certificate for which `asked` seconds were asked.
    pub(super) fn life(&self, asked: Option<i32>) -> SignedDuration {
        let Some(asked) = asked.map(|seconds| SignedDuration::from_secs(seconds.into())) else {
            return self.duration;
        };
        if asked > self.duration { self.duration } else { asked.max(SHORTEST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's 7 cases of `Test_signer_duration`, in seconds; a signer's usual hour.
    #[test]
    fn lives() {
        let check = |asked: Option<i32>, want: i64| {
            let signers = Signers { duration: SignedDuration::from_hours(1), ..Signers::default() };
            assert_eq!(signers.life(asked), SignedDuration::from_secs(want), "{asked:?}");
        };
        check(Some(1800), 1800);
        check(Some(3 * 3600), 3600);
        check(Some(-60), 600);
        check(Some(599), 600);
        check(Some(600), 600);
        check(Some(3600), 3600);
        check(None, 3600);
    }
}
