//! The values of the variables of an environment for admission.

use std::sync::OnceLock;

use api::{Map, Node, Text};
use cel::schema::untyped;
use cel::{Opaque, ResourceCheck, Subject, Value};

use crate::admission::{AdmissionRequest, Equivalent};

/// What expressions see of a request.
pub(in crate::admission) struct Input<'a> {
    request: &'a AdmissionRequest<'a>,
    /// The resource and kind by which the request was matched.
    matched: &'a Equivalent,
    /// The new object, in the version that was matched.
    pub(in crate::admission) object: Option<&'a Node>,
    /// The former object, in the same version.
    pub(in crate::admission) old: Option<&'a Node>,
    /// The parameters of a policy.
    pub(in crate::admission) params: Option<&'a Node>,
    /// The request's namespace.
    pub(in crate::admission) namespace: Option<&'a Node>,
    /// `request`, made when it is asked for.
    shown: OnceLock<Node>,
}

impl<'a> Input<'a> {
    /// A request without objects, parameters and namespace.
    pub(in crate::admission) fn new(request: &'a AdmissionRequest<'a>, matched: &'a Equivalent) -> Self {
        let (object, old, params, namespace) = (None, None, None, None);
        Self { request, matched, object, old, params, namespace, shown: OnceLock::new() }
    }

    /// The value of a variable; `None` if there is no such one.
    pub(super) fn variable(&'a self, name: &str) -> Option<Value<'a>> {
        let or_null = |node: Option<&'a Node>| node.map_or(Value::Null, untyped);
        Some(match name {
            "object" => or_null(self.object),
            "oldObject" => or_null(self.old),
            "params" => or_null(self.params),
            "namespaceObject" => or_null(self.namespace),
            "request" => untyped(self.shown.get_or_init(|| self.show())),
            "authorizer" => Value::opaque(Opaque::Authorizer(Subject::User)),
            "authorizer.requestResource" => {
                let request = self.request;
                Value::opaque(Opaque::ResourceCheck(Box::new(ResourceCheck {
                    group: request.info.group.to_string(),
                    resource: request.resource.to_owned(),
                    subresource: request.subresource.to_owned(),
                    namespace: request.namespace.to_owned(),
                    name: request.name.to_owned(),
                    ..ResourceCheck::default()
                })))
            }
            _ => return None,
        })
    }

    /// The operation of the request.
    pub(in crate::admission) fn operation(&self) -> crate::admission::Operation {
        self.request.operation
    }

    pub(super) fn request(&self) -> &'a AdmissionRequest<'a> {
        self.request
    }

    /// The request as upstream's `AdmissionRequest` shows it, without its objects.
    fn show(&self) -> Node {
        let (request, matched) = (self.request, self.matched);
        let texts = |entries: &[(&str, &str)]| {
            map(entries.iter().map(|(k, v)| (Text::from(*k), Node::Str((*v).into()))))
        };
        let kind = |k: &api::Gvk| texts(&[("group", &k.group), ("kind", &k.kind), ("version", &k.version)]);
        let resource = |group: &str, version: &str, resource: &str| {
            texts(&[("group", group), ("resource", resource), ("version", version)])
        };
        let list = |of: &[Text]| Node::List(of.iter().map(|t| Node::Str(t.clone())).collect());
        let mut all: Vec<(Text, Node)> = vec![
            ("kind".into(), kind(&matched.kind)),
            ("resource".into(), resource(&matched.group, &matched.version, &matched.resource)),
            ("requestKind".into(), kind(request.request_kind)),
            (
                "requestResource".into(),
                resource(&request.info.group, &request.info.version, request.resource),
            ),
            ("operation".into(), Node::Str(request.operation.name().into())),
            ("dryRun".into(), Node::Bool(request.dry_run)),
        ];
        let absent_if_empty = [
            ("subResource", request.subresource),
            ("requestSubResource", request.subresource),
            ("name", request.name),
            ("namespace", request.namespace),
        ];
        let given = absent_if_empty.iter().filter(|(_, v)| !v.is_empty());
        all.extend(given.map(|(k, v)| (Text::from(*k), Node::Str((*v).into()))));
        let user = request.user;
        let mut info: Vec<(Text, Node)> = Vec::new();
        for (key, value) in [("username", &user.name), ("uid", &user.uid)] {
            if !value.is_empty() {
                info.push((key.into(), Node::Str(value.clone())));
            }
        }
        if !user.groups.is_empty() {
            info.push(("groups".into(), list(&user.groups)));
        }
        if !user.extra.is_empty() {
            info.push(("extra".into(), map(user.extra.iter().map(|(k, v)| (k.clone(), list(v))))));
        }
        all.push(("userInfo".into(), map(info)));
        let schema = request.versions.schema();
        let options = request.options.tree(schema).map_or(Node::Null, |tree| {
            let kind = api::Gvk::new("meta.k8s.io", "v1", request.options.kind());
            request.versions.value(&kind, &tree)
        });
        all.push(("options".into(), options));
        map(all)
    }
}

fn map(entries: impl IntoIterator<Item = (Text, Node)>) -> Node {
    let mut map = Map::default();
    for (key, value) in entries {
        map.insert(key, value);
    }
    Node::Map(map)
}
