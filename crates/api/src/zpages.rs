//! The pages that tell of a component, upstream's z-pages: `/statusz`, for how long it runs, and `/flagz`, its flags. They
//! are text for people; a client that names `Statusz` or `Flagz` of `config.k8s.io` in its Accept header gets the object.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;
use serde::Serialize;

use crate::accept::{clauses, is_for_people};
use crate::codec::json::decode_any;
use crate::{Node, Status, yaml};

const TEXT: &str = "text/plain";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
/// The forms, in the order in which a client that takes several gets them.
const FORMS: [&str; 3] = [JSON, YAML, TEXT];

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.";

/// Paths below which clients work, and nobody looks for the cause of something.
const NOT_FOR_DEBUGGING: [&str; 5] = ["/apis", "/api", "/openid", "/openapi", "/.well-known"];

/// The way in which a client asks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'a> {
    /// The Accept header, "" if there is none.
    pub accept: &'a str,
    /// The User-Agent header, "" if there is none.
    pub user_agent: &'a str,
    /// The parameter `pretty` of the query, if it is there.
    pub pretty: Option<&'a str>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The code of HTTP.
    pub code: u16,
    /// The Content-Type header.
    pub content_type: &'static str,
    /// The Warning header.
    pub warning: Option<String>,
    /// The body.
    pub body: String,
}

/// The facts of `/statusz`.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    /// The component's name.
    pub component: &'a str,
    /// The component's version.
    pub version: &'a str,
    /// The version of the API, `1.36`.
    pub api_version: &'a str,
    /// The start of its process.
    pub started: Timestamp,
    /// The time.
    pub now: Timestamp,
    /// All paths that it serves.
    pub paths: &'a [&'a str],
}

impl Running<'_> {
    fn seconds(&self) -> i64 {
        self.now.duration_since(self.started).as_secs().max(0)
    }
    /// The first parts of the paths, in their order.
    fn folders(&self) -> Vec<String> {
        let first = |path: &&str| {
            let folder = path.split('/').nth(1).filter(|folder| !folder.is_empty())?;
            Some(format!("/{folder}")).filter(|folder| !NOT_FOR_DEBUGGING.contains(&folder.as_str()))
        };
        let mut all: Vec<String> = self.paths.iter().filter_map(first).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
    fn text(&self) -> String {
        let (up, paths) = (self.seconds(), self.folders().join(" "));
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        let started = self.started.strftime("%a %b %e %H:%M:%S UTC %Y");
        let Self { component, version, api_version, .. } = self;
        // DIFFERENCE: there is no line with the version of Go.
        let paths = if paths.is_empty() { paths } else { format!("Paths: {paths}") };
        format!(
            "\n{component} statusz\n{WARNING}\n\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nBinary version: {version}\nEmulation version: {api_version}\n{paths}\n"
        )
    }
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

/// `Statusz` with its fields in the order of Go's type.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Statusz<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Metadata<'a>,
    start_time: String,
    uptime_seconds: i64,
    /// Empty: the component is not written in Go.
    go_version: &'a str,
    binary_version: &'a str,
    emulation_version: &'a str,
    paths: Vec<String>,
}

/// `Flagz` with its fields in the order of Go's type.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Flagz<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    flags: &'a BTreeMap<String, String>,
}

/// Answers `/statusz`.
pub fn statusz(asked: Asked<'_>, running: &Running<'_>) -> Answer {
    let object = |form: &Form| {
        form.write(&Statusz {
            kind: "Statusz",
            api_version: form.version.api_version(),
            metadata: Metadata { name: running.component },
            start_time: running.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            uptime_seconds: running.seconds(),
            go_version: "",
            binary_version: running.version,
            emulation_version: running.api_version,
            paths: running.folders(),
        })
    };
    answer(asked, "Statusz", "statusz", || running.text(), object)
}

/// Answers `/flagz` with the flags of a component and their values.
pub fn flagz(asked: Asked<'_>, component: &str, flags: &BTreeMap<String, String>) -> Answer {
    let object = |form: &Form| {
        form.write(&Flagz {
            kind: "Flagz",
            api_version: form.version.api_version(),
            metadata: Metadata { name: component },
            flags,
        })
    };
    let text = || {
        let mut page = format!("\n{component} flagz\n{WARNING}\n");
        for (name, value) in flags {
            let _ = writeln!(page, "{name}={value}");
        }
        page
    };
    answer(asked, "Flagz", "flagz", text, object)
}

/// A version of `config.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1alpha1,
    V1beta1,
}

impl Version {
    fn api_version(self) -> &'static str {
        match self {
            Self::V1alpha1 => "config.k8s.io/v1alpha1",
            Self::V1beta1 => "config.k8s.io/v1beta1",
        }
    }
}

/// The form of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    media_type: &'static str,
    version: Version,
    pretty: bool,
}

impl Form {
    fn write(&self, object: &impl Serialize) -> String {
        let json = if self.pretty { serde_json::to_vec_pretty(object) } else { serde_json::to_vec(object) };
        // Texts, numbers and maps of texts can be written.
        written(self.media_type, &json.unwrap_or_default())
    }
}

fn written(media_type: &str, json: &[u8]) -> String {
    if media_type == YAML
        && let Ok(mut node) = decode_any(json)
    {
        sort(&mut node);
        return yaml::emit(&node);
    }
    String::from_utf8_lossy(json).into_owned() + "\n"
}

/// Puts keys in the order that YAML has.
fn sort(node: &mut Node) {
    if let Node::Map(map) = node {
        map.sort();
        map.iter_mut().for_each(|(_, value)| sort(value));
    }
}

fn answer(
    asked: Asked<'_>,
    kind: &str,
    page: &str,
    text: impl Fn() -> String,
    object: impl Fn(&Form) -> String,
) -> Answer {
    let as_text =
        || Answer { code: 200, content_type: "text/plain; charset=utf-8", warning: None, body: text() };
    if asked.accept.trim().is_empty() {
        return as_text();
    }
    let people = is_for_people(asked.pretty, asked.user_agent);
    for clause in clauses(asked.accept) {
        let of =
            |name: &str| clause.params.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value);
        // A version of the server's group or a stream are not to be had.
        if ["sv", "stream"].iter().any(|name| of(name).is_some_and(|value| !value.is_empty())) {
            continue;
        }
        let wanted = ["as", "g", "v"].map(of);
        let version = match wanted {
            [Some(as_kind), Some("config.k8s.io"), Some("v1alpha1")] if as_kind == kind => {
                Some(Version::V1alpha1)
            }
            [Some(as_kind), Some("config.k8s.io"), Some("v1beta1")] if as_kind == kind => {
                Some(Version::V1beta1)
            }
            _ => None,
        };
        for media_type in FORMS.into_iter().filter(|media_type| clause.takes(media_type)) {
            if media_type == TEXT && wanted == [None; 3] {
                return as_text();
            }
            if let (true, Some(version)) = (media_type != TEXT, version) {
                let form = Form { media_type, version, pretty: people || of("pretty") == Some("1") };
                let old = version == Version::V1alpha1;
                return Answer {
                    code: 200,
                    content_type: media_type,
                    warning: old.then(|| {
                        format!(
                            "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
                        )
                    }),
                    body: object(&form),
                };
            }
        }
    }
    refused(asked, people)
}

/// The answer to a client that takes none of the forms.
fn refused(asked: Asked<'_>, people: bool) -> Answer {
    let message = format!("only the following media types are accepted: {}", FORMS.join(", "));
    let status = Status::failure(406, "NotAcceptable", message);
    let as_it_is = |key: &str| !["as", "g", "v", "sv"].contains(&key);
    let taken = clauses(asked.accept).into_iter().find_map(|clause| {
        let fits = clause.params.iter().all(|(key, _)| as_it_is(key));
        [JSON, YAML].into_iter().find(|media_type| fits && clause.takes(media_type))
    });
    let media_type = taken.unwrap_or(JSON);
    let json = if people { status.to_pretty_json() } else { status.to_json() };
    Answer { code: 406, content_type: media_type, warning: None, body: written(media_type, &json) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Running<'static> {
        Running {
            component: "test-server",
            version: "1.31",
            api_version: "1.30",
            started: "2026-01-02T03:04:05Z".parse().unwrap(),
            now: "2026-01-02T04:05:07.5Z".parse().unwrap(),
            paths: &[
                "/livez/poststarthook/peer",
                "/livez/post",
                "/readyz/ping",
                "/apis",
                "/",
                "/openid/v1/jwks",
            ],
        }
    }

    const TEXT_PAGE: &str = "\ntest-server statusz\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n\nStarted: Fri Jan  2 03:04:05 UTC 2026\nUp: 1 hr 01 min 02 sec\nBinary version: 1.31\nEmulation version: 1.30\nPaths: /livez /readyz\n";
    const REFUSED: &str = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"only the following media types are accepted: application/json, application/yaml, text/plain\",\"reason\":\"NotAcceptable\",\"code\":406}\n";

    /// Upstream's cases of `statusz_test.go` and `flagz_test.go`, but for those of CBOR, which is off by default.
    #[test]
    fn forms_of_the_status() {
        let check = |accept: &str, code: u16, content_type: &str, body: &str| {
            let answer = statusz(Asked { accept, ..Asked::default() }, &running());
            assert_eq!(
                (answer.code, answer.content_type, &*answer.body),
                (code, content_type, body),
                "{accept}"
            );
            let old = accept.contains("v1alpha1") && code == 200;
            let warning =
                "299 - \"This version of the statusz endpoint is deprecated. Please use a newer version.\"";
            assert_eq!(answer.warning.as_deref(), old.then_some(warning), "{accept}");
        };
        let object = |version: &str| {
            format!(
                "{{\"kind\":\"Statusz\",\"apiVersion\":\"config.k8s.io/{version}\",\"metadata\":{{\"name\":\"test-server\"}},\"startTime\":\"2026-01-02T03:04:05Z\",\"uptimeSeconds\":3662,\"goVersion\":\"\",\"binaryVersion\":\"1.31\",\"emulationVersion\":\"1.30\",\"paths\":[\"/livez\",\"/readyz\"]}}\n"
            )
        };
        let text = "text/plain; charset=utf-8";
        check("", 200, text, TEXT_PAGE);
        check("text/plain", 200, text, TEXT_PAGE);
        check("*/*", 200, text, TEXT_PAGE);
        check("application/json;v=foo;g=config.k8s.io;as=Statusz,*/*", 200, text, TEXT_PAGE);
        check("application/json;v=v1beta1;g=config.k8s.io;as=Statusz", 200, JSON, &object("v1beta1"));
        check("application/json;v=v1alpha1;g=config.k8s.io;as=Statusz", 200, JSON, &object("v1alpha1"));
        check("*/*;v=v1beta1;g=config.k8s.io;as=Statusz", 200, JSON, &object("v1beta1"));
        check(
            "text/plain;q=0.5, application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
            200,
            JSON,
            &object("v1beta1"),
        );
        let yaml = "apiVersion: config.k8s.io/v1beta1\nbinaryVersion: \"1.31\"\nemulationVersion: \"1.30\"\ngoVersion: \"\"\nkind: Statusz\nmetadata:\n  name: test-server\npaths:\n- /livez\n- /readyz\nstartTime: \"2026-01-02T03:04:05Z\"\nuptimeSeconds: 3662\n";
        check("application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz", 200, YAML, yaml);
        check("application/xml", 406, JSON, REFUSED);
        check("application/json", 406, JSON, REFUSED);
        check("application/json;v=v1beta1;g=config.k8s.io", 406, JSON, REFUSED);
        check("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", 406, JSON, REFUSED);
        check("application/json;v=v1beta1;g=other.k8s.io;as=Statusz", 406, JSON, REFUSED);
        check("text/plain;v=v1beta1;g=config.k8s.io;as=Statusz", 406, JSON, REFUSED);
        let refused = "apiVersion: v1\ncode: 406\nkind: Status\nmessage: 'only the following media types are accepted: application/json, application/yaml,\n  text/plain'\nmetadata: {}\nreason: NotAcceptable\nstatus: Failure\n";
        check("application/yaml", 406, YAML, refused);
    }

    #[test]
    fn forms_of_the_flags() {
        let flags = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())]);
        let check = |asked: Asked<'_>, code: u16, body: &str| {
            let answer = flagz(asked, "kubelet", &flags);
            assert_eq!((answer.code, &*answer.body), (code, body), "{asked:?}");
        };
        let asked = |accept| Asked { accept, ..Asked::default() };
        let page = "\nkubelet flagz\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\na=1\nb=\n";
        check(asked(""), 200, page);
        check(asked("text/*"), 200, page);
        let accept = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz";
        check(
            asked(accept),
            200,
            "{\"kind\":\"Flagz\",\"apiVersion\":\"config.k8s.io/v1beta1\",\"metadata\":{\"name\":\"kubelet\"},\"flags\":{\"a\":\"1\",\"b\":\"\"}}\n",
        );
        let pretty = "{\n  \"kind\": \"Flagz\",\n  \"apiVersion\": \"config.k8s.io/v1beta1\",\n  \"metadata\": {\n    \"name\": \"kubelet\"\n  },\n  \"flags\": {\n    \"a\": \"1\",\n    \"b\": \"\"\n  }\n}\n";
        check(Asked { user_agent: "curl/8", ..asked(accept) }, 200, pretty);
        check(Asked { pretty: Some("true"), ..asked(accept) }, 200, pretty);
        check(asked("application/json"), 406, REFUSED);
    }
}
