//! Bootstrap tokens: a Secret of `kube-system` lets a machine in that is about to join (`--enable-bootstrap-token-auth`).

use std::sync::Arc;

use api::Text;
use client::bootstrap::{Entry, NAMESPACE, Token, USER_PREFIX};
use component::Clock;

use super::token::Authenticated;
use crate::UserInfo;
use crate::reader::Reader;

/// Recognises bootstrap tokens. Each is looked up anew, so that one whose Secret is gone is refused at once.
pub(super) struct BootstrapTokens {
    reader: Arc<dyn Reader>,
    clock: Clock,
    /// The audiences of this server.
    audiences: Vec<Text>,
}

impl BootstrapTokens {
    pub(super) fn new(reader: Arc<dyn Reader>, clock: Clock, audiences: &[Text]) -> Self {
        Self { reader, clock, audiences: audiences.to_vec() }
    }

    /// Returns the user of a token; `None` if it is no bootstrap token of this cluster, or is not good. With empty
    /// `wanted`, the audience is the API server.
    pub(super) fn authenticate(&self, token: &str, wanted: &[Text]) -> Option<Authenticated> {
        let token: Token = token.parse().ok()?;
        let name = token.secret_name();
        let entry = Entry::from_json(&self.reader.get(("", "secrets"), NAMESPACE, &name)?.data.body)?;
        let groups = match entry.authenticate(&token, self.clock.now()) {
            Ok(groups) => groups,
            Err(why) => {
                tracing::debug!("Bootstrap secret {NAMESPACE}/{name} matching bearer token {why}");
                return None;
            }
        };
        // Like every token without audiences of its own, it is for the API server.
        let audiences = audiences_for(wanted, &self.audiences)?;
        let groups = groups.into_iter().map(Text::from).chain(["system:authenticated".into()]).collect();
        let name = Text::from(format!("{USER_PREFIX}{}", token.id()));
        Some(Authenticated { user: Arc::new(UserInfo { name, groups, ..UserInfo::default() }), audiences })
    }
}

/// Those of the server's audiences that are wanted, or all if nobody asks for some; none if none is.
pub(super) fn audiences_for(wanted: &[Text], own: &[Text]) -> Option<Vec<Text>> {
    let audiences: Vec<Text> = match wanted {
        [] => own.to_vec(),
        wanted => own.iter().filter(|a| wanted.contains(a)).cloned().collect(),
    };
    (!audiences.is_empty()).then_some(audiences)
}

#[cfg(test)]
mod tests {
    use client::bootstrap::Spec;
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::testing::Fake;

    const SECRETS: (&str, &str) = ("", "secrets");

    #[tokio::test(start_paused = true)]
    async fn a_token_is_good_while_its_secret_says_so() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::from(start);
        let fake = Arc::new(Fake::default());
        let token: Token = "abcdef.0123456789abcdef".parse().unwrap();
        let spec = Spec {
            token: token.clone(),
            description: String::new(),
            expires: Some(start + SignedDuration::from_hours(1)),
            usages: vec!["authentication".to_owned()],
            groups: vec!["system:bootstrappers:a".to_owned()],
        };
        fake.put(SECRETS, serde_json::to_value(spec.secret()).unwrap());
        let reader: Arc<dyn Reader> = Arc::<Fake>::clone(&fake);
        let tokens = BootstrapTokens::new(reader, clock, &["api".into()]);
        let check = |text: &str, wanted: &[&str], expected: Option<&str>| {
            let wanted: Vec<Text> = wanted.iter().map(|a| (*a).into()).collect();
            let got = tokens.authenticate(text, &wanted);
            let got = got.map(|who| {
                format!("{} {} {}", who.user.name, who.user.groups.join(","), who.audiences.join(","))
            });
            assert_eq!(got.as_deref(), expected, "{text} {wanted:?}");
        };
        let good = "abcdef.0123456789abcdef";
        let user =
            "system:bootstrap:abcdef system:bootstrappers,system:bootstrappers:a,system:authenticated api";
        check(good, &[], Some(user));
        check(good, &["api", "other"], Some(user));
        check(good, &["other"], None);
        check("abcdef.0123456789abcdee", &[], None);
        check("fedcba.0123456789abcdef", &[], None);
        check("abcdef", &[], None);
        check("../abc.0123456789abcdef", &[], None);
        fake.remove(SECRETS, NAMESPACE, &token.secret_name());
        check(good, &[], None);
        fake.put(SECRETS, serde_json::to_value(spec.secret()).unwrap());
        check(good, &[], Some(user));
        clock.step(SignedDuration::from_hours(1));
        check(good, &[], None);
    }
}
