//! Several authorizers as one: superusers, then each of the modes in its order.

use std::sync::Arc;

use api::{Status, Text};
use futures::future::BoxFuture;

use super::access::{Access, forbidden};
use super::authorizer::{Authorizer, Decision, SUPERUSERS};
use super::eventual::Eventual;
use super::node::NodeAuthorizer;
use super::rbac::{RbacIndex, Rule};
use crate::UserInfo;

/// `--authorization-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// `Node`
    Node,
    /// `RBAC`
    Rbac,
    /// `AlwaysAllow`
    AlwaysAllow,
    /// `AlwaysDeny`
    AlwaysDeny,
}

impl AuthorizationMode {
    /// By its name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "Node" => Some(Self::Node),
            "RBAC" => Some(Self::Rbac),
            "AlwaysAllow" => Some(Self::AlwaysAllow),
            "AlwaysDeny" => Some(Self::AlwaysDeny),
            _ => None,
        }
    }
}

/// Says yes to everything.
struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize<'a>(&'a self, _: &'a UserInfo, _: &'a Access<'a>) -> Eventual<'a, Decision> {
        Eventual::Now(Decision::Allow(String::new()))
    }
    fn rules_for(&self, _: &UserInfo, _: &str) -> (Vec<Rule>, Option<String>) {
        (vec![Rule::resources(&["*"], "*", &["*"])], None)
    }
}

/// Says yes to nothing.
struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize<'a>(&'a self, _: &'a UserInfo, _: &'a Access<'a>) -> Eventual<'a, Decision> {
        Eventual::Now(Decision::NoOpinion("Everything is forbidden.".to_owned()))
    }
}

/// Asks authorizers in their order; members of `system:masters` are asked nothing.
pub struct UnionAuthorizer {
    members: Vec<Arc<dyn Authorizer>>,
    node: Arc<NodeAuthorizer>,
    rbac: Arc<RbacIndex>,
}

impl UnionAuthorizer {
    /// The authorizers of the modes, in their order.
    pub fn new(modes: &[AuthorizationMode], node: Arc<NodeAuthorizer>, rbac: Arc<RbacIndex>) -> Self {
        let member = |mode: &AuthorizationMode| -> Arc<dyn Authorizer> {
            match mode {
                AuthorizationMode::Node => Arc::<NodeAuthorizer>::clone(&node),
                AuthorizationMode::Rbac => Arc::<RbacIndex>::clone(&rbac),
                AuthorizationMode::AlwaysAllow => Arc::new(AlwaysAllow),
                AuthorizationMode::AlwaysDeny => Arc::new(AlwaysDeny),
            }
        };
        Self { members: modes.iter().map(member).collect(), node, rbac }
    }
    /// The roles and bindings.
    pub fn rbac(&self) -> &Arc<RbacIndex> {
        &self.rbac
    }
    /// The graph of what nodes need.
    pub fn node(&self) -> &Arc<NodeAuthorizer> {
        &self.node
    }
    /// Whether it is a yes.
    pub async fn allows(&self, user: &UserInfo, access: &Access<'_>) -> bool {
        self.authorize(user, access).get().await.refusal().is_none()
    }
    /// A 403 unless it is a yes.
    pub async fn require(&self, user: &UserInfo, access: &Access<'_>) -> Result<(), Status> {
        match self.authorize(user, access).get().await.refusal() {
            None => Ok(()),
            Some(reason) => Err(forbidden(user, access, &reason)),
        }
    }
    /// The rest of a decision once a member that could not answer at once has answered.
    async fn wait<'a>(
        &'a self,
        mut first: BoxFuture<'a, Decision>,
        rest: &'a [Arc<dyn Authorizer>],
        mut reasons: Vec<String>,
        (user, access): (&'a UserInfo, &'a Access<'a>),
    ) -> Decision {
        let mut rest = rest.iter();
        loop {
            if let Some(done) = settled(first.await, &mut reasons) {
                return done;
            }
            first = loop {
                let Some(member) = rest.next() else { return Decision::NoOpinion(reasons.join("\n")) };
                match member.authorize(user, access) {
                    Eventual::Later(decision) => break decision,
                    Eventual::Now(decision) => {
                        if let Some(done) = settled(decision, &mut reasons) {
                            return done;
                        }
                    }
                }
            };
        }
    }
}

/// The decision of all once one has decided, if that settles it; else its reason is kept.
fn settled(decision: Decision, reasons: &mut Vec<String>) -> Option<Decision> {
    match decision {
        Decision::NoOpinion(reason) => {
            reasons.extend(Some(reason).filter(|reason| !reason.is_empty()));
            None
        }
        Decision::Deny(reason) => {
            reasons.extend(Some(reason).filter(|reason| !reason.is_empty()));
            Some(Decision::Deny(reasons.join("\n")))
        }
        Decision::Allow(reason) => Some(Decision::Allow(reason)),
    }
}

impl Authorizer for UnionAuthorizer {
    /// The first yes or no, or the reasons of all who do not know.
    fn authorize<'a>(&'a self, user: &'a UserInfo, access: &'a Access<'a>) -> Eventual<'a, Decision> {
        if user.groups.iter().any(|g| g == SUPERUSERS) {
            return Eventual::Now(Decision::Allow(String::new()));
        }
        let mut reasons: Vec<String> = Vec::new();
        for (at, member) in self.members.iter().enumerate() {
            match member.authorize(user, access) {
                Eventual::Now(decision) => {
                    if let Some(done) = settled(decision, &mut reasons) {
                        return Eventual::Now(done);
                    }
                }
                Eventual::Later(first) => {
                    let rest = &self.members[at + 1..];
                    return Eventual::later(self.wait(first, rest, reasons, (user, access)));
                }
            }
        }
        Eventual::Now(Decision::NoOpinion(reasons.join("\n")))
    }
    fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let mut rules = Vec::new();
        let mut errors: Vec<String> = Vec::new();
        if user.groups.iter().any(|g| g == SUPERUSERS) {
            rules.push(Rule::resources(&["*"], "*", &["*"]));
            let all: Text = "*".into();
            rules.push(Rule { verbs: vec![all.clone()], non_resource_urls: vec![all], ..Rule::default() });
        }
        for member in &self.members {
            let (more, error) = member.rules_for(user, namespace);
            rules.extend(more);
            errors.extend(error);
        }
        let error = (!errors.is_empty()).then(|| match errors.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        });
        (rules, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers at once, or after others had their turn.
    struct Member(Decision, bool);

    impl Authorizer for Member {
        fn authorize<'a>(&'a self, _: &'a UserInfo, _: &'a Access<'a>) -> Eventual<'a, Decision> {
            if !self.1 {
                return Eventual::Now(self.0.clone());
            }
            Eventual::later(async {
                tokio::task::yield_now().await;
                self.0.clone()
            })
        }
    }

    #[tokio::test]
    async fn the_first_who_knows_decides_whether_it_answers_at_once_or_later() {
        let (yes, no, none) = (
            || Decision::Allow("y".into()),
            || Decision::Deny("d".into()),
            |why: &str| Decision::NoOpinion(why.into()),
        );
        let check = async |members: Vec<Decision>, want: Decision| {
            // Each member in turn is the one that is waited for, or the first of several.
            for waits in 0..1_u32 << members.len() {
                let members = members.iter().enumerate().map(|(at, decision)| {
                    Arc::new(Member(decision.clone(), waits >> at & 1 == 1)) as Arc<dyn Authorizer>
                });
                let union = UnionAuthorizer {
                    members: members.collect(),
                    node: Arc::default(),
                    rbac: Arc::default(),
                };
                let (user, access) = (UserInfo::default(), Access::default());
                let decision = union.authorize(&user, &access);
                assert_eq!(matches!(decision, Eventual::Later(_)), asked(&union, waits), "{waits:b}");
                assert_eq!(decision.get().await, want, "{waits:b}");
            }
        };
        fn asked(union: &UnionAuthorizer, waits: u32) -> bool {
            let settles =
                |m: &Arc<dyn Authorizer>| match m.authorize(&UserInfo::default(), &Access::default()) {
                    Eventual::Now(decision) => !matches!(decision, Decision::NoOpinion(_)),
                    Eventual::Later(_) => false,
                };
            let last = union.members.iter().position(settles).unwrap_or(union.members.len());
            (0..last).any(|at| waits >> at & 1 == 1)
        }
        check(vec![], none("")).await;
        check(vec![none("a"), none(""), none("b")], none("a\nb")).await;
        check(vec![none("a"), yes(), no()], yes()).await;
        check(vec![none("a"), no(), yes()], Decision::Deny("a\nd".into())).await;
        check(vec![none("a"), none(""), yes()], yes()).await;
    }
}
