//! An index of roles and bindings: the bindings of a user or a group.

use std::collections::HashSet;
use std::sync::Arc;

use api::Text;
use arc_swap::ArcSwap;
use imbl::HashMap;
use parking_lot::Mutex;

use super::{Binding, GROUP, Role, RoleRef, Rule, Subject};
use crate::UserInfo;
use crate::auth::{Access, Authorizer, Decision, Eventual};

/// A user or group that a binding names; a service account is its user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    User(Text),
    Group(Text),
}

/// The bindings of one namespace ("" for cluster role bindings), by the users and groups that they name.
type Bindings = HashMap<Who, Vec<Arc<Binding>>>;

#[derive(Clone, Default)]
struct State {
    cluster_roles: HashMap<Text, Arc<[Rule]>>,
    roles: HashMap<(Text, Text), Arc<[Rule]>>,
    bindings: HashMap<Text, Bindings>,
    by_name: HashMap<(Text, Text), Arc<Binding>>,
}

/// A change to a role or a binding.
#[derive(Debug, Clone)]
pub enum Change {
    /// The state of a role, or with namespace "" of a cluster role; `None` if it is gone.
    Role(Text, Text, Option<Role>),
    /// The state of a binding, or with namespace "" of a cluster role binding; `None` if it is gone.
    Binding(Text, Text, Option<Binding>),
}

/// The binding and subject by which a rule reaches a user.
pub struct Source<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
}

impl Source<'_> {
    fn describe(&self) -> String {
        self.binding.describe(self.subject)
    }
}

/// All roles and bindings. Readers see a consistent state and take no lock.
#[derive(Default)]
pub struct RbacIndex {
    state: ArcSwap<State>,
    writing: Mutex<()>,
}

impl Authorizer for RbacIndex {
    fn authorize<'a>(&'a self, user: &'a UserInfo, access: &'a Access<'a>) -> Eventual<'a, Decision> {
        Eventual::Now(self.decision(user, access))
    }
    fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Option<String>) {
        self.rules_for(user, namespace)
    }
}

impl RbacIndex {
    /// Applies changes, all at once.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        let _one = self.writing.lock();
        let mut state = State::clone(&self.state.load());
        for change in changes {
            state.apply(change);
        }
        self.state.store(Arc::new(state));
    }

    /// Replaces all roles and bindings.
    pub fn reset(&self, all: impl IntoIterator<Item = Change>) {
        let _one = self.writing.lock();
        let mut state = State::default();
        for change in all {
            state.apply(change);
        }
        self.state.store(Arc::new(state));
    }

    /// Whether a rule bound to the user allows the access.
    pub fn decision(&self, user: &UserInfo, access: &Access<'_>) -> Decision {
        let mut errors = Vec::new();
        let mut allowed = None;
        self.state.load().visit(user, access.namespace, &mut errors, |source, rule| {
            let allows = rule.allows(access);
            if allows {
                allowed = Some(format!("RBAC: allowed by {}", source.describe()));
            }
            !allows
        });
        match allowed {
            Some(reason) => Decision::Allow(reason),
            None if errors.is_empty() => Decision::NoOpinion(String::new()),
            None => Decision::NoOpinion(format!("RBAC: {}", aggregate(&errors))),
        }
    }

    /// Returns every rule that reaches the user in a namespace, and a text about roles that could not be resolved.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let mut errors = Vec::new();
        let mut rules = Vec::new();
        self.state.load().visit(user, namespace, &mut errors, |_, rule| {
            rules.push(rule.clone());
            true
        });
        (rules, (!errors.is_empty()).then(|| aggregate(&errors)))
    }

    /// Returns the namespace and name of each known cluster role or role.
    pub fn roles(&self, cluster: bool) -> Vec<(Text, Text)> {
        let state = self.state.load();
        if cluster {
            state.cluster_roles.keys().map(|name| (Text::default(), name.clone())).collect()
        } else {
            state.roles.keys().cloned().collect()
        }
    }

    /// Returns the namespace and name of each known cluster role binding or role binding.
    pub fn bindings(&self, cluster: bool) -> Vec<(Text, Text)> {
        self.state.load().by_name.keys().filter(|k| k.0.is_empty() == cluster).cloned().collect()
    }

    /// Returns the rules of a role that a binding in `namespace` names; upstream's error if there is no such role.
    pub fn role_rules(&self, role: &RoleRef, namespace: &str) -> Result<Arc<[Rule]>, RoleError> {
        self.state.load().role_rules(role, namespace)
    }
}

/// The reason for which a role's rules are not known.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RoleError {
    /// The role does not exist.
    #[error("{resource}.{GROUP} {name:?} not found")]
    NotFound {
        /// `role` or `clusterrole`.
        resource: &'static str,
        /// The role's name.
        name: Text,
    },
    /// The reference names no role.
    #[error("unsupported role reference kind: {0:?}")]
    Kind(Text),
}

/// Joins several errors as upstream does: each once, in brackets if there are many.
fn aggregate(errors: &[RoleError]) -> String {
    let mut seen = HashSet::new();
    let texts: Vec<String> = errors.iter().filter(|e| seen.insert(*e)).map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

impl State {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Role(namespace, name, role) => {
                let rules = role.map(|r| Arc::<[Rule]>::from(r.rules));
                match (namespace.is_empty(), rules) {
                    (true, Some(rules)) => drop(self.cluster_roles.insert(name, rules)),
                    (true, None) => drop(self.cluster_roles.remove(&name)),
                    (false, Some(rules)) => drop(self.roles.insert((namespace, name), rules)),
                    (false, None) => drop(self.roles.remove(&(namespace, name))),
                }
            }
            Change::Binding(namespace, name, binding) => {
                let key = (namespace.clone(), name);
                if let Some(old) = self.by_name.remove(&key) {
                    self.unlink(&old);
                }
                if let Some(new) = binding {
                    let new = Arc::new(new);
                    for who in who(&new) {
                        self.bindings
                            .entry(namespace.clone())
                            .or_default()
                            .entry(who)
                            .or_default()
                            .push(new.clone());
                    }
                    self.by_name.insert(key, new);
                }
            }
        }
    }

    fn unlink(&mut self, old: &Arc<Binding>) {
        let Some(of_namespace) = self.bindings.get_mut(&old.namespace) else { return };
        for who in who(old) {
            if let Some(list) = of_namespace.get_mut(&who) {
                list.retain(|b| !Arc::ptr_eq(b, old));
                if list.is_empty() {
                    of_namespace.remove(&who);
                }
            }
        }
        if of_namespace.is_empty() {
            self.bindings.remove(&old.namespace);
        }
    }

    fn role_rules(&self, role: &RoleRef, namespace: &str) -> Result<Arc<[Rule]>, RoleError> {
        let (resource, rules) = match role.kind.as_str() {
            "ClusterRole" => ("clusterrole", self.cluster_roles.get(&role.name)),
            "Role" => ("role", self.roles.get(&(namespace.into(), role.name.clone()))),
            _ => return Err(RoleError::Kind(role.kind.clone())),
        };
        rules.cloned().ok_or_else(|| RoleError::NotFound { resource, name: role.name.clone() })
    }

    /// Shows every rule that reaches the user, those of the cluster first, until `see` returns false.
    fn visit(
        &self,
        user: &UserInfo,
        namespace: &str,
        errors: &mut Vec<RoleError>,
        mut see: impl FnMut(&Source<'_>, &Rule) -> bool,
    ) {
        let names: Vec<Who> = std::iter::once(Who::User(user.name.clone()))
            .chain(user.groups.iter().map(|g| Who::Group(g.clone())))
            .collect();
        let scopes: &[&str] = if namespace.is_empty() { &[""] } else { &["", namespace] };
        for scope in scopes {
            let Some(bindings) = self.bindings.get(*scope) else { continue };
            let mut seen: HashSet<*const Binding> = HashSet::new();
            for binding in names.iter().filter_map(|n| bindings.get(n)).flatten() {
                if !seen.insert(Arc::as_ptr(binding)) {
                    continue;
                }
                let Some(subject) = binding.subjects.iter().find(|s| s.is(user, scope)) else { continue };
                match self.role_rules(&binding.role_ref, scope) {
                    Err(e) => errors.push(e),
                    Ok(rules) => {
                        let source = Source { binding, subject };
                        if !rules.iter().all(|rule| see(&source, rule)) {
                            return;
                        }
                    }
                }
            }
        }
    }
}

/// Returns the users and groups that a binding names, each once.
fn who(binding: &Binding) -> HashSet<Who> {
    let mut all = HashSet::with_capacity(binding.subjects.len());
    for subject in &binding.subjects {
        let who = match subject.kind.as_str() {
            "User" => Who::User(subject.name.clone()),
            "Group" => Who::Group(subject.name.clone()),
            "ServiceAccount" => {
                let namespace =
                    if subject.namespace.is_empty() { &binding.namespace } else { &subject.namespace };
                Who::User(compact_str::format_compact!("system:serviceaccount:{namespace}:{}", subject.name))
            }
            _ => continue,
        };
        all.insert(who);
    }
    all
}
