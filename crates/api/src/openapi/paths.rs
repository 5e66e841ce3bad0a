//! Paths and their operations, from the table of resources.

use std::collections::{BTreeMap, BTreeSet};

use super::custom::CustomKinds;
use super::definitions::reference;
use super::{Dialect, object, strings};
use crate::resources::ResourceInfo;
use crate::schema::{Gvk, Schema, Type};
use crate::tree::{Map, Node, Text};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(super) const PLAIN: &[&str] = &[JSON, YAML, PROTOBUF];
const STREAMED: &[&str] = &[
    JSON,
    YAML,
    PROTOBUF,
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
/// The media types of objects of definitions.
pub(super) const CUSTOM: &[&str] = &[JSON, YAML];
/// The patches of objects of definitions.
pub(super) const CUSTOM_PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
const DISCOVERED: &[&str] = &[JSON, YAML, PROTOBUF];
const ANYTHING: &[&str] = &["*/*"];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// A parameter: its place, its name and its type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Param {
    name: Text,
    location: &'static str,
    ty: &'static str,
}

const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

fn query(params: &[(&str, &'static str)]) -> Vec<Param> {
    params.iter().map(|(name, ty)| Param { name: (*name).into(), location: "query", ty }).collect()
}

fn in_path(name: &str) -> Param {
    Param { name: name.into(), location: "path", ty: "string" }
}

/// The answer of an operation.
#[derive(Debug, Clone)]
enum Answer {
    /// An object of this definition.
    Object(Text),
    /// Text or a stream.
    Text,
}

/// One method of a path.
#[derive(Debug, Clone)]
struct Operation {
    method: &'static str,
    id: String,
    tag: String,
    description: String,
    action: Option<(&'static str, Gvk)>,
    params: BTreeSet<Param>,
    /// Definition of the body, whether a body is required, and its media types.
    body: Option<(Text, bool, &'static [&'static str])>,
    codes: &'static [u16],
    answer: Answer,
    produces: Vec<&'static str>,
}

/// A path.
#[derive(Debug, Clone, Default)]
pub(super) struct PathItem {
    operations: Vec<Operation>,
}

impl PathItem {
    /// The JSON of the path; the names of its definitions go to `needed`.
    pub(super) fn node(&self, dialect: Dialect, needed: &mut BTreeSet<Text>) -> Node {
        let mut common: BTreeSet<Param> =
            self.operations.first().map(|o| o.params.clone()).unwrap_or_default();
        for o in &self.operations {
            common.retain(|p| o.params.contains(p));
        }
        let mut out = Map::new();
        if !common.is_empty() {
            out.insert("parameters", Node::List(common.iter().map(|p| p.node(dialect)).collect()));
        }
        for o in &self.operations {
            out.insert(o.method, o.node(dialect, &common, needed));
        }
        out.into()
    }
}

impl Param {
    fn node(&self, dialect: Dialect) -> Node {
        let mut out = Map::new();
        out.insert("name", self.name.clone());
        out.insert("in", self.location);
        if self.location == "path" {
            out.insert("required", true);
        }
        match dialect {
            Dialect::V2 => {
                out.insert("type", self.ty);
                out.insert("uniqueItems", true);
            }
            Dialect::V3 => {
                out.insert("schema", object([("type", self.ty.into()), ("uniqueItems", true.into())]));
            }
        }
        out.into()
    }
}

fn status_text(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        _ => "Unauthorized",
    }
}

impl Operation {
    fn node(&self, dialect: Dialect, common: &BTreeSet<Param>, needed: &mut BTreeSet<Text>) -> Node {
        let mut out = Map::new();
        out.insert("description", self.description.as_str());
        out.insert("operationId", self.id.as_str());
        out.insert("tags", strings([self.tag.as_str()]));
        if let Some((action, gvk)) = &self.action {
            out.insert("x-kubernetes-action", *action);
            let kind = object([
                ("group", gvk.group.clone().into()),
                ("version", gvk.version.clone().into()),
                ("kind", gvk.kind.clone().into()),
            ]);
            out.insert("x-kubernetes-group-version-kind", kind);
        }
        let mut params: Vec<Node> =
            self.params.iter().filter(|p| !common.contains(*p)).map(|p| p.node(dialect)).collect();
        if let Some((definition, required, types)) = &self.body {
            needed.insert(definition.clone());
            let schema = reference(dialect, definition);
            match dialect {
                Dialect::V2 => {
                    let mut body = Map::new();
                    body.insert("in", "body");
                    body.insert("name", "body");
                    body.insert("schema", schema);
                    if *required {
                        body.insert("required", true);
                    }
                    params.insert(0, body.into());
                }
                Dialect::V3 => {
                    let mut content = Map::new();
                    for t in *types {
                        content.insert(*t, object([("schema", schema.clone())]));
                    }
                    let mut body = Map::new();
                    body.insert("content", content);
                    if *required {
                        body.insert("required", true);
                    }
                    out.insert("requestBody", body);
                }
            }
        }
        if !params.is_empty() {
            out.insert("parameters", Node::List(params));
        }
        let schema = match &self.answer {
            Answer::Object(definition) => {
                needed.insert(definition.clone());
                reference(dialect, definition)
            }
            Answer::Text => object([("type", "string".into())]),
        };
        let mut responses = Map::new();
        for code in self.codes {
            let mut response = Map::new();
            response.insert("description", status_text(*code));
            match dialect {
                Dialect::V2 => {
                    response.insert("schema", schema.clone());
                }
                Dialect::V3 => {
                    let mut content = Map::new();
                    for t in &self.produces {
                        content.insert(*t, object([("schema", schema.clone())]));
                    }
                    response.insert("content", content);
                }
            }
            responses.insert(itoa::Buffer::new().format(*code), response);
        }
        responses.insert("401", object([("description", status_text(401).into())]));
        out.insert("responses", responses);
        if dialect == Dialect::V2 {
            let consumes = match (&self.body, &self.action, &self.answer) {
                (Some((_, _, types)), _, _) => types,
                (None, Some(_), _) => ANYTHING,
                (None, None, Answer::Object(_)) => &self.produces[..],
                (None, None, Answer::Text) => &[],
            };
            if !consumes.is_empty() {
                out.insert("consumes", strings(consumes.iter().copied()));
            }
            out.insert("produces", strings(self.produces.iter().copied()));
            out.insert("schemes", strings(["https"]));
        }
        out.into()
    }
}

/// The group in camel case: `rbacAuthorization` for `rbac.authorization.k8s.io`, `core` for the core group.
fn camel(group: &str) -> String {
    if group.is_empty() {
        return "core".into();
    }
    let mut out = String::new();
    for (i, part) in group.trim_end_matches(".k8s.io").split('.').enumerate() {
        out.push_str(&if i == 0 { part.to_owned() } else { pascal(part) });
    }
    out
}

fn pascal(s: &str) -> String {
    let mut chars = s.chars();
    chars.next().map_or_else(String::new, |c| c.to_ascii_uppercase().to_string() + chars.as_str())
}

fn simple(
    path: String,
    id: String,
    tag: String,
    description: &str,
    answer: Answer,
    produces: &[&'static str],
) -> Option<(String, PathItem)> {
    let operation = Operation {
        method: "get",
        id,
        tag,
        description: description.into(),
        action: None,
        params: BTreeSet::new(),
        body: None,
        codes: &[200],
        answer,
        produces: produces.to_vec(),
    };
    Some((path, PathItem { operations: vec![operation] }))
}

fn meta(kind: &str) -> Answer {
    Answer::Object(compact_str::format_compact!("{META}{kind}"))
}

/// The path `/api/`.
pub(super) fn api_versions() -> Option<(String, PathItem)> {
    simple(
        "/api/".into(),
        "getCoreAPIVersions".into(),
        "core".into(),
        "get available API versions",
        meta("APIVersions"),
        DISCOVERED,
    )
}

/// The path `/apis/`.
pub(super) fn api_groups() -> Option<(String, PathItem)> {
    simple(
        "/apis/".into(),
        "getAPIVersions".into(),
        "apis".into(),
        "get available API versions",
        meta("APIGroupList"),
        DISCOVERED,
    )
}

/// The path `/apis/GROUP/`.
pub(super) fn api_group(group: &str) -> Option<(String, PathItem)> {
    let name = camel(group);
    let id = format!("get{}APIGroup", pascal(&name));
    simple(format!("/apis/{group}/"), id, name, "get information of a group", meta("APIGroup"), DISCOVERED)
}

/// The path `/version/`.
pub(super) fn version() -> Option<(String, PathItem)> {
    let answer = Answer::Object("io.k8s.apimachinery.pkg.version.Info".into());
    simple(
        "/version/".into(),
        "getCodeVersion".into(),
        "version".into(),
        "get the version information for this server",
        answer,
        &[JSON],
    )
}

/// The path of the keys of service account tokens.
pub(super) fn keys() -> Option<(String, PathItem)> {
    simple(
        "/openid/v1/jwks/".into(),
        "getServiceAccountIssuerOpenIDKeyset".into(),
        "openid".into(),
        "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
        Answer::Text,
        &["application/jwk-set+json"],
    )
}

/// The path of the issuer of service account tokens.
pub(super) fn issuer() -> Option<(String, PathItem)> {
    simple(
        "/.well-known/openid-configuration/".into(),
        "getServiceAccountIssuerOpenIDConfiguration".into(),
        "WellKnown".into(),
        "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
        Answer::Text,
        &[JSON],
    )
}

fn base(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// The path `/apis/GROUP/VERSION/`.
pub(super) fn resource_list(group: &str, version: &str) -> Option<(String, PathItem)> {
    let name = camel(group);
    let id = format!("get{}{}APIResources", pascal(&name), pascal(version));
    let tag = format!("{name}_{version}");
    simple(
        format!("{}/", base(group, version)),
        id,
        tag,
        "get available resources",
        meta("APIResourceList"),
        PLAIN,
    )
}

fn query_type(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "boolean",
        Type::Int32 | Type::Int64 => "integer",
        _ => "string",
    }
}

/// A resource, as paths need it.
pub(super) struct Described<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) resource: &'a str,
    pub(super) kind: &'a str,
    pub(super) list_kind: Text,
    pub(super) namespaced: bool,
    pub(super) verbs: &'a [&'a str],
    pub(super) subresources: Vec<Below<'a>>,
    pub(super) returns_deleted: bool,
    /// The media types of its objects.
    pub(super) plain: &'static [&'static str],
    /// The media types of its lists and watches.
    pub(super) streamed: &'static [&'static str],
    /// The media types of its patches.
    pub(super) patches: &'static [&'static str],
}

/// A subresource, as paths need it.
pub(super) struct Below<'a> {
    pub(super) name: &'a str,
    pub(super) kind: Gvk,
    pub(super) verbs: &'a [&'a str],
}

impl<'a> From<&'a ResourceInfo> for Described<'a> {
    fn from(r: &'a ResourceInfo) -> Self {
        let below = |s: &'a crate::resources::SubresourceInfo| Below {
            name: s.name,
            kind: Gvk::new(s.group, s.version, s.kind),
            verbs: &s.verbs,
        };
        Self {
            group: r.group,
            version: r.version,
            resource: r.resource,
            kind: r.kind,
            list_kind: compact_str::format_compact!("{}List", r.kind),
            namespaced: r.namespaced,
            verbs: &r.verbs,
            subresources: r.subresources.iter().map(below).collect(),
            returns_deleted: r.returns_deleted,
            plain: PLAIN,
            streamed: STREAMED,
            patches: PATCHES,
        }
    }
}

impl Described<'_> {
    fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}

struct Builder<'a> {
    schema: &'a Schema,
    custom: &'a CustomKinds,
    resource: &'a Described<'a>,
    gvk: Gvk,
    tag: String,
    /// The group and version, such as `CoreV1`.
    version: String,
    items: &'a mut BTreeMap<String, PathItem>,
}

/// The paths of a resource and its subresources.
pub(super) fn resource(
    schema: &Schema,
    custom: &CustomKinds,
    r: &Described<'_>,
    items: &mut BTreeMap<String, PathItem>,
) {
    let group = camel(r.group);
    let mut b = Builder {
        schema,
        custom,
        resource: r,
        gvk: Gvk::new(r.group, r.version, r.kind),
        tag: format!("{group}_{}", r.version),
        version: format!("{}{}", pascal(&group), pascal(r.version)),
        items,
    };
    let base = base(r.group, r.version);
    let scope = if r.namespaced { "Namespaced" } else { "" };
    let collection = if r.namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", r.resource)
    } else {
        format!("{base}/{}", r.resource)
    };
    b.collection(&collection, scope);
    b.named(&format!("{collection}/{{name}}"), scope);
    for s in &r.subresources {
        b.subresource(&format!("{collection}/{{name}}/{}", s.name), scope, s);
    }
    if r.namespaced && r.has_verb("list") {
        let id = format!("list{}{}ForAllNamespaces", b.version, r.kind);
        let list = b.list_of("get", id, "list");
        b.put(format!("{base}/{}", r.resource), list);
    }
    b.watches(&base, &collection, scope);
}

/// A kind after its article; a plural has none.
fn with_article(kind: &str) -> String {
    if kind.ends_with('s') && !kind.ends_with("ss") {
        return kind.to_owned();
    }
    let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    format!("{article} {kind}")
}

/// The description of an action on a kind.
fn described(action: &str, kind: &str) -> String {
    const INSTEAD: &str = "deprecated: use the 'watch' parameter with a list operation instead";
    match action {
        "list" if kind == "ComponentStatus" => format!("list objects of kind {kind}"),
        "list" => format!("list or watch objects of kind {kind}"),
        "watch" => format!(
            "watch changes to an object of kind {kind}. {INSTEAD}, filtered to a single item with the 'fieldSelector' parameter."
        ),
        "watchlist" => format!("watch individual changes to a list of {kind}. {INSTEAD}."),
        "get" => format!("read the specified {kind}"),
        "put" => format!("replace the specified {kind}"),
        "patch" => format!("partially update the specified {kind}"),
        "delete" => format!("delete {}", with_article(kind)),
        "deletecollection" => format!("delete collection of {kind}"),
        "post" => format!("create {}", with_article(kind)),
        other => format!("{other} {kind}"),
    }
}

/// The description of an action on a subresource of a kind.
fn described_below(action: &str, subresource: &str, kind: &str) -> String {
    match action {
        "get" => format!("read {subresource} of the specified {kind}"),
        "put" => format!("replace {subresource} of the specified {kind}"),
        "patch" => format!("partially update {subresource} of the specified {kind}"),
        _ => format!("create {subresource} of {}", with_article(kind)),
    }
}

impl Builder<'_> {
    fn definition(&self, gvk: &Gvk) -> Text {
        let built_in = self.schema.kind(gvk).map(|id| self.schema.st(id).name.clone());
        built_in.or_else(|| self.custom.name(gvk)).unwrap_or_default()
    }

    fn put(&mut self, path: String, mut operation: Operation) {
        for part in path.split('/') {
            if let Some(name) = part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
                operation.params.insert(in_path(name));
            }
        }
        self.items.entry(path).or_default().operations.push(operation);
    }

    /// An operation on objects of `gvk` with the query parameters of its verb.
    fn operation(
        &self,
        method: &'static str,
        id: String,
        action: &'static str,
        gvk: &Gvk,
        params: Vec<Param>,
    ) -> Operation {
        let mut params: BTreeSet<Param> = params.into_iter().collect();
        params.insert(Param { name: "pretty".into(), location: "query", ty: "string" });
        Operation {
            method,
            description: described(action, &gvk.kind),
            id,
            tag: self.tag.clone(),
            action: Some((action, gvk.clone())),
            params,
            body: None,
            codes: &[200],
            answer: Answer::Object(self.definition(gvk)),
            produces: self.resource.plain.to_vec(),
        }
    }

    fn list_of(&self, method: &'static str, id: String, action: &'static str) -> Operation {
        let mut o = self.operation(method, id, action, &self.gvk, query(LIST));
        o.answer = if action == "list" {
            let list = Gvk { kind: self.resource.list_kind.clone(), ..self.gvk.clone() };
            Answer::Object(self.definition(&list))
        } else {
            meta("WatchEvent")
        };
        o.produces = self.resource.streamed.to_vec();
        o
    }

    fn collection(&mut self, path: &str, scope: &str) {
        let (r, v) = (self.resource, self.version.clone());
        if r.has_verb("list") {
            let o = self.list_of("get", format!("list{v}{scope}{}", r.kind), "list");
            self.put(path.into(), o);
        }
        if r.has_verb("create") {
            let gvk = self.gvk.clone();
            let o = self.create(format!("create{v}{scope}{}", r.kind), &gvk);
            self.put(path.into(), o);
        }
        if r.has_verb("deletecollection") {
            let mut params = query(LIST);
            params.retain(|p| p.name != "allowWatchBookmarks" && p.name != "watch");
            params.extend(query(DELETE));
            let id = format!("delete{v}Collection{scope}{}", r.kind);
            let mut o = self.operation("delete", id, "deletecollection", &self.gvk, params);
            o.answer = meta("Status");
            o.body = Some((compact_str::format_compact!("{META}DeleteOptions"), false, ANYTHING));
            self.put(path.into(), o);
        }
    }

    fn create(&self, id: String, gvk: &Gvk) -> Operation {
        let mut o = self.operation("post", id, "post", gvk, query(WRITE));
        o.body = Some((self.definition(gvk), true, ANYTHING));
        o.codes = &[200, 201, 202];
        o
    }

    fn replace(&self, id: String, gvk: &Gvk) -> Operation {
        let mut o = self.operation("put", id, "put", gvk, query(WRITE));
        o.body = Some((self.definition(gvk), true, ANYTHING));
        o.codes = &[200, 201];
        o
    }

    fn patch(&self, id: String, gvk: &Gvk) -> Operation {
        let mut params = query(WRITE);
        params.extend(query(&[("force", "boolean")]));
        let mut o = self.operation("patch", id, "patch", gvk, params);
        o.body = Some((compact_str::format_compact!("{META}Patch"), true, self.resource.patches));
        o.codes = &[200, 201];
        o
    }

    fn named(&mut self, path: &str, scope: &str) {
        let (r, v, gvk) = (self.resource, self.version.clone(), self.gvk.clone());
        let id = |verb: &str| format!("{verb}{v}{scope}{}", r.kind);
        if r.has_verb("get") {
            let o = self.operation("get", id("read"), "get", &gvk, Vec::new());
            self.put(path.into(), o);
        }
        if r.has_verb("update") {
            let o = self.replace(id("replace"), &gvk);
            self.put(path.into(), o);
        }
        if r.has_verb("patch") {
            let o = self.patch(id("patch"), &gvk);
            self.put(path.into(), o);
        }
        if r.has_verb("delete") {
            let mut o = self.operation("delete", id("delete"), "delete", &gvk, query(DELETE));
            o.body = Some((compact_str::format_compact!("{META}DeleteOptions"), false, ANYTHING));
            o.codes = &[200, 202];
            if !r.returns_deleted {
                o.answer = meta("Status");
            }
            self.put(path.into(), o);
        }
    }

    fn subresource(&mut self, path: &str, scope: &str, s: &Below<'_>) {
        let (r, v) = (self.resource, self.version.clone());
        let gvk = s.kind.clone();
        let suffix = format!("{scope}{}{}", r.kind, pascal(s.name));
        if gvk.kind.ends_with("Options") {
            for with_path in [false, true] {
                if with_path && s.name != "proxy" {
                    continue;
                }
                let methods: &[&'static str] = if s.name == "proxy" {
                    &["get", "put", "post", "delete", "options", "head", "patch"]
                } else {
                    &["get", "post"]
                };
                for method in methods {
                    let tail = if with_path { "WithPath" } else { "" };
                    let id = format!("connect{v}{}{suffix}{tail}", pascal(method));
                    let mut o = self.operation(method, id, "connect", &gvk, self.options(&gvk));
                    o.params.retain(|p| p.name != "pretty");
                    o.description =
                        format!("connect {} requests to {} of {}", method.to_uppercase(), s.name, r.kind);
                    o.answer = Answer::Text;
                    o.produces = ANYTHING.to_vec();
                    let path = if with_path { format!("{path}/{{path}}") } else { path.to_owned() };
                    self.put(path, o);
                }
            }
            return;
        }
        for verb in s.verbs {
            let mut o = match *verb {
                "get" if s.name == "log" => {
                    let options = Gvk::new("", "v1", "PodLogOptions");
                    let mut o = self.operation(
                        "get",
                        format!("read{v}{suffix}"),
                        "get",
                        &gvk,
                        self.options(&options),
                    );
                    o.answer = Answer::Text;
                    o.produces.push("text/plain");
                    o
                }
                "get" => self.operation("get", format!("read{v}{suffix}"), "get", &gvk, Vec::new()),
                "create" => self.create(format!("create{v}{suffix}"), &gvk),
                "update" => self.replace(format!("replace{v}{suffix}"), &gvk),
                "patch" => self.patch(format!("patch{v}{suffix}"), &gvk),
                _ => continue,
            };
            let action = o.action.as_ref().map_or("", |(action, _)| action);
            o.description = described_below(action, s.name, r.kind);
            self.put(path.to_owned(), o);
        }
    }

    /// The fields of an options kind, which are query parameters.
    fn options(&self, gvk: &Gvk) -> Vec<Param> {
        let Some(id) = self.schema.kind(gvk) else { return Vec::new() };
        let fields = &self.schema.st(id).fields;
        fields
            .iter()
            .filter(|f| f.json != "kind" && f.json != "apiVersion" && *self.schema.ty(f.ty) != Type::Time)
            .map(|f| Param {
                name: f.json.clone(),
                location: "query",
                ty: match self.schema.ty(f.ty) {
                    Type::List { of, .. } => query_type(self.schema.ty(*of)),
                    ty => query_type(ty),
                },
            })
            .collect()
    }

    fn watches(&mut self, base: &str, collection: &str, scope: &str) {
        let (r, v) = (self.resource, self.version.clone());
        if !r.has_verb("watch") {
            return;
        }
        let below = format!("{base}/watch{}", &collection[base.len()..]);
        let o = self.list_of("get", format!("watch{v}{scope}{}List", r.kind), "watchlist");
        self.put(below.clone(), o);
        let o = self.list_of("get", format!("watch{v}{scope}{}", r.kind), "watch");
        self.put(format!("{below}/{{name}}"), o);
        if r.namespaced {
            let o = self.list_of("get", format!("watch{v}{}ListForAllNamespaces", r.kind), "watchlist");
            self.put(format!("{base}/watch/{}", r.resource), o);
        }
    }
}
