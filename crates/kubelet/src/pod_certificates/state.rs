//! The state of one certificate of a Pod, and the next thing to do about it; upstream's states:
//!
//! ```text
//! Initial ──► Wait ──► Fresh ◄──► WaitRefresh
//!              ├─────► Denied ◄────────┤
//!              └─────► Failed ◄────────┘
//! ```

use std::sync::Arc;

use api::go::quote;
use api::pem;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;

use super::keys::PrivateKey;

/// After this time, and a little more, a request that is not seen was deleted. That it is not seen yet is possible, too,
/// and nothing tells the two apart.
const ASSUMED_DELETED: SignedDuration = SignedDuration::from_mins(10);
/// So long after it should have been exchanged a certificate is overdue.
const OVERDUE: SignedDuration = SignedDuration::from_mins(10);

/// A request that was made, and the key for which it was.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) key: PrivateKey,
    /// Its name.
    pub(super) name: String,
    /// From when on it counts as deleted if it is not seen.
    abandon_at: Timestamp,
}

impl Asked {
    /// Of a request that was made at a time.
    pub(super) fn new(key: PrivateKey, name: String, made: Timestamp, jitter: SignedDuration) -> Self {
        Self { key, name, abandon_at: later(made, ASSUMED_DELETED.saturating_add(jitter)) }
    }
}

/// A certificate that was issued, and its key.
#[derive(Debug, Clone)]
pub(super) struct Issued {
    key: PrivateKey,
    chain: Arc<str>,
    begin_refresh_at: Timestamp,
    not_after: Timestamp,
    told_overdue: bool,
    told_expired: bool,
}

/// A signer's last word.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    reason: String,
    message: String,
}

/// The state of one certificate.
#[derive(Debug, Clone, Default)]
pub(super) enum State {
    /// Nobody was asked.
    #[default]
    Initial,
    /// A signer was asked.
    Wait(Asked),
    /// The signer refused, for good.
    Denied(Verdict),
    /// The signer could not, for good.
    Failed(Verdict),
    /// There is a certificate.
    Fresh(Issued),
    /// There is a certificate, and a signer was asked for the next one.
    WaitRefresh(Issued, Asked),
}

/// An Event about the Pod, a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The next thing to do after a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, until something happens.
    Rest,
    /// Ask the signer, for the first time or again.
    Ask {
        /// Whether there is a certificate already.
        refresh: bool,
    },
    /// Look again soon: upstream's text says why.
    Again(String),
}

/// The outcome of a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) next: Next,
    pub(super) told: Vec<Told>,
    /// Whether the volume has other files now, or another reason to have none.
    pub(super) news: bool,
}

/// Why there is no certificate; upstream's texts.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CredentialError {
    /// The feature is off.
    #[error("unimplemented")]
    Unsupported,
    /// Nobody asked for it before. The key is shown as Go shows it.
    #[error("no credentials yet for key={{{0}}}")]
    Unknown(String),
    /// The signer was asked.
    #[error("credential bundle is not issued yet")]
    NotIssued,
    /// The signer refused.
    #[error(
        "PodCertificateRequest was permanently denied: reason={} message={}",
        quote(.reason),
        quote(.message)
    )]
    Denied {
        /// The signer's.
        reason: String,
        /// The signer's.
        message: String,
    },
    /// The signer could not.
    #[error(
        "PodCertificateRequest was permanently failed: reason={} message={}",
        quote(.reason),
        quote(.message)
    )]
    Failed {
        /// The signer's.
        reason: String,
        /// The signer's.
        message: String,
    },
}

/// A key and the certificates for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bundle {
    pub(crate) key: PrivateKey,
    /// PEM, the Pod's own first.
    pub(crate) chain: Arc<str>,
}

/// A time that much later, or the last one there is.
fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// The outcome of a request.
enum Answer {
    Denied(Verdict),
    Failed(Verdict),
    Issued(Issued),
}

/// The answer in a request's status, if there is one.
fn answer(
    request: &PodCertificateRequest,
    key: &PrivateKey,
    now: Timestamp,
    jitter: SignedDuration,
) -> Option<Answer> {
    let status = request.status.as_ref()?;
    status.conditions.iter().flatten().find_map(|condition| {
        let verdict = || Verdict { reason: condition.reason.clone(), message: condition.message.clone() };
        match condition.type_.as_str() {
            "Denied" => Some(Answer::Denied(verdict())),
            "Failed" => Some(Answer::Failed(verdict())),
            "Issued" => {
                let all = pem::certificates(status.certificate_chain.as_deref().unwrap_or_default());
                // The API lets nothing be issued without times.
                let time = |at: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
                    at.as_ref().map_or(now, |at| at.0)
                };
                Some(Answer::Issued(Issued {
                    key: key.clone(),
                    chain: all.iter().map(|der| pem::encode_certificate(der)).collect::<String>().into(),
                    begin_refresh_at: later(time(&status.begin_refresh_at), jitter),
                    not_after: time(&status.not_after),
                    told_overdue: false,
                    told_expired: false,
                }))
            }
            _ => None,
        }
    })
}

impl Issued {
    /// Tells once each that the certificate is old.
    fn complain(&mut self, now: Timestamp) -> Vec<Told> {
        let mut told = Vec::new();
        if now > later(self.begin_refresh_at, OVERDUE) && !self.told_overdue {
            let message = "PodCertificate refresh overdue".to_owned();
            told.push(Told { reason: "CertificateOverdueForRefresh", message });
            self.told_overdue = true;
        }
        if now > self.not_after && !self.told_expired {
            told.push(Told { reason: "CertificateExpired", message: "PodCertificate expired".to_owned() });
            self.told_expired = true;
        }
        told
    }

    fn bundle(&self) -> Bundle {
        Bundle { key: self.key.clone(), chain: self.chain.clone() }
    }

    /// The state in upstream's metric.
    fn counted(&self, now: Timestamp) -> &'static str {
        if now > self.not_after {
            "expired"
        } else if now > later(self.begin_refresh_at, OVERDUE) {
            "overdue_for_refresh"
        } else {
            "fresh"
        }
    }
}

fn rest(told: Vec<Told>, news: bool) -> Outcome {
    Outcome { next: Next::Rest, told, news }
}

fn again(why: String) -> Outcome {
    Outcome { next: Next::Again(why), told: Vec::new(), news: false }
}

impl State {
    /// The name of the request whose answer is waited for.
    pub(super) fn awaited(&self) -> Option<&str> {
        match self {
            Self::Wait(asked) | Self::WaitRefresh(_, asked) => Some(&asked.name),
            _ => None,
        }
    }

    /// Looks at the request that is waited for, as it is `seen`, in a namespace. Times are put off by `jitter`
    /// more, so that the Pods of a cluster do not all ask at once.
    pub(super) fn look(
        &mut self,
        seen: Option<&PodCertificateRequest>,
        namespace: &str,
        now: Timestamp,
        jitter: SignedDuration,
    ) -> Outcome {
        match std::mem::take(self) {
            Self::Initial => Outcome { next: Next::Ask { refresh: false }, told: Vec::new(), news: false },
            decided @ (Self::Denied(_) | Self::Failed(_)) => {
                *self = decided;
                rest(Vec::new(), false)
            }
            Self::Wait(asked) => {
                let name = format!("{namespace}/{}", asked.name);
                let Some(request) = seen else {
                    if now > asked.abandon_at {
                        return again(format!("PodCertificateRequest {name:?} appears to have been deleted"));
                    }
                    let why = not_seen(&name, &asked.name);
                    *self = Self::Wait(asked);
                    return again(why);
                };
                if let Some(answer) = answer(request, &asked.key, now, jitter) {
                    return self.settle(answer, &name);
                }
                *self = Self::Wait(asked);
                rest(Vec::new(), false)
            }
            Self::Fresh(mut issued) => {
                if now < issued.begin_refresh_at {
                    *self = Self::Fresh(issued);
                    return rest(Vec::new(), false);
                }
                let told = issued.complain(now);
                *self = Self::Fresh(issued);
                Outcome { next: Next::Ask { refresh: true }, told, news: false }
            }
            Self::WaitRefresh(mut issued, asked) => {
                let name = format!("{namespace}/{}", asked.name);
                let Some(request) = seen else {
                    if now > asked.abandon_at {
                        *self = Self::Fresh(issued);
                        return again("PodCertificateRequest appears to have been deleted".to_owned());
                    }
                    let why = not_seen(&name, &asked.name);
                    *self = Self::WaitRefresh(issued, asked);
                    return again(why);
                };
                if let Some(answer) = answer(request, &asked.key, now, jitter) {
                    return self.settle(answer, &name);
                }
                let told = issued.complain(now);
                *self = Self::WaitRefresh(issued, asked);
                rest(told, false)
            }
        }
    }

    /// Takes an answer to the request of a name.
    ///
    /// DIFFERENCE: upstream gives the signer's reason as the format of the Event's text, so that its Events begin with
    /// the reason and with what Go says of a wrong format. The text is what it was meant to be.
    fn settle(&mut self, answer: Answer, name: &str) -> Outcome {
        let told = |reason, what: &str, verdict: &Verdict| {
            let (why, said) = (quote(&verdict.reason), quote(&verdict.message));
            let message = format!("PodCertificateRequest {name} {what}, reason={why}, message={said}");
            vec![Told { reason, message }]
        };
        let (state, told) = match answer {
            Answer::Denied(verdict) => {
                let told = told("Denied", "was denied", &verdict);
                (Self::Denied(verdict), told)
            }
            Answer::Failed(verdict) => {
                let told = told("Failed", "failed", &verdict);
                (Self::Failed(verdict), told)
            }
            Answer::Issued(issued) => (Self::Fresh(issued), Vec::new()),
        };
        *self = state;
        rest(told, true)
    }

    /// Notes that a signer was asked.
    pub(super) fn asked(&mut self, asked: Asked) {
        *self = match std::mem::take(self) {
            Self::Fresh(issued) | Self::WaitRefresh(issued, _) => Self::WaitRefresh(issued, asked),
            Self::Initial | Self::Wait(_) => Self::Wait(asked),
            decided => decided,
        };
    }

    /// The key and its certificates.
    ///
    /// # Errors
    /// There are none (yet).
    pub(super) fn bundle(&self) -> Result<Bundle, CredentialError> {
        match self {
            Self::Initial | Self::Wait(_) => Err(CredentialError::NotIssued),
            Self::Denied(Verdict { reason, message }) => {
                Err(CredentialError::Denied { reason: reason.clone(), message: message.clone() })
            }
            Self::Failed(Verdict { reason, message }) => {
                Err(CredentialError::Failed { reason: reason.clone(), message: message.clone() })
            }
            Self::Fresh(issued) | Self::WaitRefresh(issued, _) => Ok(issued.bundle()),
        }
    }

    /// The state in upstream's metric.
    pub(super) fn counted(&self, now: Timestamp) -> &'static str {
        match self {
            Self::Initial | Self::Wait(_) => "not_yet_issued",
            Self::Denied(_) => "denied",
            Self::Failed(_) => "failed",
            Self::Fresh(issued) | Self::WaitRefresh(issued, _) => issued.counted(now),
        }
    }
}

fn not_seen(full: &str, name: &str) -> String {
    format!(
        "while getting PodCertificateRequest {full:?}: podcertificaterequest.certificates.k8s.io {name:?} not found"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The jitter of these tests.
    const JITTER: SignedDuration = SignedDuration::from_mins(2);

    fn at(text: &str) -> Timestamp {
        format!("2010-01-{text}Z").parse().unwrap()
    }

    fn asked(name: &str, made: &str) -> Asked {
        Asked::new(PrivateKey::of_pem(name), name.to_owned(), at(made), JITTER)
    }

    fn request(status: Value) -> PodCertificateRequest {
        serde_json::from_value(json!({"metadata": {"name": "req-1"}, "spec": {"signerName": "foo.com/signer",
            "podName": "", "podUID": "", "serviceAccountName": "", "serviceAccountUID": "", "nodeName": "",
            "nodeUID": "", "stubPKCS10Request": ""}, "status": status}))
        .unwrap()
    }

    fn decided(kind: &str) -> PodCertificateRequest {
        request(
            json!({"conditions": [{"type": kind, "status": "True", "reason": "Because", "message": "so \"it\" is",
            "lastTransitionTime": "2010-01-01T00:00:00Z"}]}),
        )
    }

    fn chain(number: u8) -> String {
        [[number; 30].as_slice(), &[9; 10]].into_iter().map(pem::encode_certificate).collect()
    }

    fn issued(number: u8) -> PodCertificateRequest {
        let dirty = format!("a comment\n{}", chain(number).replacen("-----\n", "-----\nKey: value\n\n", 1));
        request(json!({"certificateChain": dirty, "notBefore": "2010-01-01T00:00:00Z",
            "beginRefreshAt": "2010-01-01T23:30:00Z", "notAfter": "2010-01-02T00:00:00Z",
            "conditions": [{"type": "Issued", "status": "True", "reason": "Issued", "message": "",
            "lastTransitionTime": "2010-01-01T00:00:00Z"}]}))
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Is {
        Initial,
        Wait,
        Denied,
        Failed,
        Fresh,
        WaitRefresh,
    }

    fn is(state: &State) -> Is {
        match state {
            State::Initial => Is::Initial,
            State::Wait(_) => Is::Wait,
            State::Denied(_) => Is::Denied,
            State::Failed(_) => Is::Failed,
            State::Fresh(_) => Is::Fresh,
            State::WaitRefresh(..) => Is::WaitRefresh,
        }
    }

    fn fresh() -> State {
        let mut state = State::Wait(asked("first", "01T00:00:00"));
        state.look(Some(&issued(1)), "ns", at("01T00:00:01"), JITTER);
        state
    }

    fn refreshing() -> State {
        let mut state = fresh();
        state.asked(asked("second", "01T23:32:00"));
        state
    }

    #[test]
    fn each_look_leads_on() {
        let rest = || Next::Rest;
        let ask = |refresh| Next::Ask { refresh };
        let again = |why: &str| Next::Again(why.to_owned());
        let not_seen = |name: &str| {
            again(&format!(
                "while getting PodCertificateRequest \"ns/{name}\": podcertificaterequest.certificates.k8s.io \"{name}\" not found"
            ))
        };
        let wait = || State::Wait(asked("first", "01T00:00:00"));
        let pending = || Some(request(Value::Null));
        let other = || Some(decided("Other"));
        let denied = || {
            let mut state = wait();
            state.look(Some(&decided("Denied")), "ns", at("01T00:00:01"), JITTER);
            state
        };
        let gone = again("PodCertificateRequest \"ns/first\" appears to have been deleted");
        let gone_later = again("PodCertificateRequest appears to have been deleted");
        let cases = vec![
            (State::Initial, None, "01T00:00:00", ask(false), Is::Initial),
            (wait(), None, "01T00:00:01", not_seen("first"), Is::Wait),
            // Ten minutes and the jitter.
            (wait(), None, "01T00:12:00", not_seen("first"), Is::Wait),
            (wait(), None, "01T00:12:01", gone, Is::Initial),
            (wait(), pending(), "01T00:12:01", rest(), Is::Wait),
            (wait(), other(), "01T00:12:01", rest(), Is::Wait),
            (wait(), Some(decided("Denied")), "01T00:00:01", rest(), Is::Denied),
            (wait(), Some(decided("Failed")), "01T00:00:01", rest(), Is::Failed),
            (wait(), Some(issued(1)), "01T00:00:01", rest(), Is::Fresh),
            (denied(), Some(issued(1)), "01T00:00:01", rest(), Is::Denied),
            (denied(), None, "03T00:00:01", rest(), Is::Denied),
            (fresh(), None, "01T23:31:59", rest(), Is::Fresh),
            (fresh(), None, "01T23:32:00", ask(true), Is::Fresh),
            (refreshing(), None, "01T23:44:00", not_seen("second"), Is::WaitRefresh),
            (refreshing(), None, "01T23:44:01", gone_later, Is::Fresh),
            (refreshing(), pending(), "03T00:00:00", rest(), Is::WaitRefresh),
            (refreshing(), Some(decided("Denied")), "01T23:33:00", rest(), Is::Denied),
            (refreshing(), Some(decided("Failed")), "01T23:33:00", rest(), Is::Failed),
            (refreshing(), Some(issued(2)), "01T23:33:00", rest(), Is::Fresh),
        ];
        for (number, (mut state, seen, now, next, then)) in cases.into_iter().enumerate() {
            let before = is(&state);
            let outcome = state.look(seen.as_ref(), "ns", at(now), JITTER);
            assert_eq!((&outcome.next, is(&state)), (&next, then), "case {number}");
            let settled = matches!(then, Is::Denied | Is::Failed | Is::Fresh) && next == Next::Rest;
            let news = settled && matches!(before, Is::Wait | Is::WaitRefresh);
            assert_eq!(outcome.news, news, "case {number}");
        }
    }

    #[test]
    fn a_verdict_is_told_once() {
        let verdict = "reason=\"Because\", message=\"so \\\"it\\\" is\"";
        let error = "reason=\"Because\" message=\"so \\\"it\\\" is\"";
        for (kind, what) in [("Denied", "was denied"), ("Failed", "failed")] {
            for (mut state, name) in
                [(State::Wait(asked("first", "01T00:00:00")), "first"), (refreshing(), "second")]
            {
                let first = state.look(Some(&decided(kind)), "ns", at("01T23:33:00"), JITTER);
                let message = format!("PodCertificateRequest ns/{name} {what}, {verdict}");
                assert_eq!(first.told, [Told { reason: kind, message }]);
                assert_eq!(state.look(Some(&decided(kind)), "ns", at("01T23:33:00"), JITTER).told, []);
                let text = state.bundle().unwrap_err().to_string();
                assert_eq!(
                    text,
                    format!("PodCertificateRequest was permanently {}: {error}", kind.to_lowercase())
                );
                assert_eq!(state.counted(at("01T00:00:00")), kind.to_lowercase());
                state.asked(asked("third", "01T23:33:00"));
                assert_eq!(is(&state), if kind == "Denied" { Is::Denied } else { Is::Failed });
            }
        }
    }

    #[test]
    fn an_old_certificate_is_told_of_once() {
        for (mut state, seen) in [(fresh(), None), (refreshing(), Some(request(Value::Null)))] {
            let mut reasons = |now: &str| {
                let told = state.look(seen.as_ref(), "ns", at(now), JITTER).told;
                told.into_iter().map(|t| format!("{} {}", t.reason, t.message)).collect::<Vec<_>>()
            };
            let overdue = "CertificateOverdueForRefresh PodCertificate refresh overdue";
            assert_eq!(reasons("01T23:42:00"), [""; 0]);
            assert_eq!(reasons("01T23:42:01"), [overdue]);
            assert_eq!(reasons("02T00:00:00"), [""; 0]);
            assert_eq!(reasons("02T00:00:01"), ["CertificateExpired PodCertificate expired"]);
            assert_eq!(reasons("03T00:00:01"), [""; 0]);
        }
        let both = fresh().look(None, "ns", at("03T00:00:00"), JITTER);
        assert_eq!((both.told.len(), both.next), (2, Next::Ask { refresh: true }));
    }

    #[test]
    fn the_old_certificate_is_there_until_the_next_one_is() {
        let check = |state: &State, key: &str, number: u8| {
            let bundle = state.bundle().unwrap();
            assert_eq!((bundle.key.expose(), &*bundle.chain), (key, chain(number).as_str()));
        };
        assert_eq!(State::Initial.bundle(), Err(CredentialError::NotIssued));
        let mut state = State::Initial;
        state.asked(asked("first", "01T00:00:00"));
        assert_eq!(state.bundle().unwrap_err().to_string(), "credential bundle is not issued yet");
        assert_eq!(state.awaited(), Some("first"));
        state.look(Some(&issued(1)), "ns", at("01T00:00:01"), JITTER);
        check(&state, "first", 1);
        assert_eq!(state.awaited(), None);
        state.asked(asked("second", "01T23:32:00"));
        check(&state, "first", 1);
        assert_eq!(state.awaited(), Some("second"));
        state.look(Some(&issued(2)), "ns", at("01T23:33:00"), JITTER);
        check(&state, "second", 2);
    }

    #[test]
    fn states_are_counted_by_age() {
        let check =
            |state: &State, now: &str, expected: &str| assert_eq!(state.counted(at(now)), expected, "{now}");
        check(&State::Initial, "01T00:00:00", "not_yet_issued");
        check(&State::Wait(asked("first", "01T00:00:00")), "01T00:00:00", "not_yet_issued");
        for state in [fresh(), refreshing()] {
            check(&state, "01T23:42:00", "fresh");
            check(&state, "01T23:42:01", "overdue_for_refresh");
            check(&state, "02T00:00:00", "overdue_for_refresh");
            check(&state, "02T00:00:01", "expired");
        }
    }
}
