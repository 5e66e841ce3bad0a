//! Content negotiation: which form an answer takes and in which form a body came.

use access::Query;
use api::Status;
use api::accept::{Clause, clauses};

/// A media type of bodies and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

impl Format {
    /// The media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
    /// The media type of a watch in this format; YAML has none.
    pub(crate) fn watch_type(self) -> Option<&'static str> {
        match self {
            Self::Json => Some("application/json"),
            Self::Yaml => None,
            Self::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
        }
    }
}

/// The kind that the objects of an answer are turned into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Convert {
    /// Themselves.
    None,
    /// `meta.k8s.io/v1` or `v1beta1` `Table`.
    Table(MetaVersion),
    /// `PartialObjectMetadata`.
    Partial(MetaVersion),
    /// `PartialObjectMetadataList`.
    PartialList(MetaVersion),
}

/// A version of `meta.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MetaVersion {
    /// `meta.k8s.io/v1`
    V1,
    /// `meta.k8s.io/v1beta1`
    V1beta1,
}

impl MetaVersion {
    /// As `apiVersion` says it.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// Which objects a Table's rows carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum IncludeObject {
    /// Their metadata.
    #[default]
    Metadata,
    /// All of them.
    Object,
    /// Nothing.
    None,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    /// Media type.
    pub format: Format,
    /// Conversion.
    pub convert: Convert,
    /// Rows of a Table.
    pub include: IncludeObject,
    /// Indented JSON.
    pub pretty: bool,
}

impl Form {
    /// Plain JSON.
    pub(crate) const JSON: Self = Self {
        format: Format::Json,
        convert: Convert::None,
        include: IncludeObject::Metadata,
        pretty: false,
    };
}

const ALL: [Format; 3] = [Format::Json, Format::Yaml, Format::Protobuf];

/// The kinds that a handler's objects can be turned into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Nothing else (errors, discovery).
    Plain,
    /// Partial metadata.
    Partial,
    /// Tables and partial metadata.
    Meta,
}

fn not_acceptable(accepted: &[&str]) -> Status {
    Status::failure(
        406,
        "NotAcceptable",
        format!("only the following media types are accepted: {}", accepted.join(", ")),
    )
}

/// The media types that a watch answers with.
pub(crate) const STREAM_TYPES: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

fn accept(clause: &Clause<'_>, format: Format, allowed: Allowed, stream: bool) -> Option<(Convert, bool)> {
    let (mut kind, mut group, mut version) = (None, "", "");
    let mut pretty = false;
    for (k, v) in &clause.params {
        match *k {
            "as" => kind = Some(*v),
            "g" => group = v,
            "v" => version = v,
            "stream" if !v.is_empty() && (*v != "watch" || !stream && allowed == Allowed::Plain) => {
                return None;
            }
            "sv" if !v.is_empty() => return None,
            "pretty" => pretty = *v == "1",
            _ => {}
        }
    }
    if kind.is_none() && group.is_empty() && version.is_empty() {
        return Some((Convert::None, pretty));
    }
    if allowed == Allowed::Plain || group != "meta.k8s.io" {
        return None;
    }
    let version = match version {
        "v1" => MetaVersion::V1,
        "v1beta1" => MetaVersion::V1beta1,
        _ => return None,
    };
    let convert = match kind? {
        "Table" if format != Format::Protobuf && allowed == Allowed::Meta => Convert::Table(version),
        "PartialObjectMetadata" => Convert::Partial(version),
        "PartialObjectMetadataList" => Convert::PartialList(version),
        _ => return None,
    };
    Some((convert, pretty))
}

/// The objects of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Objects {
    /// Objects of built-in kinds.
    BuiltIn,
    /// Objects of definitions, which have no protobuf form.
    ///
    /// DIFFERENCE: upstream refuses whoever prefers protobuf, even if it takes JSON too.
    Custom,
}

/// The form in which to answer; a 406 with upstream's text if there is none.
pub(crate) fn output(
    accept_header: &str,
    query: &Query,
    user_agent: &str,
    allowed: Allowed,
    stream: bool,
    objects: Objects,
) -> Result<Form, Status> {
    let mut form = Form::JSON;
    let mut found = accept_header.is_empty();
    'all: for clause in clauses(accept_header) {
        for format in ALL {
            if !clause.takes(format.media_type()) {
                continue;
            }
            if let Some((convert, pretty)) = accept(&clause, format, allowed, stream) {
                if convert == Convert::None && format == Format::Protobuf && objects == Objects::Custom {
                    continue;
                }
                form = Form { format, convert, pretty, ..Form::JSON };
                found = true;
                break 'all;
            }
        }
    }
    if !found || stream && form.format.watch_type().is_none() {
        if stream {
            return Err(not_acceptable(&STREAM_TYPES));
        }
        return Err(not_acceptable(&ALL.map(Format::media_type)));
    }
    form.pretty |= api::accept::is_for_people(query.get("pretty"), user_agent);
    if let Convert::Table(_) = form.convert {
        form.include = match query.str("includeObject") {
            "" | "Metadata" => IncludeObject::Metadata,
            "Object" => IncludeObject::Object,
            "None" => IncludeObject::None,
            other => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
                )));
            }
        };
    }
    Ok(form)
}

/// The format of a body by its Content-Type; a 415 with upstream's text if it is not known.
pub(crate) fn input(content_type: &str) -> Result<Format, Status> {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "" => Ok(Format::Json),
        "application/json" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
        _ => Err(unsupported(&ALL.map(Format::media_type))),
    }
}

/// The 415 of a route that does not take a media type at all.
pub(crate) fn not_consumed() -> Status {
    let mut status = Status::failure(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    status.details = Some(Box::default());
    status
}

/// A 415 that names what is taken.
pub(crate) fn unsupported(accepted: &[&str]) -> Status {
    Status::failure(
        415,
        "UnsupportedMediaType",
        format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_headers() {
        let check = |accept: &str, expected: Option<(Format, Convert)>| {
            let got = output(accept, &Query::default(), "", Allowed::Meta, false, Objects::BuiltIn)
                .ok()
                .map(|f| (f.format, f.convert));
            assert_eq!(got, expected, "{accept}");
        };
        check("", Some((Format::Json, Convert::None)));
        check("*/*", Some((Format::Json, Convert::None)));
        check("application/yaml", Some((Format::Yaml, Convert::None)));
        check(
            "application/vnd.kubernetes.protobuf,application/json",
            Some((Format::Protobuf, Convert::None)),
        );
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Some((Format::Json, Convert::Table(MetaVersion::V1))),
        );
        check(
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some((Format::Json, Convert::None)),
        );
        check(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            Some((Format::Protobuf, Convert::PartialList(MetaVersion::V1))),
        );
        check("text/html", None);
        check("application/json;as=Nothing;v=v1;g=meta.k8s.io", None);
    }

    #[test]
    fn content_types() {
        assert_eq!(input("application/json; charset=utf-8"), Ok(Format::Json));
        assert_eq!(
            input("text/plain").unwrap_err().message,
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
        );
    }
}
