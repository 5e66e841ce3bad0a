//! Makes the description of the API from Go declarations: its packages, its kinds, and their fields.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::go::{self, Decl, Def, Expr, Package};

/// A package of API types.
#[derive(Debug)]
pub(super) struct Api {
    /// Short unique name, `core_v1`.
    pub alias: String,
    /// Prefix of its OpenAPI definition names, `io.k8s.api.core.v1`.
    pub prefix: String,
    /// Group and version, if it registers kinds.
    pub gv: Option<(String, String)>,
    /// Structs in order of name.
    pub structs: BTreeMap<String, Struct>,
}

/// A struct.
#[derive(Debug)]
pub(super) struct Struct {
    /// Whether it embeds `TypeMeta`.
    pub kind: bool,
    /// Whether it is one value to server-side apply.
    pub atomic: bool,
    /// Whether it is marked `+union`.
    pub union: bool,
    /// Fields, embedded ones flattened.
    pub fields: Vec<Field>,
}

/// A field; see `api::schema::Field`.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub json: String,
    pub go: String,
    pub proto: u32,
    pub proto_in: Vec<u32>,
    pub ty: String,
    pub pointer: bool,
    pub omitempty: bool,
    pub required: bool,
    pub default: Option<String>,
    pub values: Vec<String>,
    pub patch: String,
    pub merge_key: String,
    pub gate: Option<String>,
    pub mark: Option<&'static str>,
    pub discriminator: bool,
    pub union_member: bool,
    /// Go's name of the field's type, where that names more than the type's form.
    pub go_type: Option<String>,
    /// Names of the embedded structs in which the field stands, outermost first.
    pub via: Vec<String>,
}

/// The whole description.
#[derive(Debug)]
pub(super) struct Model {
    /// Packages by alias.
    pub apis: BTreeMap<String, Api>,
    /// Kinds registered outside their own package's group: group, version, kind, struct.
    pub extra: Vec<(String, String, String, String)>,
    /// Every registered group and version.
    pub versions: BTreeSet<(String, String)>,
}

/// Types whose form in JSON is their own: import path, name, and the type of the description.
const OWN_FORM: &[(&str, &str, &str)] = &[
    ("k8s.io/apimachinery/pkg/api/resource", "Quantity", "quantity"),
    ("k8s.io/apimachinery/pkg/util/intstr", "IntOrString", "intstr"),
    ("k8s.io/apimachinery/pkg/runtime", "RawExtension", "raw"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1", "Time", "time"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1", "MicroTime", "microtime"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1", "Duration", "duration"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1", "FieldsV1", "fieldsv1"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSON", "json"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSONSchemaPropsOrBool", "|bool"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSONSchemaPropsOrArray", "|list"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSONSchemaPropsOrStringArray", "|strings"),
];

const META: &str = "k8s.io/apimachinery/pkg/apis/meta/v1";
const VERSION: &str = "k8s.io/apimachinery/pkg/version";

/// Kinds of the meta package that the core group registers too.
const META_IN_CORE: &[&str] = &[
    "Status",
    "APIVersions",
    "APIGroupList",
    "APIGroup",
    "APIResourceList",
    "ListOptions",
    "GetOptions",
    "DeleteOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
    "WatchEvent",
];

/// Groups that are used although no resource belongs to them.
const WITHOUT_RESOURCES: &[&str] = &["admission.k8s.io", "apidiscovery.k8s.io"];

struct Reader {
    roots: Vec<PathBuf>,
    packages: BTreeMap<String, Package>,
}

impl Reader {
    fn dir(&self, path: &str) -> Option<PathBuf> {
        self.roots
            .iter()
            .flat_map(|r| [r.join(path), r.join(path.strip_prefix("k8s.io/").unwrap_or(path))])
            .find(|d| d.is_dir())
    }
    fn load(&mut self, path: &str) -> Result<()> {
        if !self.packages.contains_key(path) {
            let dir = self.dir(path).with_context(|| format!("package {path} is under none of the roots"))?;
            self.packages.insert(path.to_owned(), go::read(&dir)?);
        }
        Ok(())
    }
    /// A struct's package and declaration, through alias types.
    fn struct_decl(&mut self, path: &str, name: &str) -> Result<(String, Decl)> {
        self.load(path)?;
        let decl = self.decl(path, name).with_context(|| format!("no type {path}.{name}"))?.clone();
        match &decl.def {
            Def::Struct(_) => Ok((path.to_owned(), decl)),
            Def::Expr(Expr::Name(q, of)) => {
                let at = resolve(&decl, path, q.as_deref())?;
                self.struct_decl(&at, of)
            }
            Def::Expr(_) => bail!("{path}.{name} is no struct"),
        }
    }
    fn decl(&self, path: &str, name: &str) -> Option<&Decl> {
        self.packages.get(path)?.types.get(name)
    }
}

/// The import path and the name of a type expression's name, seen from `path`.
fn resolve(decl: &Decl, path: &str, qualifier: Option<&str>) -> Result<String> {
    match qualifier {
        None => Ok(path.to_owned()),
        Some(q) => decl.imports.get(q).cloned().with_context(|| format!("unknown import {q} in {path}")),
    }
}

/// Reads the packages of `wanted` group versions below `roots`.
pub(super) fn read(roots: &[PathBuf], wanted: &BTreeSet<(String, String)>) -> Result<Model> {
    let mut reader = Reader { roots: roots.to_vec(), packages: BTreeMap::new() };
    let mut versions = BTreeSet::new();
    let mut model = Model { apis: BTreeMap::new(), extra: Vec::new(), versions: BTreeSet::new() };
    let mut gvs: BTreeMap<String, (String, String)> = BTreeMap::new();
    for path in candidates(roots)? {
        let version = path.rsplit('/').next().unwrap_or_default().to_owned();
        if !version.starts_with('v') || !version[1..].starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let dir = reader.dir(&path).context("a directory that was just listed")?;
        let Some(group) = group_name(&dir)? else { continue };
        // Discovery has kinds, but no API group of its own.
        if group != "meta.k8s.io" && group != "apidiscovery.k8s.io" {
            versions.insert((group.clone(), version.clone()));
        }
        let gv = (group, version);
        if path == META || WITHOUT_RESOURCES.contains(&gv.0.as_str()) || wanted.contains(&gv) {
            gvs.insert(path, gv);
        }
    }
    if let Some(missing) = wanted.iter().find(|w| !gvs.values().any(|g| g == *w)) {
        bail!("no package for {}/{}", missing.0, missing.1);
    }
    let mut queue: Vec<(String, String)> = Vec::new();
    for path in gvs.keys() {
        reader.load(path)?;
        for (name, decl) in &reader.packages[path].types {
            if is_kind(&reader, path, decl) || (path == META && (name == "WatchEvent" || name == "Patch")) {
                queue.push((path.clone(), name.clone()));
            }
        }
    }
    reader.load(VERSION)?;
    queue.push((VERSION.to_owned(), "Info".to_owned()));
    let mut done = BTreeSet::new();
    while let Some((path, name)) = queue.pop() {
        if !done.insert((path.clone(), name.clone())) {
            continue;
        }
        let made = make_struct(&mut reader, &path, &name, &mut queue)
            .with_context(|| format!("in {path}.{name}"))?;
        let alias = alias(&path);
        let api = model.apis.entry(alias.clone()).or_insert_with(|| Api {
            alias,
            prefix: path.replacen("k8s.io", "io.k8s", 1).replace('/', "."),
            gv: gvs.get(&path).cloned(),
            structs: BTreeMap::new(),
        });
        api.structs.insert(name, made);
    }
    for kind in META_IN_CORE {
        model.extra.push((String::new(), "v1".into(), (*kind).into(), format!("meta_v1.{kind}")));
    }
    model.versions = versions;
    Ok(model)
}

/// Import paths of packages that may register a group version.
fn candidates(roots: &[PathBuf]) -> Result<BTreeSet<String>> {
    let mut out = BTreeSet::new();
    for root in roots {
        for (at, prefix) in [
            ("api", "k8s.io/api"),
            ("apimachinery/pkg/apis/meta", "k8s.io/apimachinery/pkg/apis/meta"),
            ("apiextensions-apiserver/pkg/apis", "k8s.io/apiextensions-apiserver/pkg/apis"),
            ("kube-aggregator/pkg/apis", "k8s.io/kube-aggregator/pkg/apis"),
            ("metrics/pkg/apis", "k8s.io/metrics/pkg/apis"),
        ] {
            for base in [root.join(at), root.join("k8s.io").join(at)] {
                for dir in std::iter::once(base.clone()).chain(subdirs(&base)?) {
                    for version in subdirs(&dir)? {
                        if let Ok(rest) = version.strip_prefix(&base) {
                            out.insert(format!("{prefix}/{}", rest.display()));
                        }
                    }
                }
            }
        }
    }
    Ok(out)
}

fn subdirs(dir: &Path) -> Result<Vec<PathBuf>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            out.push(path);
        }
    }
    Ok(out)
}

/// The group in which the package in `dir` registers its kinds.
fn group_name(dir: &Path) -> Result<Option<String>> {
    let register = dir.join("register.go");
    if !register.is_file() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&register)?;
    let name = text.lines().find_map(|l| {
        let (left, right) = l.split_once('=')?;
        left.contains("GroupName").then(|| right.trim().to_owned())
    });
    let Some(name) = name else { return Ok(None) };
    if let Some(quoted) = name.strip_prefix('"').and_then(|n| n.strip_suffix('"')) {
        return Ok(Some(quoted.to_owned()));
    }
    // The name stands in the package above this one.
    match dir.parent() {
        Some(parent) if parent.join("register.go").is_file() => group_name(parent),
        _ => Ok(None),
    }
}

/// The alias of a path: `core_v1` for `k8s.io/api/core/v1`.
fn alias(path: &str) -> String {
    let mut parts = path.rsplit('/');
    let last = parts.next().unwrap_or_default();
    let before = parts.next().unwrap_or_default();
    if last.starts_with('v') && last[1..].starts_with(|c: char| c.is_ascii_digit()) {
        format!("{before}_{last}")
    } else {
        last.to_owned()
    }
}

fn is_kind(reader: &Reader, path: &str, decl: &Decl) -> bool {
    match &decl.def {
        Def::Struct(fields) => fields.iter().any(|f| f.embedded && f.name == "TypeMeta"),
        Def::Expr(Expr::Name(Some(q), name)) => decl.imports.get(q).is_some_and(|p| {
            p != path
                && reader
                    .decl(p, name)
                    .is_some_and(|d| matches!(d.def, Def::Struct(_)) && is_kind(reader, p, d))
        }),
        Def::Expr(_) => false,
    }
}

fn marker<'a>(markers: &'a [String], key: &str) -> Option<&'a str> {
    markers.iter().find_map(|m| {
        let rest = m.strip_prefix(key)?;
        if rest.is_empty() { Some("") } else { rest.strip_prefix('=') }
    })
}

fn has(markers: &[String], key: &str) -> bool {
    marker(markers, key).is_some()
}

fn make_struct(
    reader: &mut Reader,
    path: &str,
    name: &str,
    queue: &mut Vec<(String, String)>,
) -> Result<Struct> {
    reader.load(path)?;
    let own = reader.decl(path, name).context("no such type")?.markers.clone();
    let (path, decl) = reader.struct_decl(path, name)?;
    let Def::Struct(fields) = &decl.def else { bail!("not a struct") };
    let mut out = Struct {
        kind: false,
        atomic: marker(&own, "structType") == Some("atomic") || marker(&own, "mapType") == Some("atomic"),
        union: has(&own, "union"),
        fields: Vec::new(),
    };
    flatten(reader, &path, &decl, fields, (&[], &[]), &mut out, queue)?;
    Ok(out)
}

fn flatten(
    reader: &mut Reader,
    path: &str,
    decl: &Decl,
    fields: &[go::Field],
    (proto_in, via): (&[u32], &[String]),
    out: &mut Struct,
    queue: &mut Vec<(String, String)>,
) -> Result<()> {
    for f in fields {
        let tag = f.tags.get("json").map_or("", String::as_str);
        let mut parts = tag.split(',');
        let json = parts.next().unwrap_or_default();
        let options: Vec<&str> = parts.collect();
        if json == "-" || !f.name.starts_with(|c: char| c.is_ascii_uppercase()) {
            continue;
        }
        let number = f
            .tags
            .get("protobuf")
            .and_then(|t| t.split(',').nth(1))
            .and_then(|n| n.parse::<u32>().ok())
            .unwrap_or(0);
        if f.embedded && json.is_empty() {
            let Expr::Name(q, name) = &f.ty else { bail!("embedded {:?}", f.ty) };
            let at = resolve(decl, path, q.as_deref())?;
            reader.load(&at)?;
            let (at, inner) = reader.struct_decl(&at, name)?;
            let Def::Struct(inner_fields) = &inner.def else { bail!("embedded {name} is no struct") };
            if name == "TypeMeta" {
                out.kind = true;
                let mut of = inner_fields.clone();
                for f in &mut of {
                    f.tags.remove("protobuf");
                }
                flatten(reader, &at, &inner, &of, (proto_in, via), out, queue)?;
            } else {
                let mut inside = proto_in.to_vec();
                if number != 0 {
                    inside.push(number);
                }
                let names = [via, std::slice::from_ref(name)].concat();
                flatten(reader, &at, &inner, inner_fields, (&inside, &names), out, queue)?;
            }
            continue;
        }
        let made = make_field(reader, path, decl, f, json, &options, queue)
            .with_context(|| format!("field {}", f.name))?;
        out.fields.push(Field { proto: number, proto_in: proto_in.to_vec(), via: via.to_vec(), ..made });
    }
    Ok(())
}

fn make_field(
    reader: &mut Reader,
    path: &str,
    decl: &Decl,
    f: &go::Field,
    json: &str,
    options: &[&str],
    queue: &mut Vec<(String, String)>,
) -> Result<Field> {
    let (pointer, ty) = match &f.ty {
        Expr::Pointer(of) => (true, &**of),
        other => (false, other),
    };
    let mut values = Vec::new();
    let mut form = type_text(reader, path, decl, ty, &mut values, queue)?;
    let mut mark = None;
    let list = marker(&f.markers, "listType");
    if let Some(rest) = form.strip_prefix("[]") {
        match list {
            Some("set") => form = format!("[set]{rest}"),
            Some("map") => {
                let keys: Vec<&str> =
                    f.markers.iter().filter_map(|m| m.strip_prefix("listMapKey=")).collect();
                form = format!("[map:{}]{rest}", keys.join(","));
            }
            Some("atomic") => mark = Some("atomic"),
            _ => {}
        }
    } else if form == "bytes" {
        mark = list.filter(|l| *l == "atomic").map(|_| "atomic");
    } else {
        let text = marker(&f.markers, "mapType").or(marker(&f.markers, "structType"));
        mark = match text {
            Some("atomic") => Some("atomic"),
            Some("granular") => Some("granular"),
            _ => None,
        };
        if let (Some("atomic"), Some(rest)) = (mark, form.strip_prefix("{}")) {
            form = format!("{{atomic}}{rest}");
        }
    }
    let struct_like = !matches!(form.as_str(), "bool" | "i32" | "i64" | "f64" | "str" | "bytes" | "value")
        && !form.starts_with(['[', '{', 'w']);
    let omitzero = options.contains(&"omitzero");
    let omit = options.contains(&"omitempty");
    let optional = has(&f.markers, "optional") || omit || omitzero;
    let default = match marker(&f.markers, "default") {
        Some(d) => match d.strip_prefix("ref(").and_then(|d| d.strip_suffix(')')) {
            Some(name) => {
                let value = reader.packages[path].named.get(name);
                Some(format!("\"{}\"", value.with_context(|| format!("no constant {name}"))?))
            }
            None => Some(d.to_owned()),
        },
        None => None,
    };
    values.sort();
    Ok(Field {
        json: if json.is_empty() { f.name.clone() } else { json.to_owned() },
        go: f.name.clone(),
        proto: 0,
        proto_in: Vec::new(),
        pointer,
        omitempty: if struct_like && !pointer { omitzero } else { omit || omitzero },
        required: has(&f.markers, "required") || !optional,
        default,
        values,
        patch: f.tags.get("patchStrategy").cloned().unwrap_or_default(),
        merge_key: f.tags.get("patchMergeKey").cloned().unwrap_or_default(),
        gate: marker(&f.markers, "featureGate").map(str::to_owned),
        mark,
        discriminator: has(&f.markers, "unionDiscriminator"),
        union_member: has(&f.markers, "optional"),
        go_type: {
            let mut named = false;
            let text = go_text(reader, path, decl, ty, &mut named)?;
            named.then_some(text)
        },
        via: Vec::new(),
        ty: form,
    })
}

/// The text of a type in the description; a named string type's constants go to `values`.
fn type_text(
    reader: &mut Reader,
    path: &str,
    decl: &Decl,
    ty: &Expr,
    values: &mut Vec<String>,
    queue: &mut Vec<(String, String)>,
) -> Result<String> {
    match ty {
        Expr::Interface => Ok("value".into()),
        Expr::Pointer(of) => type_text(reader, path, decl, of, values, queue),
        Expr::List(of) if **of == Expr::Name(None, "byte".into()) => Ok("bytes".into()),
        Expr::List(of) => Ok(format!("[]{}", type_text(reader, path, decl, of, values, queue)?)),
        Expr::Map(_, of) => Ok(format!("{{}}{}", type_text(reader, path, decl, of, values, queue)?)),
        Expr::Name(None, name) if basic(name).is_some() => Ok(basic(name).unwrap_or_default().into()),
        Expr::Name(q, name) => {
            let at = resolve(decl, path, q.as_deref())?;
            if let Some(own) = OWN_FORM.iter().find(|o| o.0 == at && o.1 == name) {
                if own.2.starts_with('|') {
                    queue.push((at.clone(), "JSONSchemaProps".into()));
                    return Ok(format!("{}.JSONSchemaProps{}", alias(&at), own.2));
                }
                return Ok(own.2.into());
            }
            reader.load(&at)?;
            let of = reader.decl(&at, name).with_context(|| format!("no type {at}.{name}"))?.clone();
            match &of.def {
                Def::Struct(_) => {
                    queue.push((at.clone(), name.clone()));
                    Ok(format!("{}.{name}", alias(&at)))
                }
                Def::Expr(Expr::Name(..)) if !of.alias && reader.struct_decl(&at, name).is_ok() => {
                    queue.push((at.clone(), name.clone()));
                    Ok(format!("{}.{name}", alias(&at)))
                }
                Def::Expr(e) => {
                    if has(&of.markers, "enum") || has(&of.markers, "k8s:enum") {
                        *values = reader.packages[&at].constants.get(name).cloned().unwrap_or_default();
                        let borrowed = reader.packages[&at].borrowed.get(name).cloned().unwrap_or_default();
                        for (path, name) in borrowed {
                            reader.load(&path)?;
                            values.extend(reader.packages[&path].named.get(&name).cloned());
                        }
                    }
                    let text = type_text(reader, &at, &of, e, &mut Vec::new(), queue)?;
                    let wrapped = marker(&of.markers, "protobuf.nullable") == Some("true");
                    Ok(if wrapped { format!("w{text}") } else { text })
                }
            }
        }
    }
}

/// The type as Go prints it; `named` is set if a name stands in it for something other than a struct.
fn go_text(reader: &Reader, path: &str, decl: &Decl, ty: &Expr, named: &mut bool) -> Result<String> {
    Ok(match ty {
        Expr::Interface => "interface {}".into(),
        Expr::Pointer(of) => format!("*{}", go_text(reader, path, decl, of, named)?),
        Expr::List(of) => format!("[]{}", go_text(reader, path, decl, of, named)?),
        Expr::Map(key, of) => {
            let key = go_text(reader, path, decl, key, named)?;
            format!("map[{key}]{}", go_text(reader, path, decl, of, named)?)
        }
        Expr::Name(None, name) if name == "byte" => "uint8".into(),
        Expr::Name(None, name) if basic(name).is_some() => name.clone(),
        Expr::Name(q, name) => {
            let at = resolve(decl, path, q.as_deref())?;
            match reader.decl(&at, name) {
                Some(Decl { def: Def::Expr(of), alias: true, imports, .. }) => {
                    let inner = Decl {
                        def: Def::Struct(Vec::new()),
                        alias: true,
                        markers: Vec::new(),
                        imports: imports.clone(),
                    };
                    return go_text(reader, &at, &inner, of, named);
                }
                Some(Decl { def: Def::Expr(_), .. }) => *named = true,
                _ => {}
            }
            format!("{}.{name}", at.rsplit('/').next().unwrap_or_default())
        }
    })
}

fn basic(name: &str) -> Option<&'static str> {
    Some(match name {
        "bool" => "bool",
        "int32" => "i32",
        "int64" | "int" => "i64",
        "float64" => "f64",
        "string" => "str",
        _ => return None,
    })
}
